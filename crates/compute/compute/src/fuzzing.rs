//! Entry points of the fuzz targets: they run a party on the bytes of the other.

use std::io::{Cursor, Read, sink};

use circuit::{CircuitBuilder, CircuitSchedule};

use crate::wire::{ComputeBegin, ComputeFrameKind, ComputeHello, HEADER_LEN, parse_header};
use crate::{
    ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSession, ComputeSettings, Error,
    GarblingScheme, OutputLearners,
};

/// Passes arbitrary bytes to every parser. Parsed values must encode to the same bytes.
///
/// # Panics
/// If they do not.
pub fn parsers(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<HEADER_LEN>()
        && let Ok((kind, length)) = parse_header(*header)
    {
        assert!(length <= kind.max_len());
        assert_eq!(header[0], kind as u8);
    }
    for role in [ComputeRole::Garbler, ComputeRole::Evaluator] {
        let hello = ComputeHello::new(role, &ComputeSettings::default());
        if hello.check(bytes).is_ok() {
            assert_eq!(bytes.len(), ComputeHello::LEN);
        }
    }
    if let Ok(begin) = ComputeBegin::parse(bytes) {
        let learns = OutputLearners::parse(bytes[41]).expect("it was parsed");
        assert_eq!(begin.learns, learns);
        begin.check(bytes).expect("it is equal to itself");
    }
}

/// Runs a party whose peer sends a hello and then these frames, each with a kind and a content. The
/// run must end, with a result or an error of one line.
///
/// # Panics
/// If it does not.
pub fn peer(
    role: ComputeRole,
    protocol: ComputeProtocol,
    security: ComputeSecurity,
    scheme: GarblingScheme,
    frames: &[(u8, Vec<u8>)],
) {
    let mut builder = CircuitBuilder::new(&[3, 2]);
    let all = [builder.input(0), builder.input(1)].concat();
    let sum = builder.count_ones(&all);
    let schedule = CircuitSchedule::new(&builder.finish(&[&sum]));
    let settings = ComputeSettings { protocol, scheme, security, ..ComputeSettings::default() };
    let hello = ComputeHello::new(role.other(), &settings);
    let mut sent = frame(ComputeFrameKind::Hello as u8, &hello.to_bytes());
    for (kind, content) in frames {
        sent.extend(frame(*kind, content));
    }
    let session = ComputeSession::over(Cursor::new(sent), sink(), role, settings);
    let mut session = session.expect("the system gives threads and random bytes");
    // Frames of the right lengths are a valid run, with any output.
    match session.run(&schedule, &[1]) {
        Ok(_) => session.finish().expect("everything is taken"),
        Err(error) => {
            assert!(!matches!(error, Error::Failed), "it has no cause");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

/// Runs a party on arbitrary bytes of the other.
///
/// # Panics
/// If it does not end with an error.
pub fn bytes(role: ComputeRole, bytes: &[u8]) {
    let schedule = CircuitSchedule::new(&circuit::generate::minimum(1, 1, 2));
    let reader = Cursor::new(bytes.to_vec()).take(1 << 20);
    let session = ComputeSession::over(reader, sink(), role, ComputeSettings::default());
    let mut session = session.expect("the system gives threads and random bytes");
    session.run(&schedule, &[1]).expect_err("nobody can answer");
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("frames are short").to_be_bytes();
    [&[kind], &length[..], content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_without_answers_ends_the_run() {
        for role in [ComputeRole::Garbler, ComputeRole::Evaluator] {
            for security in ComputeSecurity::ALL {
                for scheme in GarblingScheme::ALL {
                    let frames = [(3, vec![0; 88]), (2, vec![0; 32])];
                    peer(role, ComputeProtocol::Yao, security, scheme, &[]);
                    peer(role, ComputeProtocol::Yao, security, scheme, &frames);
                }
            }
            let (gmw, security) = (ComputeProtocol::Gmw, ComputeSecurity::SemiHonest);
            let frames = [(12, vec![0; 16]), (14, vec![0; 2])];
            peer(role, gmw, security, GarblingScheme::HalfGates, &[]);
            peer(role, gmw, security, GarblingScheme::HalfGates, &frames);
            bytes(role, b"");
            bytes(role, &[1; 40]);
        }
        parsers(&[1; 88]);
        parsers(&[0; 5]);
    }
}

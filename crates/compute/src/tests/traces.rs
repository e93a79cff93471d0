//! What is on the wire.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;

use blocks::Block;
use circuit::{Schedule, generate};
use sha2::{Digest, Sha256};

use super::{BLOCK, KEY};
use crate::random::Random;
use crate::wire::{HEADER_LEN, Kind, parse_header};
use crate::{Role, Scheme, Session, Settings};

/// What the parties send with the seeds of [`recorded`], for each scheme: a change of these lines
/// is a change on the wire. The first 8 bytes of SHA-256 over the frames of each kind, in the order
/// of kinds, of the garbler and of the evaluator.
const TRACES: &str = include_str!("traces.baseline");

/// Writes to a socket, and keeps a copy.
struct Recording {
    socket: UnixStream,
    copy: Arc<Mutex<Vec<u8>>>,
}

impl Write for Recording {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.socket.write(bytes)?;
        self.copy.lock().unwrap().extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What both parties have sent in a run of AES-128, and the garbler's offset.
struct Recorded {
    sent: [Vec<u8>; 2],
    offset: Block,
}

fn recorded(scheme: Scheme, seeds: Option<[u128; 2]>) -> Recorded {
    let schedule = Schedule::new(&generate::aes128());
    let settings = Settings { scheme, ..Settings::default() };
    let (here, there) = UnixStream::pair().unwrap();
    let copies = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
    let party = |socket: UnixStream, role: Role, input: &[u8]| {
        let at = role as usize - 1;
        let random = match seeds {
            Some(seeds) => Random::of(Block::from(seeds[at])),
            None => Random::system().unwrap(),
        };
        let reader = socket.try_clone().unwrap();
        let writer = Recording { socket, copy: copies[at].clone() };
        let mut session = Session::new(reader, writer, None, role, settings, random).unwrap();
        session.run(&mut schedule.source(), input).unwrap();
        let offset = session.offset();
        session.finish().unwrap();
        offset
    };
    let offset = thread::scope(|scope| {
        scope.spawn(|| party(there, Role::Evaluator, &BLOCK));
        party(here, Role::Garbler, &KEY)
    });
    Recorded { sent: copies.map(|copy| std::mem::take(&mut *copy.lock().unwrap())), offset }
}

/// The contents of all frames of a kind.
fn frames(mut sent: &[u8], wanted: Kind) -> Vec<u8> {
    let mut contents = Vec::new();
    while let Some((header, rest)) = sent.split_first_chunk::<HEADER_LEN>() {
        let (kind, length) = parse_header(*header).unwrap();
        if kind == wanted {
            contents.extend_from_slice(&rest[..length]);
        }
        sent = &rest[length..];
    }
    contents
}

#[test]
fn what_is_on_the_wire_has_not_changed() {
    let line = |scheme: Scheme| {
        let Recorded { sent, .. } = recorded(scheme, Some([1, 2]));
        let digest = |sent: &[u8]| {
            let mut digest = Sha256::new();
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Alive) {
                digest.update([kind as u8]);
                digest.update(frames(sent, kind));
            }
            let digest: [u8; 8] = digest.finalize()[..8].try_into().unwrap();
            u64::from_be_bytes(digest)
        };
        format!("{scheme} {:016x} {:016x}\n", digest(&sent[0]), digest(&sent[1]))
    };
    assert_eq!(
        Scheme::ALL.map(line).concat(),
        TRACES,
        "if the change is wanted, change traces.baseline and the version"
    );
}

#[test]
fn the_offset_is_never_on_the_wire_and_no_two_transcripts_are_equal() {
    for scheme in Scheme::ALL {
        let first = recorded(scheme, None);
        let second = recorded(scheme, None);
        let offset = first.offset.to_bytes();
        for sent in &first.sent {
            assert!(!sent.windows(16).any(|window| window == offset), "{scheme}");
        }
        let secret = [Kind::Base, Kind::Labels, Kind::Extend, Kind::Answer, Kind::Tables];
        for kind in secret {
            for (one, two) in first.sent.iter().zip(&second.sent) {
                let (one, two) = (frames(one, kind), frames(two, kind));
                assert!(one.is_empty() || one != two, "{scheme} {kind:?}");
            }
        }
    }
}

#[test]
fn the_set_up_does_not_wait_behind_tables() {
    for scheme in Scheme::ALL {
        let Recorded { sent: [garbler, _], .. } = recorded(scheme, None);
        let mut rest = &garbler[..];
        let mut kinds = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_LEN>() {
            let (kind, length) = parse_header(*header).unwrap();
            kinds.push(kind);
            rest = &after[length..];
        }
        let first = |wanted| kinds.iter().position(|kind| *kind == wanted).unwrap();
        assert!(first(Kind::Base) < first(Kind::Tables), "{scheme}: {kinds:?}");
    }
}

#[test]
fn tables_and_transfers_are_uniform() {
    for scheme in Scheme::ALL {
        let Recorded { sent, .. } = recorded(scheme, None);
        let tables = frames(&sent[0], Kind::Tables);
        assert!(tables.len() >= 150_000, "{scheme}");
        let mut counts = [0_u32; 256];
        for byte in &tables {
            counts[usize::from(*byte)] += 1;
        }
        let expected = f64::from(u32::try_from(tables.len()).unwrap()) / 256.0;
        let deviation = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
        let chi_squared: f64 = counts.iter().map(deviation).sum();
        // The quantiles at 5e-8 and 1 - 5e-8 with 255 degrees of freedom.
        assert!((152.3..394.1).contains(&chi_squared), "{scheme}: {chi_squared}");
    }
}

//! Tests of the bytes on the wire.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;

use blocks::Block;
use circuit::{CircuitSchedule, generate};
use sha2::{Digest, Sha256};
use sim::statistics::{ChiSquared, byte_counts};

use super::{BLOCK, KEY};
use crate::predict::ShutdownOnDropWriter;
use crate::random::PartyRng;
use crate::wire::{ComputeBegin, ComputeFrameKind, HEADER_LEN, parse_header};
use crate::{
    ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSession, ComputeSettings, GarblingScheme,
};

/// What the parties send with the seeds of [`recorded`], for each scheme, GMW, and each level of
/// security: a change of these lines is a change on the wire. The first 8 bytes of SHA-256 over the
/// frames of each kind, in the order of kinds, of the garbler and of the evaluator.
const TRACES: &str = include_str!("traces.baseline");

/// Writes to a socket, and keeps a copy.
struct Recording {
    socket: ShutdownOnDropWriter,
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

/// What both parties have sent, and the garbler's offset.
pub(super) struct Recorded {
    pub(super) sent: [Vec<u8>; 2],
    pub(super) offset: Block,
}

/// Runs of AES-128 on one set-up.
fn recorded(scheme: GarblingScheme, seeds: Option<[u128; 2]>, instances: u32) -> Recorded {
    let settings = ComputeSettings { scheme, ..ComputeSettings::default() };
    recorded_of(
        &CircuitSchedule::new(&generate::aes128()),
        settings,
        [&KEY, &BLOCK],
        seeds,
        instances,
    )
}

/// Runs of a circuit on one set-up.
pub(super) fn recorded_of(
    schedule: &CircuitSchedule,
    settings: ComputeSettings,
    inputs: [&[u8]; 2],
    seeds: Option<[u128; 2]>,
    instances: u32,
) -> Recorded {
    let (here, there) = UnixStream::pair().unwrap();
    let copies = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
    let party = |socket: UnixStream, role: ComputeRole| {
        let at = role as usize - 1;
        let random = match seeds {
            Some(seeds) => PartyRng::of(Block::from(seeds[at])),
            None => PartyRng::system().unwrap(),
        };
        let reader = socket.try_clone().unwrap();
        let writer = Recording { socket: ShutdownOnDropWriter(socket), copy: copies[at].clone() };
        let mut session =
            ComputeSession::new(reader, writer, None, role, settings, random).unwrap();
        for _ in 0..instances {
            session.run(schedule, inputs[at]).unwrap();
        }
        let offset = session.offset();
        session.finish().unwrap();
        offset
    };
    let offset = thread::scope(|scope| {
        scope.spawn(|| party(there, ComputeRole::Evaluator));
        party(here, ComputeRole::Garbler)
    });
    Recorded { sent: copies.map(|copy| std::mem::take(&mut *copy.lock().unwrap())), offset }
}

/// The contents of all frames of a kind.
pub(super) fn frames(mut sent: &[u8], wanted: ComputeFrameKind) -> Vec<u8> {
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
fn the_wire_trace_is_unchanged() {
    let schedule = CircuitSchedule::new(&generate::aes128());
    let line = |(name, settings): (&str, ComputeSettings)| {
        let seeds = Some([1, 2]);
        let Recorded { sent, .. } = recorded_of(&schedule, settings, [&KEY, &BLOCK], seeds, 1);
        let digest = |sent: &[u8]| {
            let mut digest = Sha256::new();
            let kinds =
                ComputeFrameKind::ALL.into_iter().filter(|kind| kind.is_of(settings.protocol));
            let only_dual = [ComputeFrameKind::Hashes, ComputeFrameKind::Proof];
            let kinds =
                kinds.filter(|kind| settings.security().is_dual() || !only_dual.contains(kind));
            for kind in kinds.filter(|kind| *kind != ComputeFrameKind::Alive) {
                digest.update([kind as u8]);
                digest.update(frames(sent, kind));
            }
            let digest: [u8; 8] = digest.finalize()[..8].try_into().unwrap();
            u64::from_be_bytes(digest)
        };
        format!("{name} {:016x} {:016x}\n", digest(&sent[0]), digest(&sent[1]))
    };
    let default = ComputeSettings::default();
    let trusting = ComputeSettings { security: ComputeSecurity::SemiHonest, ..default };
    let yao =
        GarblingScheme::ALL.map(|scheme| (scheme.name(), ComputeSettings { scheme, ..trusting }));
    let gmw = ComputeSettings { protocol: ComputeProtocol::Gmw, ..default };
    let levels = [ComputeSecurity::Evaluator, ComputeSecurity::Malicious]
        .map(|security| (security.name(), ComputeSettings { security, ..default }));
    let all = yao.into_iter().chain([("gmw", gmw)]).chain(levels);
    assert_eq!(
        all.map(line).collect::<String>(),
        TRACES,
        "if the change is wanted, change traces.baseline and the version"
    );
}

/// The frames that depend on labels or offsets. They consist of blocks of 128 bits, except for the
/// last bytes.
const SECRET: [ComputeFrameKind; 5] = [
    ComputeFrameKind::Labels,
    ComputeFrameKind::Extend,
    ComputeFrameKind::Answer,
    ComputeFrameKind::Tables,
    ComputeFrameKind::Decoding,
];

/// The blocks of all frames of [`SECRET`].
fn blocks(Recorded { sent, .. }: &Recorded) -> Vec<u128> {
    let of = |sent: &[u8], kind| -> Vec<u128> {
        let content = frames(sent, kind);
        content.as_chunks().0.iter().map(|block| u128::from_le_bytes(*block)).collect()
    };
    SECRET.iter().flat_map(|kind| sent.iter().flat_map(|sent| of(sent, *kind))).collect()
}

#[test]
fn no_block_is_sent_twice_on_one_set_up_or_on_two() {
    for scheme in GarblingScheme::ALL {
        let [first, second] = [(); 2].map(|()| recorded(scheme, None, 3));
        assert_ne!(u128::from(first.offset), u128::from(second.offset), "{scheme}");
        let mut seen = HashSet::new();
        for block in blocks(&first).into_iter().chain(blocks(&second)) {
            assert!(seen.insert(block), "{scheme}: {block:032x} is sent twice");
        }
        let begins =
            [&first, &second].map(|it| frames(&it.sent[0], ComputeFrameKind::Begin)).concat();
        for begin in begins.chunks(ComputeBegin::LEN) {
            let public = u128::from_le_bytes(begin[64..80].try_into().unwrap());
            assert!(seen.insert(public), "{scheme}: the public value {public:032x} is sent twice");
        }
        for (one, two) in first.sent.iter().zip(&second.sent) {
            assert_ne!(
                frames(one, ComputeFrameKind::Base),
                frames(two, ComputeFrameKind::Base),
                "{scheme}"
            );
        }
        // The outputs are equal, the digests of their labels are not.
        let results = [&first, &second].map(|it| frames(&it.sent[1], ComputeFrameKind::Result));
        let digests: HashSet<&[u8]> =
            results.iter().flat_map(|all| all.chunks(32)).map(|result| &result[16..]).collect();
        assert_eq!(digests.len(), 6, "{scheme}");
    }
}

#[test]
fn the_offset_is_never_on_the_wire_nor_the_difference_of_two_blocks() {
    for scheme in GarblingScheme::ALL {
        let recorded = recorded(scheme, None, 2);
        let offset = recorded.offset.to_bytes();
        for sent in &recorded.sent {
            assert!(!sent.windows(16).any(|window| window == offset), "{scheme}");
        }
        let offset = u128::from(recorded.offset);
        let blocks: HashSet<u128> = blocks(&recorded).into_iter().collect();
        assert!(!blocks.iter().any(|block| blocks.contains(&(block ^ offset))), "{scheme}");
    }
}

#[test]
fn the_set_up_does_not_wait_behind_tables() {
    for scheme in GarblingScheme::ALL {
        let Recorded { sent: [garbler, _], .. } = recorded(scheme, None, 1);
        let mut rest = &garbler[..];
        let mut kinds = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_LEN>() {
            let (kind, length) = parse_header(*header).unwrap();
            kinds.push(kind);
            rest = &after[length..];
        }
        let first = |wanted| kinds.iter().position(|kind| *kind == wanted).unwrap();
        assert!(
            first(ComputeFrameKind::Base) < first(ComputeFrameKind::Tables),
            "{scheme}: {kinds:?}"
        );
    }
}

#[test]
fn tables_and_transfers_are_uniform() {
    for scheme in GarblingScheme::ALL {
        let Recorded { sent: [garbler, evaluator], .. } = recorded(scheme, None, 20);
        for (kind, sent) in [
            (ComputeFrameKind::Tables, &garbler),
            (ComputeFrameKind::Answer, &garbler),
            (ComputeFrameKind::Extend, &evaluator),
        ] {
            let mut content = frames(sent, kind);
            assert!(content.len() >= 40_000, "{scheme} {kind:?}");
            // In more one would see the zeros with which the bits of a batch are filled up.
            content.truncate(200_000);
            check_uniform(&format!("{scheme} {kind:?}"), &content);
            // Labels of one colour, for example, would show in one place only.
            for place in 0..16 {
                let bytes: Vec<u8> = content.iter().skip(place).step_by(16).copied().collect();
                check_uniform(&format!("{scheme} {kind:?}, byte {place}"), &bytes);
            }
        }
    }
}

/// By chance this fails about once in 10^11 cases, and more often where fewer than ten are expected
/// of a value.
pub(super) fn check_uniform(what: &str, bytes: &[u8]) {
    let uniform = ChiSquared::of_uniform(&byte_counts(bytes.iter().copied()));
    assert!(uniform.passes(1e-11), "{what}: {uniform:?}");
}

//! What a server of a group gets from others: headers, entries of the log, messages of a refresh
//! and starts have one encoding each; a server that waits to be invited takes none of them, and a
//! member signs nothing for them and saves nothing but entries of the log.
#![no_main]

mod changes;

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arbitrary::Arbitrary;
use changes::Changes;
use keys::{IdentitySecretKey, RsaPublicKey};
use libfuzzer_sys::fuzz_target;
use quorum::QuorumShareFile;
use quorum::fuzzing::share_files;
use quorum::group::{GroupHeader, GroupKeyAnchor};
use quorum::links::LinkTopic;
use quorum::log::{CommittedEntries, Height};
use quorum::policy::MessageDigest;
use quorum::refresh::{LogEntry, RefreshDelays, RefreshMessage};
use quorum::server::{
    GroupStart, QuorumServer, QuorumServerEvent, QuorumServerOutput, QuorumServerSettings,
    SavedServerState, SavedStateChange, SigningTimeouts,
};
use random::RandomGenerator;

static FILES: LazyLock<Vec<QuorumShareFile>> = LazyLock::new(share_files);

/// Messages, and entries of the log.
static EXAMPLES: LazyLock<[Vec<Vec<u8>>; 2]> = LazyLock::new(|| {
    let start = first_start(&FILES[0]).to_bytes();
    let digest = [8; 32];
    let refresh = |kind: u8, rest: &[u8]| [&[1, kind], rest].concat();
    let shares = [&1_u64.to_be_bytes()[..], &[0; 4], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 5]].concat();
    let request = [&1_u64.to_be_bytes()[..], &[0, 3, 1], b"message"].concat();
    let signing = |kind: u8, rest: &[u8]| [&[kind][..], &7_u64.to_be_bytes(), rest].concat();
    let messages = vec![
        [&[2], &start[..]].concat(),
        refresh(2, &[8; 96]),
        refresh(3, &digest),
        refresh(4, &digest),
        refresh(6, &[0, 0, 0, 0, 0, 0, 0, 1, 1]),
        refresh(7, &shares),
        refresh(8, &digest),
        refresh(9, &[&digest[..], &shares[12..]].concat()),
        signing(1, &request),
        signing(2, &[&[0; 7][..], &[1, 0, 0, 3], &[8; 32], &[9; 64], &[7; 64]].concat()),
        signing(3, &[]),
    ];
    let mut entries = Vec::new();
    for number in 1..=2 {
        let mut server = member(number);
        let group = FILES[0].header.group.clone();
        server.start_refresh(group, Duration::ZERO).expect("a member");
        while let Some(output) = poll(&mut server) {
            if let QuorumServerOutput::Submit(entry) = output {
                entries.push(entry.to_vec());
            }
        }
    }
    [messages, entries]
});

#[derive(Arbitrary, Debug)]
enum Happens {
    /// From a server of the group, or a stranger.
    Message(u8, u8, Changes),
    Bytes(u8, u8, Vec<u8>),
    Up(u8),
    Committed(Changes),
    Wait(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    happens: Vec<Happens>,
}

fn server(number: u8, public: RsaPublicKey, saved: SavedServerState) -> QuorumServer {
    let second = Duration::from_secs(1);
    let settings = QuorumServerSettings {
        processors: 2,
        identity: Arc::new(identity(number)),
        anchor: GroupKeyAnchor::of(public.into()),
        rules: Vec::new(),
        delays: RefreshDelays { need: second, grace: second, resend: second },
        timeouts: SigningTimeouts { sign: second, retry: second },
        refresh_every: None,
        approval_expires: Duration::from_secs(86_400),
        service: None,
    };
    QuorumServer::new(settings, saved, HashSet::new(), Duration::ZERO).expect("what it saved")
}

/// Server 1 to 4 of a group.
fn member(number: u8) -> QuorumServer {
    let file = &FILES[usize::from(number) - 1];
    let mut saved = SavedServerState::default();
    saved.apply(SavedStateChange::Start(first_start(file)));
    saved.apply(SavedStateChange::Shares { epoch: 1, shares: file.shares.clone() });
    server(number, file.public().clone(), saved)
}

fn first_start(file: &QuorumShareFile) -> GroupStart {
    GroupStart::first(file.header.clone(), file.witnesses.clone())
}

fn identity(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

fn poll(server: &mut QuorumServer) -> Option<QuorumServerOutput> {
    server.poll_output(Duration::ZERO, &mut RandomGenerator::system()).expect("random bytes")
}

fn round_trip(bytes: &[u8]) {
    if let Ok(header) = GroupHeader::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes);
    }
    if let Ok(entry) = LogEntry::parse(bytes) {
        assert_eq!(entry.to_bytes(), bytes);
    }
    if let Ok(message) = RefreshMessage::parse(bytes) {
        assert_eq!(&message.to_bytes()[..], bytes);
    }
    if let Ok(start) = GroupStart::parse(bytes) {
        assert_eq!(start.to_bytes(), bytes);
    }
}

fn waits(bytes: &[u8]) {
    // N = 2^1024 - 1: nobody has its private key.
    let public = RsaPublicKey::danger_of_any_size(&[0xff; 128]).expect("a key");
    let mut server = server(1, public, SavedServerState::default());
    for topic in LinkTopic::ALL {
        server.handle_message(Duration::ZERO, &identity(2).public(), topic, bytes, 0);
    }
    assert_eq!(server.status().epoch, None);
}

fuzz_target!(|input: Input| {
    round_trip(&input.any);
    waits(&input.any);
    let [messages, entries] = &*EXAMPLES;
    let mut server = member(1);
    let mut generator = RandomGenerator::system();
    let (mut now, mut height) = (Duration::ZERO, 0);
    for happens in input.happens.iter().take(32) {
        let mut receive = |from: &u8, topic: &u8, bytes: &[u8]| {
            round_trip(bytes);
            round_trip(bytes.get(1..).unwrap_or_default());
            let topic = LinkTopic::ALL[usize::from(*topic) % 3];
            server.handle_message(now, &identity(2 + from % 5).public(), topic, bytes, 0);
        };
        match happens {
            Happens::Message(from, topic, changes) => {
                receive(from, topic, &changes.of_one(messages));
            }
            Happens::Bytes(from, topic, bytes) => receive(from, topic, bytes),
            Happens::Up(from) => {
                server.handle_link_up(now, &identity(2 + from % 5).public());
            }
            Happens::Committed(changes) => {
                height += 1;
                let entry = changes.of_one(entries);
                round_trip(&entry);
                let committed =
                    CommittedEntries { height: Height(height), entries: vec![entry.into()] };
                server.handle_committed(now, &committed, &mut generator).expect("random bytes");
            }
            Happens::Wait(milliseconds) => now += Duration::from_millis((*milliseconds).into()),
        }
        while let Some(output) = server.poll_output(now, &mut generator).expect("random bytes") {
            match output {
                QuorumServerOutput::Job(job) => {
                    let result = job.run(&mut generator).expect("random bytes");
                    server.handle_job(now, result);
                }
                QuorumServerOutput::Save(_) => assert!(height > 0, "saved without an entry"),
                // Headers only.
                QuorumServerOutput::Event(QuorumServerEvent::Answered { message, .. }) => {
                    assert_eq!(message, MessageDigest::of(&FILES[0].header.to_bytes()));
                }
                QuorumServerOutput::Event(QuorumServerEvent::MessageRefused { why, .. }) => {
                    assert!(!why.contains('\n'))
                }
                _ => {}
            }
        }
    }
    let epoch = server.status().epoch.expect("it is a member");
    assert!(epoch.epoch == 1 && epoch.has_shares);
});

//! Real servers on loopback.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arc_malachitebft_core_types::Round;
use service::listening::listen;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::log::tests::{secret, set, voting};
use crate::net::links::{LinkEvent, LinkLane, LinkTopic, QuorumPeer};
use crate::protocol::consensus::codec::ConsensusMessage;
use crate::protocol::consensus::compact::CompactProposal;
use crate::protocol::consensus::context::{Ed25519Signature, ValidatorAddress, ValueId};

const LIMIT: Duration = Duration::from_secs(90);

/// Which servers agree on a height.
type Sets = fn(Height) -> ServerSet;

fn four(_: Height) -> ServerSet {
    set(0..4)
}

/// A server, with a service that records what it has applied.
struct Server {
    number: u8,
    address: SocketAddr,
    /// Of its file.
    folder: Arc<TempDir>,
    links: Arc<QuorumLinks>,
    monitor: ConsensusMonitor,
    submit: tokio::sync::mpsc::UnboundedSender<Bytes>,
    committed: tokio::sync::mpsc::UnboundedReceiver<CommittedEntries>,
    service: JoinHandle<()>,
    log: Vec<CommittedEntries>,
}

/// Not the address from which connections come: their ports are not in the way of a server that
/// starts again.
const ANY: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 92, 0, 1), 0);

async fn start(
    number: u8,
    address: SocketAddr,
    folder: Arc<TempDir>,
    applied: Height,
    sets: Sets,
) -> Server {
    // After a restart the port may not be free yet.
    let listening = async {
        loop {
            match listen([address], &[]).await {
                Ok(listening) => return listening,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let listening = timeout(LIMIT, listening).await.unwrap();
    let address = listening[0].address().unwrap();
    let (links, [inbox, ..]) = QuorumLinks::start(secret(number), listening);
    let links = Arc::new(links);
    assert_eq!(LinkTopic::ALL[0], LinkTopic::Log);
    let settings = ConsensusSettings {
        identity: secret(number).public(),
        log: Sha256Digest([7; 32]),
        links: Arc::clone(&links),
        inbox,
        store: folder.path().join("log.sqlite"),
        applied,
    };
    let mut consensus = ConsensusLog::start(settings).unwrap();
    let key = voting(number);
    consensus.applied(
        applied,
        &sets(applied.next()),
        EntryCheck::anything(),
        Some(Arc::clone(&key)),
    );
    let monitor = consensus.monitor();
    let (submit, mut submitted) = tokio::sync::mpsc::unbounded_channel();
    let (sender, committed) = tokio::sync::mpsc::unbounded_channel();
    let service = tokio::spawn(async move {
        loop {
            tokio::select! {
                entry = submitted.recv() => match entry {
                    Some(entry) => consensus.submit(entry).unwrap(),
                    None => return,
                },
                committed = consensus.committed() => {
                    let committed: CommittedEntries = committed.unwrap();
                    let next = sets(committed.height.next());
                    consensus.applied(committed.height, &next, EntryCheck::anything(), Some(Arc::clone(&key)));
                    let _ = sender.send(committed);
                }
            }
        }
    });
    let log = Vec::new();
    Server { number, address, folder, links, monitor, submit, committed, service, log }
}

/// Servers with links between all of them.
async fn servers(numbers: impl IntoIterator<Item = u8>, sets: Sets) -> Vec<Server> {
    let mut servers = Vec::new();
    for number in numbers {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        servers.push(start(number, ANY.into(), folder, Height(0), sets).await);
    }
    link(&servers);
    servers
}

fn link(servers: &[Server]) {
    let peers: Vec<_> = servers
        .iter()
        .map(|server| QuorumPeer {
            key: secret(server.number).public(),
            address: server.address.into(),
        })
        .collect();
    for server in servers {
        server.links.set_peers(&peers);
    }
}

impl Server {
    fn submit(&self, entry: impl Into<Bytes>) {
        self.submit.send(entry.into()).unwrap();
    }

    async fn next(&mut self) -> CommittedEntries {
        let next = timeout(LIMIT, self.committed.recv()).await;
        let Ok(Some(next)) = next else { panic!("{:?}", self.monitor.status()) };
        assert_eq!(next.height, self.log.last().map_or(Height(0), |last| last.height).next());
        self.log.push(next.clone());
        next
    }

    /// Waits until this entry is committed.
    async fn until(&mut self, entry: &[u8]) {
        while !self.next().await.entries.iter().any(|it| it == entry) {}
    }

    /// Stops it like a crash, except that its connections are closed.
    async fn stop(self) -> (u8, SocketAddr, Arc<TempDir>, Vec<CommittedEntries>) {
        let Self { number, address, folder, submit, service, log, .. } = self;
        drop(submit);
        timeout(LIMIT, service).await.unwrap().unwrap();
        (number, address, folder, log)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_servers_commit_the_same_entries_in_the_same_order() {
    let mut servers = servers(0..4, four).await;
    for number in 0..40u8 {
        servers[usize::from(number % 4)].submit(vec![number; 10]);
    }
    // One of the largest, too.
    let large = Bytes::from(vec![200; crate::log::MAX_ENTRY_LEN]);
    servers[2].submit(large.clone());
    for server in &mut servers {
        let mut left: HashMap<Bytes, usize> =
            (0..40u8).map(|number| (vec![number; 10].into(), 1)).collect();
        left.insert(large.clone(), 1);
        while !left.is_empty() {
            for entry in server.next().await.entries {
                assert_eq!(left.remove(&entry), Some(1), "twice");
            }
        }
    }
    assert!(servers.iter().all(|server| server.log == servers[0].log));
    let status = servers[0].monitor.status();
    assert_eq!((status.failed, status.votes), (None, true));
}

/// The others continue, and it catches up.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_server_catches_up_with_the_consensus() {
    let mut servers = servers(0..4, four).await;
    servers[0].submit("first");
    for server in &mut servers {
        server.until(b"first").await;
    }
    // The leader of the last height, so that the others must continue without it.
    let leader = servers[0].monitor.status().proposer.unwrap();
    let is_leader = |server: &Server| secret(server.number).public().to_string() == leader;
    let index = servers.iter().position(is_leader).unwrap();
    let (number, address, folder, log) = servers.remove(index).stop().await;
    for entry in ["second", "third"] {
        servers[1].submit(entry);
        for server in &mut servers {
            server.until(entry.as_bytes()).await;
        }
    }
    // It continues where it was, without the heights that its service has applied.
    let applied = log.last().unwrap().height;
    let mut again = start(number, address, folder, applied, four).await;
    again.log = log;
    servers.push(again);
    link(&servers);
    servers[3].until(b"third").await;
    servers[3].submit("fourth");
    for server in &mut servers {
        server.until(b"fourth").await;
    }
    assert!(servers.iter().all(|server| server.log == servers[0].log));
}

/// From height 5 on, the servers 3 to 6 agree. Server 3 is one of the old servers.
fn four_others_from_height_5(height: Height) -> ServerSet {
    if height < Height(5) { set(0..4) } else { set(3..7) }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_servers_follow_and_take_over() {
    let mut servers = servers(0..7, four_others_from_height_5).await;
    let mut number = 0;
    while servers[6].log.len() < 8 {
        let entry = format!("entry {number}");
        servers[number % 7].submit(entry.clone());
        for server in &mut servers {
            server.until(entry.as_bytes()).await;
        }
        number += 1;
    }
    assert!(servers.iter().all(|server| server.log == servers[0].log));
    let votes: Vec<_> = servers.iter().map(|server| server.monitor.status().votes).collect();
    assert_eq!(votes, [false, false, false, true, true, true, true]);
    // The old ones are not needed any more.
    for server in servers.drain(..3) {
        server.stop().await;
    }
    servers[2].submit("without the old");
    for server in &mut servers {
        server.until(b"without the old").await;
    }
}

/// A server that starts late adopts committed values with their certificates. A server that has got
/// its state from elsewhere adopts the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_late_catches_up() {
    let mut servers = servers(0..4, four).await;
    for number in 0..20 {
        let entry = format!("entry {number}");
        servers[0].submit(entry.clone());
        for server in &mut servers {
            server.until(entry.as_bytes()).await;
        }
    }
    for (number, applied) in [(4, Height(0)), (5, Height(15))] {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let mut late = start(number, ANY.into(), folder, applied, four).await;
        late.log = servers[0].log[..usize::try_from(applied.0).unwrap()].to_vec();
        servers.push(late);
    }
    link(&servers);
    for server in &mut servers[4..] {
        server.until(b"entry 19").await;
        assert!(!server.monitor.status().votes);
    }
    servers[5].submit("of a follower");
    for server in &mut servers {
        server.until(b"of a follower").await;
    }
    assert!(servers.iter().all(|server| server.log == servers[0].log));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_for_which_a_proposer_is_asked_are_counted() {
    // In round 0 of the first height, the first server in the order of addresses proposes.
    let proposer = (0..4).min_by_key(|number| secret(*number).public().to_bytes()).unwrap();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let server = start((proposer + 1) % 4, ANY.into(), folder, Height(0), four).await;
    let listening = listen([ANY.into()], &[]).await.unwrap();
    let address = listening[0].address().unwrap();
    let (links, [mut inbox, ..]) = QuorumLinks::start(secret(proposer), listening);
    let own = QuorumPeer { key: secret(proposer).public(), address: address.into() };
    let other = QuorumPeer { key: secret(server.number).public(), address: server.address.into() };
    let peers = [own, other];
    server.links.set_peers(&peers);
    links.set_peers(&peers);

    let (height, round) = (Height(1), Round::new(0));
    let entries = vec![Sha256Digest([1; 32]), Sha256Digest([2; 32])];
    let message = ConsensusMessage::Compact(CompactProposal {
        height,
        round,
        pol_round: Round::Nil,
        proposer: ValidatorAddress::of(&peers[0].key),
        signature: Ed25519Signature([0; 64]),
        value: ValueId(Sha256Digest([3; 32])),
        leader: ValidatorAddress::of(&peers[0].key),
        entries: entries.clone(),
    });
    let question = ConsensusMessage::AskEntries(height, round, entries);
    loop {
        let event = timeout(LIMIT, inbox.next()).await.unwrap().unwrap();
        match event {
            LinkEvent::Up(key) => {
                let bytes = message.to_bytes().into();
                links.send(&key, LinkTopic::Log, LinkLane::Urgent, bytes).unwrap();
            }
            LinkEvent::Message(received) => {
                // It asks for what was committed as well.
                if ConsensusMessage::parse(&received.bytes) == Ok(question.clone()) {
                    break;
                }
            }
            LinkEvent::Down(_) => {}
        }
    }
    let status = server.links.status();
    let asked = status.iter().map(|link| link.asked_entries).collect::<Vec<_>>();
    assert_eq!(asked, [2]);
}

#[tokio::test]
async fn a_damaged_log_is_an_error_and_nothing_is_signed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.sqlite");
    LogStore::open(&path, Height(0)).unwrap().append(&[vec![99]]).unwrap();
    let (links, [inbox, ..]) = QuorumLinks::start(secret(0), Vec::new());
    let mut log = ConsensusLog::start(ConsensusSettings {
        identity: secret(0).public(),
        log: Sha256Digest([7; 32]),
        links: Arc::new(links),
        inbox,
        store: path,
        applied: Height(0),
    })
    .unwrap();
    log.applied(Height(0), &set(0..4), EntryCheck::anything(), Some(voting(0)));
    let failed = timeout(LIMIT, log.committed()).await.unwrap().unwrap_err();
    assert!(failed.to_string().contains("write-ahead log"), "{failed}");
    assert_eq!(log.submit(Bytes::from_static(b"entry")), Err(SubmitError::Failed));
    assert!(log.monitor().status().failed.is_some());
    assert!(log.stop().is_some());
}

//! The latency of the agreement log by both engines: the time from the submission of an entry until
//! it is committed at the same server. Four servers run on loopback, with one entry at a time:
//! first with the server's own engine, then with CometBFT, and so on alternately.
//!
//! `cargo bench -p sunder-quorum --bench log_engines` prints a Markdown table in ms, with a row for
//! each of three runs of each engine. `-- 12` performs twelve. It needs the program that `make
//! setup` builds. Run nothing else on the host.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keys::IdentitySecretKey;
use service::listening::listen;
use sunder_quorum::cometbft::{CometbftHome, CometbftLog, CometbftSettings};
use sunder_quorum::consensus::{ConsensusLog, ConsensusSettings};
use sunder_quorum::links::{QuorumLinks, QuorumPeer, TopicInbox};
use sunder_quorum::log::{AgreementLog, EntryCheck, Height, ServerSet, Voter};
use sunder_quorum::{Sha256Digest, VotingSecret};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zeroize::Zeroizing;

const ENTRIES: usize = 200;

/// The default number of runs of each engine.
const RUNS: usize = 3;

/// The group's key, from which the log has its name.
const KEY: Sha256Digest = Sha256Digest([7; 32]);

/// A server with its links and the place of its files.
struct Place {
    number: u8,
    folder: TempDir,
    links: Arc<QuorumLinks>,
    inbox: TopicInbox,
    address: SocketAddr,
}

/// A server's log as a user sees it.
struct Server {
    submit: UnboundedSender<Bytes>,
    committed: UnboundedReceiver<Bytes>,
    _folder: TempDir,
    _cometbft: Option<Cometbft>,
}

/// A process of CometBFT, which ends when this is dropped.
struct Cometbft(Child);

impl Drop for Cometbft {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number + 1; 32])
}

fn voting(number: u8) -> VotingSecret {
    VotingSecret::from_bytes(Zeroizing::new([number + 101; 32]))
}

fn set() -> ServerSet {
    let voter =
        |number| Voter { identity: secret(number).public(), key: Some(voting(number).public()) };
    ServerSet::new((0..4).map(voter)).expect("four")
}

async fn places() -> Vec<Place> {
    let mut places = Vec::new();
    for number in 0..4 {
        let listening = listen([(Ipv4Addr::LOCALHOST, 0).into()], &[]).await.expect("a port");
        let address = listening[0].address().expect("bound");
        let (links, [inbox, ..]) = QuorumLinks::start(secret(number), listening);
        let (links, folder) = (Arc::new(links), tempfile::tempdir().expect("a folder"));
        places.push(Place { number, folder, links, inbox, address });
    }
    let peer =
        |it: &Place| QuorumPeer { key: secret(it.number).public(), address: it.address.into() };
    let peers: Vec<_> = places.iter().map(peer).collect();
    places.iter().for_each(|place| place.links.set_peers(&peers));
    places
}

fn own_engine(place: Place) -> Server {
    let Place { number, folder, links, inbox, .. } = place;
    let log = ConsensusLog::start(ConsensusSettings {
        identity: secret(number).public(),
        log: KEY,
        links,
        inbox,
        store: folder.path().join("log.sqlite"),
        applied: Height(0),
    });
    serve(log.expect("a log"), number, folder, None)
}

fn cometbft(program: &Path, place: Place) -> Server {
    let Place { number, folder, links, inbox, .. } = place;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let listen = port.local_addr().expect("bound");
    let home = CometbftHome::new(&folder.path().join("cometbft")).expect("a short path");
    home.write(KEY, listen).expect("a directory");
    let log = CometbftLog::start(CometbftSettings {
        identity: secret(number).public(),
        key: KEY,
        first: set(),
        links,
        inbox,
        store: folder.path().join("cometbft.sqlite"),
        home: home.clone(),
        applied: Height(0),
    });
    drop(port);
    let process = Command::new(program)
        .args(["start", "--home"])
        .arg(home.path())
        .stdout(Stdio::null())
        .spawn();
    serve(log.expect("a log"), number, folder, Some(Cometbft(process.expect("it starts"))))
}

fn serve(
    mut log: impl AgreementLog + Send + 'static,
    number: u8,
    folder: TempDir,
    cometbft: Option<Cometbft>,
) -> Server {
    let (set, key) = (set(), Arc::new(voting(number)));
    log.applied(Height(0), &set, EntryCheck::anything(), Some(Arc::clone(&key)));
    let (submit, mut submitted) = unbounded_channel();
    let (sender, committed) = unbounded_channel();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                entry = submitted.recv() => match entry {
                    Some(entry) => log.submit(entry).expect("not full"),
                    None => return,
                },
                committed = log.committed() => {
                    let committed = committed.expect("the log runs");
                    let (height, check) = (committed.height, EntryCheck::anything());
                    log.applied(height, &set, check, Some(Arc::clone(&key)));
                    for entry in committed.entries {
                        let _ = sender.send(entry);
                    }
                }
            }
        }
    });
    Server { submit, committed, _folder: folder, _cometbft: cometbft }
}

/// Commits entries one after another, at each server in turn. Returns the median, the 99th
/// percentile and the longest time, in ms.
async fn commit(servers: &mut [Server], entries: usize) -> [f64; 3] {
    let mut times = Vec::new();
    for number in 0..entries {
        let index = number % servers.len();
        let entry = Bytes::from(format!("entry {number} of {entries}"));
        let begin = Instant::now();
        servers[index].submit.send(entry.clone()).expect("it runs");
        while servers[index].committed.recv().await.expect("the log runs") != entry {}
        times.push(begin.elapsed());
    }
    times.sort();
    [entries / 2, entries * 99 / 100, entries - 1].map(|index| ms(times[index]))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[tokio::main]
async fn main() {
    let program: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/cometbft/cometbft");
    if !program.exists() {
        println!("skipped: CometBFT is not built; `make setup` builds it, or says why it does not");
        return;
    }
    let runs = std::env::args().find_map(|it| it.parse().ok()).unwrap_or(RUNS).max(1);
    println!("| engine | run | p50 | p99 | longest |\n|---|---|---|---|---|");
    for run in 1..=runs {
        for engine in ["own", "CometBFT"] {
            let places = places().await.into_iter();
            let mut servers: Vec<Server> = match engine {
                "own" => places.map(own_engine).collect(),
                _ => places.map(|place| cometbft(&program, place)).collect(),
            };
            // The first ones wait for connections.
            commit(&mut servers, 8).await;
            let [p50, p99, longest] = commit(&mut servers, ENTRIES).await;
            println!("| {engine} | {run} | {p50:.1} | {p99:.1} | {longest:.1} |");
        }
    }
}

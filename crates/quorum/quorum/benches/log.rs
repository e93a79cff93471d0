//! The latency of the agreement log: the time from the submission of an entry until it is committed
//! at the same server. Four servers run on loopback, each with its log on disk, with one entry at a
//! time.
//!
//! `cargo bench -p sunder-quorum --bench log` prints a Markdown table in ms, with a row for each of
//! three runs, and their medians. `-- 12` performs twelve runs. Run nothing else on the host.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keys::IdentitySecretKey;
use service::listening::listen;
use sunder_quorum::consensus::{
    ConsensusLog, ConsensusMonitor, ConsensusSettings, ConsensusStatus,
};
use sunder_quorum::links::{QuorumLinks, QuorumPeer};
use sunder_quorum::log::{AgreementLog, EntryCheck, Height, ServerSet, Voter};
use sunder_quorum::{Sha256Digest, VotingSecret};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

const ENTRIES: usize = 500;

/// The default number of runs.
const RUNS: usize = 3;

struct Server {
    number: u8,
    folder: TempDir,
    address: SocketAddr,
    links: Arc<QuorumLinks>,
    monitor: ConsensusMonitor,
    submit: UnboundedSender<Bytes>,
    committed: UnboundedReceiver<Bytes>,
    service: JoinHandle<Height>,
}

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number + 1; 32])
}

fn voting(number: u8) -> VotingSecret {
    VotingSecret::from_bytes(Zeroizing::new([number + 101; 32]))
}

async fn start(number: u8, folder: TempDir, address: SocketAddr, applied: Height) -> Server {
    // After a restart the port may not be free yet.
    let listening = loop {
        match listen([address], &[]).await {
            Ok(listening) => break listening,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let address = listening[0].address().expect("bound");
    let (links, [inbox, ..]) = QuorumLinks::start(secret(number), listening);
    let links = Arc::new(links);
    let voter =
        |number| Voter { identity: secret(number).public(), key: Some(voting(number).public()) };
    let set = ServerSet::new((0..4).map(voter)).expect("four");
    let key = Arc::new(voting(number));
    let mut log = ConsensusLog::start(ConsensusSettings {
        identity: secret(number).public(),
        log: Sha256Digest([7; 32]),
        links: Arc::clone(&links),
        inbox,
        store: folder.path().join("log.sqlite"),
        applied,
    })
    .expect("a log");
    log.applied(applied, &set, EntryCheck::anything(), Some(Arc::clone(&key)));
    let monitor = log.monitor();
    let (submit, mut submitted) = unbounded_channel();
    let (sender, committed) = unbounded_channel();
    let service = tokio::spawn(async move {
        let mut applied = applied;
        loop {
            tokio::select! {
                entry = submitted.recv() => match entry {
                    Some(entry) => log.submit(entry).expect("not full"),
                    None => return applied,
                },
                committed = log.committed() => {
                    let committed = committed.expect("the log runs");
                    applied = committed.height;
                    log.applied(applied, &set, EntryCheck::anything(), Some(Arc::clone(&key)));
                    for entry in committed.entries {
                        let _ = sender.send(entry);
                    }
                }
            }
        }
    });
    Server { number, folder, address, links, monitor, submit, committed, service }
}

impl Server {
    async fn stop(self) -> (u8, TempDir, SocketAddr, Height) {
        drop(self.submit);
        (self.number, self.folder, self.address, self.service.await.expect("no panic"))
    }

    async fn until(&mut self, entry: &Bytes) {
        while self.committed.recv().await.expect("the log runs") != entry {}
    }
}

fn link(servers: &[Server]) {
    let peer =
        |it: &Server| QuorumPeer { key: secret(it.number).public(), address: it.address.into() };
    let peers: Vec<_> = servers.iter().map(peer).collect();
    for server in servers {
        server.links.set_peers(&peers);
    }
}

/// Commits entries one after another, at each server in turn. Returns the median, the 99th
/// percentile and the longest time, in ms.
async fn commit(servers: &mut [Server], name: &str) -> [f64; 3] {
    let mut times = Vec::new();
    for number in 0..ENTRIES {
        let index = number % servers.len();
        let entry = Bytes::from(format!("{name}, entry {number}"));
        let begin = Instant::now();
        servers[index].submit.send(entry.clone()).expect("it runs");
        servers[index].until(&entry).await;
        times.push(begin.elapsed());
    }
    times.sort();
    [ENTRIES / 2, ENTRIES * 99 / 100, ENTRIES - 1].map(|index| ms(times[index]))
}

/// The measurements of a run, in the order of [`run`]'s results.
const COLUMNS: [&str; 8] = [
    "four servers: p50",
    "p99",
    "three: p50",
    "p99",
    "first after the proposer's end",
    "a start until its vote is counted",
    "until an entry is committed",
    "until 500 missed heights are applied",
];

#[tokio::main]
async fn main() {
    let runs = std::env::args().find_map(|it| it.parse().ok()).unwrap_or(RUNS).max(1);
    println!("| run | {} |", COLUMNS.join(" | "));
    println!("|{}", "---|".repeat(1 + COLUMNS.len()));
    let row = |name: &str, values: &[f64]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:.1}")).collect();
        println!("| {name} | {} |", values.join(" | "));
    };
    let mut columns = vec![Vec::new(); COLUMNS.len()];
    for number in 1..=runs {
        let values = run().await;
        row(&number.to_string(), &values);
        columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }
    let median = |column: &mut Vec<f64>| {
        column.sort_by(f64::total_cmp);
        column[column.len() / 2]
    };
    row("median", &columns.iter_mut().map(median).collect::<Vec<f64>>());
}

async fn run() -> [f64; 8] {
    let mut servers = Vec::new();
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    for number in 0..4 {
        let folder = tempfile::tempdir().expect("a folder");
        servers.push(start(number, folder, any, Height(0)).await);
    }
    link(&servers);
    let [four_p50, four_p99, _] = commit(&mut servers, "four servers").await;

    // The proposer, so that the others must continue in the next round.
    let proposer = servers[0].monitor.status().proposer.expect("it runs");
    let is_proposer = |it: &Server| secret(it.number).public().to_string() == proposer;
    let index = servers.iter().position(is_proposer).expect("one of them");
    let (number, folder, address, applied) = servers.remove(index).stop().await;
    // The first one takes the longest.
    let [three_p50, three_p99, first] = commit(&mut servers, "three servers").await;

    // It catches up by commit certificates.
    let last = Height(servers[0].monitor.status().committed);
    let begin = Instant::now();
    servers.push(start(number, folder, address, applied).await);
    link(&servers);
    wait(&servers[3].monitor, |status| status.applied >= last.0).await;
    let caught_up = ms(begin.elapsed());

    // Only two servers run, which do not suffice, until another one starts again.
    servers.remove(3).stop().await;
    let (number, folder, address, applied) = servers.remove(2).stop().await;
    let entry = Bytes::from_static(b"entry that waits");
    servers[0].submit.send(entry.clone()).expect("it runs");
    let height = applied.0 + 1;
    let begin = Instant::now();
    servers.push(start(number, folder, address, applied).await);
    link(&servers);
    let restarted = secret(number).public().to_string();
    let monitor = servers[0].monitor.clone();
    let has_voted = |it: &ConsensusStatus| it.height > height || it.voted.contains(&restarted);
    wait(&monitor, has_voted).await;
    let voted = ms(begin.elapsed());
    servers[0].until(&entry).await;
    let committed = ms(begin.elapsed());
    for server in servers {
        server.stop().await;
    }
    [four_p50, four_p99, three_p50, three_p99, first, voted, committed, caught_up]
}

/// Waits for a state of the log.
async fn wait(monitor: &ConsensusMonitor, is_reached: impl Fn(&ConsensusStatus) -> bool) {
    while !is_reached(&monitor.status()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

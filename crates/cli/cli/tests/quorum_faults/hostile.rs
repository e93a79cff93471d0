//! One server does with its links whatever they allow. What it costs the others is bounded: their
//! memory, their disks, and how long their users wait.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keys::IdentitySecretKey;
use keys::rsa::RsaEncoding;
use quorum::links::{
    LinkLane, LinkTopic, MAX_MESSAGE_LEN, MAX_URGENT_LEN, QuorumLinks, QuorumPeer, TopicInbox,
};
use quorum::signing::PartialSignQuery;
use rustix::process::nice;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::cluster::{Cluster, ED25519_KEY, POLYNOMIAL_KEY, PORT, usual_key};
use crate::links::address;
use crate::signers::{REGISTERED, RULE};

/// The server that is hostile, and those of its group that are not.
const HOSTILE: usize = 4;
const HONEST: [usize; 3] = [1, 2, 3];

/// What a link may cost a server in memory.
const MAX_MEMORY: u64 = 88 << 20;

/// What the store of a server may grow by: the audit log has a limit of 1 MiB here. The rest is
/// what the database and the agreement log take.
const MAX_DISK: u64 = 2 << 20;

/// The delay of each link.
const DELAY_MS: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Messages without content, on all lanes and topics.
    Empty,
    /// Messages of the largest length.
    Long,
    /// The same request for a signature.
    Repeated,
    /// Requests that a rule allows, each for another message.
    Different,
    /// The same with messages of 1 MiB.
    DifferentLong,
    /// Requests, and it takes no answers.
    Deaf,
    /// Links that are filled and ended.
    Reconnecting,
}

impl Attack {
    const ALL: [Self; 7] = [
        Self::Empty,
        Self::Long,
        Self::Repeated,
        Self::Different,
        Self::DifferentLong,
        Self::Deaf,
        Self::Reconnecting,
    ];

    /// The message with this number, and how it is sent.
    fn message(self, number: u64) -> (LinkTopic, LinkLane, Bytes) {
        match self {
            Self::Empty | Self::Reconnecting if number.is_multiple_of(2) => {
                (LinkTopic::Refresh, LinkLane::Bulk, Bytes::new())
            }
            Self::Empty | Self::Reconnecting => {
                (LinkTopic::ALL[(number / 2 % 3) as usize], LinkLane::Urgent, Bytes::new())
            }
            Self::Long if number.is_multiple_of(2) => {
                (LinkTopic::Refresh, LinkLane::Bulk, zeros(MAX_MESSAGE_LEN))
            }
            Self::Long => {
                (LinkTopic::ALL[(number / 2 % 3) as usize], LinkLane::Urgent, zeros(MAX_URGENT_LEN))
            }
            Self::Repeated => request(number, REGISTERED.into()),
            Self::Different | Self::Deaf => request(number, format!("{RULE}{number}")),
            Self::DifferentLong => {
                request(number, format!("{RULE}{number}{}", "-".repeat((1 << 20) - 100)))
            }
        }
    }
}

fn zeros(len: usize) -> Bytes {
    static ZEROS: [u8; MAX_MESSAGE_LEN] = [0; MAX_MESSAGE_LEN];
    Bytes::from_static(&ZEROS[..len])
}

/// A request for all partial signatures that a server can give; with an RSA key that is shared by a
/// polynomial, for its part with a proof; with an Ed25519 key, for commitments.
fn request(number: u64, message: String) -> (LinkTopic, LinkLane, Bytes) {
    let epoch = 1_u64;
    let (kind, query) = match &usual_key()[..] {
        ED25519_KEY => (7, epoch.to_be_bytes().to_vec()),
        POLYNOMIAL_KEY => {
            // With a proof, PKCS #1 v1.5.
            (1, [&epoch.to_be_bytes()[..], &[1, 1], message.as_bytes()].concat())
        }
        _ => {
            let (encoding, message) = (RsaEncoding::Pkcs1, message.into_bytes().into());
            (1, PartialSignQuery { epoch, signers: None, encoding, message }.to_bytes())
        }
    };
    let bytes = [&[kind][..], &number.to_be_bytes(), &query].concat();
    (LinkTopic::Signing, LinkLane::Urgent, bytes.into())
}

/// The hostile server.
struct Hostile {
    links: QuorumLinks,
    inboxes: [TopicInbox; 3],
    others: Vec<QuorumPeer>,
}

impl Hostile {
    async fn start() -> Self {
        let place: SocketAddr = format!("{}:{PORT}", address(HOSTILE)).parse().unwrap();
        let listening = service::listening::listen([place], &[]).await.unwrap();
        let (links, inboxes) = QuorumLinks::start(key(HOSTILE), listening);
        let others = HONEST.map(|server| QuorumPeer {
            key: key(server).public(),
            address: format!("{}:{PORT}", address(server)).parse().unwrap(),
        });
        links.set_peers(&others);
        Self { links, inboxes, others: others.into() }
    }

    async fn attack(mut self, attack: Attack, stops: &AtomicBool) {
        let mut number = 0;
        let mut since = Instant::now();
        while !stops.load(Ordering::Relaxed) {
            let mut is_full = true;
            for server in &self.others {
                let (topic, lane, bytes) = attack.message(number);
                is_full &= self.links.send(&server.key, topic, lane, bytes).is_err();
            }
            number += 1;
            if attack != Attack::Deaf {
                self.take_all().await;
            }
            if attack == Attack::Reconnecting && since.elapsed() > Duration::from_secs(2) {
                self.links.set_peers(&[]);
                self.links.set_peers(&self.others);
                since = Instant::now();
            }
            if is_full {
                tokio::time::sleep(Duration::from_millis(1)).await;
            } else if number % 16 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes what has come, so that more may be sent.
    async fn take_all(&mut self) {
        for inbox in &mut self.inboxes {
            // A future is polled once before its time is over.
            while matches!(timeout(Duration::ZERO, inbox.next()).await, Ok(Some(_))) {}
        }
    }
}

fn key(server: usize) -> IdentitySecretKey {
    IdentitySecretKey::new(&[u8::try_from(server).unwrap(); 32])
}

/// What a server has: its resident memory and its store, in bytes.
#[derive(Clone, Copy, Debug)]
struct Held {
    memory: u64,
    disk: u64,
}

impl Held {
    fn by(cluster: &Cluster, server: usize) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", cluster.id(server))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let memory = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        let files = fs::read_dir(cluster.directory(server).join("store")).unwrap();
        let disk = files.map(|file| file.unwrap().metadata().map_or(0, |it| it.len())).sum();
        Self { memory, disk }
    }
}

/// What the servers have at most, and at the end.
struct Cost {
    most_memory: u64,
    last_memory: u64,
    disk: u64,
    p99: [Duration; 2],
}

fn p99(cluster: &Cluster) -> Duration {
    let mut times = cluster.signers.take_times(&HONEST);
    times.sort_unstable();
    assert!(times.len() > 5, "{} signatures", times.len());
    times[times.len() * 99 / 100]
}

/// Runs an attack for this time.
fn cost(cluster: &mut Cluster, attack: Attack, time: Duration) -> Cost {
    cluster.kill(HOSTILE);
    thread::sleep(Duration::from_secs(2));
    cluster.signers.take_times(&HONEST);
    thread::sleep(time.min(Duration::from_secs(30)));
    let before_p99 = p99(cluster);
    let before = HONEST.map(|server| Held::by(cluster, server));
    let stops = Arc::new(AtomicBool::new(false));
    let (mut most, begin) = (before, Instant::now());
    thread::scope(|scope| {
        let host = cluster.network.host(&format!("s{HOSTILE}")).unwrap();
        let hostile = Arc::clone(&stops);
        scope.spawn(move || {
            let run = || {
                // Its own work would be another machine's: it does not take the others' processors.
                nice(19).unwrap();
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async { Hostile::start().await.attack(attack, &hostile).await });
            };
            host.run(run).unwrap();
        });
        while begin.elapsed() < time {
            thread::sleep(Duration::from_millis(100));
            for (server, most) in HONEST.into_iter().zip(&mut most) {
                let held = Held::by(cluster, server);
                most.memory = most.memory.max(held.memory);
                most.disk = most.disk.max(held.disk);
            }
        }
        stops.store(true, Ordering::Relaxed);
    });
    let during_p99 = p99(cluster);
    thread::sleep(Duration::from_secs(2));
    let after = HONEST.map(|server| Held::by(cluster, server));
    cluster.start_server(HOSTILE);
    cluster.settle();
    let most_of = |held: [Held; 3], of: fn(Held) -> u64| {
        let growths =
            held.iter().zip(before).map(|(held, before)| of(*held).saturating_sub(of(before)));
        growths.max().unwrap()
    };
    Cost {
        most_memory: most_of(most, |held| held.memory),
        last_memory: most_of(after, |held| held.memory),
        disk: most_of(most, |held| held.disk),
        p99: [before_p99, during_p99],
    }
}

fn attacks(attacks: &[Attack], time: Duration) {
    let mut cluster = Cluster::with_settings(DELAY_MS, "audit_mib = 1\n");
    println!("| attack | memory, MiB | 2 s after its end | disk, MiB | p99 without it, ms | p99 |");
    let mib = |bytes: u64| bytes >> 20;
    for &attack in attacks {
        let Cost { most_memory, last_memory, disk, p99 } = cost(&mut cluster, attack, time);
        println!(
            "| {attack:?} | {} | {} | {} | {} | {} |",
            mib(most_memory),
            mib(last_memory),
            mib(disk),
            p99[0].as_millis(),
            p99[1].as_millis()
        );
        assert!(most_memory <= MAX_MEMORY, "{attack:?}: {most_memory} bytes of memory");
        assert!(disk <= MAX_DISK, "{attack:?}: {disk} bytes on the disk");
    }
}

pub(crate) fn a_hostile_server_takes_bounded_memory() {
    attacks(&[Attack::Empty], Duration::from_secs(6));
}

pub(crate) fn every_hostile_server() {
    let seconds = std::env::var("SUNDER_HOSTILE_S").ok().and_then(|text| text.parse().ok());
    attacks(&Attack::ALL, Duration::from_secs(seconds.unwrap_or(60)));
}

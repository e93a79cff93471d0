//! Attackers that consume as much of a server as they can, from many addresses.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use association::{
    AssociationMessage, AssociationProtocol, AssociationTerms, ConnectionCookie, CookieList,
    SharingScheme,
};
use micss::outgoing::OutgoingRecords;
use micss::record::{HEADER_LEN, MAX_OPENING, MAX_PAYLOAD, MicssRecordKind};
use micss::target::ServiceTarget;
use random::RandomGenerator;
use sharing::SharingParameters;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The maximum rate of new connections of all attackers, per second.
const MAX_RATE: u64 = 2000;

/// The maximum number of attackers that connect concurrently. Afterwards all wait concurrently.
const MAX_CONCURRENT: usize = 16;

/// The time limit of an attacker's operations.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The addresses of the attackers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sources {
    /// This many IPv4 addresses.
    Ipv4(usize),
    /// This many /64 networks of IPv6 in one /48 network.
    Ipv6(usize),
}

impl Sources {
    /// The number of addresses.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Ipv4(count) | Self::Ipv6(count) => count,
        }
    }

    /// The address of an attacker.
    fn attacker(self, number: usize) -> IpAddr {
        match self {
            Self::Ipv4(count) => {
                let [.., high, low] = (number % count).to_be_bytes();
                [127, 1, high, low + 1].into()
            }
            Self::Ipv6(count) => format!("2001:db8:bad:{:x}::1", number % count).parse().unwrap(),
        }
    }

    /// The address of an honest client.
    pub(crate) fn client(self, number: u8) -> IpAddr {
        match self {
            Self::Ipv4(_) => [127, 2, 0, number].into(),
            Self::Ipv6(_) => format!("2001:db8:1:{number:x}::1").parse().unwrap(),
        }
    }

    /// Adds the addresses to this host, in the sandbox.
    pub(crate) fn add_addresses(self, clients: u8) {
        ip(&["link", "set", "lo", "up"]);
        if let Self::Ipv6(count) = self {
            let attackers = (0..count).map(|number| self.attacker(number));
            for address in attackers.chain((1..=clients).map(|client| self.client(client))) {
                ip(&["address", "replace", &format!("{address}/128"), "dev", "lo", "nodad"]);
            }
        }
    }
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

/// The attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// No attack.
    None,
    /// Connect, and send nothing.
    Wait,
    /// Associate this many channels, and send no request.
    Associate { channels: u8 },
    /// Open streams with this many channels, and withhold one share of a long record.
    Withhold { channels: u8 },
    /// Send a first record on 16 channels that no 8 channels verify, repeatedly.
    Search,
}

impl Attack {
    /// The number of connections of an attacker in one attempt.
    pub(crate) fn connections(self) -> usize {
        match self {
            Self::None => 0,
            Self::Wait => 1,
            Self::Associate { channels } | Self::Withhold { channels } => channels.into(),
            Self::Search => 16,
        }
    }
}

/// Attackers that continue until this is dropped.
pub(crate) struct Attackers {
    count: usize,
    tried: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// The attacked server.
#[derive(Clone)]
pub(crate) struct TargetServer {
    /// The addresses on which it listens.
    pub(crate) addresses: Vec<SocketAddr>,
    /// A service that it allows.
    pub(crate) service: SocketAddr,
}

impl Attackers {
    /// Starts attackers at these addresses. Each begins again when the server has closed its
    /// connections.
    pub(crate) fn start(
        attack: Attack,
        count: usize,
        sources: Sources,
        target: &TargetServer,
    ) -> Self {
        let mut pace = interval(Duration::from_nanos(1_000_000_000 / MAX_RATE));
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (pace, tried) = (Arc::new(Mutex::new(pace)), Arc::new(AtomicUsize::new(0)));
        // Otherwise a server could evict the connections of each attacker before any attacker has
        // all of its connections.
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let attacker = Attacker {
                source: sources.attacker(number),
                target: target.clone(),
                pace: Arc::clone(&pace),
            };
            let (tried, permits) = (Arc::clone(&tried), Arc::clone(&permits));
            tasks.spawn(async move {
                loop {
                    let turn = permits.acquire().await;
                    let held = attacker.attempt(attack).await;
                    drop(turn);
                    tried.fetch_add(1, Ordering::Relaxed);
                    if let Ok(held) = held {
                        until_closed(held).await;
                    }
                }
            });
        }
        Self { count, tried, _tasks: tasks }
    }

    /// The number of attempts.
    pub(crate) fn tried(&self) -> usize {
        self.tried.load(Ordering::Relaxed)
    }

    /// Whether there were as many attempts as attackers.
    pub(crate) fn are_all_active(&self) -> bool {
        self.tried() >= self.count
    }
}

/// Waits until the server has closed one of the connections, and closes all.
async fn until_closed(mut held: Vec<TcpStream>) {
    let (mut bytes, mut others) = ([0; 4096], [0; 4096]);
    let Some((last, rest)) = held.split_last_mut() else { return };
    loop {
        let read = match rest.first_mut() {
            Some(first) => tokio::select! {
                read = last.read(&mut bytes) => read,
                read = first.read(&mut others) => read,
            },
            None => last.read(&mut bytes).await,
        };
        if !matches!(read, Ok(1..)) {
            return;
        }
    }
}

struct Attacker {
    source: IpAddr,
    target: TargetServer,
    pace: Arc<Mutex<Interval>>,
}

impl Attacker {
    /// Makes one attempt. Returns the connections to hold.
    async fn attempt(&self, attack: Attack) -> std::io::Result<Vec<TcpStream>> {
        let (mut streams, mut cookies) = (Vec::new(), Vec::new());
        for channel in 0..attack.connections() {
            let (stream, cookie) = self.connect(channel).await?;
            streams.push(stream);
            cookies.push(cookie);
        }
        let shares = match attack {
            Attack::None | Attack::Wait => return Ok(streams),
            Attack::Associate { channels } => {
                vec![list(SharingScheme::Xor, channels, cookies); channels.into()]
            }
            Attack::Withhold { channels } => self.withheld(channels, cookies),
            Attack::Search => {
                let list = list(SharingScheme::Shamir, 8, cookies);
                (0..16).map(|_| [list.clone(), ambiguous()].concat()).collect()
            }
        };
        for (stream, share) in streams.iter_mut().zip(shares) {
            stream.write_all(&share).await?;
        }
        Ok(streams)
    }

    /// Connects, and receives the cookie.
    async fn connect(&self, channel: usize) -> std::io::Result<(TcpStream, ConnectionCookie)> {
        self.pace.lock().await.tick().await;
        let is_ipv4 = self.source.is_ipv4();
        let socket = if is_ipv4 { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.bind(SocketAddr::new(self.source, 0))?;
        // Otherwise the port would stay in TIME-WAIT for a minute.
        SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
        let server = self.target.addresses[channel % self.target.addresses.len()];
        let connect = async {
            let mut stream = socket.connect(server).await?;
            let mut message = [0; 24];
            stream.read_exact(&mut message).await?;
            let cookie: [u8; 16] = message[8..].try_into().expect("16 bytes");
            Ok((stream, ConnectionCookie::new(cookie)))
        };
        tokio::time::timeout(WAIT_TIMEOUT, connect).await?
    }

    /// The shares of a request, and those of a long record without the last share.
    fn withheld(&self, channels: u8, cookies: Vec<ConnectionCookie>) -> Vec<Vec<u8>> {
        let mut outgoing = OutgoingRecords::new(
            SharingParameters::xor(channels).unwrap(),
            RandomGenerator::system(),
        );
        outgoing.precede(list(SharingScheme::Xor, channels, cookies));
        outgoing
            .seal_payload(
                MicssRecordKind::Open,
                &ServiceTarget::address(self.target.service).encode(),
            )
            .unwrap();
        let mut shares: Vec<Vec<u8>> =
            (0..channels.into()).map(|channel| take(&mut outgoing, channel)).collect();
        outgoing.make_room(MAX_PAYLOAD);
        outgoing
            .seal_payload(MicssRecordKind::Data, &vec![0x5A; MAX_PAYLOAD - 2 * HEADER_LEN])
            .unwrap();
        for (channel, share) in shares.iter_mut().enumerate() {
            let more = take(&mut outgoing, channel);
            // The header of each share is needed to know the length.
            let is_last = channel + 1 == usize::from(channels);
            let len = if is_last { HEADER_LEN } else { more.len() };
            share.extend(&more[..len]);
        }
        shares
    }
}

/// The remaining bytes of a channel's share.
fn take(outgoing: &mut OutgoingRecords, channel: usize) -> Vec<u8> {
    let share = outgoing.unsent(channel).to_vec();
    outgoing.advance(channel, share.len());
    share
}

fn list(scheme: SharingScheme, threshold: u8, cookies: Vec<ConnectionCookie>) -> Vec<u8> {
    let channels = u8::try_from(cookies.len()).expect("16 at most");
    let terms =
        AssociationTerms::new(AssociationProtocol::MicssStream, scheme, threshold, channels, 0)
            .unwrap();
    AssociationMessage::List(CookieList::new(terms, cookies).unwrap()).encode()
}

/// A share of a first record: random, except for the length. It is the same in all shares, so any
/// set of shares joins to it.
fn ambiguous() -> Vec<u8> {
    let mut share = vec![0; MAX_OPENING];
    let mut generator = RandomGenerator::system();
    for piece in share.chunks_mut(32) {
        let random: [u8; 32] = generator.array().unwrap();
        piece.copy_from_slice(&random[..piece.len()]);
    }
    let len = u32::try_from(MAX_OPENING - HEADER_LEN).unwrap();
    share[HEADER_LEN - 3..HEADER_LEN].copy_from_slice(&len.to_be_bytes()[1..]);
    share
}

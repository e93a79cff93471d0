//! Hole punching: finds the path on which the datagrams of two parties reach each other. Pure.
//! Specified in `docs/protocols/direct.md`.
//!
//! Both parties know a key and each other's candidate addresses. Both send pings to all candidates
//! and to the relay, which forwards them, and answer pings by pongs. A path is verified when a pong
//! arrives from where its ping was sent. A datagram without a valid tag changes nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use keys::{KEY_LEN, SharedKey};
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"SNDRHOLE";

const PING: u8 = 1;
const PONG: u8 = 2;

const TAG_LEN: usize = 32;

/// The length of a ping or pong.
pub(crate) const PUNCH_MESSAGE_LEN: usize = MAGIC.len() + 1 + 8 + TAG_LEN;

/// The largest number of addresses that a party may name.
pub(crate) const MAX_CANDIDATES: usize = 4;

/// The largest number of addresses, besides those that were named, from which pings arrive.
const MAX_LEARNED: usize = 4;

/// The largest number of pings to one address.
const MAX_PINGS: u32 = 20;

/// The interval between pings to one address.
const PING_INTERVAL: Duration = Duration::from_millis(100);

/// The largest number of pongs in all.
const MAX_PONGS: u32 = 400;

/// The time limit of the search, from the first ping.
pub(crate) const PUNCHING_TIMEOUT: Duration = Duration::from_millis(2500);

/// How long a direct path is awaited once the relayed one is verified: this number of its round
/// trips, within the limits.
const DIRECT_ROUND_TRIPS: u32 = 3;
const MIN_DIRECT_WAIT: Duration = Duration::from_millis(300);
const MAX_DIRECT_WAIT: Duration = Duration::from_millis(1500);

/// How many numbers of pings are remembered.
const REPLAY_WINDOW: u64 = 128;

/// A path of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramPath {
    /// Between the parties.
    Direct(SocketAddr),
    /// Through the relay, at this address.
    Relayed(SocketAddr),
}

impl DatagramPath {
    /// Where its datagrams are sent.
    pub(crate) fn address(self) -> SocketAddr {
        match self {
            Self::Direct(address) | Self::Relayed(address) => address,
        }
    }
}

/// The state of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PunchingOutcome {
    /// It has not ended.
    Searching,
    /// This is the best path.
    Found(DatagramPath),
    /// Datagrams reach the other party on no path.
    NoPath,
}

/// Which of the two parties this one is. Their tags differ, so that nothing is reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PunchingRole {
    /// The one that has connected to the other at the relay.
    Connecting,
    /// The one that waited there.
    Waiting,
}

impl PunchingRole {
    fn other(self) -> Self {
        match self {
            Self::Connecting => Self::Waiting,
            Self::Waiting => Self::Connecting,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Self::Connecting => b"Sunder punching 1 connecting",
            Self::Waiting => b"Sunder punching 1 waiting",
        }
    }
}

/// See [the module](self).
pub(crate) struct HolePuncher {
    role: PunchingRole,
    key: SharedKey,
    paths: Vec<PunchedPath>,
    learned: usize,
    pongs: u32,
    next_number: u64,
    /// The numbers of the other party's pings that have arrived.
    seen: SeenNumbers,
    started_at: Duration,
}

struct PunchedPath {
    path: DatagramPath,
    pings: u32,
    next_at: Duration,
    /// The numbers of its pings, and when they were sent.
    sent: Vec<(u64, Duration)>,
    /// When the first pong arrived, and the round trip.
    verified: Option<(Duration, Duration)>,
}

impl HolePuncher {
    /// `candidates`: what the other party has named. `relay`: the relay's address, if this party is
    /// bound there.
    pub(crate) fn new(
        role: PunchingRole,
        key: &Zeroizing<[u8; KEY_LEN]>,
        candidates: &[SocketAddr],
        relay: Option<SocketAddr>,
        now: Duration,
    ) -> Self {
        let mut puncher = Self {
            role,
            key: SharedKey::new(key),
            paths: Vec::new(),
            learned: 0,
            pongs: 0,
            next_number: 0,
            seen: SeenNumbers::default(),
            started_at: now,
        };
        let is_local = relay.is_some_and(|relay| relay.ip().is_loopback());
        for candidate in candidates.iter().take(MAX_CANDIDATES) {
            if is_probeable(*candidate, is_local) && Some(*candidate) != relay {
                puncher.add(DatagramPath::Direct(*candidate), now);
            }
        }
        if let Some(relay) = relay {
            puncher.add(DatagramPath::Relayed(relay), now);
        }
        puncher
    }

    fn add(&mut self, path: DatagramPath, now: Duration) {
        if self.paths.iter().all(|known| known.path.address() != path.address()) {
            let (sent, verified) = (Vec::new(), None);
            self.paths.push(PunchedPath { path, pings: 0, next_at: now, sent, verified });
        }
    }

    /// The next ping that is due, and where it is sent.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Duration,
    ) -> Option<(SocketAddr, [u8; PUNCH_MESSAGE_LEN])> {
        let due = self.paths.iter_mut().filter(|path| path.due_at().is_some_and(|at| at <= now));
        let path = due.min_by_key(|path| path.next_at)?;
        let number = self.next_number;
        self.next_number += 1;
        path.pings += 1;
        path.next_at = now + PING_INTERVAL;
        path.sent.push((number, now));
        Some((path.path.address(), encode(&self.key, self.role, PING, number)))
    }

    /// When the next ping is due, or the outcome may change.
    pub(crate) fn poll_timeout(&self) -> Duration {
        let due = self.paths.iter().filter_map(PunchedPath::due_at).min();
        let end = self.started_at + PUNCHING_TIMEOUT;
        let relayed = self.relayed_at().unwrap_or(end);
        due.unwrap_or(end).min(end).min(relayed)
    }

    /// Handles a datagram. Returns whether it is one of punching, and the answer, if there is one.
    /// Unless it has the other party's tag, and its number is new, nothing changes.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Duration,
        from: SocketAddr,
        bytes: &[u8],
    ) -> (bool, Option<[u8; PUNCH_MESSAGE_LEN]>) {
        if bytes.len() != PUNCH_MESSAGE_LEN || !bytes.starts_with(MAGIC) {
            return (false, None);
        }
        let Some((kind, number)) = decode(&self.key, self.role.other(), bytes) else {
            return (true, None);
        };
        if kind == PING {
            return (true, self.handle_ping(now, from, number));
        }
        let path = self.paths.iter_mut().find(|path| path.path.address() == from);
        if let Some(path) = path
            && let Some((_, at)) = path.sent.iter().find(|(sent, _)| *sent == number)
        {
            path.verified.get_or_insert((now, now.saturating_sub(*at)));
        }
        (true, None)
    }

    fn handle_ping(
        &mut self,
        now: Duration,
        from: SocketAddr,
        number: u64,
    ) -> Option<[u8; PUNCH_MESSAGE_LEN]> {
        if !self.seen.insert(number) || self.pongs >= MAX_PONGS {
            return None;
        }
        if let Some(path) = self.paths.iter_mut().find(|path| path.path.address() == from) {
            // The other party has opened its NAT.
            path.next_at = path.next_at.min(now);
        } else if self.learned < MAX_LEARNED {
            self.learned += 1;
            self.add(DatagramPath::Direct(from), now);
        }
        self.pongs += 1;
        Some(encode(&self.key, self.role, PONG, number))
    }

    /// The outcome: the direct path with the shortest round trip; the relayed one if no direct one
    /// is verified in time.
    pub(crate) fn outcome(&self, now: Duration) -> PunchingOutcome {
        let direct = self.paths.iter().filter(|path| matches!(path.path, DatagramPath::Direct(_)));
        let verified = direct.filter_map(|path| path.verified.map(|(_, trip)| (trip, path.path)));
        if let Some((_, path)) = verified.min_by_key(|(trip, _)| *trip) {
            return PunchingOutcome::Found(path);
        }
        let is_over = now >= self.started_at + PUNCHING_TIMEOUT;
        match self.relayed() {
            Some(path) if is_over || self.relayed_at().is_some_and(|at| at <= now) => {
                PunchingOutcome::Found(path.path)
            }
            None if is_over => PunchingOutcome::NoPath,
            _ => PunchingOutcome::Searching,
        }
    }

    fn relayed(&self) -> Option<&PunchedPath> {
        let is_relayed = |path: &&PunchedPath| {
            path.verified.is_some() && matches!(path.path, DatagramPath::Relayed(_))
        };
        self.paths.iter().find(is_relayed)
    }

    /// When the verified relayed path is used, if no direct one is verified before.
    fn relayed_at(&self) -> Option<Duration> {
        let (at, round_trip) = self.relayed()?.verified?;
        let has_direct = self.paths.iter().any(|path| matches!(path.path, DatagramPath::Direct(_)));
        let wait = (round_trip * DIRECT_ROUND_TRIPS).clamp(MIN_DIRECT_WAIT, MAX_DIRECT_WAIT);
        Some(if has_direct { at + wait } else { at })
    }
}

impl PunchedPath {
    fn due_at(&self) -> Option<Duration> {
        (self.verified.is_none() && self.pings < MAX_PINGS).then_some(self.next_at)
    }
}

/// Whether pings may be sent to an address that the other party has named.
fn is_probeable(address: SocketAddr, is_local: bool) -> bool {
    let (ip, is_special) = match address.ip() {
        IpAddr::V4(ip) => (address.ip(), ip.is_broadcast() || ip.octets()[0] == 0),
        IpAddr::V6(ip) => (address.ip(), ip.is_unicast_link_local()),
    };
    let is_loopback = ip.is_loopback() && !is_local;
    address.port() != 0 && !is_special && !ip.is_unspecified() && !ip.is_multicast() && !is_loopback
}

fn encode(key: &SharedKey, role: PunchingRole, kind: u8, number: u64) -> [u8; PUNCH_MESSAGE_LEN] {
    let mut bytes = [0; PUNCH_MESSAGE_LEN];
    let (content, tag) = bytes.split_at_mut(PUNCH_MESSAGE_LEN - TAG_LEN);
    content[..8].copy_from_slice(MAGIC);
    content[8] = kind;
    content[9..].copy_from_slice(&number.to_be_bytes());
    tag.copy_from_slice(&key.authenticate(&[role.label(), content]));
    bytes
}

/// The kind and the number of a message of the party with this role; `None` if it is not genuine.
fn decode(key: &SharedKey, role: PunchingRole, bytes: &[u8]) -> Option<(u8, u64)> {
    let (content, tag) = bytes.split_at_checked(PUNCH_MESSAGE_LEN - TAG_LEN)?;
    if !key.verify(&[role.label(), content], tag) {
        return None;
    }
    let (&kind, number) = content.strip_prefix(MAGIC)?.split_first()?;
    let number = u64::from_be_bytes(*number.first_chunk()?);
    matches!(kind, PING | PONG).then_some((kind, number))
}

/// The numbers that have arrived: all below a window, and those that are marked in it.
#[derive(Default)]
struct SeenNumbers {
    /// One more than the highest number.
    end: u64,
    /// Bit i: whether the number `end - 1 - i` has arrived.
    marks: u128,
}

impl SeenNumbers {
    /// Returns whether the number is new.
    fn insert(&mut self, number: u64) -> bool {
        if number == u64::MAX {
            return false;
        }
        if number >= self.end {
            let shift = number + 1 - self.end;
            self.marks = if shift < REPLAY_WINDOW { self.marks << shift } else { 0 };
            self.end = number + 1;
        }
        let age = self.end - 1 - number;
        if age >= REPLAY_WINDOW || self.marks >> age & 1 == 1 {
            return false;
        }
        self.marks |= 1 << age;
        true
    }
}

#[cfg(test)]
mod tests;

//! The path to the peer: its address, migration to another address, and path MTU discovery.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sha2::{Digest, Sha256};
use udp::{MtuProbe, PathMtuDiscovery};
use zeroize::Zeroizing;

use super::super::packet::{MAX_DATAGRAM_LEN, MIN_DATAGRAM_LEN};

/// The number and the interval of challenges to an address. After them, another address may be
/// challenged.
const CHALLENGES: u32 = 3;
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(300);

/// After this many consecutive timeouts, long datagrams are assumed not to pass.
const BLACK_HOLE_TIMEOUTS: u32 = 3;

pub(super) struct BurstPeerPath {
    peer: SocketAddr,
    /// Another address from which the peer may be sending.
    candidate: Option<MigrationCandidate>,
    /// The response to a challenge, and its destination.
    response: Option<([u8; 8], SocketAddr)>,
    /// The last challenge from the peer.
    challenged: Option<[u8; 8]>,
    /// The secret from which challenges are derived.
    secret: Zeroizing<[u8; 32]>,
    challenges: u64,
    mtu: PathMtuDiscovery,
    longest: usize,
}

struct MigrationCandidate {
    address: SocketAddr,
    challenge: [u8; 8],
    sends: u32,
    next_at: Duration,
}

impl BurstPeerPath {
    pub(super) fn new(peer: SocketAddr, secret: Zeroizing<[u8; 32]>, _now: Duration) -> Self {
        Self {
            peer,
            candidate: None,
            response: None,
            challenged: None,
            secret,
            challenges: 0,
            mtu: discovery(peer.ip()),
            longest: MIN_DATAGRAM_LEN,
        }
    }

    /// The peer's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The length of the longest datagram that the path carries.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Records that the path carries datagrams of this length.
    pub(super) fn set_longest(&mut self, longest: usize) {
        self.longest = self.longest.max(longest.min(MAX_DATAGRAM_LEN));
    }

    /// Handles this number of consecutive timeouts.
    pub(super) fn handle_timeouts(&mut self, timeouts: u32) {
        if timeouts >= BLACK_HOLE_TIMEOUTS {
            self.longest = MIN_DATAGRAM_LEN;
        }
    }

    /// Handles a packet from the peer; `is_newest` if its number is the highest so far.
    pub(super) fn handle_packet(&mut self, now: Duration, from: SocketAddr, is_newest: bool) {
        if from == self.peer {
            self.mtu.handle_activity(now);
            return;
        }
        let is_over = |it: &MigrationCandidate| it.sends >= CHALLENGES && now >= it.next_at;
        let is_free = self.candidate.as_ref().is_none_or(is_over);
        if is_newest && is_free {
            let mut hash = Sha256::new_with_prefix(*self.secret);
            hash.update(self.challenges.to_be_bytes());
            self.challenges += 1;
            let mut challenge = [0; 8];
            challenge.copy_from_slice(&hash.finalize()[..8]);
            self.candidate =
                Some(MigrationCandidate { address: from, challenge, sends: 0, next_at: now });
        }
    }

    /// Handles a challenge, by which the peer verifies the address that it receives from. Returns
    /// whether the challenge is new: then this end's packets reach the peer from another address,
    /// as they have taken another path.
    pub(super) fn handle_challenge(&mut self, from: SocketAddr, challenge: [u8; 8]) -> bool {
        self.response = Some((challenge, from));
        self.challenged.replace(challenge) != Some(challenge)
    }

    /// Handles the peer's response to a challenge. Returns whether the peer has migrated.
    pub(super) fn handle_response(&mut self, from: SocketAddr, challenge: [u8; 8]) -> bool {
        let is_right = self
            .candidate
            .as_ref()
            .is_some_and(|it| it.address == from && it.challenge == challenge);
        if is_right {
            self.peer = from;
            self.candidate = None;
            self.longest = MIN_DATAGRAM_LEN;
            self.mtu = discovery(from.ip());
        }
        is_right
    }

    /// Records that a path MTU probe was acknowledged.
    pub(super) fn handle_probe(&mut self, now: Duration, probe: MtuProbe) {
        self.mtu.handle_answer(probe, now);
        if let Some(longest) = self.mtu.max_datagram_len() {
            self.longest = longest.clamp(MIN_DATAGRAM_LEN, MAX_DATAGRAM_LEN);
        }
    }

    /// When a response or a challenge is due.
    pub(super) fn due_at(&self) -> Option<Duration> {
        if self.response.is_some() {
            return Some(Duration::ZERO);
        }
        let candidate = self.candidate.as_ref().filter(|it| it.sends < CHALLENGES)?;
        Some(candidate.next_at)
    }

    /// The next response to send, and its destination.
    pub(super) fn poll_response(&mut self) -> Option<([u8; 8], SocketAddr)> {
        self.response.take()
    }

    /// The next challenge to send, and its destination.
    pub(super) fn poll_challenge(&mut self, now: Duration) -> Option<([u8; 8], SocketAddr)> {
        let is_due = |it: &&mut MigrationCandidate| it.sends < CHALLENGES && now >= it.next_at;
        let candidate = self.candidate.as_mut().filter(is_due)?;
        candidate.sends += 1;
        candidate.next_at = now + CHALLENGE_INTERVAL;
        Some((candidate.challenge, candidate.address))
    }

    /// The next path MTU probe.
    pub(super) fn poll_probe(&mut self, now: Duration) -> Option<MtuProbe> {
        let probe = self.mtu.poll_transmit(now);
        if let Some(longest) = self.mtu.max_datagram_len()
            && probe.is_none()
        {
            self.longest = self.longest.min(longest.clamp(MIN_DATAGRAM_LEN, MAX_DATAGRAM_LEN));
        }
        probe
    }

    pub(super) fn probe_at(&self) -> Option<Duration> {
        self.mtu.poll_timeout()
    }
}

/// Starts path MTU discovery for an address.
fn discovery(address: IpAddr) -> PathMtuDiscovery {
    let headers = match address {
        IpAddr::V4(_) => 28,
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => 28,
        IpAddr::V6(_) => 48,
    };
    PathMtuDiscovery::new(headers)
}

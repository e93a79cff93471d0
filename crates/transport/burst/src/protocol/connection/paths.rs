//! The path to the peer: its address, whether another one is its, and the longest datagram.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sha2::{Digest, Sha256};
use udp::{MtuProbe, PathMtuDiscovery};
use zeroize::Zeroizing;

use super::super::packet::{MAX_DATAGRAM_LEN, MIN_DATAGRAM_LEN};

/// An address is challenged so often, at this interval. Then another may be.
const CHALLENGES: u32 = 3;
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(300);

/// After so many timeouts in a row, long datagrams may not pass any more.
const BLACK_HOLE_TIMEOUTS: u32 = 3;

pub(super) struct BurstPeerPath {
    peer: SocketAddr,
    /// An address from which the peer may send.
    candidate: Option<MigrationCandidate>,
    /// The answer to a challenge, and where it goes.
    response: Option<([u8; 8], SocketAddr)>,
    /// The last challenge of the peer.
    challenged: Option<[u8; 8]>,
    /// What challenges are made of.
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

    /// The length of the longest datagram that passes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The path carries datagrams of this length.
    pub(super) fn set_longest(&mut self, longest: usize) {
        self.longest = self.longest.max(longest.min(MAX_DATAGRAM_LEN));
    }

    /// So many times in a row nothing was acknowledged.
    pub(super) fn handle_timeouts(&mut self, timeouts: u32) {
        if timeouts >= BLACK_HOLE_TIMEOUTS {
            self.longest = MIN_DATAGRAM_LEN;
        }
    }

    /// A packet of the peer has arrived, the newest so far if `is_newest`.
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

    /// The peer challenges the address from which it sends to be this end's. Returns whether the
    /// challenge is new: this end's packets come to the peer from another address, as they took
    /// another path.
    pub(super) fn handle_challenge(&mut self, from: SocketAddr, challenge: [u8; 8]) -> bool {
        self.response = Some((challenge, from));
        self.challenged.replace(challenge) != Some(challenge)
    }

    /// The peer has answered a challenge. Returns whether its address is now another one.
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

    /// A probe of the MTU has arrived.
    pub(super) fn handle_probe(&mut self, now: Duration, probe: MtuProbe) {
        self.mtu.handle_answer(probe, now);
        if let Some(longest) = self.mtu.max_datagram_len() {
            self.longest = longest.clamp(MIN_DATAGRAM_LEN, MAX_DATAGRAM_LEN);
        }
    }

    /// When a response or a challenge is to be sent.
    pub(super) fn due_at(&self) -> Option<Duration> {
        if self.response.is_some() {
            return Some(Duration::ZERO);
        }
        let candidate = self.candidate.as_ref().filter(|it| it.sends < CHALLENGES)?;
        Some(candidate.next_at)
    }

    /// The next response to send, and where.
    pub(super) fn poll_response(&mut self) -> Option<([u8; 8], SocketAddr)> {
        self.response.take()
    }

    /// The next challenge to send, and where.
    pub(super) fn poll_challenge(&mut self, now: Duration) -> Option<([u8; 8], SocketAddr)> {
        let is_due = |it: &&mut MigrationCandidate| it.sends < CHALLENGES && now >= it.next_at;
        let candidate = self.candidate.as_mut().filter(is_due)?;
        candidate.sends += 1;
        candidate.next_at = now + CHALLENGE_INTERVAL;
        Some((candidate.challenge, candidate.address))
    }

    /// The next probe of the MTU.
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

/// The discovery of the MTU of a path to an address.
fn discovery(address: IpAddr) -> PathMtuDiscovery {
    let headers = match address {
        IpAddr::V4(_) => 28,
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => 28,
        IpAddr::V6(_) => 48,
    };
    PathMtuDiscovery::new(headers)
}

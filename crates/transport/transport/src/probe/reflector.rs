//! The server's end of a probe: at most one answer to each datagram.

use std::net::SocketAddr;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::packet::{
    COOKIE_LEN, HostCapabilities, ProbeCookie, ProbePacket, ProbePacketBody, is_probe,
};

/// The period of cookies. A cookie is valid in its period and in the next one.
const COOKIE_LIFETIME: Duration = Duration::from_secs(60);
/// The largest number of answers per second, and at once. Further datagrams are dropped.
const MAX_ANSWERS_PER_SECOND: f64 = 20_000.0;
const MAX_ANSWERS_AT_ONCE: f64 = 20_000.0;

/// Answers probes, without keeping state of clients.
#[derive(Debug)]
pub struct ProbeReflector {
    host: HostCapabilities,
    key: Hmac<Sha256>,
    answers_left: f64,
    counted_at: Duration,
}

impl ProbeReflector {
    /// Creates a server's end that states the capabilities `host`. `key` must be random.
    ///
    /// # Panics
    /// Never: a key of any length is valid.
    pub fn new(host: HostCapabilities, key: [u8; 32]) -> Self {
        Self {
            host,
            key: Hmac::new_from_slice(&key).expect("any length of key"),
            answers_left: MAX_ANSWERS_AT_ONCE,
            counted_at: Duration::ZERO,
        }
    }

    /// Whether a datagram belongs to a probe.
    pub fn is_probe(datagram: &[u8]) -> bool {
        is_probe(datagram)
    }

    /// Handles a datagram that arrived at `arrived_at`, not after `now`. Returns the answer to its
    /// sender. The answer is not longer than the datagram, unless the datagram proves its sender's
    /// address.
    pub fn handle_datagram(
        &mut self,
        now: Duration,
        arrived_at: Duration,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Option<Vec<u8>> {
        let packet = ProbePacket::parse(datagram)?;
        if !self.take_answer(now) {
            return None;
        }
        let minute = now.as_secs() / COOKIE_LIFETIME.as_secs();
        let is_valid = |cookie| {
            [minute, minute.wrapping_sub(1)].into_iter().any(|minute| {
                self.mac(from, packet.nonce, minute).verify_truncated_left(cookie).is_ok()
            })
        };
        let body = match packet.body {
            ProbePacketBody::Hello => {
                let cookie = self.cookie(from, packet.nonce, minute);
                ProbePacketBody::Welcome { cookie, host: self.host }
            }
            ProbePacketBody::Train { cookie, length } if is_valid(&cookie) => {
                let at_ns = u64::try_from(arrived_at.as_nanos()).ok()?;
                ProbePacketBody::Arrival { at_ns, length }
            }
            ProbePacketBody::Request { cookie, length } if is_valid(&cookie) => {
                ProbePacketBody::Filler { length }
            }
            _ => return None,
        };
        let mut answer = Vec::new();
        ProbePacket { body, ..packet }.write(&mut answer);
        Some(answer)
    }

    fn cookie(&self, from: SocketAddr, nonce: u64, minute: u64) -> ProbeCookie {
        let mac = self.mac(from, nonce, minute).finalize().into_bytes();
        std::array::from_fn::<u8, COOKIE_LEN, _>(|i| mac[i])
    }

    fn mac(&self, from: SocketAddr, nonce: u64, minute: u64) -> Hmac<Sha256> {
        let mut mac = self.key.clone();
        match from {
            SocketAddr::V4(from) => mac.update(&from.ip().octets()),
            SocketAddr::V6(from) => mac.update(&from.ip().octets()),
        }
        mac.update(&from.port().to_be_bytes());
        mac.update(&nonce.to_be_bytes());
        mac.update(&minute.to_be_bytes());
        mac
    }

    fn take_answer(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.counted_at).as_secs_f64();
        self.counted_at = self.counted_at.max(now);
        let left = self.answers_left + passed * MAX_ANSWERS_PER_SECOND;
        self.answers_left = left.min(MAX_ANSWERS_AT_ONCE);
        let is_left = self.answers_left >= 1.0;
        if is_left {
            self.answers_left -= 1.0;
        }
        is_left
    }
}

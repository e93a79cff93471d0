//! The server's end of a probe: at most one answer to each datagram.

use std::net::SocketAddr;
use std::time::Duration;

use udp::cookies::AddressCookies;

use super::packet::{HostCapabilities, ProbeCookie, ProbePacket, ProbePacketBody, is_probe};

/// The period of cookies. A cookie is valid in its period and in the next one.
const COOKIE_PERIOD: Duration = Duration::from_secs(60);
/// The largest number of answers per second, and at once. Further datagrams are dropped.
const MAX_ANSWERS_PER_SECOND: f64 = 20_000.0;
const MAX_ANSWERS_AT_ONCE: f64 = 20_000.0;

/// Answers probes, without keeping state of clients.
#[derive(Debug)]
pub struct ProbeReflector {
    host: HostCapabilities,
    cookies: AddressCookies,
    answers_left: f64,
    counted_at: Duration,
}

impl ProbeReflector {
    /// Creates a server's end that states the capabilities `host`. `key` must be random.
    ///
    /// # Panics
    /// Never: the period of cookies is longer than a second.
    pub fn new(host: HostCapabilities, key: [u8; 32]) -> Self {
        Self {
            host,
            cookies: AddressCookies::new(&key, COOKIE_PERIOD),
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
        let context = packet.nonce.to_be_bytes();
        let is_valid = |cookie: &ProbeCookie| self.cookies.verify(now, from, &context, cookie);
        let body = match packet.body {
            ProbePacketBody::Hello => {
                let cookie = self.cookies.make(now, from, &context);
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

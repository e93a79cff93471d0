//! A server's stateless cookies, derived from its secret.
//!
//! A cookie is the first half of HMAC-SHA-256 under the server's secret over the channel, the
//! address, the nonce, and the time in periods of [`HANDSHAKE_TIMEOUT`]. So a sender with a cookie
//! has received it at this address, in this period or the last. Cookies of different connections
//! differ, as the association requires. Its guarantees do not depend on unpredictable cookies;
//! these only protect the server's memory.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use association::ConnectionCookie;
use hmac::{Hmac, KeyInit, Mac};
use random::{RandomError, RandomGenerator};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::timing::HANDSHAKE_TIMEOUT;
use crate::protocol::wire::handshake::HandshakeNonce;

/// The maximum lifetime of a cookie.
pub(super) const LIFETIME: Duration = HANDSHAKE_TIMEOUT.saturating_mul(2);

/// Computes and verifies cookies.
pub(super) struct CookieAuthenticator {
    code: Hmac<Sha256>,
}

/// The holder of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CookieHolder {
    pub(super) channel: usize,
    pub(super) address: SocketAddr,
    pub(super) nonce: HandshakeNonce,
}

impl CookieAuthenticator {
    /// Draws a new secret.
    ///
    /// # Errors
    /// If the random source fails.
    pub(super) fn new(generator: &mut RandomGenerator) -> Result<Self, RandomError> {
        let mut secret = Zeroizing::new([0; 32]);
        generator.fill(&mut *secret)?;
        let code = Hmac::new_from_slice(&*secret).expect("keys of any length are taken");
        Ok(Self { code })
    }

    /// The holder's cookie.
    pub(super) fn generate(&self, holder: CookieHolder, now: Duration) -> ConnectionCookie {
        self.make_in(holder, period(now))
    }

    /// Whether a cookie is the holder's and still valid.
    pub(super) fn is_valid(
        &self,
        holder: CookieHolder,
        cookie: &ConnectionCookie,
        now: Duration,
    ) -> bool {
        let current = period(now);
        let periods = [Some(current), current.checked_sub(1)].into_iter().flatten();
        let mut own = periods.map(|period| self.make_in(holder, period));
        own.any(|own| bool::from(own.ct_eq(cookie)))
    }

    fn make_in(&self, holder: CookieHolder, period: u64) -> ConnectionCookie {
        let digest = self.digest(holder, period);
        let (cookie, _) = digest.split_first_chunk().expect("a digest is longer than a cookie");
        ConnectionCookie::new(*cookie)
    }

    fn digest(&self, holder: CookieHolder, period: u64) -> [u8; 32] {
        let mut code = self.code.clone();
        let channel = u8::try_from(holder.channel).expect("at most 16 channels");
        let ip = match holder.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        code.update(&[channel]);
        code.update(&ip.octets());
        code.update(&holder.address.port().to_be_bytes());
        code.update(&holder.nonce.bytes());
        code.update(&period.to_be_bytes());
        code.finalize().into_bytes().into()
    }
}

impl fmt::Debug for CookieAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieAuthenticator(..)")
    }
}

fn period(now: Duration) -> u64 {
    now.as_secs() / HANDSHAKE_TIMEOUT.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1009);

    fn holder() -> CookieHolder {
        let address = "192.0.2.1:9".parse().unwrap();
        CookieHolder { channel: 2, address, nonce: HandshakeNonce::new([1; 8]) }
    }

    #[test]
    fn a_cookie_is_valid_for_its_holder_and_a_limited_time() {
        let cookies = CookieAuthenticator::new(&mut RandomGenerator::seeded().unwrap()).unwrap();
        let cookie = cookies.generate(holder(), NOW);
        let good = |holder, now| cookies.is_valid(holder, &cookie, now);
        assert!(good(holder(), NOW));
        assert!(good(holder(), NOW + HANDSHAKE_TIMEOUT));
        assert!(!good(holder(), NOW + LIFETIME));
        assert!(!good(CookieHolder { channel: 3, ..holder() }, NOW));
        assert!(!good(CookieHolder { nonce: HandshakeNonce::new([2; 8]), ..holder() }, NOW));
        let elsewhere =
            |address: &str| CookieHolder { address: address.parse().unwrap(), ..holder() };
        assert!(!good(elsewhere("192.0.2.2:9"), NOW));
        assert!(!good(elsewhere("192.0.2.1:10"), NOW));
    }

    #[test]
    fn cookies_of_another_server_differ() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let [one, other] = [(); 2].map(|()| CookieAuthenticator::new(&mut generator).unwrap());
        let cookie = one.generate(holder(), NOW);
        assert!(!other.is_valid(holder(), &cookie, NOW));
    }
}

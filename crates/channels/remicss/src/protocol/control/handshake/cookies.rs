//! A server's stateless cookies, derived from its secret.
//!
//! A sender with a cookie has received it at this address, on this channel and for this nonce, in
//! this period of [`HANDSHAKE_TIMEOUT`] or the last. Cookies of different connections differ, as
//! the association requires. Its guarantees do not depend on unpredictable cookies; these only
//! protect the server's memory.

use std::net::SocketAddr;
use std::time::Duration;

use association::ConnectionCookie;
use random::{RandomError, RandomGenerator};
use udp::cookies::AddressCookies;
use zeroize::Zeroizing;

use super::timing::HANDSHAKE_TIMEOUT;
use crate::protocol::wire::handshake::HandshakeNonce;

/// The maximum lifetime of a cookie.
pub(super) const LIFETIME: Duration = HANDSHAKE_TIMEOUT.saturating_mul(2);

/// Computes and verifies cookies.
#[derive(Debug)]
pub(super) struct CookieAuthenticator(AddressCookies);

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
        Ok(Self(AddressCookies::new(&secret, HANDSHAKE_TIMEOUT)))
    }

    /// The holder's cookie.
    pub(super) fn generate(&self, holder: CookieHolder, now: Duration) -> ConnectionCookie {
        ConnectionCookie::new(self.0.make(now, holder.address, &holder.context()))
    }

    /// Whether a cookie is the holder's and still valid.
    pub(super) fn is_valid(
        &self,
        holder: CookieHolder,
        cookie: &ConnectionCookie,
        now: Duration,
    ) -> bool {
        self.0.verify(now, holder.address, &holder.context(), cookie.as_bytes())
    }
}

impl CookieHolder {
    /// What tells the cookies of one address apart.
    fn context(&self) -> Vec<u8> {
        let channel = u8::try_from(self.channel).expect("at most 16 channels");
        [&[channel][..], &self.nonce.bytes()].concat()
    }
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

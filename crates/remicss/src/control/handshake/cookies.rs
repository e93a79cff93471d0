//! A server's cookies: made of its secret, so that nothing is kept for whoever asks.
//!
//! A cookie is the first half of HMAC-SHA-256 under a secret of the server's over the channel, the address and the
//! nonce that it is for, and the time in periods of [`PATIENCE`]. So whoever shows one has received
//! it there, in this period or the last. To the association it is a cookie like any: it does not come
//! twice for two connections. That nobody can tell the next one is not what its promises rest on;
//! it is what keeps strangers from the server's memory.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use association::Cookie;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sharing::{Generator, RandomError};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::timing::PATIENCE;
use crate::wire::handshake::Nonce;

/// How long a cookie is good for, at most.
pub(super) const LIFETIME: Duration = PATIENCE.saturating_mul(2);

/// Makes cookies and knows its own again.
pub(super) struct Cookies {
    code: Hmac<Sha256>,
}

/// Whose cookie it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) channel: usize,
    pub(super) address: SocketAddr,
    pub(super) nonce: Nonce,
}

impl Cookies {
    /// Of a fresh secret.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub(super) fn new(generator: &mut Generator) -> Result<Self, RandomError> {
        let mut secret = Zeroizing::new([0; 32]);
        generator.fill(&mut *secret)?;
        let code = Hmac::new_from_slice(&*secret).expect("keys of any length are taken");
        Ok(Self { code })
    }

    /// The holder's cookie.
    pub(super) fn make(&self, holder: Holder, now: Duration) -> Cookie {
        self.make_in(holder, period(now))
    }

    /// Whether a cookie is the holder's and still good.
    pub(super) fn recognises(&self, holder: Holder, cookie: &Cookie, now: Duration) -> bool {
        let current = period(now);
        let periods = [Some(current), current.checked_sub(1)].into_iter().flatten();
        let mut own = periods.map(|period| self.make_in(holder, period));
        own.any(|own| bool::from(own.ct_eq(cookie)))
    }

    fn make_in(&self, holder: Holder, period: u64) -> Cookie {
        let digest = self.digest(holder, period);
        let (cookie, _) = digest.split_first_chunk().expect("a digest is longer than a cookie");
        Cookie::new(*cookie)
    }

    fn digest(&self, holder: Holder, period: u64) -> [u8; 32] {
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

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookies(..)")
    }
}

fn period(now: Duration) -> u64 {
    now.as_secs() / PATIENCE.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1009);

    fn holder() -> Holder {
        let address = "192.0.2.1:9".parse().unwrap();
        Holder { channel: 2, address, nonce: Nonce::new([1; 8]) }
    }

    #[test]
    fn a_cookie_is_good_for_its_holder_and_for_a_while() {
        let cookies = Cookies::new(&mut Generator::seeded().unwrap()).unwrap();
        let cookie = cookies.make(holder(), NOW);
        let good = |holder, now| cookies.recognises(holder, &cookie, now);
        assert!(good(holder(), NOW));
        assert!(good(holder(), NOW + PATIENCE));
        assert!(!good(holder(), NOW + LIFETIME));
        assert!(!good(Holder { channel: 3, ..holder() }, NOW));
        assert!(!good(Holder { nonce: Nonce::new([2; 8]), ..holder() }, NOW));
        let elsewhere = |address: &str| Holder { address: address.parse().unwrap(), ..holder() };
        assert!(!good(elsewhere("192.0.2.2:9"), NOW));
        assert!(!good(elsewhere("192.0.2.1:10"), NOW));
    }

    #[test]
    fn another_server_has_others() {
        let mut generator = Generator::seeded().unwrap();
        let [one, other] = [(); 2].map(|()| Cookies::new(&mut generator).unwrap());
        let cookie = one.make(holder(), NOW);
        assert!(!other.recognises(holder(), &cookie, NOW));
    }
}

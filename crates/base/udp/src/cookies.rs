//! Cookies: a client proves that it receives at its address, while the server keeps no state.
//!
//! A cookie is the first bytes of HMAC-SHA-256 under the server's secret over the time in periods,
//! the client's address and port, and a context. It is opaque to the client, which only returns it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Makes and verifies cookies. A cookie is valid in the period in which it was made, and in the
/// next one.
pub struct AddressCookies {
    code: Hmac<Sha256>,
    period_secs: u64,
}

impl AddressCookies {
    /// Makes cookies that are derived from `secret`, which must be random. A period is a number of
    /// whole seconds.
    ///
    /// # Panics
    /// If the period is shorter than a second.
    pub fn new(secret: &[u8; 32], period: Duration) -> Self {
        let period_secs = period.as_secs();
        assert!(period_secs > 0, "a period of cookies is a second or more");
        let code = <Hmac<Sha256> as KeyInit>::new_from_slice(secret)
            .expect("keys of any length are taken");
        Self { code, period_secs }
    }

    /// Makes the cookie for a client, in `N` bytes. `context` tells cookies for one address apart.
    ///
    /// # Panics
    /// If `N` is greater than 32.
    pub fn make<const N: usize>(
        &self,
        now: Duration,
        client: SocketAddr,
        context: &[u8],
    ) -> [u8; N] {
        let code = self.code(self.period(now), client, context).finalize().into_bytes();
        let mut cookie = [0; N];
        cookie.copy_from_slice(&code[..N]);
        cookie
    }

    /// Whether this cookie was made for this client and context, and is still valid. The comparison
    /// takes constant time.
    pub fn verify(&self, now: Duration, client: SocketAddr, context: &[u8], cookie: &[u8]) -> bool {
        let period = self.period(now);
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.code(period, client, context).verify_truncated_left(cookie).is_ok())
    }

    fn period(&self, now: Duration) -> u64 {
        now.as_secs() / self.period_secs
    }

    fn code(&self, period: u64, client: SocketAddr, context: &[u8]) -> Hmac<Sha256> {
        let mut code = self.code.clone();
        code.update(&period.to_be_bytes());
        match client.ip() {
            IpAddr::V4(ip) => code.update(&ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => code.update(&ip.octets()),
        }
        code.update(&client.port().to_be_bytes());
        code.update(context);
        code
    }
}

impl fmt::Debug for AddressCookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressCookies(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(120);

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn client() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 7))
    }

    #[test]
    fn a_cookie_is_of_one_client_and_two_periods() {
        let cookies = AddressCookies::new(&[1; 32], PERIOD);
        let cookie: [u8; 16] = cookies.make(at(100), client(), &[1]);
        let good = |now, client, context| cookies.verify(at(now), client, &[context], &cookie);
        assert!(good(0, client(), 1));
        assert!(good(239, client(), 1));
        assert!(!good(240, client(), 1));
        assert!(!good(100, client(), 2));
        assert!(!good(100, SocketAddr::from(([192, 0, 2, 1], 8)), 1));
        assert!(!good(100, SocketAddr::from(([192, 0, 2, 2], 7)), 1));
        let later: [u8; 16] = cookies.make(at(120), client(), &[1]);
        assert!(!cookies.verify(at(100), client(), &[1], &later));
        // A socket for IPv4 and IPv6 reports the same client with a mapped address.
        assert!(good(100, "[::ffff:192.0.2.1]:7".parse().unwrap(), 1));
    }

    #[test]
    fn cookies_of_another_secret_differ() {
        let [one, other] = [1, 2].map(|byte| AddressCookies::new(&[byte; 32], PERIOD));
        let cookie: [u8; 16] = one.make(at(100), client(), &[]);
        assert!(one.verify(at(100), client(), &[], &cookie));
        assert!(!other.verify(at(100), client(), &[], &cookie));
        assert!(!one.verify(at(100), client(), &[], &[0; 16]));
    }

    #[test]
    fn every_bit_of_a_cookie_of_any_length_counts() {
        let cookies = AddressCookies::new(&[1; 32], PERIOD);
        let whole: [u8; 32] = cookies.make(at(100), client(), &[]);
        let short: [u8; 4] = cookies.make(at(100), client(), &[]);
        assert_eq!(short, whole[..4]);
        for cookie in [&short[..], &whole] {
            assert!(cookies.verify(at(100), client(), &[], cookie));
            for bit in 0..8 * cookie.len() {
                let mut changed = cookie.to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!cookies.verify(at(100), client(), &[], &changed), "bit {bit}");
            }
        }
        assert!(!cookies.verify(at(100), client(), &[], &[]));
    }
}

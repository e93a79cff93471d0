//! Cookies: a client proves that it receives at its address, while the listener keeps no state.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::protocol::packet::{BurstConnectionId, COOKIE_LEN};

/// A cookie is valid in the period in which it was made, and in the next one.
const PERIOD_SECS: u64 = 120;

pub(in crate::protocol) struct BurstCookies {
    secret: Zeroizing<[u8; 32]>,
}

impl BurstCookies {
    pub(in crate::protocol) fn new(secret: [u8; 32]) -> Self {
        Self { secret: Zeroizing::new(secret) }
    }

    /// Makes the cookie for a client.
    pub(in crate::protocol) fn make(
        &self,
        now: Duration,
        client: SocketAddr,
        id: BurstConnectionId,
    ) -> [u8; COOKIE_LEN] {
        let code = self.code(now.as_secs() / PERIOD_SECS, client, id).finalize().into_bytes();
        let mut cookie = [0; COOKIE_LEN];
        cookie.copy_from_slice(&code[..COOKIE_LEN]);
        cookie
    }

    /// Whether this cookie was made for this client.
    pub(in crate::protocol) fn verify(
        &self,
        now: Duration,
        client: SocketAddr,
        id: BurstConnectionId,
        cookie: &[u8; COOKIE_LEN],
    ) -> bool {
        let period = now.as_secs() / PERIOD_SECS;
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.code(period, client, id).verify_truncated_left(cookie).is_ok())
    }

    fn code(&self, period: u64, client: SocketAddr, id: BurstConnectionId) -> Hmac<Sha256> {
        let mut code = <Hmac<Sha256> as KeyInit>::new_from_slice(&*self.secret)
            .expect("keys of any length are taken");
        code.update(&period.to_be_bytes());
        match client.ip() {
            IpAddr::V4(ip) => code.update(&ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => code.update(&ip.octets()),
        }
        code.update(&client.port().to_be_bytes());
        code.update(&id.to_bytes());
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_of_one_client_and_some_minutes() {
        let cookies = BurstCookies::new([1; 32]);
        let id = |byte| BurstConnectionId::new([byte; 8]).unwrap();
        let at = |secs| Duration::from_secs(secs);
        let client = SocketAddr::from(([192, 0, 2, 1], 7));
        let cookie = cookies.make(at(100), client, id(1));
        assert!(cookies.verify(at(100), client, id(1), &cookie));
        assert!(cookies.verify(at(239), client, id(1), &cookie));
        assert!(!cookies.verify(at(240), client, id(1), &cookie));
        assert!(!cookies.verify(at(100), client, id(2), &cookie));
        let other = SocketAddr::from(([192, 0, 2, 1], 8));
        assert!(!cookies.verify(at(100), other, id(1), &cookie));
        assert!(!BurstCookies::new([2; 32]).verify(at(100), client, id(1), &cookie));
        assert!(!cookies.verify(at(100), client, id(1), &[0; COOKIE_LEN]));
    }
}

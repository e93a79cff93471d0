//! Limits the connections whose greeting is pending, in total and per source address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use super::lock;

/// The maximum number of pending greetings.
const MAX_GREETING: usize = 256;

/// The maximum per source. It leaves room for other sources, and for a group behind one address.
const MAX_OF_SOURCE: usize = MAX_GREETING / 2;

/// The pending greetings, by source address.
#[derive(Debug, Default)]
pub(super) struct PendingGreetings(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection whose greeting is pending until this is dropped.
#[derive(Debug)]
pub(super) struct PendingGreeting {
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
    source: IpAddr,
}

impl PendingGreetings {
    /// Counts a new connection from this address.
    ///
    /// # Errors
    /// Why the connection must be refused.
    pub(super) fn begin(&self, address: IpAddr) -> Result<PendingGreeting, &'static str> {
        let source = source_of(address);
        let mut all = lock(&self.0);
        if all.values().sum::<usize>() >= MAX_GREETING {
            return Err("too many other connections have sent no greeting yet");
        }
        let count = all.entry(source).or_default();
        if *count >= MAX_OF_SOURCE {
            return Err("too many others from its address have sent no greeting yet");
        }
        *count += 1;
        Ok(PendingGreeting { all: self.0.clone(), source })
    }
}

impl Drop for PendingGreeting {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        let Some(count) = all.get_mut(&self.source) else { return };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.source);
        }
    }
}

/// The IPv4 address, or the IPv6 /64 network, because one host can use all addresses of a /64.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(all: &PendingGreetings, address: &str) -> Result<PendingGreeting, &'static str> {
        all.begin(address.parse().unwrap())
    }

    #[test]
    fn pending_greetings_are_limited_per_source() {
        let all = PendingGreetings::default();
        let mut one: Vec<_> = (0..MAX_OF_SOURCE)
            .map(|number| begin(&all, &format!("2001:db8::{number:x}")).unwrap())
            .collect();
        let error = begin(&all, "2001:db8::ffff").unwrap_err();
        assert_eq!(error, "too many others from its address have sent no greeting yet");
        let others: Vec<_> = (0..MAX_OF_SOURCE)
            .map(|number| begin(&all, &format!("192.0.2.{}", number % 8)).unwrap())
            .collect();
        assert_eq!(
            begin(&all, "192.0.2.9").unwrap_err(),
            "too many other connections have sent no greeting yet"
        );
        one.pop();
        assert!(begin(&all, "::ffff:192.0.2.9").is_ok());
        drop((one, others));
        assert!(lock(&all.0).is_empty());
    }
}

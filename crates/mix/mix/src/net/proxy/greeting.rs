//! Connections that have no group yet: how many there may be, in all and of one source.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use super::lock;

/// The most of them at a time.
const MAX_GREETING: usize = 256;

/// The most of one source: others have a place in any case, and so has a group behind one address.
const MAX_OF_SOURCE: usize = MAX_GREETING / 2;

/// The connections that have no group yet, by their sources.
#[derive(Debug, Default)]
pub(super) struct PendingGreetings(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection that has no group yet, until this is dropped.
#[derive(Debug)]
pub(super) struct PendingGreeting {
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
    source: IpAddr,
}

impl PendingGreetings {
    /// A connection has come from this address.
    ///
    /// # Errors
    /// Why it is to be refused.
    pub(super) fn begin(&self, address: IpAddr) -> Result<PendingGreeting, &'static str> {
        let source = source_of(address);
        let mut all = lock(&self.0);
        if all.values().sum::<usize>() >= MAX_GREETING {
            return Err("too many others begin to talk");
        }
        let count = all.entry(source).or_default();
        if *count >= MAX_OF_SOURCE {
            return Err("too many others from its address begin to talk");
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

/// The address, or the network of 64 bits, of which one host can have all addresses.
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
    fn one_source_leaves_places_for_others() {
        let all = PendingGreetings::default();
        let mut one: Vec<_> = (0..MAX_OF_SOURCE)
            .map(|number| begin(&all, &format!("2001:db8::{number:x}")).unwrap())
            .collect();
        let error = begin(&all, "2001:db8::ffff").unwrap_err();
        assert_eq!(error, "too many others from its address begin to talk");
        let others: Vec<_> = (0..MAX_OF_SOURCE)
            .map(|number| begin(&all, &format!("192.0.2.{}", number % 8)).unwrap())
            .collect();
        assert_eq!(begin(&all, "192.0.2.9").unwrap_err(), "too many others begin to talk");
        one.pop();
        assert!(begin(&all, "::ffff:192.0.2.9").is_ok());
        drop((one, others));
        assert!(lock(&all.0).is_empty());
    }
}

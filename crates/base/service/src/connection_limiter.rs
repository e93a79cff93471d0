//! Limits the number of simultaneous connections, so that a client that only connects does not
//! block others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use ipnet::Ipv6Net;
use tokio::task::{AbortHandle, Id, JoinSet};

/// The prefix length of an IPv6 address that identifies a source, in bits: a site gets a /48 and
/// has all addresses in it.
const SITE_PREFIX_LEN: u8 = 48;

/// Tasks that serve one connection each. Their number is limited, in total and for each source. A
/// new connection is always accepted: if a limit is reached, the oldest task of its source is
/// ended, or the oldest of the source with the most.
#[derive(Debug)]
pub struct ConnectionLimiter {
    max: usize,
    max_of_source: usize,
    tasks: JoinSet<()>,
    /// The tasks that run, oldest first.
    running: VecDeque<ServedConnection>,
}

#[derive(Debug)]
struct ServedConnection {
    source: IpAddr,
    task: AbortHandle,
}

impl ConnectionLimiter {
    /// Serves at most `max` connections at a time, and `max_of_source` of one source. Both are at
    /// least 1.
    pub fn new(max: usize, max_of_source: usize) -> Self {
        Self { max, max_of_source, tasks: JoinSet::new(), running: VecDeque::new() }
    }

    /// Serves a connection from this address. If another task was ended for it, returns that task's
    /// source: an IPv4 address, or the first address of an IPv6 network with a 48-bit prefix.
    pub fn spawn(
        &mut self,
        address: IpAddr,
        serving: impl Future<Output = ()> + Send + 'static,
    ) -> Option<IpAddr> {
        let source = source(address);
        // Tasks that have ended do not count.
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.remove_ended(ended.map_or_else(|error| error.id(), |(id, ())| id));
        }
        let evicted = self.to_evict(source).and_then(|oldest| self.running.remove(oldest));
        if let Some(ServedConnection { task, .. }) = &evicted {
            task.abort();
        }
        self.running.push_back(ServedConnection { source, task: self.tasks.spawn(serving) });
        evicted.map(|evicted| evicted.source)
    }

    /// Waits until one task has ended. If there is none, never returns.
    pub async fn join_next(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.remove_ended(ended.map_or_else(|error| error.id(), |(id, ())| id)),
            None => std::future::pending().await,
        }
    }

    /// Waits until all tasks have ended.
    pub async fn join_all(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// The task to end for another connection of this source.
    fn to_evict(&self, source: IpAddr) -> Option<usize> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for running in &self.running {
            *counts.entry(running.source).or_default() += 1;
        }
        let oldest_of = |source| self.running.iter().position(|running| running.source == source);
        if counts.get(&source).is_some_and(|own| *own >= self.max_of_source) {
            return oldest_of(source);
        }
        if self.running.len() < self.max {
            return None;
        }
        let most = counts.values().max()?;
        self.running.iter().position(|running| counts.get(&running.source) == Some(most))
    }

    fn remove_ended(&mut self, ended: Id) {
        self.running.retain(|running| running.task.id() != ended);
    }
}

/// The source of a connection, as far as its address tells: an IPv4 address, or the first address
/// of an IPv6 network with a 48-bit prefix.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Net::new_assert(address, SITE_PREFIX_LEN).network().into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Adds connections that never end, from each of these addresses; returns the source that was
    /// ended for each.
    fn evicted(limiter: &mut ConnectionLimiter, addresses: &[&str]) -> Vec<Option<IpAddr>> {
        addresses.iter().map(|address| limiter.spawn(ip(address), pending())).collect()
    }

    #[tokio::test]
    async fn a_source_with_its_part_ends_its_own() {
        let mut limiter = ConnectionLimiter::new(10, 2);
        let (one, other) = ("192.0.2.1", "192.0.2.2");
        let ended = evicted(&mut limiter, &[one, one, other, one, other]);
        assert_eq!(ended, [None, None, None, Some(ip(one)), None]);
        assert_eq!(limiter.running.len(), 4);
        // An IPv4 address and its IPv6-mapped form are the same source.
        assert_eq!(evicted(&mut limiter, &["::ffff:192.0.2.2"]), [Some(ip(other))]);
    }

    #[tokio::test]
    async fn when_all_places_are_taken_the_source_with_the_most_has_one_fewer() {
        let mut limiter = ConnectionLimiter::new(4, 3);
        let (a, b, c) = ("192.0.2.1", "192.0.2.2", "192.0.2.3");
        assert_eq!(evicted(&mut limiter, &[b, a, a, a]), [None; 4]);
        assert_eq!(evicted(&mut limiter, &[c]), [Some(ip(a))]);
        // Of the sources with equally many, the one with the oldest task.
        assert_eq!(evicted(&mut limiter, &[b]), [Some(ip(a))]);
        assert_eq!(evicted(&mut limiter, &[a]), [Some(ip(b))]);
    }

    #[tokio::test]
    async fn addresses_of_one_site_are_one_source() {
        let mut limiter = ConnectionLimiter::new(10, 1);
        let ended =
            evicted(&mut limiter, &["2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:2:1::1"]);
        assert_eq!(ended, [None, Some(ip("2001:db8:1::")), None]);
    }

    #[tokio::test]
    async fn who_has_ended_makes_room() {
        let mut limiter = ConnectionLimiter::new(2, 2);
        for _ in 0..100 {
            assert_eq!(limiter.spawn(ip("192.0.2.1"), async {}), None);
            limiter.join_next().await;
        }
        assert!(limiter.running.is_empty());
        limiter.spawn(ip("192.0.2.1"), async {});
        limiter.join_all().await;
    }
}

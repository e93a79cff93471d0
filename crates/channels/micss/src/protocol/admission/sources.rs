//! Finds the source that holds most.
//!
//! A source is an IPv4 address or an IPv6 network. An IPv6 host has a /64, and often a /56 or a
//! /48. So IPv6 networks are compared in three steps: first the largest of all /48 networks and all
//! IPv4 addresses, in this /48 the largest /56, and in that the largest /64. The first step finds a
//! source that spreads over a /48, and the other two protect its neighbours.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;

/// The prefix lengths by which IPv6 addresses are grouped.
const IPV6_PREFIXES: [u8; 3] = [48, 56, 64];

/// The same for IPv4.
const IPV4_PREFIXES: [u8; 1] = [32];

/// The amount of each holder, by number, and the networks of the holders. An operation takes a few
/// look-ups, for any number of holders.
#[derive(Debug, Default)]
pub(crate) struct SourceUsage {
    holders: HashMap<u64, ResourceHolder>,
    /// The holders of each smallest network, the oldest first.
    by_age: HashMap<IpNet, BTreeSet<(u64, u64)>>,
    networks: HashMap<IpNet, NetworkUsage>,
    /// The networks in each network, and at the top level the largest ones. The smallest amount is
    /// first, and among equal amounts the network that has not changed for longest.
    by_amount: BTreeMap<Option<IpNet>, BTreeSet<(u64, u64, IpNet)>>,
    total: u64,
    /// The number of changes so far.
    changes: u64,
}

#[derive(Clone, Copy, Debug)]
struct ResourceHolder {
    source: IpAddr,
    amount: u64,
    taken_at: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct NetworkUsage {
    amount: u64,
    changed_at: u64,
}

impl SourceUsage {
    /// Adds an amount to a holder of this source, which may hold something already. Its number must
    /// not be used for another source.
    pub(crate) fn take(&mut self, number: u64, source: IpAddr, amount: u64) {
        let source = source.to_canonical();
        let new = ResourceHolder { source, amount: 0, taken_at: self.changes + 1 };
        self.changes += 1;
        let holder = self.holders.entry(number).or_insert(new);
        holder.amount += amount;
        let age = (holder.taken_at, number);
        self.by_age.entry(smallest(source)).or_default().insert(age);
        self.change(source, |held| held + amount);
    }

    /// Makes a holder the newest.
    pub(crate) fn renew(&mut self, number: u64) {
        let Some(holder) = self.holders.get_mut(&number) else { return };
        self.changes += 1;
        let before = std::mem::replace(&mut holder.taken_at, self.changes);
        let ages = self.by_age.entry(smallest(holder.source)).or_default();
        ages.remove(&(before, number));
        ages.insert((self.changes, number));
    }

    /// Subtracts an amount from a holder, but no more than it holds. A holder without anything is
    /// removed.
    pub(crate) fn release(&mut self, number: u64, amount: u64) {
        let Some(holder) = self.holders.get_mut(&number) else { return };
        let amount = amount.min(holder.amount);
        holder.amount -= amount;
        let ResourceHolder { source, amount: left, taken_at } = *holder;
        self.changes += 1;
        self.change(source, |held| held - amount);
        if left == 0 {
            self.holders.remove(&number);
            let network = smallest(source);
            if let Some(ages) = self.by_age.get_mut(&network) {
                ages.remove(&(taken_at, number));
                if ages.is_empty() {
                    self.by_age.remove(&network);
                }
            }
        }
    }

    /// Removes a holder with its whole amount.
    pub(crate) fn remove(&mut self, number: u64) {
        self.release(number, u64::MAX);
    }

    /// The sum of all amounts.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The source of a holder. `None` if it holds nothing.
    pub(crate) fn source(&self, number: u64) -> Option<IpAddr> {
        self.holders.get(&number).map(|holder| holder.source)
    }

    /// Whether two holders have the same source.
    pub(crate) fn is_same_source(&self, one: u64, other: u64) -> bool {
        let source = |number| self.source(number).map(smallest);
        source(one) == source(other)
    }

    /// The oldest holder of the largest source. Among equal sources, the one that has not changed
    /// for longest is chosen.
    pub(crate) fn oldest_of_largest(&self) -> Option<u64> {
        let network = self.largest(|networks| {
            let &(most, ..) = networks.last()?;
            networks.range((most, 0, least())..).next()
        })?;
        self.by_age.get(&network)?.first().map(|&(_, number)| number)
    }

    /// The newest holder of the largest source. Among equal sources, the one that has changed last
    /// is chosen.
    pub(crate) fn newest_of_largest(&self) -> Option<u64> {
        let network = self.largest(BTreeSet::last)?;
        self.by_age.get(&network)?.last().map(|&(_, number)| number)
    }

    /// The largest of the networks, then the largest in that, and so on. `choose` selects it.
    fn largest(
        &self,
        choose: impl Fn(&BTreeSet<(u64, u64, IpNet)>) -> Option<&(u64, u64, IpNet)>,
    ) -> Option<IpNet> {
        let mut network = None;
        while let Some(networks) = self.by_amount.get(&network) {
            network = Some(choose(networks)?.2);
        }
        network
    }

    /// Changes the amounts of the networks of a source.
    fn change(&mut self, source: IpAddr, new: impl Fn(u64) -> u64) {
        let changed_at = self.changes;
        self.total = new(self.total);
        let mut outer = None;
        for network in networks(source) {
            let before = self.networks.get(&network).copied().unwrap_or_default();
            let amount = new(before.amount);
            let inner = self.by_amount.entry(outer).or_default();
            inner.remove(&(before.amount, before.changed_at, network));
            if amount > 0 {
                inner.insert((amount, changed_at, network));
                self.networks.insert(network, NetworkUsage { amount, changed_at });
            } else {
                self.networks.remove(&network);
                if inner.is_empty() {
                    self.by_amount.remove(&outer);
                }
            }
            outer = Some(network);
        }
    }
}

/// The networks that an address is in, the largest first.
fn networks(source: IpAddr) -> impl Iterator<Item = IpNet> {
    let prefixes: &[u8] = if source.is_ipv4() { &IPV4_PREFIXES } else { &IPV6_PREFIXES };
    prefixes.iter().map(move |&prefix| IpNet::new_assert(source, prefix).trunc())
}

/// The smallest of them.
fn smallest(source: IpAddr) -> IpNet {
    networks(source).last().expect("there is one at least")
}

/// A lower bound in the order of networks, which is not used itself.
fn least() -> IpNet {
    IpNet::new_assert(IpAddr::from([0; 4]), 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Each source takes one, with its index in the list as its number.
    fn filled(sources: impl IntoIterator<Item = String>) -> SourceUsage {
        let mut all = SourceUsage::default();
        for (number, source) in (0..).zip(sources) {
            all.take(number, ip(&source), 1);
        }
        all
    }

    #[test]
    fn the_largest_source_loses_its_oldest_or_its_newest() {
        let mut sources = filled(["10.0.0.9", "10.0.0.1", "10.0.0.1", "10.0.0.2"].map(Into::into));
        assert_eq!((sources.oldest_of_largest(), sources.newest_of_largest()), (Some(1), Some(2)));
        sources.take(4, ip("::ffff:10.0.0.1"), 1);
        assert_eq!(sources.newest_of_largest(), Some(4), "the same address in another form");
        assert!(sources.is_same_source(1, 4) && !sources.is_same_source(1, 3));
        sources.take(1, ip("10.0.0.1"), 1);
        assert_eq!(sources.newest_of_largest(), Some(4));
        sources.renew(1);
        assert_eq!((sources.oldest_of_largest(), sources.newest_of_largest()), (Some(2), Some(1)));
        sources.release(1, 1);
        sources.take(0, ip("10.0.0.9"), 9);
        assert_eq!((sources.oldest_of_largest(), sources.newest_of_largest()), (Some(0), Some(0)));
        sources.release(0, 9);
        assert_eq!(sources.oldest_of_largest(), Some(2));
        assert_eq!(sources.total(), 5);
    }

    /// Otherwise it would always be the last address.
    #[test]
    fn equal_sources_are_evicted_by_age() {
        let sources = filled(["10.0.0.2", "10.0.0.9", "10.0.0.1"].map(Into::into));
        assert_eq!((sources.oldest_of_largest(), sources.newest_of_largest()), (Some(0), Some(2)));
    }

    /// The attacker has one connection in each of 1,000 networks of a /48, and an honest host has
    /// 20 in one network of its own.
    #[test]
    fn a_source_that_spreads_over_a_48_is_found() {
        let honest = (0..20).map(|_| "2001:db8:1:1::1".to_owned());
        let spread = (0..1000).map(|i| format!("2001:db8:2:{i:x}::1"));
        let sources = filled(honest.chain(spread));
        let oldest = sources.oldest_of_largest().unwrap();
        assert!(oldest >= 20, "an honest one: {oldest}");
    }

    /// The same for a /56 in the same /48.
    #[test]
    fn a_source_that_spreads_over_a_56_is_found() {
        let honest = (0..20).map(|_| "2001:db8:1:101::1".to_owned());
        let spread = (0..256).map(|i| format!("2001:db8:1:2{i:02x}::1"));
        let sources = filled(honest.chain(spread));
        assert!(sources.oldest_of_largest().unwrap() >= 20);
    }

    /// A provider's customers are in one /48, and one of them floods.
    #[test]
    fn neighbours_of_a_large_source_are_spared() {
        let customers = (0..200).map(|i| format!("2001:db8:1:{i:02x}01::1"));
        let floods = (0..100).map(|i| format!("2001:db8:1:{:x}::{i}", 0x4200));
        let others = (0..250).map(|i| format!("10.0.0.{i}"));
        let mut sources = filled(customers.chain(floods).chain(others));
        for gone in 0..100 {
            let oldest = sources.oldest_of_largest().unwrap();
            assert!((200..300).contains(&oldest) || gone == 99, "{oldest} after {gone}");
            sources.remove(oldest);
        }
    }

    /// Sources of which some share a network of each size.
    fn any_source() -> impl Strategy<Value = IpAddr> {
        let v6 = (0..2u8, 0..2u8, 0..2u8, 0..2u8)
            .prop_map(|(a, b, c, d)| ip(&format!("2001:db8:{a}:{b}0{c}::{d}")));
        prop_oneof![(1..4u8).prop_map(|last| IpAddr::from([10, 0, 0, last])), v6]
    }

    proptest! {
        /// After any sequence of changes, the sums are right, and nothing remains of removed
        /// holders.
        #[test]
        fn sums_fit_at_any_time(steps in prop::collection::vec(
            (0..12u64, any_source(), 0..4u64, any::<bool>()), 0..200,
        )) {
            let mut sources = SourceUsage::default();
            let mut known: HashMap<u64, (IpAddr, u64)> = HashMap::new();
            for (number, source, amount, takes) in steps {
                if takes {
                    let holder = known.entry(number).or_insert((source, 0));
                    holder.1 += amount + 1;
                    sources.take(number, holder.0, amount + 1);
                } else {
                    sources.release(number, amount);
                    if let Some((_, held)) = known.get_mut(&number) {
                        *held = held.saturating_sub(amount);
                    }
                    known.retain(|_, (_, held)| *held > 0);
                }
                prop_assert_eq!(sources.total(), known.values().map(|(_, held)| held).sum::<u64>());
                // The largest by the definition, step by step.
                let mut inside: Vec<(u64, IpAddr, u64)> =
                    known.iter().map(|(&number, &(source, held))| (number, source, held)).collect();
                for step in 0..3 {
                    let network = |source: IpAddr| {
                        networks(source).nth(step).unwrap_or_else(|| smallest(source))
                    };
                    let mut sums: HashMap<IpNet, u64> = HashMap::new();
                    for &(_, source, held) in &inside {
                        *sums.entry(network(source)).or_default() += held;
                    }
                    let most = sums.values().max().copied();
                    let found = sources.newest_of_largest();
                    let source = found.map(|number| known[&number].0);
                    prop_assert_eq!(source.map(|source| sums[&network(source)]), most);
                    inside.retain(|(_, other, _)| Some(network(*other)) == source.map(network));
                }
            }
            for number in 0..12 {
                sources.remove(number);
            }
            prop_assert!(sources.holders.is_empty() && sources.by_age.is_empty());
            prop_assert!(sources.networks.is_empty() && sources.by_amount.is_empty());
        }
    }
}

//! The flows of intercepted datagrams, of which a client has a limited number. Pure.
//!
//! A flow is what one socket of an application sends to one destination. If there are too many, the
//! least recently used flow of the host with the most flows makes room: so a host that opens very
//! many displaces only its own.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use crate::protocol::admission::SourceUsage;

/// The flows by their keys, each with what the caller stores for it.
#[derive(Debug)]
pub(crate) struct UdpFlowTable<K, T> {
    flows: HashMap<K, (u64, T)>,
    /// The keys by the numbers of flows.
    keys: HashMap<u64, K>,
    usage: SourceUsage,
    last_number: u64,
}

impl<K: Clone + Eq + Hash, T> UdpFlowTable<K, T> {
    /// No flows.
    pub(crate) fn new() -> Self {
        Self {
            flows: HashMap::new(),
            keys: HashMap::new(),
            usage: SourceUsage::default(),
            last_number: 0,
        }
    }

    /// The flow with this key, which is the most recently used one from now on.
    pub(crate) fn touch(&mut self, key: &K) -> Option<&T> {
        let (number, flow) = self.flows.get(key)?;
        self.usage.renew(*number);
        Some(flow)
    }

    /// Adds a flow of this host to a table of at most `max_flows`, at least one. Returns the number
    /// of other flows that make room for it. A flow that had this key is replaced.
    pub(crate) fn insert(&mut self, key: K, host: IpAddr, flow: T, max_flows: usize) -> usize {
        self.remove(&key);
        let mut evicted = 0;
        while self.flows.len() >= max_flows.max(1) {
            let number = self.usage.oldest_of_largest();
            let key = number.and_then(|number| self.keys.get(&number).cloned());
            if key.and_then(|key| self.remove(&key)).is_none() {
                break;
            }
            evicted += 1;
        }
        self.last_number += 1;
        self.usage.take(self.last_number, host, 1);
        self.keys.insert(self.last_number, key.clone());
        self.flows.insert(key, (self.last_number, flow));
        evicted
    }

    /// Removes the flows that are over.
    pub(crate) fn remove_ended(&mut self, is_over: impl Fn(&T) -> bool) {
        let over = self.flows.iter().filter(|(_, (_, flow))| is_over(flow));
        let over: Vec<K> = over.map(|(key, _)| key.clone()).collect();
        for key in over {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &K) -> Option<T> {
        let (number, flow) = self.flows.remove(key)?;
        self.keys.remove(&number);
        self.usage.release(number, 1);
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn the_least_recently_used_flow_of_the_host_with_the_most_makes_room() {
        let mut table = UdpFlowTable::new();
        for (key, from) in [("a", 1), ("b", 2), ("c", 2), ("d", 2)] {
            assert_eq!(table.insert(key, host(from), key, 4), 0);
        }
        assert_eq!(table.touch(&"b"), Some(&"b"));
        assert_eq!((table.insert("e", host(3), "e", 4), table.touch(&"c")), (1, None));
        assert_eq!((table.insert("f", host(2), "f", 4), table.touch(&"d")), (1, None));
        // A flow that had ended, and its key is used again.
        assert_eq!((table.insert("a", host(1), "A", 4), table.touch(&"a")), (0, Some(&"A")));
        table.remove_ended(|flow| *flow == "A");
        assert_eq!((table.flows.len(), table.touch(&"a")), (3, None));
        // The limit has become lower.
        assert_eq!((table.insert("g", host(4), "g", 2), table.flows.len()), (2, 2));
    }

    proptest! {
        /// A host with one flow keeps it, whatever another one does.
        #[test]
        fn a_host_that_opens_many_flows_displaces_only_its_own(keys in prop::collection::vec(1..99_u8, 1..200)) {
            let mut table = UdpFlowTable::new();
            table.insert(0, host(1), 0, 8);
            for key in keys {
                if table.touch(&key).is_none() {
                    table.insert(key, host(2), key, 8);
                }
                prop_assert!(table.touch(&0).is_some() && table.flows.len() <= 8);
                prop_assert!(table.touch(&key).is_some());
            }
        }
    }
}

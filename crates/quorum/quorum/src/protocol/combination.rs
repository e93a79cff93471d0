//! Combinatorial sharing (thesis, 3.1): which server holds which shares.

use std::fmt;

use handover::ParticipantId;

/// The largest number of faulty servers that a group may tolerate.
const MAX_FAULTY: u8 = 4;

/// The index of a server in its group, from 0 to 3f. Printed from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerIndex(pub u8);

impl ServerIndex {
    /// The server with this number in the protocols of a key that is shared by a polynomial, which
    /// count from 1.
    pub(crate) fn of(participant: ParticipantId) -> Self {
        Self(participant.number() - 1)
    }

    /// The number in the protocols of a key that is shared by a polynomial. `None` if no group has
    /// such a server.
    pub(crate) fn participant(self) -> Option<ParticipantId> {
        ParticipantId::new(self.0.checked_add(1)?)
    }
}

impl fmt::Display for ServerIndex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0 + 1)
    }
}

/// The label t of a share, from 0 to l-1. Printed from 1, as in the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u16);

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0 + 1)
    }
}

/// The processor time of a refresh per subshare, summed over all servers, in seconds. 1,856 s is
/// the total for f = 4 and 2048 bits (docs/protocols/quorum.md, *What a refresh costs*).
const SECONDS_FOR_SUBSHARE: f64 = 1856.0 / 511_225.0;

/// The memory of a refresh per subshare, summed over all servers, in bytes: 6.5 GB for the same
/// case.
const BYTES_FOR_SUBSHARE: f64 = 6.5e9 / 511_225.0;

/// A group of this size has too many shares.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "a group that tolerates {faulty} faulty servers has {} shares, and a refresh {} subshares, \
     which would take about {} of processor time and {} of memory, of all servers together: at \
     most {MAX_FAULTY} are possible, with 13 servers",
    count(*.shares), count(*.subshares), duration(.subshares * SECONDS_FOR_SUBSHARE),
    memory(.subshares * BYTES_FOR_SUBSHARE)
)]
pub struct GroupTooLarge {
    /// The number of faulty servers, f.
    pub faulty: u8,
    /// The number of shares, l. Infinite if it is too large for a float.
    pub shares: f64,
    /// The number of subshares of a refresh, l^2.
    pub subshares: f64,
}

/// A count, in scientific notation if it is large.
fn count(number: f64) -> String {
    if number < 1e12 { format!("{number}") } else { format!("{number:.0e}") }
}

/// An extrapolated time, in the unit that fits.
fn duration(seconds: f64) -> String {
    let units = [(3600.0, "hours"), (86_400.0, "days"), (31_557_600.0, "years")];
    scaled(seconds, &units, 48.0)
}

/// An extrapolated memory size, in the unit that fits.
fn memory(bytes: f64) -> String {
    scaled(bytes, &[(1e9, "GB"), (1e12, "TB"), (1e15, "PB")], 1000.0)
}

/// The value in the first unit in which it is at most `max`, or in the last unit.
fn scaled(value: f64, units: &[(f64, &str)], max: f64) -> String {
    let fitting = units.iter().find(|(unit, _)| value / unit <= max).or(units.last());
    fitting.map_or_else(String::new, |(unit, name)| {
        let number = value / unit;
        if number < 1e5 { format!("{number:.0} {name}") } else { format!("{number:.0e} {name}") }
    })
}

/// The distribution of shares in a group of n = 3f+1 servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CombinatorialSharing {
    faulty: u8,
    /// For each label, the f servers that lack the share, as a bit mask.
    lacking: Vec<u16>,
}

impl CombinatorialSharing {
    /// The distribution for a group that tolerates `faulty` servers, f: 1 to 4.
    ///
    /// # Errors
    /// If f is larger. (With f = 0, one server would have the whole key.)
    ///
    /// # Panics
    /// If f = 0.
    pub fn new(faulty: u8) -> Result<Self, GroupTooLarge> {
        assert!(faulty > 0, "a group tolerates at least one faulty server");
        if faulty > MAX_FAULTY {
            let shares = binomial(3 * u32::from(faulty) + 1, faulty.into());
            return Err(GroupTooLarge { faulty, shares, subshares: shares * shares });
        }
        Ok(Self { faulty, lacking: subsets(3 * faulty + 1, faulty) })
    }

    /// The number of faulty servers that the group tolerates, f.
    pub fn faulty(&self) -> usize {
        self.faulty.into()
    }

    /// The number of servers, n = 3f+1.
    pub fn server_count(&self) -> usize {
        3 * self.faulty() + 1
    }

    /// The size of a quorum, 2f+1: a majority of its servers is correct.
    pub fn quorum(&self) -> usize {
        2 * self.faulty() + 1
    }

    /// The number of servers that sign, f+1: at least one of them is correct.
    pub fn signer_count(&self) -> usize {
        self.faulty() + 1
    }

    /// All servers.
    pub fn servers(&self) -> impl Iterator<Item = ServerIndex> + use<> {
        (0..=3 * self.faulty).map(ServerIndex)
    }

    /// The number of shares, l.
    pub fn label_count(&self) -> usize {
        self.lacking.len()
    }

    /// All labels.
    pub fn labels(&self) -> impl Iterator<Item = Label> + use<> {
        (0..).take(self.lacking.len()).map(Label)
    }

    /// Whether a server holds the share with a label. False if the group has no such server or
    /// label.
    pub fn holds(&self, server: ServerIndex, label: Label) -> bool {
        let is_server = usize::from(server.0) < self.server_count();
        let lacking = self.lacking.get(usize::from(label.0));
        is_server && lacking.is_some_and(|lacking| lacking >> server.0 & 1 == 0)
    }

    /// The l' labels of the shares that a server holds, in ascending order.
    pub fn labels_of(&self, server: ServerIndex) -> impl Iterator<Item = Label> {
        self.labels().filter(move |&label| self.holds(server, label))
    }

    /// The 2f+1 servers that hold a share, in ascending order.
    pub fn holders(&self, label: Label) -> impl Iterator<Item = ServerIndex> {
        self.servers().filter(move |&server| self.holds(server, label))
    }

    /// The labels for which `server` is responsible in a quick sign (TS2, 3.2.1): the server holds
    /// them, and no signer with a smaller index does.
    pub fn responsible(
        &self,
        server: ServerIndex,
        signers: &[ServerIndex],
    ) -> impl Iterator<Item = Label> {
        let is_first = move |label| {
            !signers.iter().any(|&signer| signer < server && self.holds(signer, label))
        };
        self.labels_of(server).filter(move |&label| is_first(label))
    }

    /// The server that deals a share in a refresh unless it is faulty (3.3.1). Each deals l/n.
    ///
    /// # Panics
    /// If there is no such label.
    pub fn designated_dealer(&self, label: Label) -> ServerIndex {
        // If all servers are renumbered by adding 1 mod n, the dealer of the renumbered subset is
        // the renumbered dealer, because -3 f = 1 mod n. The orbits of subsets have n members,
        // because f and n have no common factor. So all servers deal the same number of shares.
        let n = self.server_count();
        let members = self.servers().filter(|&server| !self.holds(server, label));
        let sum: usize = members.map(|server| usize::from(server.0)).sum();
        let first = (n - 3 * sum % n) % n;
        let mut candidates = self.servers().skip(first).chain(self.servers());
        candidates.find(|&server| self.holds(server, label)).expect("every share has holders")
    }
}

/// The subsets of size `size` of `n` servers, as bit masks, in lexicographic order of their
/// members.
fn subsets(n: u8, size: u8) -> Vec<u16> {
    let members = |bits: &u16| (0..n).filter(|i| bits >> i & 1 == 1).collect::<Vec<_>>();
    let mut subsets: Vec<u16> =
        (0..1 << n).filter(|bits: &u16| bits.count_ones() == u32::from(size)).collect();
    subsets.sort_by_key(members);
    subsets
}

/// The binomial coefficient, approximately.
fn binomial(n: u32, k: u32) -> f64 {
    (0..k).map(|i| f64::from(n - i) / f64::from(i + 1)).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combinations(n: u8, size: usize) -> Vec<Vec<ServerIndex>> {
        let all = subsets(n, size.try_into().unwrap()).into_iter();
        let members = |bits: u16| (0..n).filter(|i| bits >> i & 1 == 1).map(ServerIndex).collect();
        all.map(members).collect()
    }

    #[test]
    fn sizes_are_those_of_table_a1() {
        for (faulty, servers, labels, held) in
            [(1, 4, 4, 3), (2, 7, 21, 15), (3, 10, 120, 84), (4, 13, 715, 495)]
        {
            let combination = CombinatorialSharing::new(faulty).unwrap();
            assert_eq!(combination.server_count(), servers);
            assert_eq!(combination.label_count(), labels);
            for server in combination.servers() {
                assert_eq!(combination.labels_of(server).count(), held);
            }
            for label in combination.labels() {
                assert_eq!(combination.holders(label).count(), combination.quorum());
            }
        }
    }

    #[test]
    fn shares_are_those_of_table_3_1() {
        let combination = CombinatorialSharing::new(1).unwrap();
        let held = |server| combination.labels_of(ServerIndex(server)).map(|label| label.0);
        assert!(held(0).eq([1, 2, 3]));
        assert!(held(1).eq([0, 2, 3]));
        assert!(held(2).eq([0, 1, 3]));
        assert!(held(3).eq([0, 1, 2]));
    }

    #[test]
    fn f_servers_lack_a_share_and_every_f_plus_1_use_each_once() {
        for faulty in 1..=3 {
            let combination = CombinatorialSharing::new(faulty).unwrap();
            let n = 3 * faulty + 1;
            for few in combinations(n, combination.faulty()) {
                let lacked = combination
                    .labels()
                    .filter(|&label| !few.iter().any(|&server| combination.holds(server, label)));
                assert_eq!(lacked.count(), 1, "of {few:?}");
            }
            for signers in combinations(n, combination.signer_count()) {
                let mut used: Vec<Label> = signers
                    .iter()
                    .flat_map(|&server| combination.responsible(server, &signers))
                    .collect();
                used.sort();
                assert!(used.into_iter().eq(combination.labels()), "of {signers:?}");
            }
        }
    }

    #[test]
    fn dealers_hold_what_they_deal_and_share_the_work() {
        for faulty in 1..=MAX_FAULTY {
            let combination = CombinatorialSharing::new(faulty).unwrap();
            let mut loads = vec![0; combination.server_count()];
            for label in combination.labels() {
                let dealer = combination.designated_dealer(label);
                assert!(combination.holds(dealer, label));
                loads[usize::from(dealer.0)] += 1;
            }
            let each = combination.label_count() / combination.server_count();
            assert!(loads.iter().all(|&load| load == each), "{loads:?}");
        }
    }

    #[test]
    fn larger_groups_are_rejected_with_an_estimate() {
        let refused = CombinatorialSharing::new(5).unwrap_err();
        assert_eq!((refused.shares, refused.subshares), (4368.0, 19_079_424.0));
        assert!(refused.to_string().contains("4368 shares"), "{refused}");
        let largest = CombinatorialSharing::new(84).unwrap_err().to_string();
        assert!(largest.contains(" years of processor time"), "{largest}");
    }
}

//! What an adversary can sign with shares that it has copied.

use std::collections::BTreeMap;

use keys::rsa::{Encoding, PUBLIC_EXPONENT};
use quorum::in_process::WholeGroup;
use quorum::refresh::Shares;
use quorum::{Element, GroupKey, Label};

/// The result of the attempts to sign with shares of two servers.
pub(super) struct Theft {
    /// One server of each group, or two of the same.
    pub(super) across_groups: Attempts,
    pub(super) in_one_group: Attempts,
}

/// Attempts of pairs of servers.
#[derive(Default)]
pub(super) struct Attempts {
    pub(super) pairs: usize,
    /// The products of partial signatures that were tried.
    pub(super) products: usize,
    /// The pairs that have made a signature.
    pub(super) signed: usize,
}

/// A copy of the shares of each server of a group.
pub(super) fn copies_of_shares(group: &WholeGroup) -> Vec<Shares> {
    group.combination().servers().map(|server| (**group.shares(server)).clone()).collect()
}

/// The partial signatures that one server can make, by group and label.
type Partials = BTreeMap<(u8, Label), Element>;

impl Theft {
    /// Tries all products of the partial signatures of an old and a new server, and of two of the
    /// same group, which are enough.
    pub(super) fn of(key: &GroupKey, message: &[u8], old: &[Shares], new: &[Shares]) -> Self {
        let number = Encoding::Pkcs1.encode(message, key.modulus().byte_len());
        let number = number.and_then(|number| key.modulus().element(&number));
        let number = number.expect("the key is long enough");
        let [old, new] =
            [(0, old), (1, new)].map(|(group, servers)| partials(key, &number, group, servers));
        let mut theft =
            Self { across_groups: Attempts::default(), in_one_group: Attempts::default() };
        for one in &old {
            for other in &new {
                theft.across_groups.add(key, &number, one, other);
            }
        }
        for group in [&old, &new] {
            for (at, one) in group.iter().enumerate() {
                for other in &group[at + 1..] {
                    theft.in_one_group.add(key, &number, one, other);
                }
            }
        }
        theft
    }
}

impl Attempts {
    /// Tries the products of all subsets of what two servers have.
    fn add(&mut self, key: &GroupKey, number: &Element, one: &Partials, other: &Partials) {
        let all: Partials = one.iter().chain(other).map(|(key, it)| (*key, it.clone())).collect();
        let all: Vec<&Element> = all.values().collect();
        let mut has_signed = false;
        for subset in 0_u32..1 << all.len() {
            let factors = (0..).zip(&all).filter(|(at, _)| subset >> at & 1 == 1);
            let product = key.modulus().product(factors.map(|(_, factor)| *factor));
            has_signed |= product.pow(PUBLIC_EXPONENT.into()) == *number;
            self.products += 1;
        }
        self.pairs += 1;
        self.signed += usize::from(has_signed);
    }
}

/// The number to the power of each share of each server.
fn partials(key: &GroupKey, number: &Element, group: u8, servers: &[Shares]) -> Vec<Partials> {
    // Servers have most shares in common.
    let mut powers = BTreeMap::<Label, Element>::new();
    let mut partial = |label, share: &_| {
        let power = || key.modulus().pow(number, share).expect("nobody has a factor of N");
        ((group, label), powers.entry(label).or_insert_with(power).clone())
    };
    let of_server =
        |shares: &Shares| shares.iter().map(|(&label, share)| partial(label, share)).collect();
    servers.iter().map(of_server).collect()
}

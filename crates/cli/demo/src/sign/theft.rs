//! What an adversary can sign with shares that it has copied.

use std::collections::BTreeMap;

use keys::rsa::{PUBLIC_EXPONENT, RsaEncoding};
use quorum::in_process::InProcessGroup;
use quorum::refresh::LabeledShares;
use quorum::{GroupPublicKey, Label, RsaElement};

/// The result of the attempts to sign with shares of two servers.
pub(super) struct ShareTheft {
    /// One server of each group, or two of the same.
    pub(super) across_groups: TheftAttempts,
    pub(super) in_one_group: TheftAttempts,
}

/// Attempts of pairs of servers.
#[derive(Default)]
pub(super) struct TheftAttempts {
    pub(super) pairs: usize,
    /// The products of partial signatures that were tried.
    pub(super) products: usize,
    /// The pairs that have made a signature.
    pub(super) signed: usize,
}

/// A copy of the shares of each server of a group.
pub(super) fn copies_of_shares(group: &InProcessGroup) -> Vec<LabeledShares> {
    group.combination().servers().map(|server| (**group.shares(server)).clone()).collect()
}

/// The partial signatures that one server can make, by group and label.
type ServerPartialSignatures = BTreeMap<(u8, Label), RsaElement>;

impl ShareTheft {
    /// Tries all products of the partial signatures of an old and a new server, and of two of the
    /// same group, which are enough.
    pub(super) fn of(
        key: &GroupPublicKey,
        message: &[u8],
        old: &[LabeledShares],
        new: &[LabeledShares],
    ) -> Self {
        let number = RsaEncoding::Pkcs1.encode(message, key.modulus().byte_len());
        let number = number.and_then(|number| key.modulus().element(&number));
        let number = number.expect("the key is long enough");
        let [old, new] =
            [(0, old), (1, new)].map(|(group, servers)| partials(key, &number, group, servers));
        let mut theft = Self {
            across_groups: TheftAttempts::default(),
            in_one_group: TheftAttempts::default(),
        };
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

impl TheftAttempts {
    /// Tries the products of all subsets of what two servers have.
    fn add(
        &mut self,
        key: &GroupPublicKey,
        number: &RsaElement,
        one: &ServerPartialSignatures,
        other: &ServerPartialSignatures,
    ) {
        let all: ServerPartialSignatures =
            one.iter().chain(other).map(|(key, it)| (*key, it.clone())).collect();
        let all: Vec<&RsaElement> = all.values().collect();
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
fn partials(
    key: &GroupPublicKey,
    number: &RsaElement,
    group: u8,
    servers: &[LabeledShares],
) -> Vec<ServerPartialSignatures> {
    // Servers have most shares in common.
    let mut powers = BTreeMap::<Label, RsaElement>::new();
    let mut partial = |label, share: &_| {
        let power = || key.modulus().pow(number, share).expect("nobody has a factor of N");
        ((group, label), powers.entry(label).or_insert_with(power).clone())
    };
    let of_server = |shares: &LabeledShares| {
        shares.iter().map(|(&label, share)| partial(label, share)).collect()
    };
    servers.iter().map(of_server).collect()
}

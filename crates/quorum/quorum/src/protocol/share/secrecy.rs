//! What f servers of an old group and f servers of a new group can do and see together.

use rsa_arithmetic::fixture::tiny_key;
use rsa_arithmetic::modulus::RsaElement;
use sim::SeededRng;
use sim::statistics::ChiSquared;

use super::*;
use crate::protocol::combination::ServerIndex;

/// Shares of an old group, and the subshares into which each was split for a new group.
struct SampleResharing {
    /// `s_t`.
    old: Vec<SecretInteger>,
    /// `s_{t,u}`.
    subshares: Vec<Vec<SecretInteger>>,
    /// `s_u`.
    new: Vec<SecretInteger>,
}

impl SampleResharing {
    fn new(range: ShareRange, secret: &SecretInteger, labels: usize, rng: &mut SeededRng) -> Self {
        let old = split(range, secret, labels, rng);
        let row = |share| split(range, share, labels, rng);
        let subshares: Vec<Vec<_>> = old.iter().map(row).collect();
        let column = |u: usize| range.sum(subshares.iter().map(|row| &row[u]));
        let new = (0..labels).map(column).collect();
        Self { old, subshares, new }
    }

    /// The sums of which a set of servers knows all terms, if it lacks the old label t and the new
    /// label u: the old shares, the new shares, the subshares of `s_t`, and the subshares that sum
    /// to `s_u`.
    fn known(&self, t: usize, u: usize) -> [Vec<&SecretInteger>; 4] {
        let rows = self.subshares.iter().enumerate().filter(|(at, _)| *at != t);
        [
            without(&self.old, t).collect(),
            without(&self.new, u).collect(),
            without(&self.subshares[t], u).collect(),
            rows.map(|(_, row)| &row[u]).collect(),
        ]
    }
}

/// Shares of an integer, by label.
fn split(
    range: ShareRange,
    secret: &SecretInteger,
    labels: usize,
    rng: &mut SeededRng,
) -> Vec<SecretInteger> {
    let split =
        range.split_with(secret, (1..labels).map(|_| ShareExpansionSeed(rng.bytes())).collect());
    (0..).map(Label).take(labels).map(|label| split.share(label)).collect()
}

/// All integers but one.
fn without(it: &[SecretInteger], missing: usize) -> impl Iterator<Item = &SecretInteger> {
    it.iter().enumerate().filter(move |(at, _)| *at != missing).map(|(_, it)| it)
}

/// Every product of some of these numbers and of inverses of others.
fn products(one: RsaElement, numbers: &[RsaElement]) -> Vec<RsaElement> {
    let mut products = vec![one];
    for number in numbers {
        let inverse = number.inverse().unwrap();
        let more: Vec<RsaElement> =
            products.iter().flat_map(|it| [it.times(number), it.times(&inverse)]).collect();
        products.extend(more);
    }
    products
}

/// For each set of f servers of a group, one label that it lacks.
fn lacked(group: &CombinatorialSharing) -> Vec<usize> {
    let sets = (0_u16..1 << group.server_count())
        .filter(|bits| bits.count_ones() as usize == group.faulty());
    let lacked = |bits: u16| {
        let holds = |label| {
            group.servers().any(|it: ServerIndex| bits >> it.0 & 1 == 1 && group.holds(it, label))
        };
        let lacked: Vec<_> = group.labels().filter(|&label| !holds(label)).collect();
        assert_eq!(lacked.len(), 1);
        usize::from(lacked[0].0)
    };
    sets.map(lacked).collect()
}

/// f servers of the old group and f of the new one try all products of the partial signatures that
/// they can compute, and of their inverses. With f = 1 they use every share and subshare
/// separately, which makes 3^12 products. With f = 2 they use the sums of one kind. With the one
/// subshare that they lack, some of the same products are the signature.
#[test]
fn f_old_and_f_new_servers_cannot_sign() {
    let key = tiny_key();
    let modulus = key.group().modulus();
    let mut generator = RandomGenerator::seeded().unwrap();
    let range = ShareRange::new(modulus.bits());
    let x = modulus.element(&[7; 32]).unwrap().square();
    for faulty in 1..=2 {
        let group = CombinatorialSharing::new(faulty).unwrap();
        let whole = range.split(key.private_exponent(), &group, &mut generator).unwrap();
        let secret = range.sum(&group.labels().map(|it| whole.share(it)).collect::<Vec<_>>());
        let signature = modulus.pow(&x, &secret).unwrap();
        assert_eq!(signature.pow(keys::rsa::PUBLIC_EXPONENT.into()), x);
        let sharing =
            SampleResharing::new(range, &secret, group.label_count(), &mut SeededRng::new(1));
        let partial = |share: &SecretInteger| modulus.pow(&x, share).unwrap();
        for t in lacked(&group) {
            for u in lacked(&group) {
                let known = sharing.known(t, u);
                let partials: Vec<RsaElement> = match faulty {
                    1 => known.iter().flatten().map(|share| partial(share)).collect(),
                    _ => known.iter().map(|it| partial(&range.sum(it.iter().copied()))).collect(),
                };
                let missing = partial(&sharing.subshares[t][u]);
                let products = products(modulus.one(), &partials);
                let signs = |it: &&RsaElement| **it == signature;
                assert_eq!(products.iter().filter(signs).count(), 0, "without {t}, {u}");
                // Its product with the missing one is the signature.
                let rest = signature.times(&missing.inverse().unwrap());
                assert!(products.contains(&rest), "with {t}, {u}");
            }
        }
    }
}

/// The number of buckets of a histogram.
const BUCKETS: usize = 64;

/// How often a chi-squared test fails by chance. The seeds are fixed.
const FALSE_ALARM: f64 = 2.5e-6;

/// The number of sharings of each secret that are compared.
const SHARINGS: usize = 10_000;

/// 6 bits of an integer, from bit `at` on.
fn bucket(integer: &SecretInteger, at: u32) -> usize {
    let bytes = integer.to_be_bytes();
    let bit = |at: u32| {
        let byte = bytes[bytes.len() - 1 - at as usize / 8];
        usize::from(byte >> (at % 8) & 1)
    };
    (0..6).map(|i| bit(at + i) << i).sum()
}

/// Statistics of many sharings of two secrets.
#[derive(Debug)]
struct SecrecyStatistics {
    /// How the first 6 bits of d - x differ between the secrets, where x is the subshare that the
    /// adversary lacks. The adversary's whole view depends on d through d - x only.
    first_bits: ChiSquared,
    /// The same for the last 6 bits.
    last_bits: ChiSquared,
    /// How far the first 6 bits of x deviate from uniform.
    missing: ChiSquared,
}

/// What these statistics are of.
#[derive(Clone)]
struct SecrecyHistograms {
    first: [[u32; BUCKETS]; 2],
    last: [[u32; BUCKETS]; 2],
    missing: [u32; BUCKETS],
}

impl SecrecyHistograms {
    fn new() -> Self {
        let empty = [[0; BUCKETS]; 2];
        Self { first: empty, last: empty, missing: [0; BUCKETS] }
    }

    fn statistics(&self) -> SecrecyStatistics {
        SecrecyStatistics {
            first_bits: ChiSquared::of_rows(&self.first),
            last_bits: ChiSquared::of_rows(&self.last),
            missing: ChiSquared::of_uniform(&self.missing),
        }
    }
}

/// The labels t and u of each subshare that the adversary can lack in a group with four labels.
fn lacking() -> impl Iterator<Item = (usize, usize)> {
    (0..4).flat_map(|t| (0..4).map(move |u| (t, u)))
}

/// Shares two secrets, 0 and N - 1, many times in groups with four labels. Returns the statistics
/// for each of [`lacking`].
fn distributions(range: ShareRange) -> Vec<SecrecyStatistics> {
    let key = tiny_key();
    let mut n_minus_1 = key.group().modulus().to_be_bytes();
    n_minus_1[31] ^= 1;
    let bits = key.group().modulus().bits();
    let secrets =
        [SecretInteger::zero(range.bits()), SecretInteger::from_unsigned(bits, &n_minus_1)];
    let mut histograms = vec![SecrecyHistograms::new(); lacking().count()];
    let mut rng = SeededRng::new(1);
    for (i, secret) in secrets.iter().enumerate() {
        for _ in 0..SHARINGS {
            let sharing = SampleResharing::new(range, secret, 4, &mut rng);
            for ((t, u), of) in lacking().zip(&mut histograms) {
                let row = &sharing.subshares[t];
                let known = range.sum(without(&sharing.old, t).chain(without(row, u)));
                // From -R to R.
                of.first[i][bucket(&known, range.drawn_bits - 5)] += 1;
                of.last[i][bucket(&known, 0)] += 1;
                of.missing[bucket(&row[u], range.drawn_bits - 6)] += 1;
            }
        }
    }
    histograms.iter().map(SecrecyHistograms::statistics).collect()
}

/// The adversary's view is the same for two secrets that are as far apart as possible. If the range
/// were longer than N by only 4 bits instead of 138, the same test would distinguish them.
#[test]
fn what_f_old_and_f_new_servers_see_does_not_depend_on_the_key() {
    let bits = tiny_key().group().modulus().bits();
    for ((t, u), shown) in lacking().zip(distributions(ShareRange::new(bits))) {
        let are_alike = [shown.first_bits, shown.last_bits].iter().all(|it| it.passes(FALSE_ALARM));
        assert!(are_alike, "{shown:?} at {t}, {u}");
        // The subshare with the first label is the remainder. It is not uniform, but nothing that
        // the adversary sees is computed from it.
        assert!(u == 0 || shown.missing.passes(FALSE_ALARM), "{shown:?} at {t}, {u}");
    }
    let short = ShareRange::drawn_from(bits + 4 - LABELS_LOG);
    for ((t, u), shown) in lacking().zip(distributions(short)).filter(|((_, u), _)| *u > 0) {
        assert!(!shown.first_bits.passes(FALSE_ALARM / 10.0), "{shown:?} at {t}, {u}");
    }
}

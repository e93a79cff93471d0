//! The same claim with the real generator: fewer than `k` shares look uniform, for every secret.
//!
//! A test fails by chance once in 10^11 runs, and there are fewer than 2,000 in this file, so a
//! failure is a false alarm with a probability below 10^-7.

use sim::statistics::{ChiSquared, byte_counts};
use sunder_sharing::SharingParameters;

use crate::textbook::{TestRng, name, sharings, split, subsets};

/// The number of bytes that are shared for each test.
const LEN: usize = 1 << 18;

fn assert_uniform(counts: &[u32], what: &str) {
    let uniform = ChiSquared::of_uniform(counts);
    assert!(uniform.passes(1e-11), "{what}: {uniform:?}");
}

fn assert_uniform_bytes(bytes: impl IntoIterator<Item = u8>, what: &str) {
    assert_uniform(&byte_counts(bytes), what);
}

fn secrets() -> [(&'static str, Vec<u8>); 3] {
    let text = b"It was a bright cold day in April, and the clocks were striking thirteen. ";
    [
        ("zeros", vec![0; LEN]),
        ("ones", vec![0xFF; LEN]),
        ("text", text.iter().copied().cycle().take(LEN).collect()),
    ]
}

/// Every sharing with `m <= 6` and every `(k - 1)`-subset: the sum of its shares, and that sum with
/// the secret, are uniform bytes.
#[test]
fn every_subset_looks_uniform() {
    for sharing in sharings(6).into_iter().filter(|sharing| sharing.threshold() > 1) {
        for (kind, secret) in secrets() {
            let shares = split(sharing, &secret);
            for subset in subsets(shares.len(), usize::from(sharing.threshold()) - 1) {
                let what = format!("{} of {kind}, shares {subset:?}", name(sharing));
                let sum = |j| subset.iter().fold(0, |sum, &i| sum ^ shares[i][j]);
                assert_uniform_bytes((0..LEN).map(sum), &what);
                assert_uniform_bytes((0..LEN).map(|j| sum(j) ^ secret[j]), &what);
            }
        }
    }
}

/// Every pair of shares that fewer than `k` can include is jointly uniform: 65,536 cells.
#[test]
fn every_pair_looks_jointly_uniform() {
    for sharing in sharings(6).into_iter().filter(|sharing| sharing.threshold() > 2) {
        for (kind, secret) in secrets() {
            let shares = split(sharing, &secret);
            for pair in subsets(shares.len(), 2) {
                let mut counts = vec![0; 1 << 16];
                for (&a, &b) in shares[pair[0]].iter().zip(&shares[pair[1]]) {
                    counts[usize::from(a) << 8 | usize::from(b)] += 1;
                }
                assert_uniform(&counts, &format!("{} of {kind}, shares {pair:?}", name(sharing)));
            }
        }
    }
}

/// Models retransmissions: the same secret is shared many times, and the eavesdropper keeps one
/// share each time. Returns how often each value of its first byte occurs.
fn retransmit(times: usize, mut share: impl FnMut() -> u8) -> [u32; 256] {
    let mut counts = [0; 256];
    (0..times).for_each(|_| counts[usize::from(share())] += 1);
    counts
}

/// The published attack RUSTSEC-2024-0398: if coefficients are never zero, no share ever equals the
/// secret, so the one value that never occurs is the secret.
fn never_seen(counts: &[u32; 256]) -> Vec<usize> {
    (0..256).filter(|&value| counts[value] == 0).collect()
}

#[test]
fn ten_thousand_sharings_of_one_secret_give_nothing_away() {
    const SECRET: u8 = 0x42;
    for sharing in
        [(2, 2), (2, 3), (3, 3), (3, 5)].map(|(k, m)| SharingParameters::shamir(k, m).unwrap())
    {
        for x in 0..usize::from(sharing.shares()) {
            let counts = retransmit(10_000, || split(sharing, &[SECRET])[x][0]);
            assert_uniform(&counts, &name(sharing));
            // Every value occurs 39 times on average, so that one never occurs only once in 10^13
            // runs.
            assert_eq!(never_seen(&counts), [0; 0], "{}", name(sharing));
            // `share - secret` is zero as often as it should be: 39 times, give or take 7 * 6.2.
            assert!(counts[usize::from(SECRET)] < 83, "{}", name(sharing));
        }
    }
}

#[test]
fn the_published_attack_works_on_coefficients_that_are_never_zero() {
    let mut rng = TestRng::new(1);
    let counts = retransmit(10_000, || 0x42 ^ (1 + rng.byte() % 255));
    assert_eq!(never_seen(&counts), [0x42]);
}

//! An eavesdropper with any `k - 1` shares sees the same distribution for every secret.
//!
//! This is shown for one byte, which suffices as bytes are shared independently of each other. For
//! each secret, the map from the random bytes to any `k - 1` shares is one to one, so that uniform
//! random bytes give uniform shares. The tests show it by enumeration for up to three random bytes,
//! and by the rank of the map for all.

use sunder_sharing::{SharingParameters, Splitter};

use crate::textbook::{
    TestRng, coordinates, invert, multiply, name, sharings, split_by, split_given, subsets,
};

/// Every `(k - 1)`-subset, every secret, and all `256^(k-1)` values of the random bytes, for `k <=
/// 3`.
#[test]
fn enumerated_for_every_secret() {
    for sharing in sharings(6).into_iter().filter(|sharing| sharing.threshold() <= 3) {
        let random = all_random_bytes(sharing);
        for secret in 0..=255 {
            assert_uniform(sharing, secret, &random);
        }
    }
}

/// The same for `k = 4`, where there are 2^24 values, and a few secrets.
#[test]
fn enumerated_for_three_random_bytes() {
    for sharing in sharings(6).into_iter().filter(|sharing| sharing.threshold() == 4) {
        let random = all_random_bytes(sharing);
        for secret in [0x00, 0xA7] {
            assert_uniform(sharing, secret, &random);
        }
    }
}

/// All tuples of random bytes, one tuple at each position of the buffers.
fn all_random_bytes(sharing: SharingParameters) -> Vec<Vec<u8>> {
    let count = usize::from(sharing.threshold()) - 1;
    let byte = |position: usize, i: usize| position.to_le_bytes()[i];
    (0..count).map(|i| (0..1usize << (8 * count)).map(|p| byte(p, i)).collect()).collect()
}

/// Checks that with these random bytes, every subset of `k - 1` shares takes every value exactly
/// once.
fn assert_uniform(sharing: SharingParameters, secret: u8, random: &[Vec<u8>]) {
    let positions = random.first().map_or(1, Vec::len);
    let shares = split_given(sharing, &vec![secret; positions], random);
    for subset in subsets(shares.len(), random.len()) {
        let chosen: Vec<&[u8]> = subset.iter().map(|&i| shares[i].as_slice()).collect();
        let value =
            |p: usize| chosen.iter().fold(0, |value, share| value << 8 | usize::from(share[p]));
        let mut seen = vec![0u64; positions.div_ceil(64)];
        for value in (0..positions).map(value) {
            seen[value / 64] |= 1 << (value % 64);
        }
        let distinct: u32 = seen.iter().map(|word| word.count_ones()).sum();
        assert_eq!(distinct as usize, positions, "{}, shares {subset:?}", name(sharing));
    }
}

/// Every `(k - 1)`-subset for every `m <= 8`: the shares are `A r + b s` for random bytes `r` and a
/// secret `s`, and `A` has full rank over the field, so `r` to shares is one to one for every `s`.
#[test]
fn one_to_one_by_rank() {
    for sharing in sharings(8) {
        let matrix = matrix_of(&Splitter::new(sharing));
        let count = usize::from(sharing.threshold()) - 1;
        for subset in subsets(usize::from(sharing.shares()), count) {
            let rows = subset.iter().map(|&i| matrix[i][1..].to_vec()).collect();
            assert_eq!(rank(rows), count, "{}, shares {subset:?}", name(sharing));
        }
    }
}

/// The same at coordinates of the caller's choice.
#[test]
fn one_to_one_by_rank_at_any_coordinates() {
    let mut rng = TestRng::new(3);
    for _ in 0..300 {
        let m = 1 + rng.below(8);
        let k = 1 + rng.below(m);
        let at = coordinates(&rng.choose(m, 255));
        let matrix = matrix_of(&Splitter::for_coordinates(u8::try_from(k).unwrap(), &at).unwrap());
        for subset in subsets(m, k - 1) {
            let rows = subset.iter().map(|&i| matrix[i][1..].to_vec()).collect();
            assert_eq!(rank(rows), k - 1, "{k} of {at:?}, shares {subset:?}");
        }
    }
}

/// Some subsets of the largest sharings.
#[test]
fn one_to_one_by_rank_when_large() {
    let mut rng = TestRng::new(1);
    for (k, m) in [(2, 255), (100, 255), (255, 255)] {
        let sharing = SharingParameters::shamir(k, m).unwrap();
        let matrix = matrix_of(&Splitter::new(sharing));
        let count = usize::from(k) - 1;
        for _ in 0..10 {
            let subset = rng.choose(count, usize::from(m));
            let rows = subset.iter().map(|&i| matrix[i][1..].to_vec()).collect();
            assert_eq!(rank(rows), count, "{}, shares {subset:?}", name(sharing));
        }
    }
}

/// Each share as a linear combination of the secret (column 0) and the random bytes, found by
/// splitting unit vectors, and verified with a thousand random inputs.
fn matrix_of(splitter: &Splitter) -> Vec<Vec<u8>> {
    let k = usize::from(splitter.sharing().threshold());
    // Position `p` of the buffers shares unit vector `p`.
    let unit = |i: usize| (0..k).map(|p| u8::from(p == i)).collect::<Vec<u8>>();
    let random: Vec<Vec<u8>> = (1..k).map(unit).collect();
    let matrix = split_by(splitter, &unit(0), &random);

    let mut rng = TestRng::new(2);
    let secret = rng.bytes(1000);
    let random: Vec<Vec<u8>> = (1..k).map(|_| rng.bytes(secret.len())).collect();
    let shares = split_by(splitter, &secret, &random);
    for (share, row) in shares.iter().zip(&matrix) {
        for (p, &found) in share.iter().enumerate() {
            let sum = |sum, (input, &weight): (&Vec<u8>, &u8)| sum ^ multiply(input[p], weight);
            let inputs = [&secret].into_iter().chain(&random);
            assert_eq!(
                found,
                inputs.zip(row).fold(0, sum),
                "{} is linear",
                name(splitter.sharing())
            );
        }
    }
    matrix
}

/// The rank over GF(2^8), by elimination.
fn rank(mut rows: Vec<Vec<u8>>) -> usize {
    let mut rank = 0;
    for column in 0..rows.first().map_or(0, Vec::len) {
        let Some(pivot) = (rank..rows.len()).find(|&r| rows[r][column] != 0) else { continue };
        rows.swap(rank, pivot);
        let (done, below) = rows.split_at_mut(rank + 1);
        let pivot = &done[rank];
        let inverse = invert(pivot[column]);
        for row in below {
            let factor = multiply(row[column], inverse);
            row.iter_mut().zip(pivot).for_each(|(a, &b)| *a ^= multiply(factor, b));
        }
        rank += 1;
    }
    rank
}

//! Wrong shares are found and identified within the promised bounds. Beyond them, a verifier
//! prevents silent wrong results.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sunder_sharing::locate::{ShareErrorLocationError, correct, correct_with};
use sunder_sharing::{ShareJoinError, SharingParameters};

use crate::textbook::{TestRng, coordinates, name, sharings, split, subsets};

fn views(shares: &[Vec<u8>]) -> Vec<&[u8]> {
    shares.iter().map(Vec::as_slice).collect()
}

/// Changes every byte of a share.
fn spoil(share: &mut [u8], rng: &mut TestRng) {
    for byte in share {
        *byte ^= 1 + rng.byte() % 255;
    }
}

/// Every sharing with `m <= 7` and every set of up to `e` completely wrong shares; exactly these
/// are identified.
#[test]
fn wholly_wrong_shares_are_named() {
    let mut rng = TestRng::new(1);
    for sharing in sharings(7) {
        let secret = rng.bytes(70);
        let right = split(sharing, &secret);
        let (s, k) = (right.len(), usize::from(sharing.threshold()));
        for wrong in (0..=(s - k) / 2).flat_map(|w| subsets(s, w)) {
            let mut shares = right.clone();
            for &i in &wrong {
                spoil(&mut shares[i], &mut rng);
            }
            let all = coordinates(&(0..s).collect::<Vec<_>>());
            let mut joined = vec![0; secret.len()];
            let named = correct(sharing, &all, &views(&shares), &mut joined).unwrap();
            assert_eq!((named, joined), (coordinates(&wrong), secret.clone()), "{}", name(sharing));
        }
    }
}

/// With a verifier, up to `s - k`: every sharing with `m <= 7` and every set of wrong shares.
#[test]
fn with_a_judge_k_right_shares_are_enough() {
    let mut rng = TestRng::new(2);
    for sharing in sharings(7) {
        let secret = rng.bytes(40);
        let right = split(sharing, &secret);
        let (s, k) = (right.len(), usize::from(sharing.threshold()));
        for wrong in (0..=s - k).flat_map(|w| subsets(s, w)) {
            let mut shares = right.clone();
            for &i in &wrong {
                spoil(&mut shares[i], &mut rng);
            }
            let all = coordinates(&(0..s).collect::<Vec<_>>());
            let mut joined = vec![0; secret.len()];
            let accept = |found: &[u8]| found == secret;
            let named = correct_with(sharing, &all, &views(&shares), &mut joined, accept).unwrap();
            assert_eq!((named, joined), (coordinates(&wrong), secret.clone()), "{}", name(sharing));
        }
    }
}

/// Too many wrong shares: an error, and the buffer is zero.
#[test]
fn fewer_than_k_right_shares_are_an_error() {
    let mut rng = TestRng::new(3);
    for sharing in sharings(6) {
        let secret = rng.bytes(40);
        let mut shares = split(sharing, &secret);
        let (s, k) = (shares.len(), usize::from(sharing.threshold()));
        for i in rng.choose(s - k + 1, s) {
            spoil(&mut shares[i], &mut rng);
        }
        let all = coordinates(&(0..s).collect::<Vec<_>>());
        let mut joined = vec![7; secret.len()];
        let found =
            correct_with(sharing, &all, &views(&shares), &mut joined, |found| found == secret);
        assert_eq!(found, Err(ShareErrorLocationError::NoneAccepted), "{}", name(sharing));
        assert!(joined.iter().all(|&byte| byte == 0));
    }
}

/// With a single share more than `k`, errors are detected, but not corrected.
#[test]
fn one_share_more_than_k_detects() {
    let sharing = SharingParameters::shamir(3, 4).unwrap();
    let mut shares = split(sharing, &[0x5A; 5000]);
    shares[1][4999] ^= 1;
    let mut joined = vec![7; 5000];
    let found = correct(sharing, &[1, 2, 3, 4], &views(&shares), &mut joined);
    assert_eq!(found, Err(ShareErrorLocationError::TooManyWrong));
    assert!(joined.iter().all(|&byte| byte == 0));
}

/// Many shares, the largest decoder, and lengths across chunks.
#[test]
fn large_sharings() {
    let mut rng = TestRng::new(4);
    for (k, m, len) in
        [(1, 255, 300), (2, 255, 300), (128, 255, 40), (200, 255, 40), (253, 255, 90)]
    {
        let sharing = SharingParameters::shamir(k, m).unwrap();
        let secret = rng.bytes(len);
        let mut shares = split(sharing, &secret);
        let (s, k) = (usize::from(m), usize::from(k));
        let mut wrong = rng.choose((s - k) / 2, s);
        for &i in &wrong {
            spoil(&mut shares[i], &mut rng);
        }
        wrong.sort_unstable();
        let all = coordinates(&(0..s).collect::<Vec<_>>());
        let mut joined = vec![0; len];
        let named = correct(sharing, &all, &views(&shares), &mut joined).unwrap();
        assert_eq!((named, joined), (coordinates(&wrong), secret), "{}", name(sharing));
    }
}

/// If two secrets are accepted, neither is returned.
#[test]
fn two_secrets_that_fit_are_an_error() {
    let sharing = SharingParameters::shamir(2, 5).unwrap();
    let (one, other) = ([1; 50], [2; 50]);
    let (mut shares, forged) = (split(sharing, &one), split(sharing, &other));
    shares[2..].clone_from_slice(&forged[2..]);
    let coordinates = [5, 1, 3, 2, 4];
    let ordered: Vec<&[u8]> =
        coordinates.iter().map(|&x| &shares[usize::from(x) - 1][..]).collect();
    let mut joined = [7; 50];
    let accept = |found: &[u8]| found == one || found == other;
    let found = correct_with(sharing, &coordinates, &ordered, &mut joined, accept);
    let (first, second) = (vec![5, 3, 4], vec![1, 2]);
    assert_eq!(found, Err(ShareErrorLocationError::Ambiguous { first, second }));
    assert_eq!(joined, [0; 50]);
    // If only one is, it does not matter how many disagree.
    for secret in [one, other] {
        let found =
            correct_with(sharing, &coordinates, &ordered, &mut joined, |found| found == secret);
        assert_eq!((found.is_ok(), joined), (true, secret));
    }
}

/// Invalid arguments are reported before anything else is done.
#[test]
fn wrong_arguments() {
    let sharing = SharingParameters::shamir(2, 3).unwrap();
    let (short, long) = ([1u8; 4], [1u8; 5]);
    let mut secret = [9; 5];
    let mut check = |coordinates: &[u8], shares: &[&[u8]], expected: ShareErrorLocationError| {
        let found = correct(sharing, coordinates, shares, &mut secret);
        assert_eq!(found, Err(expected.clone()));
        let found = correct_with(sharing, coordinates, shares, &mut secret, |_| true);
        assert_eq!(found, Err(expected.clone()));
        assert_eq!(secret, [9; 5]);
    };
    check(&[], &[], ShareErrorLocationError::TooFew { needed: 2, found: 0 });
    check(&[1], &[&long], ShareErrorLocationError::TooFew { needed: 2, found: 1 });
    check(&[1], &[&long, &long], ShareErrorLocationError::WrongCount { shares: 2, coordinates: 1 });
    check(&[1, 2], &[&long, &short], ShareJoinError::WrongLength.into());
    check(&[1, 1], &[&long, &long], ShareJoinError::BadCoordinate(1).into());
    check(&[0, 1], &[&long, &long], ShareJoinError::BadCoordinate(0).into());
    check(&[4, 1], &[&long, &long], ShareJoinError::BadCoordinate(4).into());
    check(&[1, 2, 3, 3], &[&long, &long, &long, &long], ShareJoinError::BadCoordinate(3).into());
}

#[test]
fn nothing_is_shared_too() {
    let sharing = SharingParameters::shamir(2, 4).unwrap();
    assert_eq!(correct(sharing, &[4, 2, 1], &[&[], &[], &[]], &mut []), Ok(vec![]));
}

/// A sharing, some of its shares in any order, and errors: a few wrong shares at each of some
/// bytes.
#[derive(Debug, Clone)]
struct Scene {
    k: u8,
    m: u8,
    /// The number of shares, from `k` to `m`.
    s: usize,
    len: usize,
    /// The largest number of wrong shares at a byte.
    most: usize,
    seed: u64,
}

fn scenes() -> impl Strategy<Value = Scene> {
    (1..=9u8)
        .prop_flat_map(|m| (1..=m, Just(m)))
        .prop_flat_map(|(k, m)| (Just(k), Just(m), usize::from(k)..=usize::from(m)))
        .prop_flat_map(|(k, m, s)| (Just((k, m, s)), 0..=s, 1..9000usize, any::<u64>()))
        .prop_map(|((k, m, s), most, len, seed)| Scene { k, m, s, len, most, seed })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scattered_errors(scene in scenes()) {
        let mut rng = TestRng::new(scene.seed);
        let sharing = SharingParameters::shamir(scene.k, scene.m).unwrap();
        let secret = rng.bytes(scene.len);
        let all = split(sharing, &secret);
        let present = rng.choose(scene.s, all.len());
        let mut shares: Vec<Vec<u8>> = present.iter().map(|&i| all[i].clone()).collect();
        let wrong = scatter(&mut shares, scene.most, &mut rng);
        let present = coordinates(&present);
        let wrong: Vec<u8> = wrong.iter().map(|&i| present[i]).collect();

        let mut joined = vec![0; scene.len];
        let found = correct(sharing, &present, &views(&shares), &mut joined);
        if scene.most <= (scene.s - usize::from(scene.k)) / 2 {
            prop_assert_eq!(found, Ok(wrong.clone()));
            prop_assert_eq!(&joined, &secret);
        }
        // Beyond the bound nothing is promised, but there must be no panic, and with a verifier no
        // wrong secret.
        let verified =
            correct_with(sharing, &present, &views(&shares), &mut joined, |found| found == secret);
        if scene.s - wrong.len() >= usize::from(scene.k) {
            prop_assert!(verified.is_ok());
        }
        match verified {
            Ok(_) => prop_assert_eq!(&joined, &secret),
            Err(error) => {
                prop_assert_eq!(error, ShareErrorLocationError::NoneAccepted);
                prop_assert!(joined.iter().all(|&byte| byte == 0));
            }
        }
    }
}

/// Spoils up to `most` shares at each of a few bytes or runs of bytes. Returns which were, in
/// order.
fn scatter(shares: &mut [Vec<u8>], most: usize, rng: &mut TestRng) -> BTreeSet<usize> {
    let len = shares[0].len();
    let mut wrong = BTreeSet::new();
    let mut at = rng.below(len);
    while most > 0 && at < len {
        let run = [1, 1, 3, 100, len][rng.below(5)].min(len - at);
        let count = 1 + rng.below(most);
        for i in rng.choose(count, shares.len()) {
            spoil(&mut shares[i][at..at + run], rng);
            wrong.insert(i);
        }
        at += run + rng.below(400);
    }
    wrong
}

//! Splitting and joining agree with the textbook, with published vectors, and with each other.

use random::RandomGenerator;
use sunder_sharing::kernels::FieldKernel;
use sunder_sharing::{
    Joiner, SecretSharingScheme, Share, ShareCoordinatesError, ShareJoinError, ShareSplitError,
    SharingParameters, SharingParametersError, Splitter,
};

use crate::textbook::{
    TestRng, coordinates, evaluate, name, sharings, split, split_by, split_given, subsets,
};

/// Given the first `k - 1` values of a random polynomial, our split yields all the others.
#[test]
fn the_systematic_split_is_the_textbooks() {
    let mut rng = TestRng::new(1);
    let large = [(2, 255), (3, 200), (128, 255), (254, 255), (255, 255)];
    let large = large.map(|(k, m)| SharingParameters::shamir(k, m).unwrap());
    let small =
        sharings(8).into_iter().filter(|sharing| sharing.scheme() == SecretSharingScheme::Shamir);
    for sharing in small.chain(large) {
        let (k, m) = (usize::from(sharing.threshold()), sharing.shares());
        // One polynomial a byte; the secrets are the constant coefficients.
        let polynomials: Vec<Vec<u8>> = (0..67).map(|_| rng.bytes(k)).collect();
        let secret: Vec<u8> = polynomials.iter().map(|polynomial| polynomial[0]).collect();
        let share = |x| polynomials.iter().map(|polynomial| evaluate(polynomial, x)).collect();
        let expected: Vec<Vec<u8>> = (1..=m).map(share).collect();
        assert_eq!(
            split_given(sharing, &secret, &expected[..k - 1]),
            expected,
            "{}",
            name(sharing)
        );
    }
}

/// The same at coordinates of the caller's choice, and any `k` of the shares join.
#[test]
fn the_split_at_any_coordinates_is_the_textbooks() {
    let mut rng = TestRng::new(5);
    for round in 0..300 {
        let m = 1 + rng.below(if round < 280 { 16 } else { 255 });
        let k = 1 + rng.below(m);
        let at = coordinates(&rng.choose(m, 255));
        let polynomials: Vec<Vec<u8>> = (0..67).map(|_| rng.bytes(k)).collect();
        let secret: Vec<u8> = polynomials.iter().map(|polynomial| polynomial[0]).collect();
        let share = |&x| polynomials.iter().map(|polynomial| evaluate(polynomial, x)).collect();
        let expected: Vec<Vec<u8>> = at.iter().map(share).collect();
        let k8 = u8::try_from(k).unwrap();
        let splitter = Splitter::for_coordinates(k8, &at).unwrap();
        assert_eq!(split_by(&splitter, &secret, &expected[..k - 1]), expected, "{k} of {at:?}");

        let subset = rng.choose(k, m);
        let (places, views): (Vec<u8>, Vec<&[u8]>) =
            subset.iter().map(|&i| (at[i], expected[i].as_slice())).unzip();
        assert_eq!(join(SharingParameters::shamir(k8, 255).unwrap(), &places, &views), secret);
    }
}

/// The shares of a seed are the same each time, join, and differ from those of another seed. The
/// operating system's source has no seeds.
#[test]
fn shares_are_made_again_from_a_seed() {
    let mut rng = TestRng::new(6);
    let mut generator = RandomGenerator::seeded().unwrap();
    for sharing in sharings(5) {
        let secret = rng.bytes(100_003);
        let [first, second] = [(); 2].map(|()| generator.seed().unwrap().unwrap());
        let [once, again, other] = [&first, &first, &second].map(|seed| {
            let mut shares = vec![vec![0; secret.len()]; sharing.shares().into()];
            let mut views: Vec<&mut [u8]> = shares.iter_mut().map(|share| &mut share[..]).collect();
            Splitter::new(sharing).split_from_seed(&secret, &mut views, seed).unwrap();
            shares
        });
        let name = name(sharing);
        assert_eq!(once, again, "{name}");
        assert_eq!(once != other, sharing.threshold() > 1, "{name}");
        let from = usize::from(sharing.shares() - sharing.threshold());
        let views: Vec<&[u8]> = once[from..].iter().map(|share| &share[..]).collect();
        let places: Vec<u8> = (1..=sharing.shares()).skip(from).collect();
        assert_eq!(join(sharing, &places, &views), secret, "{name}");
    }
    assert!(RandomGenerator::system().seed().unwrap().is_none());
}

fn join(sharing: SharingParameters, coordinates: &[u8], shares: &[&[u8]]) -> Vec<u8> {
    let mut secret = vec![0; shares[0].len()];
    Joiner::new(sharing).join(coordinates, shares, &mut secret).unwrap();
    secret
}

/// draft-mcgrew-tss-03, section 9. Its robust variant is not ours; the sharing itself is.
#[test]
fn the_internet_drafts_vector() {
    let sharing = SharingParameters::shamir(2, 2).unwrap();
    let secret = [0x74, 0x65, 0x73, 0x74, 0x00];
    let first = vec![0xB9, 0xFA, 0x07, 0xE1, 0x85];
    let second = vec![0xF5, 0x40, 0x9B, 0x45, 0x11];
    assert_eq!(join(sharing, &[1, 2], &[&first, &second]), secret);
    assert_eq!(split_given(sharing, &secret, std::slice::from_ref(&first)), [first, second]);
}

/// The vector of Hale's `shamir` library and its ports: a secret of 1 to 5, three shares of five.
#[test]
fn another_librarys_vector() {
    let sharing = SharingParameters::shamir(3, 5).unwrap();
    let secret = [1, 2, 3, 4, 5];
    let shares = [
        vec![64, 163, 216, 189, 193],
        vec![131, 91, 174, 109, 150],
        vec![194, 250, 117, 212, 82],
        vec![30, 176, 66, 214, 56],
        vec![95, 17, 153, 111, 252],
    ];
    for subset in subsets(5, 3) {
        let views: Vec<&[u8]> = subset.iter().map(|&i| shares[i].as_slice()).collect();
        assert_eq!(join(sharing, &coordinates(&subset), &views), secret);
    }
    assert_eq!(split_given(sharing, &secret, &shares[..2]), shares);
}

/// All subsets of all sharings with `m <= 8`, all lengths to 200 between them.
#[test]
fn every_subset_joins() {
    let mut rng = TestRng::new(2);
    for (i, sharing) in sharings(8).into_iter().cycle().take(603).enumerate() {
        let secret = rng.bytes(i % 201);
        let shares = split(sharing, &secret);
        let mut joiner = Joiner::new(sharing);
        for mut subset in subsets(shares.len(), usize::from(sharing.threshold())) {
            // In any order.
            let turn = rng.below(subset.len());
            subset.rotate_left(turn);
            let views: Vec<&[u8]> = subset.iter().map(|&i| shares[i].as_slice()).collect();
            let mut joined = vec![0; secret.len()];
            joiner.join(&coordinates(&subset), &views, &mut joined).unwrap();
            assert_eq!(joined, secret, "{}, shares {subset:?}", name(sharing));
        }
    }
}

#[test]
fn large_sharings_join() {
    let mut rng = TestRng::new(3);
    for (k, m) in [(1, 255), (2, 255), (17, 40), (128, 255), (255, 255)] {
        let sharing = SharingParameters::shamir(k, m).unwrap();
        let secret = rng.bytes(1000);
        let shares = split(sharing, &secret);
        for _ in 0..10 {
            let subset = rng.choose(usize::from(k), usize::from(m));
            let views: Vec<&[u8]> = subset.iter().map(|&i| shares[i].as_slice()).collect();
            assert_eq!(join(sharing, &coordinates(&subset), &views), secret, "{}", name(sharing));
        }
    }
    let xor = SharingParameters::xor(255).unwrap();
    let secret = rng.bytes(1000);
    let shares = split(xor, &secret);
    let views: Vec<&[u8]> = shares.iter().map(Vec::as_slice).collect();
    assert_eq!(join(xor, &coordinates(&(0..255).collect::<Vec<_>>()), &views), secret);
}

/// Every kernel makes the same shares of a buffer that is larger than any cache of the first level.
#[test]
fn every_kernel_splits_and_joins_alike() {
    let mut rng = TestRng::new(4);
    let sharing = SharingParameters::shamir(3, 9).unwrap();
    let secret = rng.bytes(300_001);
    let random = [rng.bytes(secret.len()), rng.bytes(secret.len())];
    let expected = split_given(sharing, &secret, &random);
    for kernel in FieldKernel::available() {
        let mut shares = random.to_vec();
        shares.resize(9, vec![0; secret.len()]);
        let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
        let splitter = Splitter::new(sharing).with_kernel(kernel);
        splitter.danger_split_given_random_shares(&secret, &mut views).unwrap();
        assert_eq!(shares, expected, "{kernel}");

        let mut joined = vec![0; secret.len()];
        let mut joiner = Joiner::new(sharing).with_kernel(kernel);
        joiner.join(&[9, 2, 6], &[&shares[8], &shares[1], &shares[5]], &mut joined).unwrap();
        assert_eq!(joined, secret, "{kernel}");
    }
}

#[test]
fn impossible_sharings() {
    assert_eq!(SharingParameters::shamir(0, 3), Err(SharingParametersError::ZeroThreshold));
    assert_eq!(SharingParameters::shamir(0, 0), Err(SharingParametersError::ZeroThreshold));
    assert_eq!(SharingParameters::xor(0), Err(SharingParametersError::ZeroThreshold));
    let above = SharingParametersError::ThresholdAboveShares { k: 4, m: 3 };
    assert_eq!(SharingParameters::shamir(4, 3), Err(above));
    assert_eq!(
        SharingParameters::new(SecretSharingScheme::Xor, 2, 3),
        Err(SharingParametersError::XorNeedsAll { k: 2, m: 3 })
    );
}

#[test]
fn impossible_coordinates() {
    let error = |k, coordinates: &[u8]| Splitter::for_coordinates(k, coordinates).err();
    assert_eq!(error(2, &[9, 255, 1]), None);
    for (coordinates, bad) in [([0, 1, 2], 0), ([7, 9, 7], 7), ([255, 3, 0], 0)] {
        assert_eq!(error(2, &coordinates), Some(ShareCoordinatesError::BadCoordinate(bad)));
    }
    assert_eq!(error(2, &[1; 600]), Some(ShareCoordinatesError::BadCoordinate(1)));
    assert_eq!(error(0, &[5]), Some(SharingParametersError::ZeroThreshold.into()));
    assert_eq!(error(0, &[]), Some(SharingParametersError::ZeroThreshold.into()));
    let above = SharingParametersError::ThresholdAboveShares { k: 3, m: 2 };
    assert_eq!(error(3, &[4, 5]), Some(above.into()));
}

#[test]
fn wrong_buffers_to_split_into() {
    let splitter = Splitter::new(SharingParameters::shamir(2, 3).unwrap());
    let split = |lens: &[usize]| {
        let mut shares: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
        let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
        splitter.split(b"secret", &mut views, &mut RandomGenerator::system())
    };
    assert!(split(&[6, 6, 6]).is_ok());
    assert!(matches!(split(&[6, 6]), Err(ShareSplitError::WrongCount { expected: 3, found: 2 })));
    assert!(matches!(split(&[6; 4]), Err(ShareSplitError::WrongCount { expected: 3, found: 4 })));
    assert!(matches!(split(&[]), Err(ShareSplitError::WrongCount { expected: 3, found: 0 })));
    assert!(matches!(split(&[6, 5, 6]), Err(ShareSplitError::WrongLength)));
    assert!(matches!(split(&[6, 6, 7]), Err(ShareSplitError::WrongLength)));
}

#[test]
fn wrong_shares_to_join() {
    let mut joiner = Joiner::new(SharingParameters::shamir(2, 3).unwrap());
    let share = [1u8; 6];
    let mut join = |coordinates: &[u8], shares: &[&[u8]]| {
        let mut secret = [9; 6];
        let result = joiner.join(coordinates, shares, &mut secret);
        assert!(result.is_ok() || secret == [9; 6], "untouched on failure");
        result
    };
    assert_eq!(join(&[3, 1], &[&share, &share]), Ok(()));
    let count = |found| Err(ShareJoinError::WrongCount { expected: 2, found });
    assert_eq!(join(&[1], &[&share]), count(1));
    assert_eq!(join(&[1, 2], &[&share]), count(1));
    assert_eq!(join(&[1, 2, 3], &[&share, &share]), count(3));
    assert_eq!(join(&[], &[]), count(0));
    assert_eq!(join(&[1, 2], &[&share, &share[1..]]), Err(ShareJoinError::WrongLength));
    for (coordinates, bad) in [([1, 1], 1), ([0, 1], 0), ([1, 4], 4), ([255, 1], 255)] {
        let found = join(&coordinates, &[&share, &share]);
        assert_eq!(found, Err(ShareJoinError::BadCoordinate(bad)));
    }
}

/// The allocating calls: shares carry their coordinates, and join in any order.
#[test]
fn shares_join_by_their_coordinates() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let secret = b"any bytes at all";
    for sharing in sharings(5) {
        let shares = sharing.split(secret, &mut generator).unwrap();
        let found: Vec<u8> = shares.iter().map(Share::coordinate).collect();
        assert_eq!(found, (1..=sharing.shares()).collect::<Vec<_>>());
        for subset in subsets(shares.len(), sharing.threshold().into()) {
            let chosen = subset.iter().rev().map(|&i| &shares[i]);
            assert_eq!(sharing.join(chosen).unwrap()[..], secret[..], "{}", name(sharing));
        }
        assert_eq!(sharing.join(&shares).unwrap()[..], secret[..], "the first k of all");
    }

    let sharing = SharingParameters::shamir(2, 3).unwrap();
    let shares = sharing.split(secret, &mut generator).unwrap();
    let error = |shares: &[&Share]| sharing.join(shares.iter().copied()).unwrap_err();
    assert_eq!(error(&[&shares[0]]), ShareJoinError::WrongCount { expected: 2, found: 1 });
    assert_eq!(error(&[&shares[1], &shares[1]]), ShareJoinError::BadCoordinate(2));
    let foreign = Share::new(4, vec![0; secret.len()]).unwrap();
    assert_eq!(error(&[&shares[0], &foreign]), ShareJoinError::BadCoordinate(4));
    let short = Share::new(2, vec![0; 3]).unwrap();
    assert_eq!(error(&[&shares[0], &short]), ShareJoinError::WrongLength);
    assert_eq!(Share::new(0, vec![]).unwrap_err(), ShareCoordinatesError::BadCoordinate(0));
    assert_eq!(format!("{short:?}"), "Share 2 of 3 bytes");
}

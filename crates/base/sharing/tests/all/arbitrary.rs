//! For arbitrary slices there is a result or an error, and no panic.

use proptest::collection::vec;
use proptest::prelude::*;
use random::RandomGenerator;
use sunder_sharing::locate::{correct, correct_with};
use sunder_sharing::{Joiner, SecretSharingScheme, SharingParameters, Splitter, keyed, tamper};

fn any_sharing() -> impl Strategy<Value = SharingParameters> {
    let scheme = prop_oneof![Just(SecretSharingScheme::Xor), Just(SecretSharingScheme::Shamir)];
    let number = || prop_oneof![0..=7u8, any::<u8>()];
    (scheme, number(), number()).prop_filter_map("valid", |(scheme, k, m)| {
        SharingParameters::new(scheme, k, if scheme == SecretSharingScheme::Xor { k } else { m })
            .ok()
    })
}

/// Mostly of one length, so that not all cases end at the first check.
fn any_shares() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let len = prop_oneof![9 => Just(5usize), 1 => 0..9usize];
    vec(len.prop_flat_map(|len| vec(any::<u8>(), len)), 0..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splitting(sharing in any_sharing(), mut shares in any_shares()) {
        let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
        let splitter = Splitter::new(sharing);
        let split = splitter.split(&[7; 5], &mut views, &mut RandomGenerator::seeded().unwrap());
        let given = splitter.danger_split_given_random_shares(&[7; 5], &mut views);
        let fits = views.len() == usize::from(sharing.shares()) && views.iter().all(|v| v.len() == 5);
        prop_assert_eq!((split.is_ok(), given.is_ok()), (fits, fits));
    }

    #[test]
    fn splitters(k in 0..9u8, coordinates in vec(prop_oneof![9 => 1..=255u8, 1 => 0..9u8], 0..9)) {
        let mut distinct = coordinates.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let valid = distinct.len() == coordinates.len()
            && !distinct.contains(&0)
            && (1..=distinct.len()).contains(&usize::from(k));
        prop_assert_eq!(Splitter::for_coordinates(k, &coordinates).is_ok(), valid);
    }

    #[test]
    fn joining(
        sharing in any_sharing(),
        coordinates in vec(prop_oneof![9 => 1..9u8, 1 => any::<u8>()], 0..9),
        shares in any_shares(),
        accept in any::<bool>(),
    ) {
        let views: Vec<&[u8]> = shares.iter().map(Vec::as_slice).collect();
        let mut secret = [0; 5];
        let joined = Joiner::new(sharing).join(&coordinates, &views, &mut secret).is_ok();
        let corrected = correct(sharing, &coordinates, &views, &mut secret).is_ok();
        let accepted = correct_with(sharing, &coordinates, &views, &mut secret, |_| accept).is_ok();
        prop_assert!(!joined || corrected, "k shares alone have nothing against each other");
        prop_assert!(!corrected || accepted == accept);
    }

    #[test]
    fn verifying(code in any::<[u8; tamper::OVERHEAD]>(), parts in any_shares()) {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(tamper::verify(&code, &parts), Err(tamper::TamperedMessage));
    }

    #[test]
    fn verifying_with_a_key(
        point in any::<[u8; keyed::POINT_LEN]>(),
        message in vec(any::<u8>(), 0..300),
        last in any::<u64>(),
        tag in any::<[u8; keyed::TAG_LEN]>(),
    ) {
        let right = keyed::KeyedHash::new(point).verify(&message, last, tag);
        prop_assert_eq!(right, Err(tamper::TamperedMessage));
    }
}

//! `sunder join` with forged files: what is promised, and the limits.
//!
//! There is no key. An attacker who replaces `k` files, or has read `k` shares, can make `join`
//! return another file if no share contradicts it.

use random::RandomGenerator;
use sharing::{SharingParameters, Splitter, tamper};

use super::place::{TestDirectory, bytes, error_line, share_names, stderr};

const HEADER: usize = 37;

/// The shares of a segment with the header of the first of the split, and with `payload` as its
/// content. The shares before `given` are those given.
fn forged_shares(header: &[u8], m: u8, payload: &[u8], given: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut generator = RandomGenerator::seeded().unwrap();
    let context = [&header[..12], &header[13..29], &[0; 8]].concat();
    let code = tamper::protect(&[&context, payload], &mut generator).unwrap();
    let segment = [&code, payload].concat();

    let splitter = Splitter::new(SharingParameters::shamir(2, m).unwrap());
    let mut shares = vec![vec![0; segment.len()]; m.into()];
    shares.iter_mut().zip(given).for_each(|(share, given)| share.copy_from_slice(given));
    let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
    if given.is_empty() {
        splitter.split(&segment, &mut views, &mut generator).unwrap();
    } else {
        splitter.danger_split_given_random_shares(&segment, &mut views).unwrap();
    }
    shares
}

const TRUE: [u8; 300] = [b'.'; 300];
const EVIL: [u8; 300] = [b'!'; 300];

/// A split of [`TRUE`] with `m` shares of which two are needed, and files `invented.1.share` .. of
/// [`EVIL`], made by an attacker who has read only share 2.
pub(crate) fn with_invented(m: u8) -> TestDirectory {
    let place = TestDirectory::new();
    place.split(&format!("-k 2 -m {m}"), &TRUE);
    let header = place.read("secret.2.share")[..HEADER].to_owned();
    for (x, body) in (1..).zip(forged_shares(&header, m, &EVIL, &[])) {
        let mut header = header.clone();
        header[12] = x;
        place.write(&format!("invented.{x}.share"), &[header, body].concat());
    }
    place
}

/// Joins, which must succeed with one warning about `left_out`.
fn join_without(place: &TestDirectory, left_out: &str, shares: &str) -> Vec<u8> {
    let output = place.run(&format!("join --out - {shares}"));
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with(&format!("warning: left out {left_out} (")), "{message}");
    assert!(
        message.contains("unless someone has read 2 shares or forged 2 of these files"),
        "{message}"
    );
    output.stdout
}

#[test]
fn fewer_than_k_invented_files_are_never_joined() {
    let place = with_invented(3);
    place.fail(3, "join --out x invented.1.share secret.2.share");
    place.fail(3, "join --out x invented.1.share secret.3.share");
    let joined =
        join_without(&place, "invented.1.share", "invented.1.share secret.2.share secret.3.share");
    assert!(joined == TRUE);
}

#[test]
fn k_invented_files_win_over_fewer_true_ones() {
    let place = with_invented(3);
    let shares = "invented.1.share secret.2.share invented.3.share";
    assert!(join_without(&place, "secret.2.share", shares) == EVIL);
    // Not if the other shares are given as well.
    let message = place.fail(3, &format!("join --out x {shares} secret.1.share"));
    assert!(message.contains("both claim to be share 1"), "{message}");
}

#[test]
fn as_many_invented_as_true_files_are_ambiguous() {
    for m in [4, 6] {
        let place = with_invented(m);
        let invented = "invented.1.share invented.3.share";
        let genuine = share_names([2].into_iter().chain(4..=m));
        for shares in [format!("{invented} {genuine}"), format!("{genuine} {invented}")] {
            let message = place.fail(3, &format!("join --out x {shares}"));
            assert!(message.contains("two different files fit"), "{message}");
            assert!(message.contains("invented.1.share, invented.3.share"), "{message}");
            assert!(message.contains("secret.2.share, secret.4.share"), "{message}");
        }
    }
}

#[test]
fn an_attacker_who_read_k_shares_needs_to_change_only_one() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 3", &TRUE);
    // The attacker has read shares 1 and 2, and so the secret, and has changed share 2.
    let (first, second) = (place.read("secret.1.share"), place.read("secret.2.share"));
    let forged = forged_shares(&first[..HEADER], 3, &EVIL, &[&first[HEADER..]]);
    place.write("secret.2.share", &[&second[..HEADER], &forged[1]].concat());
    let joined = place.succeed("join --out - secret.1.share secret.2.share").stdout;
    assert!(joined == EVIL);
    // With the third share, two files fit, each with the first share.
    let joined = join_without(&place, "secret.3.share", &share_names(1..=3));
    assert!(joined == EVIL);
    assert!(place.succeed("join --out - secret.1.share secret.3.share").stdout == TRUE);
}

#[test]
fn k_unrelated_shares_are_refused() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 3", &TRUE);
    for name in ["one", "two"] {
        place.write(name, &bytes(300));
        place.succeed(&format!("split -k 2 -m 3 {name}"));
    }
    let join = format!("join --out x {} one.1.share", share_names(1..=3));
    assert_eq!(place.run(&join).status.code(), Some(0));
    let message = error_line(&place.run(&join.replace("--out x", "--out y two.1.share")), 3);
    for group in ["has secret.1.share, secret.2.share, secret.3.share", "has one.1.share"] {
        assert!(message.contains(group), "{message}");
    }
}

//! `sunder join` with files that somebody made on purpose: what is promised, and where it ends.
//!
//! There is no key. Whoever has `k` files to put in the place of true ones, or has read `k` shares,
//! can have a file of their own joined where nothing contradicts it.

use sharing::{Generator, Sharing, Splitter, tamper};

use super::place::{Place, bytes, error_line, share_names, stderr};

const HEADER: usize = 37;

/// The shares of a segment that fits the first of the split with this header, and has `payload`
/// instead: those before `given` are as they are given.
fn forged_shares(header: &[u8], m: u8, payload: &[u8], given: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut generator = Generator::seeded().unwrap();
    let context = [&header[..12], &header[13..29], &[0; 8]].concat();
    let code = tamper::protect(&[&context, payload], &mut generator).unwrap();
    let segment = [&code, payload].concat();

    let splitter = Splitter::new(Sharing::shamir(2, m).unwrap());
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

/// Two of `m` shares of [`TRUE`] are needed; and `invented.1.share` .. belong to [`EVIL`], made by
/// somebody who has read share 2 only.
fn with_invented(m: u8) -> Place {
    let place = Place::new();
    place.split(&format!("-k 2 -m {m}"), &TRUE);
    let header = place.read("secret.2.share")[..HEADER].to_owned();
    for (x, body) in (1..).zip(forged_shares(&header, m, &EVIL, &[])) {
        let mut header = header.clone();
        header[12] = x;
        place.write(&format!("invented.{x}.share"), &[header, body].concat());
    }
    place
}

/// Joins, which must succeed with one warning, about `left_out`.
fn join_without(place: &Place, left_out: &str, shares: &str) -> Vec<u8> {
    let output = place.run(&format!("join --out - {shares}"));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with(&format!("warning: left out {left_out} (")), "{said}");
    assert!(said.contains("unless someone has read 2 shares or forged 2 of these files"), "{said}");
    output.stdout
}

#[test]
fn fewer_invented_files_than_are_needed_are_never_believed() {
    let place = with_invented(3);
    place.fail(3, "join --out x invented.1.share secret.2.share");
    place.fail(3, "join --out x invented.1.share secret.3.share");
    let joined =
        join_without(&place, "invented.1.share", "invented.1.share secret.2.share secret.3.share");
    assert!(joined == TRUE);
}

#[test]
fn as_many_invented_files_as_are_needed_win_over_fewer_true_ones() {
    let place = with_invented(3);
    let shares = "invented.1.share secret.2.share invented.3.share";
    assert!(join_without(&place, "secret.2.share", shares) == EVIL);
    // Not if the others are given as well.
    let said = place.fail(3, &format!("join --out x {shares} secret.1.share"));
    assert!(said.contains("both say that they are share 1"), "{said}");
}

#[test]
fn as_many_invented_files_as_true_ones_are_refused() {
    for m in [4, 6] {
        let place = with_invented(m);
        let invented = "invented.1.share invented.3.share";
        let genuine = share_names([2].into_iter().chain(4..=m));
        for shares in [format!("{invented} {genuine}"), format!("{genuine} {invented}")] {
            let said = place.fail(3, &format!("join --out x {shares}"));
            assert!(said.contains("two different files fit"), "{said}");
            assert!(said.contains("invented.1.share, invented.3.share"), "{said}");
            assert!(said.contains("secret.2.share, secret.4.share"), "{said}");
        }
    }
}

#[test]
fn whoever_has_read_enough_shares_needs_to_change_only_one() {
    let place = Place::new();
    place.split("-k 2 -m 3", &TRUE);
    // Read: 1 and 2, so the secret, too. Changed: 2.
    let (first, second) = (place.read("secret.1.share"), place.read("secret.2.share"));
    let forged = forged_shares(&first[..HEADER], 3, &EVIL, &[&first[HEADER..]]);
    place.write("secret.2.share", &[&second[..HEADER], &forged[1]].concat());
    let joined = place.succeed("join --out - secret.1.share secret.2.share").stdout;
    assert!(joined == EVIL);
    // With the third share there are two that fit, either of them with the first.
    let joined = join_without(&place, "secret.3.share", &share_names(1..=3));
    assert!(joined == EVIL);
    assert!(place.succeed("join --out - secret.1.share secret.3.share").stdout == TRUE);
}

#[test]
fn as_many_strangers_as_are_needed_are_refused() {
    let place = Place::new();
    place.split("-k 2 -m 3", &TRUE);
    for name in ["one", "two"] {
        place.write(name, &bytes(300));
        place.succeed(&format!("split -k 2 -m 3 {name}"));
    }
    let join = format!("join --out x {} one.1.share", share_names(1..=3));
    assert_eq!(place.run(&join).status.code(), Some(0));
    let said = error_line(&place.run(&join.replace("--out x", "--out y two.1.share")), 3);
    for group in ["has secret.1.share, secret.2.share, secret.3.share", "has one.1.share"] {
        assert!(said.contains(group), "{said}");
    }
}

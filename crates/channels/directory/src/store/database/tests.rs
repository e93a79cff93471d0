//! The database, and files that others have changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::file::TABLES;
use super::*;
use crate::addresses::tests::{list, lists};

fn open() -> (TempDir, DirectoryStore) {
    let place = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(&place.path().join("x.sqlite")).unwrap();
    (place, store)
}

fn again(place: &TempDir) -> Result<DirectoryStore, DirectoryStoreError> {
    DirectoryStore::open(&place.path().join("x.sqlite"))
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn entries_persist_when_the_database_is_reopened() {
    let (place, mut store) = open();
    let (one, two) = (list("192.0.2.1:1 198.51.100.1:2"), list("[2001:db8::1]:3"));
    assert_eq!(store.add(ip("192.0.2.1"), &one, at(5)).unwrap(), None);
    let learnt = store.learn(ip("2001:db8::1"), two.clone(), ProofScheme::Ed25519, at(6)).unwrap();
    assert_eq!(learnt, LearnedAddresses { addresses: two.clone(), before: None });
    drop(store);
    let store = again(&place).unwrap();
    let expected = [
        DirectoryEntry {
            peer: ip("192.0.2.1"),
            addresses: one,
            source: AddressSource::Manual,
            learnt_at: at(5),
        },
        DirectoryEntry {
            peer: ip("2001:db8::1"),
            addresses: two,
            source: AddressSource::Learnt(ProofScheme::Ed25519),
            learnt_at: at(6),
        },
    ];
    assert_eq!(store.list().unwrap(), expected);
    for entry in expected {
        assert_eq!(store.find(entry.peer).unwrap(), Some(entry));
    }
    assert_eq!(store.find(ip("192.0.2.2")).unwrap(), None);
}

#[test]
fn the_file_is_its_owners_alone() {
    let (place, _store) = open();
    let mode = fs::metadata(place.path().join("x.sqlite")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// A journal that makes `SQLite` replace the file's pages by these: "The Rollback Journal" in its
/// description of the file format.
fn journal_with(pages: &[u8]) -> Vec<u8> {
    const PAGE: usize = 4096;
    let count = u32::try_from(pages.len() / PAGE).unwrap();
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    for number in [count, 0, count, 512, PAGE.try_into().unwrap()] {
        journal.extend(u32::to_be_bytes(number));
    }
    journal.resize(512, 0);
    for (number, page) in (1_u32..).zip(pages.chunks_exact(PAGE)) {
        let sum: u32 = (1..=PAGE / 200).map(|i| u32::from(page[PAGE - 200 * i])).sum();
        journal.extend(number.to_be_bytes());
        journal.extend(page);
        journal.extend(sum.to_be_bytes());
    }
    journal
}

#[test]
fn files_beside_the_database_that_others_can_write_are_rejected() {
    let (place, mut store) = open();
    let (peer, forged) = (ip("192.0.2.1"), list("203.0.113.66:1 203.0.113.67:1"));
    store.add(peer, &forged, at(1)).unwrap();
    drop(store);
    let path = place.path().join("x.sqlite");
    let pages = fs::read(&path).unwrap();
    let true_ones = list("192.0.2.1:1 198.51.100.1:1");
    again(&place).unwrap().add(peer, &true_ones, at(2)).unwrap();
    let reached = || {
        let store = again(&place)?;
        Ok(store.find(peer)?.unwrap().addresses)
    };
    let forge = |owner: Option<u32>| {
        let journal = place.path().join("x.sqlite-journal");
        let _ = fs::remove_file(&journal);
        fs::write(&journal, journal_with(&pages)).unwrap();
        chown(&journal, owner, None).unwrap();
    };
    let allow = |mode| {
        fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |found: Result<ChannelAddresses, DirectoryStoreError>| {
        let error = found.expect_err("a forged journal is believed").to_string();
        assert!(error.contains("not trusted: ") && error.lines().count() == 1, "{error}");
    };
    // Every user may create files there.
    allow(0o1777);
    forge(None);
    refused(reached());
    allow(0o755);
    if rustix::process::geteuid().is_root() {
        forge(Some(1000));
        refused(reached());
    }
    // A journal of its owner is applied, as after a crash.
    forge(None);
    assert_eq!(reached().unwrap(), forged);
}

#[test]
fn manual_entries_are_not_replaced_by_learnt_ones() {
    let (_place, mut store) = open();
    let (peer, own, other) = (ip("192.0.2.1"), list("192.0.2.1:1"), list("192.0.2.1:2"));
    store.learn(peer, other.clone(), ProofScheme::Hmac, at(1)).unwrap();
    // The operator may replace what was learnt, and what was added.
    let before = store.add(peer, &own, at(2)).unwrap().unwrap();
    assert_eq!(
        (before.addresses, before.source),
        (other.clone(), AddressSource::Learnt(ProofScheme::Hmac))
    );
    assert!(store.add(peer, &own, at(3)).unwrap().is_some());
    for scheme in [ProofScheme::Hmac, ProofScheme::Ed25519] {
        let refused = store.learn(peer, other.clone(), scheme, at(4)).unwrap_err();
        assert!(matches!(refused, DirectoryStoreError::Manual { .. }), "{refused}");
    }
    let entry = store.find(peer).unwrap().unwrap();
    assert_eq!((entry.addresses, entry.learnt_at), (own, at(3)));
    assert!(store.remove(peer).unwrap());
    assert!(store.learn(peer, other, ProofScheme::Hmac, at(5)).unwrap().before.is_none());
}

fn signed(key: u8, number: u32, peers: &[(&str, &str)]) -> SignedDirectoryList {
    let peers = peers.iter().map(|(peer, addresses)| (ip(peer), list(addresses))).collect();
    SignedDirectoryList { key: [key; 32], number, peers }
}

#[test]
fn a_signed_list_replaces_the_last_one() {
    let (_place, mut store) = open();
    let (own, one, two) = ("192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1");
    store.add(ip("192.0.2.1"), &list(own), at(1)).unwrap();
    store.learn(ip("192.0.2.2"), list("192.0.2.2:9"), ProofScheme::Hmac, at(1)).unwrap();
    let first = [("192.0.2.1", "192.0.2.1:9"), ("192.0.2.2", one)];
    // What was added by hand with other addresses stays, and is reported.
    assert_eq!(store.import(&signed(1, 7, &first), at(2)).unwrap(), [ip("192.0.2.1")]);
    let entry = |store: &DirectoryStore, peer| store.find(ip(peer)).unwrap();
    assert_eq!(entry(&store, "192.0.2.1").unwrap().addresses, list(own));
    let imported = entry(&store, "192.0.2.2").unwrap();
    let source = AddressSource::Signed([1; 32]);
    assert_eq!(
        (imported.addresses, imported.source, imported.learnt_at),
        (list(one), source, at(2))
    );
    let learnt = store.learn(ip("192.0.2.2"), list(one), ProofScheme::Hmac, at(3));
    assert!(matches!(learnt, Err(DirectoryStoreError::Signed { .. })), "{learnt:?}");
    // An older list, or another one of the same number, does not come back.
    for number in [6, 7] {
        let old = store.import(&signed(1, number, &[]), at(4));
        assert!(matches!(old, Err(DirectoryStoreError::OldList { last: 7, .. })), "{old:?}");
    }
    let second = [("192.0.2.1", own), ("192.0.2.3", two)];
    assert!(store.import(&signed(1, 8, &second), at(5)).unwrap().is_empty());
    assert_eq!(entry(&store, "192.0.2.2"), None);
    assert_eq!(entry(&store, "192.0.2.3").unwrap().addresses, list(two));
    // Another key counts its own lists.
    store.import(&signed(2, 1, &[]), at(6)).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn a_database_of_version_1_is_brought_to_this_one() {
    let (place, mut store) = open();
    store.add(ip("192.0.2.1"), &list("192.0.2.1:1 192.0.2.1:2"), at(1)).unwrap();
    store.learn(ip("192.0.2.2"), list("192.0.2.2:9"), ProofScheme::Hmac, at(1)).unwrap();
    let entries = store.list().unwrap();
    let tables = TABLES.split_once("CREATE TABLE peer").unwrap().1.replace(", 'signed'", "");
    let version_1 = format!(
        "DROP TABLE signed_list; CREATE TEMP TABLE p AS SELECT * FROM peer; \
         CREATE TEMP TABLE c AS SELECT * FROM channel; DROP TABLE channel; DROP TABLE peer; \
         CREATE TABLE peer{tables} INSERT INTO main.peer SELECT * FROM p; \
         INSERT INTO main.channel SELECT * FROM c; PRAGMA user_version = 1;"
    );
    store.0.execute_batch(&version_1).unwrap();
    drop(store);
    let mut store = again(&place).unwrap();
    assert_eq!(store.list().unwrap(), entries);
    store.import(&signed(1, 1, &[("192.0.2.2", "192.0.2.2:1")]), at(2)).unwrap();
    assert!(store.remove(ip("192.0.2.1")).unwrap());
    assert_eq!(number(&store.0, "SELECT count(*) FROM channel").unwrap(), 1);
}

#[test]
fn learn_reports_a_change() {
    let (_place, mut store) = open();
    let (peer, one, two) = (ip("192.0.2.1"), list("192.0.2.1:1"), list("192.0.2.1:2"));
    let mut learn = |addresses: &ChannelAddresses, seconds| {
        store.learn(peer, addresses.clone(), ProofScheme::Hmac, at(seconds)).unwrap()
    };
    assert!(!learn(&one, 1).has_changed());
    assert!(!learn(&one, 2).has_changed());
    let changed = learn(&two, 3);
    assert!(changed.has_changed());
    assert_eq!((changed.addresses, changed.before), (two, Some(one)));
    assert_eq!(store.find(peer).unwrap().unwrap().learnt_at, at(3));
}

#[test]
fn a_peers_addresses_go_with_it() {
    let (_place, mut store) = open();
    store.add(ip("192.0.2.1"), &list("192.0.2.1:1 192.0.2.1:2"), at(1)).unwrap();
    store.add(ip("192.0.2.2"), &list("192.0.2.2:1"), at(1)).unwrap();
    assert!(store.remove(ip("192.0.2.1")).unwrap());
    assert!(!store.remove(ip("192.0.2.1")).unwrap());
    assert_eq!(number(&store.0, "SELECT count(*) FROM channel").unwrap(), 1);
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn a_full_database_learns_no_more() {
    let (_place, mut store) = open();
    let fill = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {MAX_PEERS}) \
         INSERT INTO peer SELECT 'x' || i, 'manual', 0 FROM n"
    );
    store.0.execute_batch(&fill).unwrap();
    let learnt = store.learn(ip("192.0.2.1"), list("192.0.2.1:1"), ProofScheme::Hmac, at(1));
    assert!(matches!(learnt, Err(DirectoryStoreError::Full)));
    store.add(ip("192.0.2.1"), &list("192.0.2.1:1"), at(1)).unwrap();
}

#[test]
fn other_databases_are_left_alone() {
    let (place, store) = open();
    store.0.execute_batch("PRAGMA user_version = 3").unwrap();
    assert!(matches!(again(&place), Err(DirectoryStoreError::Newer)));
    store.0.execute_batch("PRAGMA user_version = 0").unwrap();
    assert!(matches!(again(&place), Err(DirectoryStoreError::Damaged { .. })));
    store.0.execute_batch("PRAGMA application_id = 7").unwrap();
    assert!(matches!(again(&place), Err(DirectoryStoreError::Foreign)));
    store.0.execute_batch("PRAGMA application_id = 0").unwrap();
    assert!(matches!(again(&place), Err(DirectoryStoreError::Foreign)));
}

#[test]
fn a_file_that_is_not_a_database_is_rejected() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.sqlite");
    fs::write(&path, "socks = \"127.0.0.1:1080\"\n".repeat(100)).unwrap();
    let refused = DirectoryStore::open(&path).unwrap_err();
    assert!(matches!(refused, DirectoryStoreError::Database(_)), "{refused}");
    let missing = DirectoryStore::open(&place.path().join("no/x.sqlite")).unwrap_err().to_string();
    assert!(missing.ends_with("; its directory has to exist"), "{missing}");
    assert!(DirectoryStore::open(place.path()).is_err());
}

/// Overwrites each page of the file in turn: an error follows, at the latest when it is read.
#[test]
fn a_file_that_was_overwritten_is_refused() {
    let (place, mut store) = open();
    for host in 1..=200 {
        let peer = IpAddr::from([192, 0, 2, host]);
        store.add(peer, &ChannelAddresses::new(vec![(peer, 1).into()]).unwrap(), at(1)).unwrap();
    }
    let good = store.list().unwrap();
    drop(store);
    let path = place.path().join("x.sqlite");
    let whole = fs::read(&path).unwrap();
    for page in 0..whole.len() / 4096 {
        let mut bytes = whole.clone();
        bytes[page * 4096..][..4096].fill(0xFF);
        fs::write(&path, bytes).unwrap();
        let read = again(&place).and_then(|store| store.list());
        assert!(!read.is_ok_and(|read| read != good), "page {page}");
    }
}

#[test]
fn invalid_values_are_rejected() {
    for (change, expected) in [
        ("UPDATE peer SET host = '192.0.2.01'", "is not an address"),
        ("UPDATE peer SET host = 'example.org'", "is not an address"),
        ("UPDATE peer SET host = '2001:DB8::1'", "is not an address"),
        ("UPDATE peer SET source = 'rumour'", "which is not a source"),
        ("UPDATE peer SET source = 'signed'", "which is not a source"),
        ("UPDATE peer SET learnt_at = -1", "at no time"),
        ("UPDATE peer SET learnt_at = 253402300800", "at no time"),
        ("UPDATE peer SET learnt_at = 9223372036854775807", "at no time"),
        ("UPDATE channel SET address = 'x'", "has the address \"x\""),
        ("UPDATE channel SET address = '192.0.2.1:080' WHERE place = 0", "has the address"),
        ("UPDATE channel SET address = '192.0.2.1:0' WHERE place = 0", "one host and port"),
        ("UPDATE channel SET address = '224.0.0.1:1' WHERE place = 0", "one host and port"),
        ("UPDATE channel SET address = '192.0.2.1:2' WHERE place = 0", "there twice"),
        ("UPDATE channel SET place = 5 WHERE place = 0", "lacks an address"),
        ("DELETE FROM channel WHERE place = 0", "lacks an address"),
        ("DELETE FROM channel", "lacks an address"),
        ("UPDATE peer SET source = x'00'", "damaged"),
        ("UPDATE channel SET address = CAST(x'ff' AS TEXT) WHERE place = 0", "damaged"),
    ] {
        let (_place, mut store) = open();
        store.add(ip("192.0.2.1"), &list("192.0.2.1:1 192.0.2.1:2"), at(1)).unwrap();
        // Without the constraints, as an attacker who writes to the file could.
        let loose = TABLES
            .replace("STRICT, ", "")
            .replace(" CHECK (source IN ('manual', 'hmac', 'ed25519', 'signed'))", "")
            .replace(" CHECK (learnt_at >= 0)", "")
            .replace(", UNIQUE (peer, address)", "")
            .replace(" REFERENCES peer (host) ON DELETE CASCADE", "");
        let rewrite = format!(
            "CREATE TEMP TABLE p AS SELECT * FROM peer; \
             CREATE TEMP TABLE c AS SELECT * FROM channel; \
             DROP TABLE channel; DROP TABLE peer; DROP TABLE signed_list; {loose} \
             INSERT INTO main.peer SELECT * FROM p; INSERT INTO main.channel SELECT * FROM c; \
             {change}"
        );
        store.0.execute_batch(&rewrite).unwrap();
        let all = store.list().unwrap_err();
        assert!(matches!(all, DirectoryStoreError::Damaged { .. }), "{change}: {all}");
        assert!(all.to_string().contains(expected), "{change}: {all}");
        assert_eq!(all.to_string().lines().count(), 1, "{change}: {all}");
        // A peer of another name is not found; any other is refused here too.
        if !change.contains("host") {
            assert!(store.find(ip("192.0.2.1")).is_err(), "{change}");
            assert!(
                store
                    .learn(ip("192.0.2.1"), list("192.0.2.1:1"), ProofScheme::Hmac, at(1))
                    .is_err()
            );
            assert!(store.remove(ip("192.0.2.1")).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_list_comes_back(addresses in lists(), v4: u32, v6: u128, seconds in 0..=LAST_SECOND) {
        let (_place, mut store) = open();
        for peer in [IpAddr::V4(v4.into()), IpAddr::V6(v6.into())] {
            store.add(peer, &addresses, at(seconds)).unwrap();
            let entry = store.find(peer).unwrap().unwrap();
            prop_assert_eq!(&entry.addresses, &addresses);
            prop_assert_eq!((entry.peer, entry.learnt_at), (peer, at(seconds)));
        }
    }
}

//! Registrations: how long they last, and what is kept of them.

use super::*;
use crate::net::api::ApiCaller;
use crate::protocol::review::MAX_FIRST_LEN;

#[test]
fn a_registration_expires_and_is_extended_by_another_one() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    let digests = [&b"first"[..], b"second"].map(MessageDigest::of);
    register(&mut store, b"first", 1_000).unwrap();
    register(&mut store, b"second", 1_050).unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(UnixSeconds(1_100)));
    assert!(store.expire(UnixSeconds(1_099)).unwrap().is_empty());
    // A repetition soon afterwards changes nothing, so that it need not be recorded.
    assert!(!register(&mut store, b"first", 1_059).unwrap().is_changed);
    let extended = register(&mut store, b"first", 1_060).unwrap();
    assert!(!extended.is_new && extended.is_changed && extended.until == UnixSeconds(1_160));
    assert_eq!(store.expire(UnixSeconds(1_150)).unwrap(), [digests[1]]);
    assert!(store.is_registered(digests[0]).unwrap());
    assert!(!store.is_registered(digests[1]).unwrap());
    drop(store);
    let mut store = open(&place).unwrap();
    assert_eq!(store.expire(UnixSeconds(9_999)).unwrap(), [digests[0]]);
    assert_eq!(store.next_expiry().unwrap(), None);
}

#[test]
fn a_registration_names_its_first_user_and_is_shortened_to_a_lifetime() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    register(&mut store, b"message", 1_000).unwrap();
    let (now, until) = (UnixSeconds(1_100), UnixSeconds(9_000));
    let again = RegistrationRequest { message: b"message", uid: Some(2000), now, until };
    assert!(store.register(&again).unwrap().is_changed);
    let listed = store.unused_registrations(9).unwrap();
    assert_eq!((listed[0].uid, listed[0].until), (Some(1000), until));
    // The clock was set back.
    store.shorten_registrations(UnixSeconds(500)).unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(UnixSeconds(500)));
    store.shorten_registrations(UnixSeconds(600)).unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(UnixSeconds(500)));
}

#[test]
fn a_withdrawn_registration_is_gone() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    register(&mut store, b"message", 0).unwrap();
    let digest = MessageDigest::of(b"message");
    assert_eq!(store.registered_message(digest).unwrap(), Some(Some(b"message".to_vec())));
    assert!(store.withdraw(digest).unwrap());
    assert!(!store.withdraw(digest).unwrap());
    assert!(!store.is_registered(digest).unwrap());
    assert_eq!(store.registered_message(digest).unwrap(), None);
}

#[test]
fn unused_registrations_are_listed_with_their_first_bytes_the_newest_first() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    let long = vec![b'x'; MAX_KEPT_LEN + 1];
    for (at, message) in [(1, &b"first"[..]), (2, &long), (3, b"third")] {
        register(&mut store, message, at).unwrap();
    }
    store.mark_used(MessageDigest::of(b"first")).unwrap();
    let listed = store.unused_registrations(9).unwrap();
    let shown: Vec<_> = listed.iter().map(|it| (it.len, it.first.len(), it.registered.0)).collect();
    let long_len = Some(MAX_KEPT_LEN as u64 + 1);
    assert_eq!(shown, [(Some(5), 5, 3), (long_len, MAX_FIRST_LEN, 2)]);
    assert_eq!((listed[0].uid, listed[0].until), (Some(1000), UnixSeconds(103)));
    assert_eq!(store.unused_registrations(1).unwrap().len(), 1);
    assert_eq!(store.unused().unwrap().len(), 2);
    // Its bytes are not kept.
    assert_eq!(store.registered_message(MessageDigest::of(&long)).unwrap(), Some(None));
}

#[test]
fn the_messages_that_are_kept_have_a_largest_total_length() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    // As much as is kept, in one row.
    let fill = "INSERT INTO message (digest, content) VALUES (randomblob(32), zeroblob(?1))";
    let left = i64::try_from(MAX_KEPT_TOTAL).unwrap() - 6;
    store.connection.execute(fill, [left]).unwrap();
    for (message, is_kept) in [(&b"first"[..], true), (b"second", false)] {
        register(&mut store, message, 0).unwrap();
        let kept = store.registered_message(MessageDigest::of(message)).unwrap().unwrap();
        // Of a short message, the first bytes are all.
        assert_eq!(kept.is_some(), is_kept || message.len() <= MAX_FIRST_LEN);
    }
    let long = vec![b'x'; 100];
    register(&mut store, &long, 0).unwrap();
    assert_eq!(store.registered_message(MessageDigest::of(&long)).unwrap(), Some(None));
    // What is withdrawn or expires makes room.
    let kept = |store: &QuorumStore| {
        let query = "SELECT sum(length(content)) FROM message";
        u64::try_from(file::number(&store.connection, query).unwrap()).ok()
    };
    assert_eq!(store.kept_len, kept(&store));
    store.withdraw(MessageDigest::of(&long)).unwrap();
    assert_eq!(store.kept_len, kept(&store));
    store.expire(UnixSeconds(50)).unwrap();
    assert_eq!(store.kept_len, kept(&store));
    register(&mut store, &long, 0).unwrap();
    assert_eq!(store.registered_message(MessageDigest::of(&long)).unwrap(), Some(Some(long)));
}

/// A full disk registers nothing, and leaves the store as it was.
#[test]
fn nothing_is_registered_on_a_full_disk() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    register(&mut store, b"before", 0).unwrap();
    let pages: i64 = store.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    store.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let large = vec![7; MAX_KEPT_LEN];
    let database = store.database_file();
    let error = register(&mut store, &large, 0).unwrap_err().in_database(&database).to_string();
    let expected = format!("{}: database or disk is full; make room there", database.display());
    assert!(error.starts_with(&expected), "{error}");
    assert!(!store.is_registered(MessageDigest::of(&large)).unwrap());
    assert_eq!(store.registered_count().unwrap(), 1);
    store.connection.pragma_update(None, "max_page_count", 1_000_000).unwrap();
    assert!(register(&mut store, &large, 0).unwrap().is_new);
    drop(store);
    assert_eq!(open(&place).unwrap().registered_count().unwrap(), 2);
}

#[test]
fn registrations_of_the_version_before_last_a_week() {
    let place = TempDir::new().unwrap();
    let store = open(&place).unwrap();
    for column in ["registered", "expires", "used", "uid", "len", "content"] {
        let drop = format!("ALTER TABLE message DROP COLUMN {column}");
        store.connection.execute_batch(&drop).unwrap();
    }
    store.connection.execute_batch("PRAGMA user_version = 1").unwrap();
    let insert = "INSERT INTO message (digest) VALUES (?1)";
    let digest = MessageDigest::of(b"before");
    store.connection.execute(insert, [digest.0]).unwrap();
    drop(store);
    let mut store = open(&place).unwrap();
    let week = 7 * 86_400;
    let now = UnixSeconds::from_system(SystemTime::now()).0;
    let expires = store.next_expiry().unwrap().unwrap().0;
    assert!((now + week - 1_000..=now + week).contains(&expires), "{expires}");
    assert!(store.is_registered(digest).unwrap());
    assert_eq!(store.unused_registrations(9).unwrap()[0].len, None);
    assert_eq!(store.registered_message(digest).unwrap(), Some(None));
    assert_eq!(store.expire(UnixSeconds(expires)).unwrap(), [digest]);
}

#[test]
fn the_audit_log_names_the_user_and_the_digest() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    let (by, digest) = (ApiCaller { uid: Some(1000), gid: Some(100) }, MessageDigest::of(b"m"));
    let text = digest.to_string();
    store.record(&AuditEvent::Registered { digest: text.clone(), by }, NOW).unwrap();
    let refused = AuditEvent::refused("sign", "no", 1, Some(digest), by);
    store.record(&refused, NOW).unwrap();
    store.record(&AuditEvent::Expired { digest: text.clone() }, NOW).unwrap();
    drop(store);
    let log = fs::read_to_string(place.path().join("audit.log")).unwrap();
    for event in ["registered", "refused"] {
        let line = log.lines().find(|line| line.contains(event)).unwrap();
        let has = |part: &str| line.contains(part);
        assert!(has("\"uid\":1000,\"gid\":100") && has(&text), "{line}");
    }
    // The chain is read again, also with lines that name no user.
    open(&place).unwrap();
}

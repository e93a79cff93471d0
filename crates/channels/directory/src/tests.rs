use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use keys::{IdentitySecretKey, SharedKey};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::addresses::tests::list;
use super::config::{TrustedNetwork, TrustedNetworkKey};
use super::credentials::DirectoryServerKeys;
use super::exchange::tests::RunningDirectoryServer;
use super::message::{DirectoryNonce, REQUEST_LEN};
use super::*;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The directory of a client's configuration, with its database and a key of ones.
struct TestDirectory(TempDir);

impl TestDirectory {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("key"), "01".repeat(32)).unwrap();
        Self(place)
    }

    fn store(&self) -> DirectoryStore {
        DirectoryStore::open(&self.0.path().join("d.sqlite")).unwrap()
    }

    /// The directory, whose peers answer at this port and are trusted with these keys.
    fn open(&self, port: u16, trusted: &[(&str, TrustedNetworkKey)]) -> Directory {
        let trust = |(network, key): &(&str, TrustedNetworkKey)| TrustedNetwork {
            network: network.parse().unwrap(),
            key: key.clone(),
        };
        let trusts = trusted.iter().map(trust).collect();
        let config = DirectoryClientConfig {
            file: "d.sqlite".into(),
            port,
            max_age: MAX_AGE,
            signed_by: None,
            trusted_networks: trusts,
        };
        Directory::open(&config, self.0.path()).unwrap()
    }
}

fn shared() -> TrustedNetworkKey {
    TrustedNetworkKey::Shared("key".into())
}

fn public(byte: u8) -> TrustedNetworkKey {
    TrustedNetworkKey::Public(IdentitySecretKey::new(&[byte; 32]).public())
}

/// A port at which nothing listens.
async fn free_port() -> u16 {
    let listener = TcpListener::bind((HOST, 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

/// A server that counts its requests, and if `answers` answers them with one address.
async fn counting(answers: bool) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((HOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let keys = DirectoryServerKeys { shared: Some(SharedKey::new(&[1; 32])), secret: None };
    let responder = DirectoryResponder::new(list("127.0.0.1:1"), keys);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let mut ask = [0; REQUEST_LEN];
            stream.read_exact(&mut ask).await.unwrap();
            if answers {
                let reply = responder.answer(&ask, DirectoryNonce::new([0; 32])).unwrap();
                stream.write_all(&reply.encode()).await.unwrap();
            }
        }
    });
    (port, count)
}

/// Asks `times` times concurrently, and counts the calls that return addresses.
async fn ask_often(directory: &Arc<Directory>, times: usize) -> usize {
    let mut asking = JoinSet::new();
    for _ in 0..times {
        let directory = Arc::clone(directory);
        asking.spawn(async move { directory.addresses_of(HOST, None).await });
    }
    asking.join_all().await.iter().filter(|known| matches!(known, Ok(Some(_)))).count()
}

#[test]
fn entries_are_used_while_young_and_trusted() {
    let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
    let entry = |source, age_s: i64| DirectoryEntry {
        peer: HOST,
        addresses: list("127.0.0.1:1"),
        source,
        learnt_at: UNIX_EPOCH + Duration::from_secs((1_000_000 - age_s).try_into().unwrap()),
    };
    let (hmac, ed25519) = (ProofScheme::Hmac, ProofScheme::Ed25519);
    let learnt = |age_s| Some(entry(AddressSource::Learnt(hmac), age_s));
    let manual = Some(entry(AddressSource::Manual, 999_999));
    let signed = |key| Some(entry(AddressSource::Signed([key; 32]), 999_999));
    for (entry, trusted, expected) in [
        (signed(1), None, "known"),
        (signed(2), Some(hmac), "gone"),
        (None, None, "nothing"),
        (None, Some(hmac), "ask"),
        (manual.clone(), None, "known"),
        (manual, Some(hmac), "known"),
        (learnt(0), Some(hmac), "known"),
        (learnt(3599), Some(hmac), "known"),
        (learnt(3600), Some(hmac), "ask"),
        (learnt(-1), Some(hmac), "ask"),
        (learnt(0), Some(ed25519), "ask"),
        (learnt(0), None, "gone"),
        (learnt(3600), None, "gone"),
    ] {
        let found = match known(entry, (trusted, Some([1; 32])), now, MAX_AGE) {
            Some(DirectoryLookup::Addresses(_)) => "known",
            Some(DirectoryLookup::ToAsk) => "ask",
            Some(DirectoryLookup::Nothing) => "nothing",
            None => "gone",
        };
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn a_peer_is_asked_once_and_then_known() {
    let place = TestDirectory::new();
    let server = RunningDirectoryServer::start("127.0.0.1:1 198.51.100.1:2", 1).await;
    let port = server.address.port();
    let directory = place.open(port, &[("127.0.0.0/8", shared())]);
    let learnt = Some(list("127.0.0.1:1 198.51.100.1:2"));
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
    assert_eq!(directory.addresses_of(mapped, None).await.unwrap(), learnt);
    let entry = place.store().find(HOST).unwrap().unwrap();
    assert_eq!(entry.source, AddressSource::Learnt(ProofScheme::Hmac));
    server.end().await;
    assert_eq!(directory.addresses_of(HOST, None).await.unwrap(), learnt);
    drop(directory);
    let again = place.open(port, &[("127.0.0.0/8", shared())]);
    assert_eq!(again.addresses_of(HOST, None).await.unwrap(), learnt);
    // Trusted by another scheme, it has to prove its answer by that scheme.
    let other = place.open(port, &[("127.0.0.0/8", public(1))]);
    assert!(other.addresses_of(HOST, None).await.is_err());
}

#[tokio::test]
async fn the_most_specific_trust_decides() {
    let place = TestDirectory::new();
    let server = RunningDirectoryServer::start("127.0.0.1:1", 2).await;
    let trusted = [("127.0.0.0/8", shared()), ("127.0.0.1/32", public(2))];
    let directory = place.open(server.address.port(), &trusted);
    assert!(directory.addresses_of(HOST, None).await.unwrap().is_some());
    let entry = place.store().find(HOST).unwrap().unwrap();
    assert_eq!(entry.source, AddressSource::Learnt(ProofScheme::Ed25519));
}

#[tokio::test]
async fn untrusted_peers_are_not_asked() {
    let place = TestDirectory::new();
    let (port, count) = counting(true).await;
    let directory = place.open(port, &[("192.0.2.0/24", shared())]);
    assert_eq!(directory.addresses_of(HOST, None).await.unwrap(), None);
    let refused = directory.refresh(HOST, None).await.unwrap_err();
    assert!(matches!(refused, DirectoryError::NotTrusted { .. }), "{refused}");
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_was_added_by_hand_is_not_asked_for() {
    let place = TestDirectory::new();
    let (port, count) = counting(true).await;
    let directory = place.open(port, &[("127.0.0.0/8", shared())]);
    let own = list("203.0.113.1:1");
    // Another program adds it while this one runs.
    place.store().add(HOST, &own, UNIX_EPOCH).unwrap();
    assert_eq!(directory.addresses_of(HOST, None).await.unwrap(), Some(own));
    let refused = directory.refresh(HOST, None).await.unwrap_err().to_string();
    assert!(refused.contains("was added by hand"), "{refused}");
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn older_addresses_do_not_stand_in_for_an_answer() {
    let place = TestDirectory::new();
    let old = SystemTime::now() - 2 * MAX_AGE;
    place.store().learn(HOST, list("127.0.0.1:1"), ProofScheme::Hmac, old).unwrap();
    let port = free_port().await;
    let directory = place.open(port, &[("127.0.0.0/8", shared())]);
    let error = directory.addresses_of(HOST, None).await.unwrap_err();
    assert!(matches!(error, DirectoryError::Exchange { .. }), "{error}");
    assert!(!error.is_tampering());
    let untrusting = place.open(port, &[]);
    let error = untrusting.addresses_of(HOST, None).await.unwrap_err();
    assert!(matches!(error, DirectoryError::NoLongerTrusted { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_with_another_key_is_tampering() {
    let place = TestDirectory::new();
    let server = RunningDirectoryServer::start("127.0.0.1:1", 2).await;
    let port = server.address.port();
    for key in [shared(), public(1)] {
        let directory = place.open(port, &[("127.0.0.0/8", key)]);
        let error = directory.addresses_of(HOST, None).await.unwrap_err();
        assert!(error.is_tampering(), "{error}");
    }
    assert_eq!(place.store().find(HOST).unwrap(), None);
}

#[tokio::test]
async fn refresh_reports_a_change() {
    let place = TestDirectory::new();
    let before = list("127.0.0.1:9");
    place.store().learn(HOST, before.clone(), ProofScheme::Hmac, SystemTime::now()).unwrap();
    let server = RunningDirectoryServer::start("127.0.0.1:1", 1).await;
    let directory = place.open(server.address.port(), &[("127.0.0.0/8", shared())]);
    assert_eq!(directory.addresses_of(HOST, None).await.unwrap(), Some(before.clone()));
    let learnt = directory.refresh(HOST, None).await.unwrap();
    assert!(learnt.has_changed());
    assert_eq!(learnt.before, Some(before));
    assert_eq!(directory.addresses_of(HOST, None).await.unwrap(), Some(list("127.0.0.1:1")));
    assert!(!directory.refresh(HOST, None).await.unwrap().has_changed());
}

#[tokio::test]
async fn many_connections_are_one_exchange() {
    let place = TestDirectory::new();
    for (answers, expected) in [(false, 0), (true, 50)] {
        let (port, count) = counting(answers).await;
        let directory = Arc::new(place.open(port, &[("127.0.0.0/8", shared())]));
        assert_eq!(ask_often(&directory, 50).await, expected);
        assert_eq!(ask_often(&directory, 50).await, expected);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn a_cancelled_request_does_not_block_others() {
    let place = TestDirectory::new();
    let listener = TcpListener::bind((HOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let directory = Arc::new(place.open(port, &[("127.0.0.0/8", shared())]));
    let asking = Arc::clone(&directory);
    let asking = tokio::spawn(async move { asking.addresses_of(HOST, None).await });
    // The first request arrives, and its task ends before there is an answer.
    let (first, _) = listener.accept().await.unwrap();
    asking.abort();
    drop((first, listener));
    let error = directory.addresses_of(HOST, None).await.unwrap_err();
    assert!(!error.is_tampering(), "{error}");
}

#[test]
fn a_missing_key_is_named() {
    let place = tempfile::tempdir().unwrap();
    let trusts = vec![TrustedNetwork { network: "::/0".parse().unwrap(), key: shared() }];
    let config = DirectoryClientConfig {
        file: "d.sqlite".into(),
        port: 1,
        max_age: MAX_AGE,
        signed_by: None,
        trusted_networks: trusts,
    };
    let error = Directory::open(&config, place.path()).unwrap_err().to_string();
    assert!(error.contains("no such file") && error.contains("/key"), "{error}");
}

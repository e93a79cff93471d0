//! The directory: the addresses of a peer (MICSS, III-C, "Channel Identification").
//!
//! A client that takes a connection knows one address of the peer. The others, one for each
//! channel, are in the configuration or in a local database ([`store`]). The database gets them
//! from the operator, or from the peer in one [`exchange`] over the first address, and keeps their
//! time and source.
//!
//! For addresses from the operator, security depends on this host only. Addresses that were learnt
//! need one more assumption, and only during the exchange: the paper's attacker, whose computing
//! power is otherwise unlimited, does not break HMAC-SHA-256 or Ed25519 and does not have the key.
//! An attacker who does could answer with their own addresses, on any number of channels, and then
//! read and change what is sent there. Later streams over the addresses have the usual guarantees,
//! if the channels are as trustworthy as the answer.
//!
//! Promised, under this assumption:
//! - What is learnt of a peer was sent by a holder of the trusted key, in answer to this request,
//!   and contains the address that was asked.
//! - Learnt addresses never replace addresses that the operator has written.
//! - An address outside all trusted networks is never asked, and no other host is asked about it.
//! - When an exchange fails, the result is an error: no older addresses, no shorter list, no
//!   addresses of another host.
//!
//! Not promised: an attacker on the first network can stop the exchange, and sees who asks whom and
//! what is answered. Peers with one shared key can answer for each other, so share a key only among
//! peers that trust each other. The bytes are in `docs/protocols/directory.md`.
//!
//! ```
//! use keys::SharedKey;
//! use sunder_directory::addresses::ChannelAddresses;
//! use sunder_directory::credentials::{DirectoryCredential, DirectoryServerKeys};
//! use sunder_directory::message::DirectoryNonce;
//! use sunder_directory::{DirectoryRequester, DirectoryResponder};
//!
//! // The server's addresses, one for each channel, and the key that both ends have.
//! let addresses = ["192.0.2.1:6522".parse()?, "198.51.100.1:6522".parse()?];
//! let addresses = ChannelAddresses::new(addresses.to_vec())?;
//! let keys = DirectoryServerKeys { shared: Some(SharedKey::new(&[7; 32])), secret: None };
//! let responder = DirectoryResponder::new(addresses.clone(), keys);
//!
//! // The client knows the first address. Real nonces are random.
//! let credential = DirectoryCredential::Shared(SharedKey::new(&[7; 32]));
//! let requester =
//!     DirectoryRequester::new("192.0.2.1".parse()?, DirectoryNonce::new([1; 32]), &credential);
//! let request = requester.request_bytes().encode();
//! let reply = responder.answer(&request, DirectoryNonce::new([2; 32]))?;
//! assert_eq!(requester.verify_reply(&reply.encode())?, addresses);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! - Pure: `ends` (requester and responder), [`message`] and [`addresses`] (what they send),
//!   [`credentials`] (keys), [`signed_list`] (peers with a signature), [`config`].
//! - The driver: [`exchange`] over a connection, `single_flight` (one exchange at a time with each
//!   peer), [`store`] (the database), and [`Directory`], which uses them.

pub mod addresses;
pub mod config;
pub mod credentials;
pub mod exchange;
pub mod message;
pub mod signed_list;
pub mod store;

mod ends;
mod single_flight;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use keys::KeyFileError;
use tokio::sync::MutexGuard as AsyncMutexGuard;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use addresses::ChannelAddresses;
use config::{DirectoryClientConfig, most_specific};
use credentials::DirectoryCredential;
use exchange::{DirectoryExchangeError, request_addresses};
use message::ProofScheme;
use signed_list::KeyDigest;
use single_flight::{DirectorySingleFlight, LastExchangeFailure};
use store::{AddressSource, DirectoryEntry, DirectoryStore, DirectoryStoreError, LearnedAddresses};

pub use ends::{DirectoryAnswerError, DirectoryRequester, DirectoryResponder};

/// A client's directory: its database, and the keys of the peers that it may ask.
#[derive(Debug)]
pub struct Directory {
    file: PathBuf,
    store: Arc<Mutex<DirectoryStore>>,
    trusted: Vec<(IpNet, DirectoryCredential)>,
    port: u16,
    max_age: Duration,
    /// The key whose signed lists are accepted.
    signer: Option<KeyDigest>,
    flights: DirectorySingleFlight,
}

/// Why the addresses of a peer are not known.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The database cannot be read or written.
    #[error("directory {}: {source}", .file.display())]
    Store {
        /// The database.
        file: PathBuf,
        /// The reason.
        source: DirectoryStoreError,
    },
    /// The peer was asked, and its addresses were not learnt. Older addresses are not used.
    #[error("{source}")]
    Exchange {
        /// The peer.
        peer: IpAddr,
        /// The reason.
        source: Arc<DirectoryExchangeError>,
    },
    /// The peer is in no trusted network, so it is not asked.
    #[error("{peer} is in no network of a [[directory.trust]], and so is not asked")]
    NotTrusted {
        /// The peer.
        peer: IpAddr,
    },
    /// The peer's addresses were learnt under a trust that was removed from the configuration.
    #[error(
        "{peer} was learnt under a [[directory.trust]] or signed_by that was removed: sunder directory remove \
         {peer}, or trust it again"
    )]
    NoLongerTrusted {
        /// The peer.
        peer: IpAddr,
    },
    /// The program is about to end.
    #[error("the program is about to end")]
    Ending,
}

impl DirectoryError {
    /// Whether an answer came and failed verification.
    pub fn is_tampering(&self) -> bool {
        matches!(self, Self::Exchange { source, .. } if source.is_tampering())
    }
}

/// What the database knows of a peer at this time.
enum DirectoryLookup {
    /// Its addresses.
    Addresses(ChannelAddresses),
    /// Nothing valid; the peer is to be asked.
    ToAsk,
    /// Nothing, and the peer is in no trusted network.
    Nothing,
}

impl Directory {
    /// Reads the keys and opens the database, with the configuration in `config_dir`. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// When a key cannot be read, or the database is invalid or cannot be opened.
    pub fn open(config: &DirectoryClientConfig, config_dir: &Path) -> Result<Self, DirectoryError> {
        let trusted = config.trusted_networks.iter();
        let trusted = trusted.map(|trust| Ok((trust.network, trust.credential(config_dir)?)));
        let trusted = trusted.collect::<Result<Vec<_>, KeyFileError>>()?;
        let file = config_dir.join(&config.file);
        let store = DirectoryStore::open(&file)
            .map_err(|source| DirectoryError::Store { file: file.clone(), source })?;
        Ok(Self {
            file,
            store: Arc::new(Mutex::new(store)),
            trusted,
            port: config.port,
            max_age: config.max_age,
            signer: config.signer(config_dir)?.map(|key| key.digest()),
            flights: DirectorySingleFlight::default(),
        })
    }

    /// The addresses of a peer: those that the operator has written, or those that the peer has
    /// answered, now or at most `max_age_h` ago. `None` if nothing is known and the peer is in no
    /// trusted network. A connection with this mark is not intercepted itself.
    ///
    /// Concurrent calls for one peer share one exchange. A peer is not asked again within 5 s after
    /// a failure.
    ///
    /// # Errors
    /// When the database fails. When the peer has to be asked and does not answer, or its answer is
    /// rejected, even if older addresses are known. When its addresses were learnt under a trust
    /// that was removed.
    pub async fn addresses_of(
        &self,
        peer: IpAddr,
        mark: Option<u32>,
    ) -> Result<Option<ChannelAddresses>, DirectoryError> {
        let peer = peer.to_canonical();
        match self.look_up(peer).await? {
            DirectoryLookup::Addresses(addresses) => return Ok(Some(addresses)),
            DirectoryLookup::Nothing => return Ok(None),
            DirectoryLookup::ToAsk => {}
        }
        let flight = self.flights.flight(peer);
        let last = flight.acquire().await;
        // The previous holder of the flight may have learnt it.
        if let DirectoryLookup::Addresses(addresses) = self.look_up(peer).await? {
            return Ok(Some(addresses));
        }
        if let Some(source) = last.recent_failure() {
            return Err(DirectoryError::Exchange { peer, source });
        }
        Ok(Some(self.learn(peer, last, mark).await?.addresses))
    }

    /// Asks a peer again, regardless of the age of its known addresses.
    ///
    /// # Errors
    /// When it was added by hand or is in no trusted network; then it is not asked. When it does
    /// not answer, or its answer is rejected. When the database fails.
    pub async fn refresh(
        &self,
        peer: IpAddr,
        mark: Option<u32>,
    ) -> Result<LearnedAddresses, DirectoryError> {
        let peer = peer.to_canonical();
        let known = self.find(peer).await?.map(|entry| entry.source);
        if let Some(known) = known.filter(|known| !matches!(known, AddressSource::Learnt(_))) {
            let (file, source) =
                (self.file.clone(), DirectoryStoreError::not_learnable(peer, known));
            return Err(DirectoryError::Store { file, source });
        }
        let flight = self.flights.flight(peer);
        let last = flight.acquire().await;
        self.learn(peer, last, mark).await
    }

    async fn look_up(&self, peer: IpAddr) -> Result<DirectoryLookup, DirectoryError> {
        let entry = self.find(peer).await?;
        let scheme = most_specific(&self.trusted, peer).map(DirectoryCredential::scheme);
        known(entry, (scheme, self.signer), SystemTime::now(), self.max_age)
            .ok_or(DirectoryError::NoLongerTrusted { peer })
    }

    async fn find(&self, peer: IpAddr) -> Result<Option<DirectoryEntry>, DirectoryError> {
        self.with_store(move |store| store.find(peer)).await
    }

    /// Asks a peer whose flight was acquired, and stores the answer.
    async fn learn(
        &self,
        peer: IpAddr,
        mut last: AsyncMutexGuard<'_, LastExchangeFailure>,
        mark: Option<u32>,
    ) -> Result<LearnedAddresses, DirectoryError> {
        let credential = most_specific(&self.trusted, peer);
        let credential = credential.ok_or(DirectoryError::NotTrusted { peer })?;
        let asked = request_addresses(SocketAddr::new(peer, self.port), credential, mark).await;
        let addresses =
            last.record(asked).map_err(|source| DirectoryError::Exchange { peer, source })?;
        let scheme = credential.scheme();
        let learn = move |store: &mut DirectoryStore| {
            store.learn(peer, addresses, scheme, SystemTime::now())
        };
        let learnt = self.with_store(learn).await?;
        let (scheme, addresses) = (scheme.name(), &learnt.addresses);
        match &learnt.before {
            Some(before) if learnt.has_changed() => {
                warn!(%peer, scheme, %addresses, %before, "the addresses of a peer have changed");
            }
            _ => info!(%peer, scheme, %addresses, "learnt the addresses of a peer"),
        }
        Ok(learnt)
    }

    /// Runs a call of the database on a thread that may block.
    async fn with_store<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut DirectoryStore) -> Result<T, DirectoryStoreError> + Send + 'static,
    ) -> Result<T, DirectoryError> {
        let store = Arc::clone(&self.store);
        let called =
            spawn_blocking(move || call(&mut store.lock().unwrap_or_else(PoisonError::into_inner)));
        // When the program ends, calls that have not begun are dropped.
        let called = called.await.map_err(|_| DirectoryError::Ending)?;
        called.map_err(|source| DirectoryError::Store { file: self.file.clone(), source })
    }
}

/// The addresses of an entry, if they may be used. Learnt addresses are used while they are young
/// enough, and while the peer is trusted by the scheme by which they were learnt. Those of a signed
/// list are used while its key is trusted. `None` if the trust was removed.
fn known(
    entry: Option<DirectoryEntry>,
    (trusted, signer): (Option<ProofScheme>, Option<KeyDigest>),
    now: SystemTime,
    max_age: Duration,
) -> Option<DirectoryLookup> {
    let Some(entry) = entry else {
        return Some(if trusted.is_some() {
            DirectoryLookup::ToAsk
        } else {
            DirectoryLookup::Nothing
        });
    };
    let scheme = match entry.source {
        AddressSource::Manual => return Some(DirectoryLookup::Addresses(entry.addresses)),
        AddressSource::Signed(key) => {
            return (signer == Some(key)).then_some(DirectoryLookup::Addresses(entry.addresses));
        }
        AddressSource::Learnt(scheme) => scheme,
    };
    // A time in the future is from a clock that was wrong.
    let is_young = now.duration_since(entry.learnt_at).is_ok_and(|age| age < max_age);
    let is_good = trusted? == scheme && is_young;
    Some(if is_good { DirectoryLookup::Addresses(entry.addresses) } else { DirectoryLookup::ToAsk })
}

#[cfg(test)]
mod tests {
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
    async fn a_change_is_told() {
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
}

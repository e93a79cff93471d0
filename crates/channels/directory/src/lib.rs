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
mod tests;

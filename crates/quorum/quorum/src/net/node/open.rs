//! Opens the files and sockets that a configuration names.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use keys::file::exposure;
use keys::storage::{self, Durability};
use keys::{AnyPublicKey, IdentityPublicKey, IdentitySecretKey, KEY_LEN, KeyFileError};
use random::{RandomError, RandomGenerator};
use service::listening::listen;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::config::{MasterKeySource, QuorumNodeConfig};
use super::{LogInboxSource, LogStart, NodeError, NodeNetwork, QuorumNode};
use crate::log::LogFailed;
use crate::net::ceremony_files::{
    CeremonyFileError, destroy_share_file, read_bundle, read_share_file,
};
use crate::net::cometbft::{
    CometbftError, CometbftHome, CometbftHomeError, CometbftLog, CometbftSettings,
};
use crate::net::consensus::{ConsensusError, ConsensusLog, ConsensusSettings};
use crate::net::links::{QuorumLinks, QuorumPeer};
use crate::net::store::{
    BUNDLE_FILE, COMETBFT_FILE, LOG_FILE, MasterKey, MasterKeyError, QuorumStore, QuorumStoreError,
};
use crate::protocol::ceremony::bundle::QuorumBundle;
use crate::protocol::ceremony::share_file::QuorumShareFile;
use crate::protocol::group::{GroupHeader, GroupKeyAnchor, GroupKeyKind, QuorumMember};
use crate::protocol::server::{GroupStart, QuorumServerSettings, SavedStateChange};
use crate::protocol::wire::Sha256Digest;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeOpenError {
    /// A key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Other users can read or replace the identity key.
    #[error("key: {what}, and so impersonate this server: {fix}")]
    Exposed {
        /// Who can do what.
        what: String,
        /// What to do.
        fix: String,
    },
    /// There is no master key.
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    /// The share file is invalid.
    #[error("share: {0}")]
    Share(#[from] CeremonyFileError),
    /// There is neither a share file nor a saved state.
    #[error(
        "share: {} does not exist, and the store has no state: name the `store` that the server had, \
         or its file from the ceremony; a server that has lost its store recovers its shares without \
         `share`, with a [[peer]] for each other server", .path.display()
    )]
    NoShares {
        /// The file.
        path: PathBuf,
    },
    /// There is no bundle yet.
    #[error(
        "bundle: {} does not exist, and the store has none: copy the file that `sunder quorum init \
         --bundle` has written there, or name it with --bundle at the first start", .path.display()
    )]
    NoBundle {
        /// The file.
        path: PathBuf,
    },
    /// The ceremony was given another identity for this server.
    #[error(
        "bundle: {} lists the server at {address} with the identity {listed}, but the key of this \
         one is {own}: make the bundle again, with the line that `sunder init quorum` has printed \
         here", .path.display()
    )]
    OtherIdentity {
        /// The bundle.
        path: PathBuf,
        /// The address, on which this server listens.
        address: SocketAddr,
        /// The identity that the bundle lists there.
        listed: Box<IdentityPublicKey>,
        /// The identity of this server.
        own: Box<IdentityPublicKey>,
    },
    /// The configuration names no public key.
    #[error("there is neither `bundle` nor `public_key`: name the bundle of the group")]
    NoPublicKey,
    /// CometBFT is to run the log of a group whose key is shared by a polynomial.
    #[error(
        "CometBFT runs the log of groups with combinatorial shares of an RSA key only: leave out \
         `cometbft`"
    )]
    CometbftKey,
    /// The bundle and `public_key` differ.
    #[error(
        "`public_key` is not the key of the bundle: leave `public_key` out, or copy both again"
    )]
    OtherKey,
    /// The group has generated its key without this server.
    #[error(
        "bundle: {} has an Ed25519 key, and the store only the list of the servers that are to \
         generate one: if the group has done so without this server, empty the directory {} and \
         start again; the server then recovers its share from the others", .path.display(),
        .store.display()
    )]
    MissedFounding {
        /// The bundle.
        path: PathBuf,
        /// The directory of the store.
        store: PathBuf,
    },
    /// The share file belongs to another server or another key.
    #[error("share: {} is not for this server: {what}", .path.display())]
    OtherShare {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// A founding bundle does not list this server.
    #[error(
        "bundle: {} lists the servers that generate the key, and not this one: a server that joins \
         them later needs the bundle that `sunder quorum bundle` writes there", .path.display()
    )]
    NotListed {
        /// The file.
        path: PathBuf,
    },
    /// The store has lost its state, but not the agreement log.
    #[error(
        "the store has no state, but {} exists, so this server has voted before: restore a backup, \
         or start it with an empty store and a bundle of `sunder quorum bundle`", .log.display()
    )]
    LostState {
        /// The agreement log.
        log: PathBuf,
    },
    /// Another engine has run the log.
    #[error(
        "cometbft: the store has {}, the log of another engine; a group keeps its engine, and all its \
         servers have the same", .log.display()
    )]
    OtherEngine {
        /// The log of the other engine.
        log: PathBuf,
    },
    /// The configuration does not name the directory of CometBFT.
    #[error("the configuration has no `cometbft`, which names the directory of CometBFT: add it")]
    NoCometbft,
    /// The directory of CometBFT cannot be used.
    #[error(transparent)]
    Cometbft(#[from] CometbftHomeError),
    /// The store cannot be opened.
    #[error("the store: {0}")]
    Store(#[from] QuorumStoreError),
    /// Listening on an address fails.
    #[error("listen: {0}; `sunder doctor --config` says why")]
    Listen(#[from] io::Error),
    /// The operating system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The node does not start.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// The parts from which a node starts.
pub struct OpenedNode {
    /// The settings of its server.
    pub settings: QuorumServerSettings,
    /// Its store.
    pub store: QuorumStore,
    /// Its links, which are running.
    pub network: NodeNetwork,
}

/// Reads the keys, opens the store, reads the ceremony's share file if the store is empty, and
/// listens.
///
/// # Errors
/// If one of these steps fails.
pub async fn open(config: &QuorumNodeConfig) -> Result<OpenedNode, NodeOpenError> {
    let identity = read_identity(config)?;
    check_engine(config)?;
    let mut store = open_store(config)?;
    store.set_max_audit_len(config.audit_mib << 20);
    let named = config.public_key.as_ref().map(|path| config.config_dir.join(path));
    let named = named.map(|path| AnyPublicKey::read(&path)).transpose()?;
    let bundle = take_bundle(config, &mut store, &identity, named.as_ref())?;
    let bundled = bundle.as_ref().map(|bundle| bundle.anchor().clone());
    let anchor = bundled.or(named.map(GroupKeyAnchor::of)).ok_or(NodeOpenError::NoPublicKey)?;
    let saved = store.saved()?.start.map(|start| start.header().key);
    let known = bundle.as_ref().map(|bundle| bundle.header().key).or(saved);
    if config.cometbft.is_some() && known.unwrap_or(anchor.kind()) != GroupKeyKind::Rsa {
        return Err(NodeOpenError::CometbftKey);
    }
    if let Some(share) = &config.share {
        let path = config.config_dir.join(share);
        let own = IdentitySecretKey::new(&identity).public();
        take_shares(&path, &mut store, &own, &anchor, config.cometbft.is_some())?;
    }
    let saved = store.saved()?.start.map(|start| start.header().key);
    if known.or(saved) == Some(GroupKeyKind::RsaPolynomial) {
        warn!("experimental: the RSA key is shared by a polynomial, which nobody has reviewed");
    }
    let listening = listen(config.listen.iter().copied(), &[]).await?;
    let settings = QuorumServerSettings {
        identity: Arc::new(IdentitySecretKey::new(&identity)),
        anchor,
        rules: config.rules.clone(),
        delays: config.delays,
        timeouts: config.timeouts,
        refresh_every: config.refresh_every,
        approval_expires: config.proposal_expires,
        service: None,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let (links, inboxes) = QuorumLinks::start(IdentitySecretKey::new(&identity), listening);
    let own = IdentitySecretKey::new(&identity).public();
    let listed = bundle.iter().flat_map(|bundle| bundle.header().group.members());
    let others = listed.filter(|member| member.identity != own);
    let bundled =
        others.map(|it| QuorumPeer { key: it.identity, address: it.address.into() }).collect();
    let network = NodeNetwork {
        links: Arc::new(links),
        inboxes,
        peers: config.peers.clone(),
        bundled,
        registration_expires: config.registration_expires,
    };
    Ok(OpenedNode { settings, store, network })
}

/// Starts a node with its agreement log on disk. Must be called in a runtime.
///
/// # Errors
/// If the store's content does not belong to this server, or cannot be read.
pub fn start(config: &QuorumNodeConfig, opened: OpenedNode) -> Result<QuorumNode, NodeError> {
    let OpenedNode { settings, store, network } = opened;
    let identity = settings.identity.public();
    let links = Arc::clone(&network.links);
    let folder = config.config_dir.join(&config.store);
    if let Some(home) = cometbft_home(config).map_err(|error| LogFailed(Arc::new(error)))? {
        let log_path = folder.join(COMETBFT_FILE);
        let start_log = move |start: LogStart<CometbftLog>| {
            let LogStart { name, applied, first, inbox_source } = start;
            let inbox = match inbox_source {
                LogInboxSource::Inbox(inbox) => Some(inbox),
                LogInboxSource::Log(log) => log.stop(),
            };
            let inbox = inbox.ok_or_else(|| LogFailed(Arc::new(CometbftError::Panicked)))?;
            let (links, store, home) = (Arc::clone(&links), log_path.clone(), home.clone());
            let settings =
                CometbftSettings { identity, key: name, first, links, inbox, store, home, applied };
            CometbftLog::start(settings).map_err(|error| LogFailed(Arc::new(error)))
        };
        return QuorumNode::start(settings, store, network, start_log);
    }
    let log_path = folder.join(LOG_FILE);
    let start_log = move |start: LogStart<ConsensusLog>| {
        let LogStart { name: log, applied, inbox_source: before, .. } = start;
        let inbox = match before {
            LogInboxSource::Inbox(inbox) => Some(inbox),
            LogInboxSource::Log(log) => log.stop(),
        };
        let inbox = inbox.ok_or_else(|| LogFailed(Arc::new(ConsensusError::Panicked)))?;
        let (links, store) = (Arc::clone(&links), log_path.clone());
        let settings = ConsensusSettings { identity, log, links, inbox, store, applied };
        ConsensusLog::start(settings).map_err(|error| LogFailed(Arc::new(error)))
    };
    QuorumNode::start(settings, store, network, start_log)
}

fn read_identity(config: &QuorumNodeConfig) -> Result<Zeroizing<[u8; KEY_LEN]>, NodeOpenError> {
    let path = config.config_dir.join(&config.identity);
    let identity = keys::file::read(&path)?;
    match exposure(&path) {
        Some(error) => Err(NodeOpenError::Exposed { what: error.problem(), fix: error.advice() }),
        None => Ok(identity),
    }
}

/// The directory of CometBFT, if it runs the log.
fn cometbft_home(config: &QuorumNodeConfig) -> Result<Option<CometbftHome>, CometbftHomeError> {
    let path = config.cometbft.as_ref().map(|path| config.config_dir.join(path));
    path.map(|path| CometbftHome::new(&path)).transpose()
}

/// Writes the directory of CometBFT that a configuration names, for the group of its key. CometBFT
/// accepts the nodes of other servers at `listen`.
///
/// # Errors
/// If the configuration names no directory, the group's key cannot be read, or a file exists with
/// other content.
pub fn write_cometbft_home(
    config: &QuorumNodeConfig,
    listen: SocketAddr,
) -> Result<CometbftHome, NodeOpenError> {
    let home = cometbft_home(config)?.ok_or(NodeOpenError::NoCometbft)?;
    let (public, kind) = if let Some(path) = &config.public_key {
        let anchor = GroupKeyAnchor::of(AnyPublicKey::read(&config.config_dir.join(path))?);
        let kind = anchor.kind();
        (anchor, kind)
    } else {
        let named = config.bundle.as_ref().map(|bundle| config.config_dir.join(bundle));
        let path = config.shared_bundle.clone().or(named).ok_or(NodeOpenError::NoPublicKey)?;
        let kept = config.config_dir.join(&config.store).join(BUNDLE_FILE);
        let found = [path.clone(), kept].into_iter().find(|path| path.exists());
        let bundle = read_bundle(&found.ok_or(NodeOpenError::NoBundle { path })?)?;
        (bundle.anchor().clone(), bundle.header().key)
    };
    let (GroupKeyAnchor::Rsa(public), GroupKeyKind::Rsa) = (public, kind) else {
        return Err(NodeOpenError::CometbftKey);
    };
    home.write(Sha256Digest(public.digest()), listen)?;
    Ok(home)
}

/// A log cannot be continued by another engine: the servers' votes would be unknown to it.
fn check_engine(config: &QuorumNodeConfig) -> Result<(), NodeOpenError> {
    if let Some(home) = cometbft_home(config)? {
        home.check()?;
    }
    let other = if config.cometbft.is_some() { LOG_FILE } else { COMETBFT_FILE };
    let log = config.config_dir.join(&config.store).join(other);
    if log.exists() { Err(NodeOpenError::OtherEngine { log }) } else { Ok(()) }
}

/// Reads the bundle if it exists, takes over its shares or its founding header if the store is
/// empty, and keeps its public part in the store, so that later starts do not need it. Nothing is
/// taken from the bundle of another key than `named`, the configured one, or that of the store.
fn take_bundle(
    config: &QuorumNodeConfig,
    store: &mut QuorumStore,
    identity: &Zeroizing<[u8; KEY_LEN]>,
    named: Option<&AnyPublicKey>,
) -> Result<Option<QuorumBundle>, NodeOpenError> {
    let own = IdentitySecretKey::new(identity);
    let configured = config.bundle.as_ref().map(|bundle| config.config_dir.join(bundle));
    let Some(path) = config.shared_bundle.clone().or(configured) else { return Ok(None) };
    let kept_at = store.bundle_file();
    let kept = if kept_at.exists() { Some(read_bundle(&kept_at)?) } else { None };
    let start = store.saved()?.start;
    let generated = start.as_ref().and_then(GroupStart::ed25519_key).map(AnyPublicKey::from);
    // A founding bundle has no key, and the store has the one that was generated.
    let differs = |bundle: &QuorumBundle| {
        let known = bundle.public().or(generated.clone());
        named.zip(known).is_some_and(|(named, known)| *named != known)
    };
    if !path.exists() {
        let kept = kept.filter(|_| config.shared_bundle.is_none());
        let kept = kept.ok_or(NodeOpenError::NoBundle { path })?;
        return if differs(&kept) { Err(NodeOpenError::OtherKey) } else { Ok(Some(kept)) };
    }
    let bundle = read_bundle(&path)?;
    if differs(&bundle) {
        return Err(NodeOpenError::OtherKey);
    }
    let is_of_store = start.as_ref().is_none_or(|start| start.is_of(bundle.anchor()));
    let kept = kept.filter(|kept| kept.anchor() != bundle.anchor());
    let has_other = kept.as_ref().is_some_and(|kept| {
        kept.anchor().kind() != bundle.anchor().kind()
            || kept.public().is_some() == bundle.public().is_some()
    });
    let is_founding = start.as_ref().is_some_and(|start| start.header().epoch == 0);
    let has_ed25519_key = matches!(bundle.anchor(), GroupKeyAnchor::Ed25519(_));
    if !is_of_store && is_founding && has_ed25519_key {
        return Err(NodeOpenError::MissedFounding {
            path,
            store: config.config_dir.join(&config.store),
        });
    }
    if !is_of_store || has_other {
        return Err(NodeOpenError::OtherShare { path, what: "the store has another public key" });
    }
    // A server that has lost its store, and has the key from another server, does not found again.
    if let Some(kept) = kept.filter(|kept| kept.public().is_some()) {
        return Ok(Some(kept));
    }
    let digest = bundle.anchor().digest();
    let is_listed = bundle.header().group.index_of(&own.public()).is_some();
    if let GroupKeyAnchor::Founding(_) = bundle.anchor() {
        info!(%digest, "the SHA-256 of the founding list: compare it with that of the ceremony");
        if !is_listed {
            return Err(NodeOpenError::NotListed { path });
        }
        if start.is_none() {
            save_founding(bundle.header(), identity, store)?;
        }
    } else {
        let key = digest;
        info!(%key, "the SHA-256 of the bundle's public key: compare it with that of the ceremony");
    }
    if bundle.has_shares() && start.is_none() {
        if is_listed {
            let of_bundle = |source| CeremonyFileError::Bundle { path: path.clone(), source };
            save_shares(&bundle.share_of(&own).map_err(of_bundle)?, store)?;
        } else {
            check_unlisted(config, &path, &bundle, own.public())?;
        }
    }
    store.keep_bundle(&bundle)?;
    // A server that has lost its store must not begin with the same shares and voting key again.
    if bundle.has_shares() && config.shared_bundle.is_none() {
        let public = bundle.public_part().to_bytes();
        if let Err(error) = storage::replace(&path, &public, 0o644, Durability::Synced) {
            let path = path.display();
            warn!(%path, %error, "the store has the shares, but the bundle has them too: remove it");
        }
    }
    Ok(Some(bundle))
}

/// A server that is not in the list of the ceremony can join by a refresh. But if the list has
/// another identity at its address, someone has made a mistake, and the refresh would never come.
fn check_unlisted(
    config: &QuorumNodeConfig,
    path: &Path,
    bundle: &QuorumBundle,
    own: IdentityPublicKey,
) -> Result<(), NodeOpenError> {
    let members = bundle.header().group.members();
    let at_own_address = members.iter().find(|member| config.listen.contains(&member.address));
    if let Some(&QuorumMember { identity: listed, address }) = at_own_address {
        let (path, listed, own) = (path.to_owned(), Box::new(listed), Box::new(own));
        return Err(NodeOpenError::OtherIdentity { path, address, listed, own });
    }
    warn!(identity = %own, "the bundle has no shares for this identity: this server waits for a refresh");
    Ok(())
}

fn master_key(config: &QuorumNodeConfig) -> Result<MasterKey, MasterKeyError> {
    match &config.master_key {
        MasterKeySource::File(path) => MasterKey::read(&config.config_dir.join(path)),
        MasterKeySource::Credential(name) => {
            let directory = std::env::var_os("CREDENTIALS_DIRECTORY");
            MasterKey::from_credential(name, directory.map(PathBuf::from))
        }
    }
}

fn open_store(config: &QuorumNodeConfig) -> Result<QuorumStore, NodeOpenError> {
    let directory = config.config_dir.join(&config.store);
    Ok(QuorumStore::open(&directory, master_key(config)?, SystemTime::now())?)
}

/// Writes a backup of a server's store to a new file. The server may be running. Returns the epochs
/// whose shares the backup contains.
///
/// # Errors
/// If there is no store, the store is damaged, or the file cannot be written.
pub fn back_up(config: &QuorumNodeConfig, to: &Path) -> Result<Vec<u64>, NodeOpenError> {
    Ok(QuorumStore::back_up(&config.config_dir.join(&config.store), to)?)
}

/// Replaces the store of a stopped server by a backup of the same epoch.
///
/// # Errors
/// If the backup belongs to an epoch that has ended here, or to another server.
pub fn restore(config: &QuorumNodeConfig, from: &Path) -> Result<(), NodeOpenError> {
    let directory = config.config_dir.join(&config.store);
    Ok(QuorumStore::restore(&directory, master_key(config)?, from, SystemTime::now())?)
}

/// Reads the shares from the ceremony's file if the store is empty, and then destroys the file.
fn take_shares(
    path: &Path,
    store: &mut QuorumStore,
    identity: &IdentityPublicKey,
    anchor: &GroupKeyAnchor,
    is_on_cometbft: bool,
) -> Result<(), NodeOpenError> {
    let has_state = store.saved()?.start.is_some();
    if has_state && !path.exists() {
        return Ok(());
    }
    if !path.exists() {
        return Err(NodeOpenError::NoShares { path: path.to_owned() });
    }
    let file = read_share_file(path)?;
    let other = |what| NodeOpenError::OtherShare { path: path.to_owned(), what };
    if GroupKeyAnchor::Rsa(file.public().clone()) != *anchor {
        return Err(other("it belongs to another key than `public_key`"));
    }
    if is_on_cometbft && file.header.key != GroupKeyKind::Rsa {
        return Err(NodeOpenError::CometbftKey);
    }
    let member = file.header.group.member(file.server);
    if member.is_none_or(|member| member.identity != *identity) {
        return Err(other("it is for another `identity`"));
    }
    if has_state {
        info!("the store has a state already, and the share file is destroyed unused");
    } else {
        save_shares(&file, store)?;
    }
    if let Err(error) = destroy_share_file(path) {
        warn!(%error, "the store has the shares, but their file remains: destroy it yourself");
    }
    Ok(())
}

/// Checks that an empty store is new. A store with an agreement log had a state: its server has
/// voted, and must not vote with the same key again.
fn check_new(store: &QuorumStore) -> Result<(), NodeOpenError> {
    match store.log_files().into_iter().find(|log| log.exists()) {
        Some(log) => Err(NodeOpenError::LostState { log }),
        None => Ok(()),
    }
}

/// Saves the founding header in an empty store. The server signs its votes with its identity key
/// until it has a voting key in the first epoch.
fn save_founding(
    header: &GroupHeader,
    identity: &Zeroizing<[u8; KEY_LEN]>,
    store: &mut QuorumStore,
) -> Result<(), NodeOpenError> {
    check_new(store)?;
    let start = SavedStateChange::Start(GroupStart::founding(header.clone()));
    let voting =
        SavedStateChange::Voting { epoch: header.epoch, life: None, secret: identity.clone() };
    Ok(store.save(&[start, voting], &mut RandomGenerator::seeded()?, SystemTime::now())?)
}

/// Saves the shares of the ceremony in an empty store.
fn save_shares(file: &QuorumShareFile, store: &mut QuorumStore) -> Result<(), NodeOpenError> {
    check_new(store)?;
    let start = GroupStart::first(file.header.clone(), file.witnesses.clone());
    let start = SavedStateChange::Start(start);
    let shares = file.shares.clone();
    let shares = SavedStateChange::Shares { epoch: file.header.epoch, shares };
    let secret = Zeroizing::new(*file.voting.to_bytes());
    let voting = SavedStateChange::Voting { epoch: file.header.epoch, life: None, secret };
    Ok(store.save(&[start, shares, voting], &mut RandomGenerator::seeded()?, SystemTime::now())?)
}

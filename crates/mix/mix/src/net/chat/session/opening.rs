//! Opens what a session needs: its stored state, and connections to the proxy.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use keys::IdentitySecretKey;
use transport::{ConnectionOptions, ConnectionSecurity, MessageStream, PeerKeyPolicy, connect};
use zeroize::Zeroizing;

use super::super::super::state::{StateFileError, StateFolder, state_key};
use super::super::config::ChatConfig;
use super::super::contacts::{self, ChatContacts};
use super::super::output::FILE;
use super::super::shared_file::{self, FileOffers};
use super::{ChatError, ChatInput};
use crate::protocol::client::{MIN_READ_TIMEOUT, MixClient, MixClientSettings};
use crate::protocol::membership::Invitation;

/// The time limit for the handshake through a SOCKS proxy such as Tor.
const SLOW_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// A file of the state of a founder: whether it begins a new group at its next start.
const FOUNDING: &str = "founding";
const IS_DUE: &[u8] = b"due";
const IS_DONE: &[u8] = b"done";

/// The limits of the next message of the proxy.
#[derive(Clone, Copy)]
pub(super) struct ReceiveLimits {
    /// The maximum number of bytes.
    pub(super) max_len: usize,
    /// The time limit of reading it and, from then on, of writing.
    pub(super) timeout: Duration,
}

/// Lets the founder of a group begin it, at the next start of a chat. Without this, a founder that
/// has lost its state would begin a group without members.
///
/// # Errors
/// If there is a state, the configuration is not the founder's, or nothing can be written.
pub fn found_group(config: &ChatConfig) -> Result<(), ChatError> {
    let in_dir = |path: &std::path::Path| config.config_dir.join(path);
    let identity = IdentitySecretKey::read(&in_dir(&config.identity))?;
    if identity.public() != config.administrator {
        let why = "the group in the configuration was founded by another key";
        return Err(ChatError::Client(why.into()));
    }
    let folder = StateFolder::open(&in_dir(&config.state))?;
    if folder.read(FILE)?.is_some() {
        let why = "there is one: the group goes on with it, and need not be founded";
        return Err(ChatError::Client(why.into()));
    }
    Ok(folder.replace(FOUNDING, IS_DUE)?)
}

/// The client, with its stored state. Its times are since `start`.
pub(super) fn open_client(
    config: &ChatConfig,
    identity: &Arc<IdentitySecretKey>,
    folder: &StateFolder,
    invitation: Option<Invitation>,
    start: Instant,
) -> Result<MixClient, ChatError> {
    let stored = open_file(folder, identity, FILE)?;
    let founds = folder.read(FOUNDING)?.is_some_and(|content| **content == *IS_DUE);
    if founds && stored.is_some() {
        folder.replace(FOUNDING, IS_DONE)?;
    }
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let settings = MixClientSettings {
        group: config.address(),
        founds,
        name: config.name.clone(),
        invitation,
        least_participants: config.least_anonymity,
        terms: config.terms,
        now: start.elapsed(),
        since_1970: since_1970.unwrap_or_default(),
    };
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(ChatError::Random)?;
    let stored = stored.as_deref().map(|state| &state[..]);
    let client = MixClient::new(settings, identity.clone(), stored, *seed);
    client.map_err(|error| ChatError::Client(error.to_string()))
}

/// The contacts and the offered files.
pub(super) fn open_contacts(
    identity: &IdentitySecretKey,
    folder: &StateFolder,
) -> Result<(ChatContacts, FileOffers), ChatError> {
    let damaged = |name| {
        let path = folder.path().join(name);
        ChatError::Client(format!("{} is damaged: remove it", path.display()))
    };
    let contacts = open_file(folder, identity, contacts::FILE)?;
    let contacts =
        contacts.map(|bytes| ChatContacts::decode(&bytes).ok_or_else(|| damaged(contacts::FILE)));
    let offers = open_file(folder, identity, shared_file::FILE)?;
    let offers =
        offers.map(|bytes| FileOffers::decode(&bytes).ok_or_else(|| damaged(shared_file::FILE)));
    Ok((contacts.transpose()?.unwrap_or_default(), offers.transpose()?.unwrap_or_default()))
}

/// The content of a sealed file of the state; `None` if it does not exist.
fn open_file(
    folder: &StateFolder,
    identity: &IdentitySecretKey,
    name: &str,
) -> Result<Option<Zeroizing<Vec<u8>>>, ChatError> {
    let Some(sealed) = folder.read(name)? else { return Ok(None) };
    let path = folder.path().join(name);
    let opened = state_key(identity).open(name.as_bytes(), &sealed);
    Ok(Some(opened.ok_or(StateFileError::Sealed { path })?))
}

/// The options of connections to the proxy.
pub(super) fn connection_options(config: &ChatConfig, own: IdentitySecretKey) -> ConnectionOptions {
    let options = ConnectionOptions {
        transport: config.transport,
        timeout: Some(MIN_READ_TIMEOUT),
        socks: config.socks.clone(),
        ..ConnectionOptions::new(ConnectionSecurity::pinned(own, vec![config.proxy_key]))
    };
    match config.socks {
        None => options,
        Some(_) => ConnectionOptions { handshake_timeout: SLOW_HANDSHAKE_TIMEOUT, ..options },
    }
}

/// The same options, for a proxy with another key.
pub(super) fn options_for(
    options: &ConnectionOptions,
    key: keys::IdentityPublicKey,
) -> ConnectionOptions {
    let security = match &options.security {
        ConnectionSecurity::Noise { identity, .. } => {
            let (identity, peers) = (identity.clone(), PeerKeyPolicy::Pinned(vec![key]));
            ConnectionSecurity::Noise { identity, peers }
        }
        ConnectionSecurity::Insecure => ConnectionSecurity::Insecure,
    };
    ConnectionOptions { security, ..options.clone() }
}

/// Connects and passes on messages, each after the previous one was handled. Returns why the
/// connection ended.
pub(super) fn read(
    number: u64,
    proxy: &str,
    options: &ConnectionOptions,
    inputs: &SyncSender<ChatInput>,
) -> String {
    let connection = match connect(proxy, options) {
        Ok(connection) => connection,
        Err(error) => return error.to_string(),
    };
    let closer = connection.closer();
    let (reader, writer) = connection.split();
    let (next, allowed) = sync_channel(1);
    let gone = String::new;
    if inputs.send(ChatInput::Opened(number, writer, closer, next)).is_err() {
        return gone();
    }
    let mut messages = MessageStream::new(reader);
    let mut last_timeout = options.timeout;
    while let Ok(ReceiveLimits { max_len, timeout }) = allowed.recv() {
        if last_timeout.replace(timeout) != Some(timeout)
            && let Err(error) = messages.get_ref().set_timeout(Some(timeout))
        {
            return error.to_string();
        }
        let message = match messages.receive(max_len) {
            Ok(Some(message)) => message,
            Ok(None) => return "the proxy has ended the connection".into(),
            Err(error) => return error.to_string(),
        };
        if inputs.send(ChatInput::Received(number, message, Instant::now())).is_err() {
            return gone();
        }
    }
    gone()
}

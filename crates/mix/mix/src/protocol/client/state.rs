//! The stored state of a client.

use std::collections::VecDeque;

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;
use zeroize::Zeroizing;

use super::epochs::ClientEpochs;
use super::report::ClientStateError;
use super::terms::AgreedTerms;
use crate::protocol::conversations::Conversations;
use crate::protocol::event::{ChatMessageId, GivenUpReason, MixClientEvent};
use crate::protocol::membership::{AdministratorAnchor, GroupAddress, Invitation, group_id};

const VERSION: u8 = 9;
/// The version without the rounds that were agreed to. It is read, and written while there are
/// none.
const VERSION_WITHOUT_ROUNDS: u8 = 8;
/// The version without the wish to leave. It is read, and written while there is none.
const VERSION_WITHOUT_LEAVING: u8 = 7;
/// The version without the terms that were agreed to. It is read, and written while there are none.
const VERSION_WITHOUT_TERMS: u8 = 6;
/// The version without the address at which the proxy was found. It is read, and written while
/// that is the configured one.
const VERSION_WITHOUT_FOUND: u8 = 5;
/// The version without branches that were left. It is read, and written while there are none.
const VERSION_WITHOUT_LEFT: u8 = 4;
/// The version of groups with one administrator, without the newest announcement. It is read.
const VERSION_BEFORE: u8 = 3;
/// The version before that, without past epochs. It is read.
const VERSION_WITHOUT_PAST: u8 = 2;
/// A message without the sender's key, of a version before. It is read.
const MESSAGE_BEFORE: u8 = 0;
const DELIVERED: u8 = 1;
const REMOVED: u8 = 2;
const UNCERTAIN: u8 = 3;
/// A message: the sender's key, and the text.
const MESSAGE: u8 = 4;

/// The restored state of a client.
pub(super) struct RestoredClientState {
    pub(super) epochs: ClientEpochs,
    pub(super) conversations: Conversations,
    /// The administrator's state; empty for other members.
    pub(super) administrator: Vec<u8>,
    /// Whether that is of a version before.
    pub(super) is_administrator_before: bool,
    pub(super) join_attempt: Option<JoinAttempt>,
    pub(super) agreed: AgreedTerms,
    pub(super) events: VecDeque<MixClientEvent>,
}

/// An attempt to join.
#[derive(Clone)]
pub(super) struct JoinAttempt {
    /// The encoded request; empty if there is none yet, or it was refused.
    pub(super) request: Vec<u8>,
    /// The administrators of the group must come from this list, whether or not this client has
    /// asked: the proxy can say that it is a member already.
    pub(super) anchor: AdministratorAnchor,
}

impl JoinAttempt {
    pub(super) fn new(invitation: &Invitation) -> Self {
        Self { request: Vec::new(), anchor: invitation.anchor() }
    }
}

/// The stored bytes: the group's, the epoch, conversations, the administrator's list (empty for
/// other members), the attempt to join (empty if there is none), the branches that were left, where
/// the proxy was found, the terms that were agreed to, the wish to leave, the rounds that were
/// agreed to, and messages that were not shown.
pub(super) fn encode(
    group_id: &[u8; 32],
    epochs: &ClientEpochs,
    conversations: &[u8],
    administrator: &[u8],
    join_attempt: Option<&JoinAttempt>,
    agreed: AgreedTerms,
    events: &VecDeque<MixClientEvent>,
) -> Zeroizing<Vec<u8>> {
    let unseen: Vec<_> = events.iter().filter_map(parts).collect();
    let texts: usize = unseen.iter().map(|(_, name, text)| 16 + name.len() + text.len()).sum();
    // Allocated at once, because a growing vector leaves copies.
    let newest = epochs.newest().map_or(0, |newest| newest.bytes().len());
    let left: usize = epochs.left().iter().map(|left| left.bytes().len()).sum();
    let len = (256 << 10) + left + newest + conversations.len() + administrator.len() + texts;
    let mut out = Zeroizing::new(Vec::with_capacity(len));
    let version = match epochs.found() {
        _ if agreed.has_rounds() => VERSION,
        _ if epochs.is_leaving() => VERSION_WITHOUT_ROUNDS,
        _ if agreed.exchange().is_some() => VERSION_WITHOUT_LEAVING,
        Some(_) => VERSION_WITHOUT_TERMS,
        None if !epochs.left().is_empty() => VERSION_WITHOUT_FOUND,
        None => VERSION_WITHOUT_LEFT,
    };
    out.push(version);
    out.extend(group_id);
    epochs.encode(&mut out);
    out.put_counted(conversations);
    out.put_counted(administrator);
    let encoded = |attempt: &JoinAttempt| {
        let mut bytes = Vec::new();
        attempt.anchor.encode(&mut bytes);
        bytes.extend(&attempt.request);
        bytes
    };
    out.put_counted(&join_attempt.map(encoded).unwrap_or_default());
    if version > VERSION_WITHOUT_LEFT {
        epochs.encode_left(&mut out);
    }
    if version > VERSION_WITHOUT_FOUND {
        epochs.encode_found(&mut out);
    }
    if version > VERSION_WITHOUT_TERMS {
        agreed.encode(&mut out);
    }
    if version > VERSION_WITHOUT_LEAVING {
        epochs.encode_leaving(&mut out);
    }
    if version > VERSION_WITHOUT_ROUNDS {
        agreed.encode_rounds(&mut out);
    }
    for (kind, name, text) in unseen {
        out.push(kind);
        out.put_counted(name.as_bytes());
        out.put_counted(&text);
    }
    out
}

/// The stored parts of an event; `None` for events that are not stored.
fn parts(event: &MixClientEvent) -> Option<(u8, &str, Vec<u8>)> {
    match event {
        MixClientEvent::Message { key: Some(key), from, text } => {
            Some((MESSAGE, from, [&key.to_bytes()[..], text.as_bytes()].concat()))
        }
        MixClientEvent::Message { key: None, from, text } => {
            Some((MESSAGE_BEFORE, from, text.as_bytes().to_vec()))
        }
        MixClientEvent::Delivered { id, to } => Some((DELIVERED, to, id.0.to_be_bytes().to_vec())),
        MixClientEvent::GivenUp { id, to, reason } => {
            let kind = match reason {
                GivenUpReason::Removed => REMOVED,
                GivenUpReason::Uncertain => UNCERTAIN,
            };
            Some((kind, to, id.0.to_be_bytes().to_vec()))
        }
        _ => None,
    }
}

/// Decodes a stored state, for a new incarnation: see [`Conversations::new`].
pub(super) fn decode(
    bytes: &[u8],
    at: &GroupAddress,
    life: u64,
) -> Result<RestoredClientState, ClientStateError> {
    let mut reader = FieldReader::new(bytes);
    let version = match reader.u8() {
        Ok(version @ VERSION_WITHOUT_PAST..=VERSION) => version,
        Ok(_) => return Err(ClientStateError::Version),
        Err(_) => return Err(ClientStateError::Malformed),
    };
    if reader.take() != Ok(group_id(&at.administrator, at.group.as_str())) {
        return Err(ClientStateError::OtherGroup);
    }
    read(reader, at, version, life).ok_or(ClientStateError::Malformed)
}

fn read(
    mut reader: FieldReader<'_>,
    at: &GroupAddress,
    version: u8,
    life: u64,
) -> Option<RestoredClientState> {
    let (has_past, is_before) = (version != VERSION_WITHOUT_PAST, version <= VERSION_BEFORE);
    let mut epochs = ClientEpochs::decode(&mut reader, at, has_past, !is_before)?;
    let conversations = Conversations::from_bytes(reader.counted().ok()?, life).ok()?;
    let administrator = reader.counted().ok()?.to_vec();
    let join_attempt = match reader.counted().ok()? {
        // A proxy of this version does not forward a request of the version before.
        bytes if bytes.is_empty() || is_before => None,
        bytes => {
            let mut reader = FieldReader::new(bytes);
            let anchor = AdministratorAnchor::decode(&mut reader)?;
            Some(JoinAttempt { request: reader.rest().to_vec(), anchor })
        }
    };
    if version > VERSION_WITHOUT_LEFT {
        epochs.decode_left(&mut reader, at)?;
    }
    if version > VERSION_WITHOUT_FOUND {
        epochs.decode_found(&mut reader)?;
    }
    let mut agreed = if version > VERSION_WITHOUT_TERMS {
        AgreedTerms::decode(&mut reader)?
    } else {
        AgreedTerms::default()
    };
    if version > VERSION_WITHOUT_LEAVING {
        epochs.decode_leaving(&mut reader)?;
    }
    if version > VERSION_WITHOUT_ROUNDS {
        agreed.decode_rounds(&mut reader)?;
    }
    let mut events = VecDeque::new();
    while let Ok(kind) = reader.u8() {
        let name = String::from_utf8(reader.counted().ok()?.to_vec()).ok()?;
        let text = reader.counted().ok()?;
        events.push_back(event(kind, name, text)?);
    }
    let is_administrator_before = is_before;
    Some(RestoredClientState {
        epochs,
        conversations,
        administrator,
        is_administrator_before,
        join_attempt,
        agreed,
        events,
    })
}

fn event(kind: u8, name: String, bytes: &[u8]) -> Option<MixClientEvent> {
    if kind == MESSAGE || kind == MESSAGE_BEFORE {
        let (key, text) = match bytes.split_first_chunk::<32>() {
            _ if kind == MESSAGE_BEFORE => (None, bytes),
            Some((key, text)) => (Some(IdentityPublicKey::from_bytes(key).ok()?), text),
            None => return None,
        };
        let text = String::from_utf8(text.to_vec()).ok()?;
        return Some(MixClientEvent::Message { key, from: name, text });
    }
    let id = ChatMessageId(u64::from_be_bytes(bytes.try_into().ok()?));
    let reason = match kind {
        DELIVERED => return Some(MixClientEvent::Delivered { id, to: name }),
        REMOVED => GivenUpReason::Removed,
        UNCERTAIN => GivenUpReason::Uncertain,
        _ => return None,
    };
    Some(MixClientEvent::GivenUp { id, to: name, reason })
}

//! Sessions: searches and signatures that have begun.

use std::collections::{BTreeMap, VecDeque};

use cryptoki_sys::*;
use quorum::api::{ApiEncoding, MAX_BODY_LEN};

use crate::return_value::{CryptokiError, report};

/// The largest number of sessions of a process.
const MAX_SESSIONS: usize = 4_096;

/// The open sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    sessions: BTreeMap<CK_SESSION_HANDLE, TokenSession>,
    last: CK_SESSION_HANDLE,
}

/// A session.
#[derive(Debug)]
pub(crate) struct TokenSession {
    /// The place of its token among the slots.
    pub(crate) slot: usize,
    /// The handles that a search has found and not returned yet.
    pub(crate) found: Option<VecDeque<CK_OBJECT_HANDLE>>,
    pub(crate) signing: Option<SignOperation>,
}

/// A signature that has begun.
#[derive(Debug)]
pub(crate) struct SignOperation {
    pub(crate) encoding: ApiEncoding,
    /// The length of the signature, in bytes.
    pub(crate) signature_len: usize,
    /// What `C_SignUpdate` has added, at most a message.
    pub(crate) message: Vec<u8>,
    /// Whether `C_SignUpdate` was called, after which `C_Sign` is not allowed.
    pub(crate) is_in_parts: bool,
}

impl SessionTable {
    /// Opens a session with the token of this slot.
    pub(crate) fn open(&mut self, slot: usize) -> Result<CK_SESSION_HANDLE, CryptokiError> {
        if self.sessions.len() >= MAX_SESSIONS {
            return Err(CryptokiError(CKR_SESSION_COUNT));
        }
        // 0 is no handle.
        self.last += 1;
        self.sessions.insert(self.last, TokenSession { slot, found: None, signing: None });
        Ok(self.last)
    }

    pub(crate) fn close(&mut self, handle: CK_SESSION_HANDLE) -> Result<(), CryptokiError> {
        let closed = self.sessions.remove(&handle);
        closed.map(drop).ok_or(CryptokiError(CKR_SESSION_HANDLE_INVALID))
    }

    /// Closes all sessions of a slot.
    pub(crate) fn close_all(&mut self, slot: usize) {
        self.sessions.retain(|_, session| session.slot != slot);
    }

    /// How many sessions a slot has.
    pub(crate) fn count(&self, slot: usize) -> usize {
        self.sessions.values().filter(|session| session.slot == slot).count()
    }

    pub(crate) fn session(
        &mut self,
        handle: CK_SESSION_HANDLE,
    ) -> Result<&mut TokenSession, CryptokiError> {
        self.sessions.get_mut(&handle).ok_or(CryptokiError(CKR_SESSION_HANDLE_INVALID))
    }
}

impl TokenSession {
    /// The signature that has begun.
    pub(crate) fn signing(&mut self) -> Result<&mut SignOperation, CryptokiError> {
        self.signing.as_mut().ok_or(CryptokiError(CKR_OPERATION_NOT_INITIALIZED))
    }
}

impl SignOperation {
    /// Adds a part of the message. Nothing is copied of a message that is too long.
    pub(crate) fn add(&mut self, part: &[u8]) -> Result<(), CryptokiError> {
        if part.len() > MAX_BODY_LEN - self.message.len() {
            report(&"the message has more than 1 MiB: sign a file with its SHA-256 instead");
            return Err(CryptokiError(CKR_DATA_LEN_RANGE));
        }
        self.message.extend_from_slice(part);
        self.is_in_parts = true;
        Ok(())
    }
}

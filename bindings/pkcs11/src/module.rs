//! The state between calls.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{process, ptr};

use cryptoki_sys::*;

use crate::config;
use crate::return_value::{CryptokiError, report};
use crate::session::SessionTable;
use crate::token::QuorumToken;

/// What the module knows between `C_Initialize` and `C_Finalize`.
#[derive(Debug)]
pub(crate) struct ModuleState {
    /// The tokens. The identifier of a slot is its place.
    pub(crate) tokens: Vec<Arc<QuorumToken>>,
    pub(crate) sessions: SessionTable,
}

/// The state of one process.
struct ProcessState {
    process: u32,
    state: Mutex<Option<ModuleState>>,
}

/// The state of the last process that has called `C_Initialize`. A forked child makes another one:
/// a thread of the parent may have had the lock at the time of the fork, and does not exist in the
/// child. What this has pointed to is never freed.
static STATE: AtomicPtr<ProcessState> = AtomicPtr::new(ptr::null_mut());

/// Reads the configuration: `C_Initialize`.
pub(crate) fn initialize() -> Result<(), CryptokiError> {
    let mut state = state_of_this_process().lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_some() {
        return Err(CryptokiError(CKR_CRYPTOKI_ALREADY_INITIALIZED));
    }
    let tokens = config::load().map_err(|reason| {
        report(&reason);
        CryptokiError(CKR_GENERAL_ERROR)
    })?;
    let tokens = tokens.into_iter().map(|it| Arc::new(QuorumToken::new(it))).collect();
    *state = Some(ModuleState { tokens, sessions: SessionTable::default() });
    Ok(())
}

/// Forgets everything: `C_Finalize`. Signatures that are under way in other threads go on.
pub(crate) fn finalize() -> Result<(), CryptokiError> {
    let state = state().ok_or(CryptokiError(CKR_CRYPTOKI_NOT_INITIALIZED))?;
    let ended = state.lock().unwrap_or_else(PoisonError::into_inner).take();
    ended.map(drop).ok_or(CryptokiError(CKR_CRYPTOKI_NOT_INITIALIZED))
}

/// Does something with the state, which must not wait for a server.
pub(crate) fn with_state<T>(
    action: impl FnOnce(&mut ModuleState) -> Result<T, CryptokiError>,
) -> Result<T, CryptokiError> {
    let state = state().ok_or(CryptokiError(CKR_CRYPTOKI_NOT_INITIALIZED))?;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    action(state.as_mut().ok_or(CryptokiError(CKR_CRYPTOKI_NOT_INITIALIZED))?)
}

/// The state of this process, if it has made one.
fn state() -> Option<&'static Mutex<Option<ModuleState>>> {
    // SAFETY: it is null, or was made by `Box::into_raw`, and what it points to is never freed.
    let last = unsafe { STATE.load(Ordering::Acquire).as_ref() };
    last.filter(|last| last.process == process::id()).map(|last| &last.state)
}

/// The state of this process, which is made if there is none.
fn state_of_this_process() -> &'static Mutex<Option<ModuleState>> {
    loop {
        let last = STATE.load(Ordering::Acquire);
        if let Some(state) = state() {
            return state;
        }
        let new = ProcessState { process: process::id(), state: Mutex::new(None) };
        let new = Box::into_raw(Box::new(new));
        if STATE.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another thread was faster.
            // SAFETY: the pointer is that of the box above, which nobody else has seen.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl ModuleState {
    /// The token of a slot, and its place.
    pub(crate) fn token(
        &self,
        slot: CK_SLOT_ID,
    ) -> Result<(usize, Arc<QuorumToken>), CryptokiError> {
        let place = usize::try_from(slot).ok();
        let token = place.and_then(|place| Some((place, self.tokens.get(place)?.clone())));
        token.ok_or(CryptokiError(CKR_SLOT_ID_INVALID))
    }

    /// The token of a session.
    pub(crate) fn token_of(
        &mut self,
        session: CK_SESSION_HANDLE,
    ) -> Result<Arc<QuorumToken>, CryptokiError> {
        let slot = self.sessions.session(session)?.slot;
        Ok(self.tokens[slot].clone())
    }
}

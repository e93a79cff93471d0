//! The state machines of a run at one server.

use std::time::Duration;

use keys::IdentityPublicKey;
use random::{RandomError, RandomGenerator};

use super::change::SavedStateChange;
use super::output::RefreshJobOwner;
use crate::protocol::log_types::Height;
use crate::protocol::refresh::{
    self, NewServer, OldServer, RefreshAgreement, RefreshMessage, RefreshRole,
};
use crate::protocol::wire::Sha256Digest;

/// The state machines of a run.
pub(super) struct RefreshParticipation {
    pub(super) id: Sha256Digest,
    /// The height at which it was opened.
    pub(super) opened_at: Height,
    /// The signature of its header, once the old group has made it.
    pub(super) signature: Option<Vec<u8>>,
    /// When to have the header signed.
    pub(super) header_at: Duration,
    pub(super) old: Option<OldServer>,
    pub(super) new: Option<NewServer>,
}

impl RefreshJobOwner {
    /// The name under which its items are saved. A recovery has no items.
    pub(super) fn items(self) -> Option<Sha256Digest> {
        match self {
            Self::Old(run) => Some(dealer_items(run)),
            Self::New(run) => Some(run),
            Self::Recovery(_) => None,
        }
    }
}

/// A run that has ended with a new epoch, until it is finished for this server.
pub(super) struct EndedRefresh {
    pub(super) agreement: RefreshAgreement,
    pub(super) machines: RefreshParticipation,
}

impl RefreshParticipation {
    pub(super) fn poll(
        &mut self,
        now: Duration,
        agreement: &RefreshAgreement,
        generator: &mut RandomGenerator,
        outputs: &mut Vec<(RefreshJobOwner, refresh::RefreshOutput)>,
    ) -> Result<(), RandomError> {
        while let Some(old) = &mut self.old
            && let Some(output) = old.poll_output(now, agreement, generator)?
        {
            outputs.push((RefreshJobOwner::Old(self.id), output));
        }
        while let Some(new) = &mut self.new
            && let Some(output) = new.poll_output(now, agreement, generator)?
        {
            outputs.push((RefreshJobOwner::New(self.id), output));
        }
        Ok(())
    }

    /// Passes a message to the state machine that handles it, if the sender is a member of the
    /// group that sends such messages.
    pub(super) fn handle(
        &mut self,
        from: &IdentityPublicKey,
        message: RefreshMessage,
        agreement: &RefreshAgreement,
    ) {
        let new = agreement.run().and_then(|run| run.group().index_of(from));
        match &message {
            RefreshMessage::Dealing(_) => {
                let old = agreement.epoch().group.index_of(from);
                if let (Some(server), Some(from)) = (&mut self.new, old) {
                    server.handle_message((RefreshRole::Old, from), message, agreement);
                }
            }
            RefreshMessage::Confirmation { .. } | RefreshMessage::Need { .. } => {
                if let (Some(server), Some(from)) = (&mut self.old, new) {
                    server.handle_message(from, &message, agreement);
                }
            }
            _ => {
                if let (Some(server), Some(from)) = (&mut self.new, new) {
                    server.handle_message((RefreshRole::New, from), message, agreement);
                }
            }
        }
    }

    /// Ends the state machines, except the new server's if `stays`. Returns what must be wiped.
    pub(super) fn end(&mut self, stays: bool) -> Vec<SavedStateChange> {
        self.old = None;
        let mut erased = vec![SavedStateChange::EraseRun { run: dealer_items(self.id) }];
        if !stays {
            self.new = None;
            erased.push(SavedStateChange::EraseRun { run: self.id });
        }
        erased
    }

    pub(super) fn are_over(&self) -> bool {
        self.old.as_ref().is_none_or(OldServer::is_over)
            && self.new.as_ref().is_none_or(NewServer::is_over)
    }
}

/// The name under which the items of a run's old server are saved. They are wiped separately from
/// those of the new server, when the old epoch ends.
pub(super) fn dealer_items(run: Sha256Digest) -> Sha256Digest {
    Sha256Digest::of(&[b"sunder-quorum items of a dealer", &run.0])
}

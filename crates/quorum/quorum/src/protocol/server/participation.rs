//! The state machines of a run at one server.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;

use keys::IdentityPublicKey;
use random::{RandomError, RandomGenerator};

use super::change::SavedStateChange;
use super::output::RefreshJobOwner;
use crate::protocol::key_sharing::KeySigner;
use crate::protocol::log_types::Height;
use crate::protocol::refresh::{
    self, HandoverContext, HandoverMachine, NewServer, OldServer, RefreshAgreement, RefreshMessage,
    RefreshRole,
};
use crate::protocol::voting::VotingSecret;
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
    pub(super) machines: RunMachines,
}

/// The state machines of the roles that have begun.
pub(super) enum RunMachines {
    /// Of a key with combinatorial shares.
    Combinatorial { old: Option<Box<OldServer>>, new: Option<Box<NewServer>> },
    /// Of a key that is shared by a polynomial.
    Handover(Option<Box<dyn HandoverMachine>>),
}

impl RunMachines {
    /// None of the roles has begun.
    pub(super) fn none(agreement: &RefreshAgreement) -> Self {
        let run = agreement.run();
        match run.and_then(|run| run.handover()) {
            Some(_) => Self::Handover(None),
            None => Self::Combinatorial { old: None, new: None },
        }
    }

    /// The new server of combinatorial shares.
    pub(super) fn new_server(&self) -> Option<&NewServer> {
        if let Self::Combinatorial { new, .. } = self { new.as_deref() } else { None }
    }

    /// The voting key that the new server has drawn for the new epoch.
    pub(super) fn voting(&self) -> Option<&Arc<VotingSecret>> {
        match self {
            Self::Combinatorial { new, .. } => new.as_ref()?.voting(),
            Self::Handover(server) => server.as_ref()?.voting(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Combinatorial { old, new } => {
                let old = old.as_ref().and_then(|old| old.deadline());
                old.into_iter().chain(new.as_ref().and_then(|new| new.deadline())).min()
            }
            Self::Handover(server) => server.as_ref()?.deadline(),
        }
    }
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

    /// Whether it is a state machine of this run.
    pub(super) fn is_of(self, run: Sha256Digest) -> bool {
        match self {
            Self::Old(id) | Self::New(id) => id == run,
            Self::Recovery(_) => false,
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
        context: &HandoverContext<'_>,
        generator: &mut RandomGenerator,
        outputs: &mut Vec<(RefreshJobOwner, refresh::RefreshOutput)>,
    ) -> Result<(), RandomError> {
        match &mut self.machines {
            RunMachines::Combinatorial { old, new } => {
                while let Some(old) = old
                    && let Some(output) = old.poll_output(now, context.agreement, generator)?
                {
                    outputs.push((RefreshJobOwner::Old(self.id), output));
                }
                while let Some(new) = new
                    && let Some(output) = new.poll_output(now, context.agreement, generator)?
                {
                    outputs.push((RefreshJobOwner::New(self.id), output));
                }
            }
            RunMachines::Handover(server) => {
                for (role, output) in
                    server.as_mut().map_or(Ok(Vec::new()), |it| it.poll(now, context, generator))?
                {
                    let owner = match role {
                        RefreshRole::Old => RefreshJobOwner::Old(self.id),
                        RefreshRole::New => RefreshJobOwner::New(self.id),
                    };
                    outputs.push((owner, output));
                }
            }
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
        let in_new = agreement.run().and_then(|run| run.group().index_of(from));
        let (old, new) = match &mut self.machines {
            RunMachines::Combinatorial { old, new } => (old, new),
            RunMachines::Handover(server) => {
                if let (Some(server), Some(from)) = (server, in_new) {
                    server.handle_message(from, &message);
                }
                return;
            }
        };
        match &message {
            RefreshMessage::Dealing(_) => {
                let in_old = agreement.epoch().group.index_of(from);
                if let (Some(server), Some(from)) = (new, in_old) {
                    server.handle_message((RefreshRole::Old, from), message, agreement);
                }
            }
            RefreshMessage::Confirmation { .. } | RefreshMessage::Need { .. } => {
                if let (Some(server), Some(from)) = (old, in_new) {
                    server.handle_message(from, &message, agreement);
                }
            }
            _ => {
                if let (Some(server), Some(from)) = (new, in_new) {
                    server.handle_message((RefreshRole::New, from), message, agreement);
                }
            }
        }
    }

    /// The new server with the share by a polynomial that it has computed. Ends its part.
    pub(super) fn take_signer(&mut self) -> Option<KeySigner> {
        match &mut self.machines {
            RunMachines::Combinatorial { .. } => None,
            RunMachines::Handover(server) => server.take()?.into_signer(),
        }
    }

    /// What tells whether secrets that [`Self::end`] drops are in memory, because a job uses them.
    pub(super) fn in_use(
        &self,
        stays: bool,
    ) -> impl Iterator<Item = Weak<dyn Any + Send + Sync>> + use<> {
        let server = match &self.machines {
            RunMachines::Handover(server) => server.as_ref(),
            // Their jobs use the shares themselves.
            RunMachines::Combinatorial { .. } => None,
        };
        let of = |role| server.and_then(|server| server.in_use(role));
        let new = (!stays).then(|| of(RefreshRole::New));
        of(RefreshRole::Old).into_iter().chain(new.flatten())
    }

    /// Ends the state machines, except the new server's if `stays`. Returns what must be wiped.
    pub(super) fn end(&mut self, stays: bool) -> Vec<SavedStateChange> {
        match &mut self.machines {
            RunMachines::Combinatorial { old, new } => {
                *old = None;
                if !stays {
                    *new = None;
                }
            }
            RunMachines::Handover(server) => {
                if let Some(server) = server {
                    server.end_dealer();
                }
                if !stays {
                    *server = None;
                }
            }
        }
        let mut erased = vec![SavedStateChange::EraseRun { run: dealer_items(self.id) }];
        if !stays {
            erased.push(SavedStateChange::EraseRun { run: self.id });
        }
        erased
    }

    pub(super) fn are_over(&self) -> bool {
        match &self.machines {
            RunMachines::Combinatorial { old, new } => {
                old.as_ref().is_none_or(|old| old.is_over())
                    && new.as_ref().is_none_or(|new| new.is_over())
            }
            // A server without its share gets it from its group.
            RunMachines::Handover(_) => true,
        }
    }
}

/// The name under which the items of a run's old server are saved. They are wiped separately from
/// those of the new server, when the old epoch ends.
pub(super) fn dealer_items(run: Sha256Digest) -> Sha256Digest {
    Sha256Digest::of(&[b"sunder-quorum items of a dealer", &run.0])
}

//! What a server's events say in the program's log and in the counters.

use keys::IdentityPublicKey;
use tracing::{debug, info, warn};

use super::core::NodeEventLoop;
use super::lock;
use crate::protocol::server::QuorumServerEvent;

impl<L, F> NodeEventLoop<L, F> {
    /// Counts an event, and logs it.
    pub(super) fn event(&self, event: &QuorumServerEvent) {
        lock(&self.shared).count_event(event);
        match event {
            QuorumServerEvent::Invited { epoch } => {
                info!(epoch, "f+1 servers have invited this one");
            }
            QuorumServerEvent::RefreshDue { epoch, .. } => {
                info!(
                    epoch,
                    "the group is as old as `refresh_every`: this server approves new shares"
                );
            }
            QuorumServerEvent::ApprovalWithdrawn { epoch, .. } => {
                info!(epoch, "this server's approval of the list is withdrawn");
            }
            QuorumServerEvent::ApprovalExpired { epoch, .. } => {
                info!(epoch, "too few servers have approved the list in time: it is withdrawn");
            }
            QuorumServerEvent::RunOpened { epoch, run } => info!(epoch, %run, "a refresh begins"),
            QuorumServerEvent::RunCancelled => info!("the refresh was cancelled"),
            QuorumServerEvent::EpochBegun { epoch, index: Some(index) } => {
                info!(epoch, server = %index, "an epoch begins");
            }
            QuorumServerEvent::EpochBegun { epoch, index: None } => {
                info!(epoch, "an epoch begins, without this server");
            }
            QuorumServerEvent::HasShares { epoch } => info!(epoch, "this server has its shares"),
            QuorumServerEvent::HasServiceState { height } => {
                info!(%height, "this server has the service's state");
            }
            QuorumServerEvent::VotingKeyLost { epoch } => {
                warn!(
                    epoch,
                    "this server does not have the voting key that the group knows of it: its \
                     store or its log was lost, or an old copy was put back; it draws another \
                     key. Never put an old copy of the log back: use `sunder quorum restore`, \
                     or start with an empty store"
                );
            }
            QuorumServerEvent::HeaderSigned { epoch } => {
                info!(epoch, "the group has signed its header");
            }
            QuorumServerEvent::EpochEnded { epoch, newest } => {
                info!(epoch, newest, "the epoch has ended: signed headers continue after it");
            }
            QuorumServerEvent::Wiped { epoch } => info!(epoch, "the shares were wiped"),
            QuorumServerEvent::WrongAnswer { server, .. } => {
                warn!(%server, "a server signs wrongly: the store has the evidence");
            }
            QuorumServerEvent::Answered { to, message } => {
                debug!(%to, %message, "partial signatures given");
            }
            QuorumServerEvent::DealerExcluded { dealer, by } => {
                warn!(%dealer, %by, "a dealer is proven faulty; examine it");
            }
            QuorumServerEvent::FalseComplaint { complainant } => {
                warn!(%complainant, "a server has complained without reason; examine it");
            }
            QuorumServerEvent::WrongEntry { side, author, why } => {
                warn!(?side, server = %author, %why, "a server has signed a wrong entry; examine it");
            }
            QuorumServerEvent::EntryRefused { why } => {
                debug!(%why, "an entry of the log changes nothing");
            }
            QuorumServerEvent::MessageRefused { from, why } => self.refused_message(from, why),
        }
    }

    pub(super) fn refused_message(&self, from: &IdentityPublicKey, why: &str) {
        self.links.count_refused(from);
        if let Some(occurrences) = lock(&self.shared).refused_messages.count_event_of(8) {
            warn!(server = %from, %why, occurrences, "a message was refused");
        }
    }
}

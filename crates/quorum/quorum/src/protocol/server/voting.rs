//! The server's voting key for its epoch. The key belongs to one incarnation of the log file, which
//! records what the server has voted for. If the file is lost, the key is not used any more.

use std::sync::Arc;
use std::time::Duration;

use random::{RandomError, RandomGenerator};
use zeroize::Zeroizing;

use super::QuorumServer;
use super::change::SavedStateChange;
use super::epoch::FollowedEpoch;
use super::output::{QuorumServerEvent, QuorumServerOutput};
use crate::protocol::combination::ServerIndex;
use crate::protocol::log_types::{Height, LogIncarnation};
use crate::protocol::voting::VotingSecret;

impl QuorumServer {
    /// The log is open, with this incarnation of its file. The log continues with the next output.
    pub fn handle_log_opened(&mut self, life: LogIncarnation) {
        self.life = Some(life);
        let saved = self.saved_voting.take();
        if let Some((of, secret)) = saved
            && of.is_none_or(|of| of == life)
        {
            self.vote_with(Arc::new(secret), of.is_none());
        }
        if self.epoch.is_some() {
            self.report_applied(self.height);
        }
    }

    /// Votes in a new epoch with the key that was drawn for it, if the epoch's header contains the
    /// key. The key was not used before.
    pub(super) fn begin_voting(&mut self, secret: Arc<VotingSecret>) {
        let Some(epoch) = &self.epoch else { return };
        let own = epoch.index.and_then(|index| epoch.header.voting[usize::from(index.0)]);
        if own == Some(secret.public()) {
            self.vote_with(secret, true);
        }
    }

    /// Uses a voting key in this epoch. A new key is saved first.
    pub(super) fn vote_with(&mut self, secret: Arc<VotingSecret>, is_new: bool) {
        let Some(epoch) = &mut self.epoch else { return };
        if is_new {
            let bytes = Zeroizing::new(*secret.to_bytes());
            let change = SavedStateChange::Voting {
                epoch: epoch.header.epoch,
                life: self.life,
                secret: bytes,
            };
            self.changes.push(change);
        }
        epoch.voting = Some(secret);
    }

    /// Reports which servers agree on the next height. While a job applies a height, this waits for
    /// the job.
    pub(super) fn report_applied(&mut self, height: Height) {
        let Some(epoch) = self.epoch.as_ref().filter(|_| self.height_in_work.is_none()) else {
            return;
        };
        let set = epoch.header.group.voters(epoch.agreement.voting());
        let key = epoch.voting.clone();
        let check = epoch.agreement.entry_check();
        self.push(QuorumServerOutput::Applied { height, set, check, key });
    }

    /// If a member has no registered voting key, draws one and submits it until it is committed.
    pub(super) fn step_voting(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let has_none = |epoch: &FollowedEpoch| epoch.index.is_some() && epoch.voting.is_none();
        let may_vote = self.life.is_some() && self.newer.is_none();
        if may_vote && self.epoch.as_deref().is_some_and(has_none) {
            self.report_lost_voting_key();
            self.vote_with(Arc::new(VotingSecret::random(generator)?), true);
        }
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        let (Some(index), Some(secret)) = (epoch.index, epoch.voting.clone()) else {
            return Ok(());
        };
        if epoch.is_voting_registered() || epoch.voting_at > now {
            return Ok(());
        }
        epoch.voting_at = now + self.settings.timeouts.retry;
        let entry = epoch.agreement.voting_entry(index, &secret, &self.settings.identity);
        self.submit(&entry);
        Ok(())
    }

    /// Reports if the group knows a voting key of this server, which has none.
    fn report_lost_voting_key(&mut self) {
        let Some(epoch) = &self.epoch else { return };
        let known = epoch.index.and_then(|it| epoch.agreement.voting()[usize::from(it.0)]);
        if known.is_some() {
            let epoch = epoch.header.epoch;
            self.event(QuorumServerEvent::VotingKeyLost { epoch });
        }
    }

    pub(super) fn voting_deadline(&self) -> Option<Duration> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.voting.is_some());
        epoch.filter(|epoch| !epoch.is_voting_registered()).map(|epoch| epoch.voting_at)
    }
}

impl FollowedEpoch {
    /// Whether a member has a vote at the next height.
    pub(super) fn has_vote(&self, server: ServerIndex) -> bool {
        if self.index == Some(server) {
            self.is_voting_registered()
        } else {
            self.agreement.voting()[usize::from(server.0)].is_some()
        }
    }

    /// Whether this server's voting key is registered for the next height.
    fn is_voting_registered(&self) -> bool {
        let registered = self.index.and_then(|index| self.agreement.voting()[usize::from(index.0)]);
        registered.is_some() && registered == self.voting.as_ref().map(|key| key.public())
    }
}

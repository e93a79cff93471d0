//! A server of a group, without I/O. It composes signing, the agreed state of refreshes, the two
//! roles in a refresh, and recovery. The driver passes in messages, committed entries, requests of
//! local users, results of jobs and the time, and executes what [`QuorumServer::poll_output`]
//! returns.

mod answer_query;
mod answering;
mod approving;
mod change;
mod due_refresh;
mod epoch;
mod frost_signing;
mod height_job;
mod heights;
mod inviting;
mod key;
mod output;
mod participation;
mod questions;
mod refreshing;
mod replicating;
mod sign_message;
mod sign_policy;
mod sign_request;
mod signing;
mod start;
#[cfg(test)]
mod tests;
mod voting;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::{AnyPublicKey, IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};

pub use change::{ApprovalWait, EncodedShareList, SavedServerState, SavedStateChange};
pub use output::{
    ApprovedGroup, EpochStatus, LocalRequestId, NewerEpochStatus, QuorumServerEvent,
    QuorumServerJob, QuorumServerJobResult, QuorumServerOutput, QuorumServerStatus,
    RefreshRunStatus, ReplicatedServiceStatus, SignRefusal, SigningTimeouts,
};
pub use start::{GroupStart, GroupStartError, SignedGroupHeader};
pub(crate) use start::{LAST_DUE_EPOCH, chain_to_bytes};
use start::{MAX_EPOCHS, has_same_headers};

use crate::protocol::combination::GroupTooLarge;
use crate::protocol::group::{
    GroupHeader, GroupHeaderKind, GroupKeyAnchor, QuorumGroup, QuorumMember,
};
use crate::protocol::link::{LinkLane, LinkTopic};
use crate::protocol::log_types::{Height, LogIncarnation};
use crate::protocol::policy::{MessageDigest, SigningRule};
use crate::protocol::refresh::{LogEntry, RefreshDelays, RefreshRun};
use crate::protocol::replication::ReplicatedService;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};
use answer_query::AnswerQuery;
use answering::SignQueryQueue;
use epoch::FollowedEpoch;
use frost_signing::FrostQueries;
use heights::HeightInWork;
use inviting::NewerEpoch;
use key::SharesInUse;
use output::{QuorumServerOutcome, QuorumServerTask};
use participation::{EndedRefresh, dealer_items};
use replicating::ServiceState;
use signing::{OwnSignRequest, PostponedSignRequest, QueuedSignRequest};

/// What an operator configures.
pub struct QuorumServerSettings {
    /// The key by which other servers authenticate this one.
    pub identity: Arc<IdentitySecretKey>,
    /// What it knows of the group's key.
    pub anchor: GroupKeyAnchor,
    /// Messages that are signed without being registered.
    pub rules: Vec<SigningRule>,
    /// The waiting times of servers in a refresh.
    pub delays: RefreshDelays,
    /// The timeouts of signing.
    pub timeouts: SigningTimeouts,
    /// How many answers are computed at the same time, at least one.
    pub processors: usize,
    /// How old an epoch may become before this server approves new shares for the same group.
    pub refresh_every: Option<Duration>,
    /// How long an approval of a refresh waits for those of others, before it is withdrawn.
    pub approval_expires: Duration,
    /// The service that the group replicates, the same at all its servers from the first epoch on.
    pub service: Option<ReplicatedService>,
}

/// Why the saved state of a server cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedStateError {
    /// Its group start does not verify.
    #[error("the saved state is not that of a group with this key: {0}")]
    Start(#[from] GroupStartError),
    /// Its shares are malformed, or are not those of this server.
    #[error("the saved shares of epoch {0} are not this server's: is this its identity key?")]
    Shares(u64),
    /// Its entries or items are malformed.
    #[error("the saved state is damaged: {0}")]
    Malformed(#[from] MalformedEncoding),
}

/// Why a refresh is not started or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RefreshRefusal {
    /// This server is not in the group of the current epoch.
    #[error("this server is not in the group that has the key")]
    NoMember,
    /// A refresh to another group is open, or approved by this server.
    #[error(
        "another refresh is open, or approved here: cancel it at f+1 servers first, with \
         `sunder quorum refresh --cancel`"
    )]
    UnderWay,
    /// No refresh is open.
    #[error("no refresh is open")]
    None,
    /// The group has not generated its key yet.
    #[error("the group is still generating its key: see `sunder status`")]
    NoKey,
    /// The group is too large for the kind of key.
    #[error(transparent)]
    TooLarge(#[from] GroupTooLarge),
    /// This server has approved nothing, or the refresh has begun.
    #[error(
        "this server has no approval to withdraw; a refresh that has begun ends with `sunder quorum \
         refresh --cancel` at f+1 servers"
    )]
    NotApproved,
    /// This server has withdrawn as many approvals as the log takes.
    #[error(
        "this server has withdrawn 16 approvals, so it can approve no list before the next refresh: \
         approve this one at f+1 other servers"
    )]
    Withdrawn,
    /// The chain of epochs is as long as servers read.
    #[error("the key has had {MAX_EPOCHS} epochs, and it cannot have more: make a new group")]
    TooManyEpochs,
}

/// A server.
pub struct QuorumServer {
    settings: QuorumServerSettings,
    registered: HashSet<MessageDigest>,
    /// The replicated service.
    service: Option<ServiceState>,
    height: Height,
    /// The next height, while a job applies it.
    height_in_work: Option<HeightInWork>,
    next_height_job: u64,
    /// The epoch that it follows; `None` while it waits to be invited.
    epoch: Option<Box<FollowedEpoch>>,
    /// The refresh that began this epoch, until it is finished for this server.
    ended: Option<Box<EndedRefresh>>,
    /// The incarnation of the log, once the log is open.
    life: Option<LogIncarnation>,
    /// The voting key that was saved for this epoch, until it is used.
    saved_voting: Option<(Option<LogIncarnation>, VotingSecret)>,
    /// The epochs whose shares jobs may still use.
    wiping: Vec<(u64, SharesInUse)>,
    /// An epoch that has begun, but that this server has not entered.
    newer: Option<NewerEpoch>,
    requests: BTreeMap<u64, OwnSignRequest>,
    /// Requests that wait for the servers of a new epoch.
    postponed: Vec<PostponedSignRequest>,
    next_request: u64,
    /// Requests of local users that wait for the running requests.
    waiting: VecDeque<QueuedSignRequest>,
    answering: SignQueryQueue<AnswerQuery>,
    /// Questions of requesters of an Ed25519 signature.
    frost_queries: FrostQueries,
    /// The operator's request to the log, until it is committed.
    operator_request: Option<OperatorRequest>,
    operator_request_at: Duration,
    /// The time of the system's clock.
    time: UnixSeconds,
    /// Since when the last approval of this server has waited for others. It is saved.
    approval_wait: Option<ApprovalWait>,
    /// The epoch, and when this server has seen it first, or its clock was set back.
    epoch_seen: Option<(u64, UnixSeconds)>,
    /// When a refresh that is due can begin, after one was cancelled.
    due_refresh_from: Duration,
    peers: Vec<QuorumMember>,
    changes: Vec<SavedStateChange>,
    /// The last saved epoch, and the height at which it began.
    saved_epoch: Option<(u64, Height)>,
    outputs: VecDeque<QuorumServerOutput>,
}

/// A request of the operator to the log.
#[derive(Clone)]
enum OperatorRequest {
    Approve(QuorumGroup),
    /// Withdraws the approval of a group, after `withdrawn` others in this run.
    Withdraw {
        run: u32,
        withdrawn: u8,
        group: Sha256Digest,
        /// Whether too few others have approved it in time.
        has_expired: bool,
    },
    Cancel,
}

impl QuorumServer {
    /// A server with its saved state. At the first start there is no state, unless the ceremony
    /// provided a start and shares. `registered` are the messages that it may sign.
    ///
    /// # Errors
    /// If the saved state does not fit the settings, or is malformed.
    pub fn new(
        mut settings: QuorumServerSettings,
        mut saved: SavedServerState,
        registered: HashSet<MessageDigest>,
        now: Duration,
    ) -> Result<Self, SavedStateError> {
        let service = settings.service.take().map(|service| ServiceState::new(service, now));
        let mut server = Self {
            settings,
            registered,
            service,
            height: saved.height,
            height_in_work: None,
            next_height_job: 0,
            epoch: None,
            ended: None,
            life: None,
            saved_voting: None,
            wiping: Vec::new(),
            newer: None,
            requests: BTreeMap::new(),
            postponed: Vec::new(),
            next_request: 0,
            waiting: VecDeque::new(),
            answering: SignQueryQueue::default(),
            frost_queries: FrostQueries::default(),
            operator_request: None,
            operator_request_at: now,
            time: UnixSeconds(0),
            approval_wait: saved.approval,
            epoch_seen: None,
            due_refresh_from: now,
            peers: Vec::new(),
            changes: Vec::new(),
            saved_epoch: saved.start.as_ref().map(epoch_begin),
            outputs: VecDeque::new(),
        };
        let newer = saved.newer.take().filter(|chain| {
            let own = saved.start.as_ref().map_or(&[][..], |start| &start.chain);
            own.len() <= chain.len() && !has_same_headers(own, chain)
        });
        if let Some(start) = saved.start.take() {
            let shares = saved.shares.remove(&start.header().epoch).filter(|_| newer.is_none());
            let voting = saved.voting.remove(&start.header().epoch).filter(|_| newer.is_none());
            server.saved_voting = voting.map(|(life, it)| (life, VotingSecret::from_bytes(it)));
            server.begin_epoch(start, true, now)?;
            if let Some(shares) = shares {
                server.restore_shares(&shares)?;
            }
            server.start_service(now, saved.snapshot.take());
            server.restore_run(&saved, now)?;
        }
        if let Some(chain) = newer {
            server.set_newer(now, chain);
        }
        let ended: BTreeSet<u64> =
            saved.shares.into_keys().chain(saved.voting.into_keys()).collect();
        for epoch in ended {
            server.changes.push(SavedStateChange::End { epoch });
        }
        let run = server.epoch.as_ref().and_then(|epoch| epoch.agreement.run()).map(RefreshRun::id);
        let kept = [run, run.map(dealer_items)];
        for id in saved.items.into_keys().filter(|id| !kept.contains(&Some(*id))) {
            server.changes.push(SavedStateChange::EraseRun { run: id });
        }
        if server.epoch.is_some() {
            server.follow();
        }
        Ok(server)
    }

    /// The next output. Call this until it returns nothing, and again after each input and at
    /// [`Self::deadline`].
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn poll_output(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
    ) -> Result<Option<QuorumServerOutput>, RandomError> {
        if self.outputs.is_empty() {
            self.step(now, generator)?;
            self.flush();
        }
        let next = self.outputs.pop_front();
        if next.is_none() {
            self.frost_queries.pause();
        }
        Ok(next)
    }

    /// When to call [`Self::poll_output`] again.
    pub fn deadline(&self) -> Option<Duration> {
        let requests = self.requests.values().filter_map(|it| it.request.poll_timeout());
        let postponed = self.postponed.iter().map(|it| it.at);
        let waiting = self.waiting.front().map(|it| it.deadline);
        let requests = requests.chain(postponed).chain(waiting);
        let requested = self.operator_request.as_ref().map(|_| self.operator_request_at);
        let refresh = self.refresh_deadlines().chain(self.newer_deadline());
        let headers = self.header_deadlines();
        let others = self.voting_deadline().into_iter().chain(self.service_deadline());
        // Questions that were left for later are due.
        let questions = (!self.frost_queries.is_empty()).then_some(Duration::ZERO);
        let others = others.chain(questions);
        requests.chain(requested).chain(refresh).chain(headers).chain(others).min()
    }

    /// Handles a message from another server, which its link has authenticated. `queued` is the
    /// number of urgent bytes that wait to be sent to that server.
    pub fn handle_message(
        &mut self,
        now: Duration,
        from: &IdentityPublicKey,
        topic: LinkTopic,
        bytes: &[u8],
        queued: usize,
    ) {
        let handled = match topic {
            LinkTopic::Signing => self.handle_signing(now, from, bytes, queued),
            LinkTopic::Refresh => self.handle_refresh(now, from, bytes),
            LinkTopic::Log => Err(MalformedEncoding("the log's messages are not the server's")),
        };
        if let Err(why) = handled {
            self.event(QuorumServerEvent::MessageRefused { from: *from, why: why.to_string() });
        }
    }

    /// A link with another server is up. Messages that were sent to it before may be lost.
    pub fn handle_link_up(&mut self, now: Duration, server: &IdentityPublicKey) {
        self.invite(Some(server));
        self.ask_linked(now, server);
    }

    /// Handles the result of a job.
    pub fn handle_job(&mut self, now: Duration, result: QuorumServerJobResult) {
        match result.0 {
            QuorumServerOutcome::Answer { asker, epoch, message, answer } => {
                self.answered(now, asker, epoch, message, answer);
            }
            QuorumServerOutcome::Height(outcome) => self.handle_height_job(outcome),
            QuorumServerOutcome::Refresh { machine, result } => {
                self.handle_refresh_job(machine, result);
            }
        }
    }

    /// The operator has changed the settings. New delays apply from the next refresh on, a new
    /// timeout of signing from the next request on.
    pub fn reconfigure(
        &mut self,
        rules: Vec<SigningRule>,
        delays: RefreshDelays,
        timeouts: SigningTimeouts,
        refresh_every: Option<Duration>,
        approval_expires: Duration,
    ) {
        let settings = &mut self.settings;
        (settings.rules, settings.delays, settings.timeouts) = (rules, delays, timeouts);
        (settings.refresh_every, settings.approval_expires) = (refresh_every, approval_expires);
    }

    /// Sets the time of the system's clock. New epochs are marked with it, and it decides when
    /// a refresh is due. Until this is called, none is.
    pub fn set_time(&mut self, time: UnixSeconds) {
        self.time = time;
        self.note_epoch_seen();
    }

    /// The driver has registered a message, so that it may be signed.
    pub fn registered(&mut self, message: MessageDigest) {
        self.registered.insert(message);
    }

    /// A registration was evicted.
    pub fn unregistered(&mut self, message: &MessageDigest) {
        self.registered.remove(message);
    }

    /// The group's public key, if it is known.
    pub fn public(&self) -> Option<AnyPublicKey> {
        self.settings.anchor.public()
    }

    /// Where this server's chain of epochs starts, with the witnesses.
    pub fn start(&self) -> Option<&GroupStart> {
        self.epoch.as_ref().map(|epoch| &epoch.start)
    }

    /// The status of this server.
    pub fn status(&self) -> QuorumServerStatus {
        let lacks_state = self.service.as_ref().is_some_and(ServiceState::lacks_state);
        let epoch = self.epoch.as_ref().map(|epoch| epoch.status(lacks_state));
        let requests = self.requests.len() + self.waiting.len();
        let (height, behind) = (self.height, self.behind());
        QuorumServerStatus {
            height,
            epoch,
            behind,
            requests,
            next_refresh: self.next_refresh(),
            is_operator_request_pending: self.operator_request.is_some(),
            approval_expires: self.approval_expires(),
            service: self.service_status(),
        }
    }

    fn step(&mut self, now: Duration, generator: &mut RandomGenerator) -> Result<(), RandomError> {
        self.step_height(now, generator)?;
        self.step_newer(now);
        self.step_requests(now);
        self.step_headers(now);
        self.approve_due_refresh(now);
        self.expire_approval(now);
        self.submit_operator_request(now);
        self.step_recovery();
        self.step_voting(now, generator)?;
        self.step_service(now);
        // After what may ask this server itself.
        self.answer_frost_queries(now, generator)?;
        self.step_refresh(now, generator)?;
        self.report_wiped();
        Ok(())
    }

    /// Reports epochs whose shares are wiped, once this is true: after the save, and when no job on
    /// another thread uses them any more.
    fn report_wiped(&mut self) {
        let wiped: Vec<u64> =
            self.wiping.extract_if(.., |(_, shares)| shares.are_wiped()).map(|it| it.0).collect();
        for epoch in wiped {
            self.push(QuorumServerOutput::Event(QuorumServerEvent::Wiped { epoch }));
        }
    }

    fn submit(&mut self, entry: &LogEntry) {
        self.push(QuorumServerOutput::Submit(entry.to_bytes().into()));
    }

    fn send(&mut self, to: IdentityPublicKey, topic: LinkTopic, bytes: impl Into<Bytes>) {
        let lane = if topic == LinkTopic::Signing { LinkLane::Urgent } else { LinkLane::Bulk };
        self.push(QuorumServerOutput::Send { to, topic, lane, bytes: bytes.into() });
    }

    fn job(&mut self, task: QuorumServerTask) {
        self.push(QuorumServerOutput::Job(QuorumServerJob(task)));
    }

    /// Reports an event. It need not wait for pending writes.
    fn event(&mut self, event: QuorumServerEvent) {
        self.outputs.push_back(QuorumServerOutput::Event(event));
    }

    /// Adds an output, after the writes that must precede it.
    fn push(&mut self, output: QuorumServerOutput) {
        self.flush();
        self.outputs.push_back(output);
    }

    fn flush(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.changes);
        let begun: Vec<_> =
            changes.iter().filter_map(SavedStateChange::start).map(epoch_begin).collect();
        self.outputs.push_back(QuorumServerOutput::Save(changes));
        for (epoch, height) in begun {
            match self.saved_epoch {
                Some((before, _)) if before == epoch => {}
                before => {
                    self.saved_epoch = Some((epoch, height));
                    // A server that had a false height begins again at a lower one.
                    if let Some((_, through)) = before.filter(|(_, through)| *through < height) {
                        self.outputs.push_back(QuorumServerOutput::PruneLog { through });
                    }
                }
            }
        }
    }

    /// Opens the log at this server's height.
    fn follow(&mut self) {
        self.update_peers();
        let name = self.group_name();
        self.push(QuorumServerOutput::Log { name, applied: self.height });
    }

    /// The name of the group: the digest of an RSA key, or of the founding header.
    fn group_name(&self) -> Sha256Digest {
        let founding = self.epoch.as_ref().map(|epoch| &epoch.start.chain[0].header);
        let founding = founding.filter(|header| header.kind == GroupHeaderKind::Founding);
        founding.map_or_else(|| self.settings.anchor.digest(), GroupHeader::digest)
    }
}

/// The epoch of a start, and the height at which it begins.
fn epoch_begin(start: &GroupStart) -> (u64, Height) {
    (start.header().epoch, start.height)
}

//! Outputs of a server for its driver.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};

use super::answer_query::{AnswerQuery, AnswerShares};
use super::change::SavedStateChange;
use super::height_job::{HeightOutcome, HeightTask};
use crate::protocol::admission::EntryCheck;
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{GroupKeyKind, QuorumGroup, QuorumMember};
use crate::protocol::link::{LinkLane, LinkTopic};
use crate::protocol::log_types::{Height, ServerSet};
use crate::protocol::policy::{MessageDigest, MessageRefusal};
use crate::protocol::refresh::{self, LogEntryRefusal, RefreshRole};
use crate::protocol::signing::SigningEvidence;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::Sha256Digest;

/// What the driver does next. The order matters.
pub enum QuorumServerOutput {
    /// Send a message. It is lost if there is no link.
    Send {
        /// The receiver.
        to: IdentityPublicKey,
        /// Its topic.
        topic: LinkTopic,
        /// The lane.
        lane: LinkLane,
        /// The message. It may contain secrets; links encrypt it.
        bytes: Bytes,
    },
    /// Submit an entry to the log. It may be lost, because the server submits it again.
    Submit(Bytes),
    /// Save these changes in one transaction, durable before anything that follows.
    Save(Vec<SavedStateChange>),
    /// Run the job on any thread, and pass the result back.
    Job(QuorumServerJob),
    /// A request of a local user has ended.
    Reply {
        /// The request.
        id: LocalRequestId,
        /// The signature, or the reason for the refusal.
        result: Result<Vec<u8>, SignRefusal>,
    },
    /// Keep links with exactly these servers, besides those of the configuration.
    Peers(Vec<QuorumMember>),
    /// Open the agreement log, whose next height is the one after `applied`. Then pass the
    /// incarnation of the log's file to the server
    /// ([`QuorumServer::handle_log_opened`](super::QuorumServer::handle_log_opened)). This replaces
    /// a log that was open before: others have invited this server to begin at another height.
    Log {
        /// The name of the group, which its votes are for.
        name: Sha256Digest,
        /// The last height that was applied.
        applied: Height,
    },
    /// A height has been applied. These servers agree on the next one.
    Applied {
        /// The height.
        height: Height,
        /// The servers.
        set: ServerSet,
        /// The check of the entries for that height.
        check: EntryCheck,
        /// This server's voting key. It votes if the set contains this key.
        key: Option<Arc<VotingSecret>>,
    },
    /// An epoch has begun: the log may delete the heights up to this one, at which the previous
    /// epoch began. A server that is further behind is invited to begin again.
    PruneLog {
        /// The last height that may be deleted.
        through: Height,
    },
    /// An event for the operator.
    Event(QuorumServerEvent),
}

/// The number of a local user's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalRequestId(pub u64);

/// Why a message is not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignRefusal {
    /// The policy does not allow it.
    #[error(transparent)]
    Policy(#[from] MessageRefusal),
    /// This server is not in the group of the current epoch.
    #[error("this server is not in the group that has the key")]
    NoMember,
    /// The key is too short for the encoding, or of another kind.
    #[error("the group's key has no signatures in this encoding")]
    Encoding,
    /// The group has not generated its key yet.
    #[error("the group is still generating its key: see `sunder status`")]
    NoKey,
    /// Too many requests of this server are under way.
    #[error("too many requests are running: try again")]
    Busy,
    /// Too few servers have answered.
    #[error(
        "too few servers have answered in time{}: see which are connected with `sunder status`, and \
         whether the message is registered at f+1 servers", refusals(*.refused)
    )]
    TimedOut {
        /// How many servers refuse the message.
        refused: usize,
    },
    /// No replicated service runs here.
    #[error("this server runs no replicated service")]
    NoService,
    /// The request to the service has a wrong length.
    #[error("a request has 32 random bytes and a command of at most 16352 bytes")]
    CommandLength,
    /// The state of the service is not here yet.
    #[error("this server does not have the service's state yet: try again, or another server")]
    NoState,
    /// Too many bytes of commands of this server are in the log.
    #[error(
        "the commands of this server have filled its part of the log: use another server, or \
         refresh the group"
    )]
    CommandsFull,
    /// There is no signed answer in time: the log did not commit the request, or the group did not
    /// sign its answer.
    #[error(
        "the group has not signed an answer in time; the request may have been applied, or may still \
         be"
    )]
    NotCommitted,
    /// The epoch has ended.
    #[error("the epoch has ended while the message was being signed: try again")]
    EpochEnded,
}

/// How many servers refuse a message, as an addition to a sentence.
fn refusals(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", and 1 refuses the message".into(),
        count => format!(", and {count} refuse the message"),
    }
}

/// An event for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuorumServerEvent {
    /// f+1 servers of a group have invited this server.
    Invited {
        /// The epoch of that group.
        epoch: u64,
    },
    /// The epoch is as old as configured, and this server approves new shares for the same group.
    RefreshDue {
        /// The epoch that is to begin.
        epoch: u64,
        /// The digest of the group.
        group: Sha256Digest,
    },
    /// The log has the withdrawal of this server's approval of a refresh, at the request of its
    /// operator.
    ApprovalWithdrawn {
        /// The epoch that was to begin.
        epoch: u64,
        /// The digest of the group. `None` if the log did not have the approval either, and this
        /// server was started again since.
        group: Option<Sha256Digest>,
    },
    /// The log has the withdrawal of this server's approval of a refresh, because too few others
    /// have approved it in time.
    ApprovalExpired {
        /// The epoch that was to begin.
        epoch: u64,
        /// The digest of the group.
        group: Sha256Digest,
    },
    /// f+1 old servers have approved a refresh.
    RunOpened {
        /// The epoch that is to begin.
        epoch: u64,
        /// The run.
        run: Sha256Digest,
    },
    /// f+1 old servers have cancelled the run.
    RunCancelled,
    /// An epoch has begun.
    EpochBegun {
        /// Its number.
        epoch: u64,
        /// This server's index in its group, if it is a member.
        index: Option<ServerIndex>,
    },
    /// This server has its shares of the epoch.
    HasShares {
        /// The epoch.
        epoch: u64,
    },
    /// This server has received the state of the replicated service.
    HasServiceState {
        /// The height of that state.
        height: Height,
    },
    /// The group knows a voting key of this server that this server does not have, or that belongs
    /// to another file of the log: the store or the log was lost, or an old copy was put back. This
    /// server draws another key.
    VotingKeyLost {
        /// The epoch of the key.
        epoch: u64,
    },
    /// The group has signed the header of the epoch.
    HeaderSigned {
        /// The epoch.
        epoch: u64,
    },
    /// A chain of signed headers continues after the epoch that this server follows.
    EpochEnded {
        /// The epoch that has ended.
        epoch: u64,
        /// The newest epoch of the chain.
        newest: u64,
    },
    /// The shares of an epoch were wiped.
    Wiped {
        /// The epoch.
        epoch: u64,
    },
    /// This server has sent partial signatures to another server.
    Answered {
        /// The server that asked.
        to: IdentityPublicKey,
        /// The message.
        message: MessageDigest,
    },
    /// A server has answered a request for a signature wrongly.
    WrongAnswer {
        /// Its index.
        server: ServerIndex,
        /// The evidence.
        evidence: SigningEvidence,
    },
    /// A dealer is proven faulty.
    DealerExcluded {
        /// Its index in the old group.
        dealer: ServerIndex,
        /// The new server that has proven it faulty.
        by: ServerIndex,
    },
    /// A new server's complaint was unfounded.
    FalseComplaint {
        /// Its index in the new group.
        complainant: ServerIndex,
    },
    /// A server has signed an invalid entry of a refresh, and so is faulty.
    WrongEntry {
        /// The group that it belongs to.
        side: RefreshRole,
        /// Its index in that group.
        author: ServerIndex,
        /// What is wrong.
        why: LogEntryRefusal,
    },
    /// An entry of the log has no effect.
    EntryRefused {
        /// Why.
        why: String,
    },
    /// A server has sent a malformed or unexpected message.
    MessageRefused {
        /// The server.
        from: IdentityPublicKey,
        /// Why.
        why: String,
    },
}

/// An expensive computation. It has no effect until its result is passed back.
pub struct QuorumServerJob(pub(super) QuorumServerTask);

pub(super) enum QuorumServerTask {
    /// Partial signatures for a server.
    Answer {
        asker: PartialSignRequester,
        query: AnswerQuery,
        shares: AnswerShares,
        identity: Arc<IdentitySecretKey>,
    },
    /// The entries of a height.
    Height(HeightTask),
    /// Work of a refresh.
    Refresh { machine: RefreshJobOwner, job: Box<refresh::RefreshJob> },
}

/// The result of a job.
pub struct QuorumServerJobResult(pub(super) QuorumServerOutcome);

pub(super) enum QuorumServerOutcome {
    /// The encoded answer, or `None`.
    Answer {
        asker: PartialSignRequester,
        epoch: u64,
        message: MessageDigest,
        answer: Option<Vec<u8>>,
    },
    Height(HeightOutcome),
    Refresh {
        machine: RefreshJobOwner,
        result: refresh::RefreshJobResult,
    },
}

/// The server that asked for partial signatures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PartialSignRequester {
    pub(super) index: ServerIndex,
    /// The asking server's number for its request.
    pub(super) request: u64,
}

/// The state machine that a job belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RefreshJobOwner {
    Old(Sha256Digest),
    New(Sha256Digest),
    Recovery(u64),
}

impl QuorumServerJob {
    /// Whether a pending signature or the log waits for the result. There is at most one job for
    /// the log at a time.
    pub fn is_urgent(&self) -> bool {
        match self.0 {
            QuorumServerTask::Answer { .. } | QuorumServerTask::Height(_) => true,
            QuorumServerTask::Refresh { .. } => false,
        }
    }

    /// Runs the computation.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn run(
        self,
        generator: &mut RandomGenerator,
    ) -> Result<QuorumServerJobResult, RandomError> {
        Ok(QuorumServerJobResult(match self.0 {
            QuorumServerTask::Answer { asker, query, shares, identity } => {
                let answer = shares.answer(&query, &identity);
                let message = MessageDigest::of(query.message());
                QuorumServerOutcome::Answer { asker, epoch: query.epoch(), message, answer }
            }
            QuorumServerTask::Height(task) => QuorumServerOutcome::Height(task.run()),
            QuorumServerTask::Refresh { machine, job } => {
                QuorumServerOutcome::Refresh { machine, result: job.run(generator)? }
            }
        }))
    }
}

/// The status of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumServerStatus {
    /// The last height that was applied.
    pub height: Height,
    /// The group that it follows; `None` while it waits to be invited.
    pub epoch: Option<EpochStatus>,
    /// A newer epoch that this server has not entered.
    pub behind: Option<NewerEpochStatus>,
    /// This server's requests for signatures that are running or waiting.
    pub requests: usize,
    /// When this server approves new shares for the group by itself, if it is to.
    pub next_refresh: Option<UnixSeconds>,
    /// Whether its operator has approved or cancelled a refresh, and the log has not committed that
    /// yet.
    pub is_operator_request_pending: bool,
    /// When this server withdraws its approval of a refresh, unless the refresh begins.
    pub approval_expires: Option<UnixSeconds>,
    /// The replicated service, if this server runs one.
    pub service: Option<ReplicatedServiceStatus>,
}

/// The status of a replicated service at one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicatedServiceStatus {
    /// The name of the service.
    pub name: String,
    /// Whether this server has the state.
    pub has_state: bool,
    /// The requests of its clients that have no signed answer yet.
    pub waiting: usize,
    /// How many bytes of its part of the log's segment its clients' commands have used.
    pub log_bytes: usize,
    /// The length of its part of the log's segment, in bytes.
    pub max_log_bytes: usize,
    /// The length of the snapshot from which its log starts, in bytes. 0 without the state.
    pub snapshot_bytes: usize,
}

/// A newer epoch that a server has not entered. The epoch that it follows, if any, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewerEpochStatus {
    /// The epoch.
    pub epoch: u64,
    /// Whether the server is a member of its group.
    pub is_member: bool,
    /// The number of servers of the group that have sent the same invite.
    pub invites: usize,
    /// The required number, f+1.
    pub needed: usize,
}

/// The epoch that a server follows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the status")]
pub struct EpochStatus {
    /// Its number. The group generates its key in epoch 0.
    pub epoch: u64,
    /// The kind of the group's key.
    pub key: GroupKeyKind,
    /// Whether the group generates its key.
    pub is_founding: bool,
    /// The number of servers of the group.
    pub servers: usize,
    /// f.
    pub faulty: usize,
    /// This server's index in the group, if it is a member.
    pub index: Option<ServerIndex>,
    /// Whether it has its shares.
    pub has_shares: bool,
    /// Whether it runs a replicated service and does not have its state.
    pub lacks_service_state: bool,
    /// Whether the group has signed the epoch's header.
    pub is_header_signed: bool,
    /// When the epoch began, if its header says so.
    pub began: Option<UnixSeconds>,
    /// The members without a vote in the log: they lost the log's file or joined late, and their
    /// new voting keys are not registered yet.
    pub without_vote: Vec<ServerIndex>,
    /// The lists of servers that members have approved in this run, the most approvals first.
    pub approvals: Vec<ApprovedGroup>,
    /// The members that have cancelled this run.
    pub cancelled: Vec<ServerIndex>,
    /// The refresh that is open.
    pub run: Option<RefreshRunStatus>,
}

/// A list of servers that is approved for a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedGroup {
    /// The servers.
    pub group: QuorumGroup,
    /// The members of the current group that have approved it.
    pub servers: Vec<ServerIndex>,
}

/// A refresh that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshRunStatus {
    /// The number of the run in this epoch.
    pub number: u32,
    /// The new group.
    pub group: QuorumGroup,
    /// How many servers of the new group must register a session key, and compute their shares.
    pub quorum: usize,
    /// Servers of the new group that have not registered a session key.
    pub without_session_key: Vec<ServerIndex>,
    /// The labels, l, or with a sharing by a polynomial the number of dealings that are chosen in
    /// the end.
    pub labels: usize,
    /// The labels with a chosen dealing, or the number of chosen dealings.
    pub chosen: usize,
    /// The designated dealers of the other labels, or the dealers without a dealing.
    pub late_dealers: Vec<ServerIndex>,
    /// Servers of the new group that have not computed their shares.
    pub without_shares: Vec<ServerIndex>,
    /// Dealers that are proven faulty.
    pub excluded: Vec<ServerIndex>,
    /// New servers whose complaint was unfounded.
    pub faulty: Vec<ServerIndex>,
}

/// Timeouts of signing.
#[derive(Clone, Copy, Debug)]
pub struct SigningTimeouts {
    /// The time after which a request for a signature fails.
    pub sign: Duration,
    /// The interval at which it retries to have a header signed, or submits an approval again.
    pub retry: Duration,
}

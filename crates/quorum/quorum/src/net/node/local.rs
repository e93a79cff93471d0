//! Requests of local users.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use keys::{AnyPublicKey, rsa};
use random::{RandomError, RandomGenerator};
use service::log::LogRateLimiter;
use tokio::sync::oneshot;

use super::config::QuorumNodeConfig;
use super::{NodeHandle, lock};
use crate::net::api::{
    ApiCaller, ApiEncoding, ApiRefusal, ApiRefusalKind, EpochWitnesses, LocalService, NodeHealth,
    PendingReview, RefreshStatus, RegisterResponse,
};
use crate::net::links::{LinkProbeResult, QuorumPeer};
use crate::net::nodes::parse_nodes;
use crate::net::store::{MAX_KEPT_LEN, audit};
use crate::protocol::ceremony::bundle::QuorumBundle;
use crate::protocol::group::{GroupKeyAnchor, GroupKeyKind, QuorumGroup, QuorumMember};
use crate::protocol::policy::{self, MessageDigest};
use crate::protocol::refresh::MAX_COMMAND_BYTES;
use crate::protocol::review::ReviewedRegistration;
use crate::protocol::server::{RefreshRefusal, SignRefusal, chain_to_bytes};
use crate::protocol::signing::SigningEncoding;
use crate::protocol::unix_seconds::UnixSeconds;

/// The largest number of waiting commands.
pub(super) const MAX_COMMANDS: usize = 64;

/// A command of a local user to the server's thread.
#[derive(Debug)]
pub(super) enum NodeCommand {
    Register(Bytes, ApiCaller, oneshot::Sender<RegistrationReply>),
    /// Replies whether it was registered.
    Withdraw(MessageDigest, ApiCaller, oneshot::Sender<bool>),
    /// Replies with the bytes, if they are kept, of a message, if it is registered.
    #[expect(clippy::option_option, reason = "unknown is not the same as not kept")]
    Show(MessageDigest, oneshot::Sender<Option<Option<Vec<u8>>>>),
    /// Publishes what waits for review. Replies with all registrations that wait here.
    Pending(oneshot::Sender<Vec<ReviewedRegistration>>),
    /// A request to the replicated service.
    Command(Bytes, ApiCaller, oneshot::Sender<Result<Vec<u8>, SignRefusal>>),
    Sign(Bytes, Option<ApiEncoding>, ApiCaller, oneshot::Sender<Result<Vec<u8>, SignRefusal>>),
    StartRefresh(QuorumGroup, ApiCaller, oneshot::Sender<Result<(), RefreshRefusal>>),
    CancelRefresh(ApiCaller, oneshot::Sender<Result<(), RefreshRefusal>>),
    WithdrawApproval(ApiCaller, oneshot::Sender<Result<(), RefreshRefusal>>),
    /// An event for the audit log.
    Record(audit::AuditEvent),
    Reload(Box<QuorumNodeConfig>, oneshot::Sender<()>),
}

/// The answer to a registration.
#[derive(Debug)]
pub(super) struct RegistrationReply {
    pub(super) is_new: bool,
    pub(super) until: UnixSeconds,
}

/// The largest number of refusals of one kind of request that are recorded in 10 s.
const MAX_RECORDED: u32 = 16;

/// Limits how many refusals of each kind of request are recorded, so that a local user who repeats
/// a request cannot fill the disk with the audit log.
#[derive(Debug, Default)]
pub(super) struct RefusalRateLimiter(BTreeMap<&'static str, LogRateLimiter>);

impl RefusalRateLimiter {
    /// Counts a refusal. Returns a record of it and of those since the last record, unless over the
    /// limit.
    pub(super) fn refused(
        &mut self,
        request: &'static str,
        reason: &str,
        digest: Option<MessageDigest>,
        by: ApiCaller,
    ) -> Option<audit::AuditEvent> {
        let count = self.0.entry(request).or_default().count_event_of(MAX_RECORDED)?;
        Some(audit::AuditEvent::refused(request, reason, count, digest, by))
    }

    /// Counts a refusal that cannot be recorded now.
    fn count(&mut self, request: &'static str) {
        let _ = self.0.entry(request).or_default().count_event_of(0);
    }
}

/// The bytes of the log that a request costs besides its own, if it is the only one of its batch:
/// the entry's fields and signature, and what each batch counts for.
const REQUEST_COST: usize = 320;

/// The parts of the users in this server's part of the log, so that one of them cannot use it up
/// for the others. A user can use at most half of what the others have left.
#[derive(Debug, Default)]
pub(super) struct CommandParts {
    epoch: u64,
    used: BTreeMap<Option<u32>, usize>,
}

impl CommandParts {
    /// Counts a user's request in an epoch. Returns whether the user's part has room for it.
    fn charge(&mut self, epoch: u64, uid: Option<u32>, len: usize) -> bool {
        if epoch != self.epoch {
            *self = Self { epoch, used: BTreeMap::new() };
        }
        let others: usize = self.used.iter().filter(|it| *it.0 != uid).map(|it| it.1).sum();
        let used = self.used.get(&uid).copied().unwrap_or_default() + len + REQUEST_COST;
        let has_room = used <= MAX_COMMAND_BYTES.saturating_sub(others) / 2;
        if has_room {
            self.used.insert(uid, used);
        }
        has_room
    }

    /// A request that was counted in an epoch was refused.
    fn refund(&mut self, epoch: u64, uid: Option<u32>, len: usize) {
        if let Some(used) = self.used.get_mut(&uid).filter(|_| epoch == self.epoch) {
            *used = used.saturating_sub(len + REQUEST_COST);
        }
    }
}

/// A running request for a signature, or to the replicated service, which has no digest yet.
pub(super) struct PendingSignRequest {
    pub(super) digest: Option<MessageDigest>,
    pub(super) by: ApiCaller,
    pub(super) reply: oneshot::Sender<Result<Vec<u8>, SignRefusal>>,
}

impl ApiEncoding {
    pub(super) fn with_salt(
        self,
        generator: &mut RandomGenerator,
    ) -> Result<SigningEncoding, RandomError> {
        Ok(SigningEncoding::Rsa(match self {
            Self::Pkcs1 => rsa::RsaEncoding::Pkcs1,
            Self::Pkcs1Sha512 => rsa::RsaEncoding::Pkcs1Sha512,
            Self::Pss => rsa::RsaEncoding::Pss { salt: generator.array()? },
            Self::Ed25519 => return Ok(SigningEncoding::Ed25519),
        }))
    }
}

impl NodeHandle {
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> NodeCommand,
    ) -> Result<T, ApiRefusal> {
        let (reply, replied) = oneshot::channel();
        let stopped = || ApiRefusal::new(ApiRefusalKind::Internal, "the server stops; see its log");
        self.commands.send(command(reply)).await.map_err(|_| stopped())?;
        replied.await.map_err(|_| stopped())
    }

    /// Applies the settings that can change while the server runs: rules, peers, delays and
    /// timeouts. [`QuorumNodeConfig::needs_restart`] lists the others.
    ///
    /// # Errors
    /// If the server has stopped.
    pub async fn reload(&self, config: QuorumNodeConfig) -> Result<(), ApiRefusal> {
        self.ask(|reply| NodeCommand::Reload(Box::new(config), reply)).await
    }

    /// Probes each server of a new group that is not in the current one with the same address. With
    /// a wrong digit in the list, a member would not exist and never answer.
    async fn find_new_servers(
        &self,
        group: &QuorumGroup,
        caller: ApiCaller,
    ) -> Result<(), ApiRefusal> {
        let known = |member: &&QuorumMember| {
            let shared = lock(&self.shared);
            let start = shared.start();
            start.is_some_and(|start| start.header().group.members().contains(member))
        };
        let new = group.members().iter().filter(|member| !known(member));
        let new =
            new.map(|it| QuorumPeer { key: it.identity, address: it.address.into() }).collect();
        let mut missing = Vec::new();
        for (peer, found) in self.links.probe(new).await {
            let why = match found {
                LinkProbeResult::Answers | LinkProbeResult::Connects | LinkProbeResult::Unknown => {
                    continue;
                }
                LinkProbeResult::Refused => "nobody listens there".into(),
                LinkProbeResult::Other(why) | LinkProbeResult::Unreachable(why) => why,
            };
            missing.push(format!("{} at {}: {why}", peer.key, peer.address));
        }
        if missing.is_empty() {
            return Ok(());
        }
        let refusal = ApiRefusal::new(
            ApiRefusalKind::Unavailable,
            format!(
                "new servers do not answer: {}; start them, or correct the list",
                missing.join(", ")
            ),
        );
        let digest = Some(MessageDigest(group.digest().0));
        self.record_refusal("refresh", &refusal.reason, digest, caller);
        Err(refusal)
    }

    /// The state of the refresh that was just approved or cancelled.
    fn refreshing(&self) -> Result<RefreshStatus, ApiRefusal> {
        let none = || ApiRefusal::new(ApiRefusalKind::Unavailable, "the refresh has already ended");
        self.refresh_status().ok_or_else(none)
    }

    /// Records a refusal of a refresh.
    fn refuse_refresh(
        &self,
        request: &'static str,
        refusal: RefreshRefusal,
        digest: Option<MessageDigest>,
        caller: ApiCaller,
    ) -> ApiRefusal {
        let kind = match refusal {
            RefreshRefusal::NoMember => ApiRefusalKind::Forbidden,
            RefreshRefusal::NoKey => ApiRefusalKind::Unavailable,
            RefreshRefusal::TooLarge(_) => ApiRefusalKind::Malformed,
            RefreshRefusal::UnderWay
            | RefreshRefusal::None
            | RefreshRefusal::NotApproved
            | RefreshRefusal::Withdrawn
            | RefreshRefusal::TooManyEpochs => ApiRefusalKind::Conflict,
        };
        self.record_refusal(request, &refusal.to_string(), digest, caller);
        ApiRefusal::new(kind, refusal)
    }

    fn record_refusal(
        &self,
        request: &'static str,
        reason: &str,
        digest: Option<MessageDigest>,
        caller: ApiCaller,
    ) {
        let mut shared = lock(&self.shared);
        match self.commands.try_reserve() {
            Ok(place) => {
                if let Some(event) = shared.refusals.refused(request, reason, digest, caller) {
                    place.send(NodeCommand::Record(event));
                }
            }
            // Too many commands are waiting already.
            Err(_) => shared.refusals.count(request),
        }
    }
}

impl LocalService for NodeHandle {
    async fn register(
        &self,
        message: Bytes,
        caller: ApiCaller,
    ) -> Result<RegisterResponse, ApiRefusal> {
        let digest = MessageDigest::of(&message);
        if let Err(refusal) = policy::check_message(&message, self.key) {
            self.record_refusal("register", &refusal.to_string(), Some(digest), caller);
            return Err(ApiRefusal::new(ApiRefusalKind::Forbidden, refusal));
        }
        let registered = self.ask(|reply| NodeCommand::Register(message, caller, reply)).await?;
        let RegistrationReply { is_new, until } = registered;
        Ok(RegisterResponse { digest: digest.to_string(), new: is_new, until: until.to_string() })
    }

    async fn withdraw(&self, digest: MessageDigest, caller: ApiCaller) -> Result<(), ApiRefusal> {
        if self.ask(|reply| NodeCommand::Withdraw(digest, caller, reply)).await? {
            return Ok(());
        }
        let refusal = not_registered();
        self.record_refusal("withdraw", &refusal.reason, Some(digest), caller);
        Err(refusal)
    }

    async fn registered_message(&self, digest: MessageDigest) -> Result<Vec<u8>, ApiRefusal> {
        let found = self.ask(|reply| NodeCommand::Show(digest, reply)).await?;
        found.ok_or_else(not_registered)?.ok_or_else(|| {
            let reason = format!(
                "the server has only the first bytes of this message: it keeps messages of at \
                 most {MAX_KEPT_LEN} bytes, as long as it has space for them; ask the user who \
                 has registered it"
            );
            ApiRefusal::new(ApiRefusalKind::NotFound, reason)
        })
    }

    async fn pending(&self) -> Result<PendingReview, ApiRefusal> {
        let own = self.ask(NodeCommand::Pending).await?;
        Ok(lock(&self.shared).pending_review(&self.links.own(), Some(&own), Instant::now()))
    }

    async fn sign(
        &self,
        message: Bytes,
        encoding: Option<ApiEncoding>,
        caller: ApiCaller,
    ) -> Result<Vec<u8>, ApiRefusal> {
        let signed = self.ask(|reply| NodeCommand::Sign(message, encoding, caller, reply)).await?;
        signed.map_err(ApiRefusal::from)
    }

    async fn command(&self, request: Bytes, caller: ApiCaller) -> Result<Vec<u8>, ApiRefusal> {
        let len = request.len();
        let (epoch, is_charged) = {
            let shared = &mut *lock(&self.shared);
            let epoch = shared.start().map_or(0, |start| start.header().epoch);
            (epoch, shared.command_parts.charge(epoch, caller.uid, len))
        };
        if !is_charged {
            let reason = "your commands have used your part of this server's log: use another \
                          server, or wait for the next refresh";
            lock(&self.shared).count_command(false);
            self.record_refusal("command", reason, None, caller);
            return Err(ApiRefusal::new(ApiRefusalKind::Busy, reason));
        }
        let answered = self.ask(|reply| NodeCommand::Command(request, caller, reply)).await?;
        // Others are not in the log.
        if answered.as_ref().is_err_and(|refusal| *refusal != SignRefusal::NotCommitted) {
            lock(&self.shared).command_parts.refund(epoch, caller.uid, len);
        }
        answered.map_err(ApiRefusal::from)
    }

    async fn start_refresh(
        &self,
        nodes: String,
        caller: ApiCaller,
    ) -> Result<RefreshStatus, ApiRefusal> {
        let group = parse_nodes(&nodes).map_err(|problems| {
            let problem = problems.first().in_one_line(&nodes);
            let refusal =
                ApiRefusal::new(ApiRefusalKind::Malformed, format!("the list of servers{problem}"));
            let digest = Some(MessageDigest::of(nodes.as_bytes()));
            self.record_refusal("refresh", &refusal.reason, digest, caller);
            refusal
        })?;
        self.find_new_servers(&group, caller).await?;
        let digest = Some(MessageDigest(group.digest().0));
        let started = self.ask(|reply| NodeCommand::StartRefresh(group, caller, reply)).await?;
        started.map_err(|it| self.refuse_refresh("refresh", it, digest, caller))?;
        self.refreshing()
    }

    async fn cancel_refresh(&self, caller: ApiCaller) -> Result<RefreshStatus, ApiRefusal> {
        let cancelled = self.ask(|reply| NodeCommand::CancelRefresh(caller, reply)).await?;
        cancelled.map_err(|it| self.refuse_refresh("cancel", it, None, caller))?;
        self.refreshing()
    }

    async fn withdraw_approval(&self, caller: ApiCaller) -> Result<(), ApiRefusal> {
        let withdrawn = self.ask(|reply| NodeCommand::WithdrawApproval(caller, reply)).await?;
        withdrawn.map_err(|it| self.refuse_refresh("withdraw-approval", it, None, caller))
    }

    fn refresh(&self) -> Option<RefreshStatus> {
        self.refresh_status()
    }

    fn witnesses(&self) -> Result<EpochWitnesses, ApiRefusal> {
        let shared = lock(&self.shared);
        let start = shared.start().ok_or_else(no_epoch)?;
        // The points of the commitment of an Ed25519 key follow f. The numbers of the sharing of an
        // RSA key by a polynomial follow g_0, F and f.
        let (before, len) = match shared.public().ok_or_else(no_key)? {
            AnyPublicKey::Rsa(key) if start.header().key == GroupKeyKind::RsaPolynomial => {
                (key.byte_len() + 2, key.byte_len())
            }
            AnyPublicKey::Rsa(key) => (0, key.byte_len()),
            AnyPublicKey::Ed25519(_) => (1, 32),
        };
        let witnesses = start.witnesses.get(before..).unwrap_or_default();
        let witnesses = witnesses.chunks(len).map(base16ct::lower::encode_string).collect();
        Ok(EpochWitnesses { epoch: start.header().epoch, witnesses })
    }

    fn public_key(&self) -> Result<String, ApiRefusal> {
        Ok(lock(&self.shared).public().ok_or_else(no_key)?.to_pem())
    }

    fn headers(&self) -> Result<Vec<u8>, ApiRefusal> {
        let shared = lock(&self.shared);
        let chain = shared.start().ok_or_else(no_epoch)?.signed_prefix();
        if chain.last().is_none_or(|last| last.signature.is_empty()) {
            let reason = "the group has not signed the header of its first epoch yet; try again";
            return Err(ApiRefusal::new(ApiRefusalKind::Unavailable, reason));
        }
        Ok(chain_to_bytes(chain))
    }

    fn bundle(&self) -> Result<Vec<u8>, ApiRefusal> {
        let shared = lock(&self.shared);
        let start = shared.start().ok_or_else(no_epoch)?;
        let anchor = GroupKeyAnchor::of(shared.public().ok_or_else(no_key)?.clone());
        Ok(QuorumBundle::without_shares(anchor, start.header().clone()).to_bytes())
    }

    fn health(&self) -> NodeHealth {
        self.status(String::new()).health
    }

    fn refused(&self, request: &'static str, reason: &str, caller: ApiCaller) {
        self.record_refusal(request, reason, None, caller);
    }
}

fn not_registered() -> ApiRefusal {
    let reason = "no message with this SHA-256 is registered here, or not any more: `sunder quorum \
                  pending` shows where it is";
    ApiRefusal::new(ApiRefusalKind::NotFound, reason)
}

impl From<SignRefusal> for ApiRefusal {
    fn from(refusal: SignRefusal) -> Self {
        let kind = match refusal {
            SignRefusal::Policy(_) | SignRefusal::NoService => ApiRefusalKind::Forbidden,
            SignRefusal::NoMember
            | SignRefusal::EpochEnded
            | SignRefusal::NoState
            | SignRefusal::NoKey => ApiRefusalKind::Unavailable,
            SignRefusal::Encoding | SignRefusal::CommandLength => ApiRefusalKind::Malformed,
            SignRefusal::Busy | SignRefusal::CommandsFull => ApiRefusalKind::Busy,
            SignRefusal::TimedOut { .. } | SignRefusal::NotCommitted => ApiRefusalKind::TimedOut,
        };
        Self::new(kind, refusal)
    }
}

fn no_key() -> ApiRefusal {
    let reason = "the group is still generating its key: see `sunder status`";
    ApiRefusal::new(ApiRefusalKind::Unavailable, reason)
}

fn no_epoch() -> ApiRefusal {
    let reason = "this server waits to be invited by a group, and knows none yet";
    ApiRefusal::new(ApiRefusalKind::Unavailable, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_uses_up_the_part_of_the_log_for_the_others() {
        let mut parts = CommandParts::default();
        let count = |parts: &mut CommandParts, epoch, uid| {
            (0..100_000).take_while(|_| parts.charge(epoch, Some(uid), 16 << 10)).count()
        };
        let whole = MAX_COMMAND_BYTES / ((16 << 10) + REQUEST_COST);
        assert_eq!(count(&mut parts, 1, 1), whole / 2);
        let second = count(&mut parts, 1, 2);
        assert!((whole / 4 - 1..=whole / 4 + 1).contains(&second), "{second}");
        assert!(!parts.charge(1, Some(1), 1) && parts.charge(1, Some(3), 1));
        // A refused request is not counted, and the next epoch begins anew.
        parts.refund(1, Some(2), 16 << 10);
        assert!(parts.charge(1, Some(2), 16 << 10));
        assert_eq!(count(&mut parts, 2, 1), whole / 2);
    }

    #[test]
    fn repeated_refusals_are_counted_and_few_are_recorded() {
        let mut refusals = RefusalRateLimiter::default();
        let refused = |refusals: &mut RefusalRateLimiter, request| {
            refusals.refused(request, "no", None, ApiCaller::default())
        };
        let count = |event| match event {
            audit::AuditEvent::Refused { count, .. } => count,
            other => panic!("{other:?}"),
        };
        let recorded: u64 =
            (0..100).filter_map(|_| refused(&mut refusals, "sign")).map(count).sum();
        assert_eq!(recorded, 16);
        assert_eq!(refused(&mut refusals, "register").map(count), Some(1), "another kind");
        // Refusals that could not be recorded are in the next count.
        refusals.count("refresh");
        refusals.count("refresh");
        assert_eq!(refused(&mut refusals, "refresh").map(count), Some(3));
    }
}

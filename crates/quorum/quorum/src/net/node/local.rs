//! Requests of local users.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use keys::rsa;
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
use crate::protocol::group::{QuorumGroup, QuorumMember};
use crate::protocol::policy::{self, MessageDigest};
use crate::protocol::server::{RefreshRefusal, SignRefusal};
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
    Show(MessageDigest, oneshot::Sender<Option<Option<Vec<u8>>>>),
    /// Publishes what waits for review.
    Pending(oneshot::Sender<()>),
    /// A request to the replicated service.
    Command(Bytes, ApiCaller, oneshot::Sender<Result<Vec<u8>, SignRefusal>>),
    Sign(Bytes, ApiEncoding, ApiCaller, oneshot::Sender<Result<Vec<u8>, SignRefusal>>),
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
    ) -> Result<rsa::RsaEncoding, RandomError> {
        Ok(match self {
            Self::Pkcs1 => rsa::RsaEncoding::Pkcs1,
            Self::Pkcs1Sha512 => rsa::RsaEncoding::Pkcs1Sha512,
            Self::Pss => rsa::RsaEncoding::Pss { salt: generator.array()? },
        })
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
            RefreshRefusal::UnderWay | RefreshRefusal::None | RefreshRefusal::NotApproved => {
                ApiRefusalKind::Conflict
            }
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
        if let Err(refusal) = policy::check_message(&message) {
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
        self.ask(NodeCommand::Pending).await?;
        Ok(lock(&self.shared).pending_review(&self.links.own(), Instant::now()))
    }

    async fn sign(
        &self,
        message: Bytes,
        encoding: ApiEncoding,
        caller: ApiCaller,
    ) -> Result<Vec<u8>, ApiRefusal> {
        let signed = self.ask(|reply| NodeCommand::Sign(message, encoding, caller, reply)).await?;
        signed.map_err(ApiRefusal::from)
    }

    async fn command(&self, request: Bytes, caller: ApiCaller) -> Result<Vec<u8>, ApiRefusal> {
        let answered = self.ask(|reply| NodeCommand::Command(request, caller, reply)).await?;
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
        let witnesses = start.witnesses.chunks(self.public.byte_len());
        let witnesses = witnesses.map(base16ct::lower::encode_string).collect();
        Ok(EpochWitnesses { epoch: start.header().epoch, witnesses })
    }

    fn public_key(&self) -> Result<String, ApiRefusal> {
        Ok(self.public.to_pem())
    }

    fn headers(&self) -> Result<Vec<u8>, ApiRefusal> {
        let shared = lock(&self.shared);
        let mut start = shared.start().ok_or_else(no_epoch)?.clone();
        // The last header is briefly unsigned.
        start.chain.retain(|header| !header.signature.is_empty());
        if start.chain.is_empty() {
            let reason = "the group has not signed the header of its first epoch yet; try again";
            return Err(ApiRefusal::new(ApiRefusalKind::Unavailable, reason));
        }
        Ok(start.chain_to_bytes())
    }

    fn bundle(&self) -> Result<Vec<u8>, ApiRefusal> {
        let shared = lock(&self.shared);
        let start = shared.start().ok_or_else(no_epoch)?;
        Ok(QuorumBundle::without_shares(self.public.clone(), start.header().clone()).to_bytes())
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
            SignRefusal::NoMember | SignRefusal::EpochEnded | SignRefusal::NoState => {
                ApiRefusalKind::Unavailable
            }
            SignRefusal::Encoding | SignRefusal::CommandLength => ApiRefusalKind::Malformed,
            SignRefusal::Busy | SignRefusal::CommandsFull => ApiRefusalKind::Busy,
            SignRefusal::TimedOut | SignRefusal::NotCommitted => ApiRefusalKind::TimedOut,
        };
        Self::new(kind, refusal)
    }
}

fn no_epoch() -> ApiRefusal {
    let reason = "this server waits to be invited by a group, and knows none yet";
    ApiRefusal::new(ApiRefusalKind::Unavailable, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

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

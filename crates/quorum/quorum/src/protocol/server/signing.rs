//! A server's part in signing: its own requests, and those of other servers.

use std::time::Duration;

use bytes::Bytes;
use encoding::FieldReader;
use keys::IdentityPublicKey;
use keys::rsa::RsaEncoding;

use super::answer_query::{AnswerQuery, AnswerShares};
use super::key::EpochKey;
use super::output::{
    LocalRequestId, PartialSignRequester, QuorumServerEvent, QuorumServerOutput, QuorumServerTask,
    SignRefusal,
};
use super::sign_message::{SignMessageKind, message, parse};
use super::sign_policy::PartialSignRefusal;
use super::sign_request::{GroupSignRequest, GroupSignRequestOutput};
use super::{QuorumServer, epoch::FollowedEpoch};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::GroupKeyKind;
use crate::protocol::key_sharing::KeySharing;
use crate::protocol::link::LinkTopic;
use crate::protocol::log_types::Height;
use crate::protocol::policy::MessageDigest;
use crate::protocol::replication::SignedServiceAnswer;
use crate::protocol::signing::{
    self, PolynomialSignRequest, RoastRequest, SignRequest, SigningEncoding,
};
use crate::protocol::wire::MalformedEncoding;

/// The largest number of this server's requests that run at a time: enough for all processors of a
/// group, and half of what a server queues for another server.
const MAX_REQUESTS: usize = 32;

/// The largest number of local users' requests that wait, and of the bytes of their messages.
const MAX_WAITING: usize = 8_192;
const MAX_WAITING_BYTES: usize = 64 << 20;

/// No answer is computed for a server while more urgent bytes than this wait to be sent to it: half
/// of the link's queue, and more than all answers to the requests of a correct server.
const MAX_QUEUED: usize = 8 << 20;

/// The delay of a request that the end of an epoch has interrupted. Other servers learn of the end
/// a little later.
const EPOCH_DELAY: Duration = Duration::from_millis(250);

/// A request of a local user that starts again in the next epoch.
pub(super) struct PostponedSignRequest {
    pub(super) at: Duration,
    purpose: SignRequestPurpose,
    message: Bytes,
    encoding: SigningEncoding,
}

/// A queued request of a local user or of the replicated service.
pub(super) struct QueuedSignRequest {
    purpose: SignRequestPurpose,
    message: Bytes,
    encoding: SigningEncoding,
    pub(super) deadline: Duration,
}

/// A running request of this server.
pub(super) struct OwnSignRequest {
    purpose: SignRequestPurpose,
    pub(super) request: GroupSignRequest,
    /// Whether it has waited for other requests for most of its time.
    has_waited: bool,
}

impl OwnSignRequest {
    /// Why it has failed.
    fn refusal(&self) -> SignRefusal {
        if self.has_waited {
            return SignRefusal::Busy;
        }
        SignRefusal::TimedOut { refused: self.request.refused() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SignRequestPurpose {
    User(LocalRequestId),
    /// The answer to a client of the replicated service.
    Answer(LocalRequestId),
    /// The state of the replicated service after a height.
    Checkpoint(Height),
    /// A header of the chain of epochs, or of the open run.
    Header,
}

impl SignRequestPurpose {
    /// A refusal as the local user is told. The request of an answer was applied already.
    fn refusal(self, refusal: SignRefusal) -> SignRefusal {
        if matches!(self, Self::Answer(_)) { SignRefusal::NotCommitted } else { refusal }
    }

    /// The local request that waits for the signature.
    fn request(self) -> Option<LocalRequestId> {
        match self {
            Self::User(id) | Self::Answer(id) => Some(id),
            Self::Checkpoint(_) | Self::Header => None,
        }
    }
}

impl QuorumServer {
    /// Requests a signature for a local user. The result is a [`QuorumServerOutput::Reply`].
    pub fn sign(
        &mut self,
        now: Duration,
        id: LocalRequestId,
        message: impl Into<Bytes>,
        encoding: impl Into<SigningEncoding>,
    ) {
        let (message, encoding) = (message.into(), encoding.into());
        let allowed = self.check_users_message(&message);
        let waiting: usize = self.waiting.iter().map(|it| it.message.len()).sum();
        let is_full = self.waiting.len() >= MAX_WAITING || waiting > MAX_WAITING_BYTES;
        let refusal = match allowed {
            Err(refusal) => refusal.into(),
            Ok(()) if is_full => SignRefusal::Busy,
            Ok(()) => {
                let deadline = now + self.settings.timeouts.sign;
                let purpose = SignRequestPurpose::User(id);
                self.queue_signing(purpose, message, encoding, deadline);
                return self.begin_waiting(now);
            }
        };
        self.push(QuorumServerOutput::Reply { id, result: Err(refusal) });
    }

    /// Queues a request for a signature, which begins with the next step.
    pub(super) fn queue_signing(
        &mut self,
        purpose: SignRequestPurpose,
        message: Bytes,
        encoding: SigningEncoding,
        deadline: Duration,
    ) {
        self.waiting.push_back(QueuedSignRequest { purpose, message, encoding, deadline });
    }

    /// The number of answers of the replicated service that are being signed.
    pub(super) fn answers_under_way(&self) -> usize {
        let purposes = self.waiting.iter().map(|it| it.purpose);
        let purposes = purposes.chain(self.requests.values().map(|it| it.purpose));
        let purposes = purposes.chain(self.postponed.iter().map(|it| it.purpose));
        purposes.filter(|it| matches!(it, SignRequestPurpose::Answer(_))).count()
    }

    /// Starts queued requests in the order of arrival, as far as there is room. Requests that have
    /// waited for too long fail.
    fn begin_waiting(&mut self, now: Duration) {
        while let Some(next) = self.waiting.front() {
            let is_late = next.deadline <= now;
            if !is_late && (self.requests.len() >= MAX_REQUESTS || self.newer.is_some()) {
                return;
            }
            let Some(QueuedSignRequest { purpose, message, encoding, deadline }) =
                self.waiting.pop_front()
            else {
                return;
            };
            let begun = if is_late {
                Err(SignRefusal::Busy)
            } else {
                self.request(now, purpose, message, encoding, deadline)
            };
            if let (Err(refusal), Some(id)) = (begun, purpose.request()) {
                let result = Err(purpose.refusal(refusal));
                self.push(QuorumServerOutput::Reply { id, result });
            }
        }
    }

    /// Requests the group's signature of a header of this epoch.
    pub(super) fn sign_header(&mut self, now: Duration, header: impl Into<Bytes>) {
        // If this fails, it is retried later.
        let deadline = now + self.settings.timeouts.sign;
        let encoding = self.own_encoding();
        let _ = self.request(now, SignRequestPurpose::Header, header.into(), encoding, deadline);
    }

    /// The usual encoding of the group's key, in which it signs for itself.
    pub(crate) fn own_encoding(&self) -> SigningEncoding {
        match self.settings.anchor.kind() {
            GroupKeyKind::Rsa | GroupKeyKind::RsaPolynomial => {
                SigningEncoding::Rsa(RsaEncoding::Pkcs1)
            }
            GroupKeyKind::Ed25519 => SigningEncoding::Ed25519,
        }
    }

    fn request(
        &mut self,
        now: Duration,
        purpose: SignRequestPurpose,
        message: Bytes,
        encoding: SigningEncoding,
        deadline: Duration,
    ) -> Result<(), SignRefusal> {
        let epoch = self.epoch.as_mut().filter(|epoch| epoch.index.is_some());
        let FollowedEpoch { key, health, header, .. } =
            &mut **epoch.ok_or(SignRefusal::NoMember)?;
        if self.newer.is_some() {
            return Err(SignRefusal::EpochEnded);
        }
        let request = match (key, encoding) {
            (EpochKey::Combinatorial(key), SigningEncoding::Rsa(encoding)) => {
                let group = key.group.clone();
                let request = SignRequest::new(group, message, encoding, health, now, deadline);
                let request = request.map_err(|_| SignRefusal::Encoding)?;
                GroupSignRequest::Combinatorial(Box::new(request))
            }
            (EpochKey::Polynomial(key), encoding) => match (&key.sharing, encoding) {
                (Some(KeySharing::Rsa(sharing)), SigningEncoding::Rsa(encoding)) => {
                    let sharing = (sharing, header.epoch);
                    let request = PolynomialSignRequest::new(
                        sharing, message, encoding, health, now, deadline,
                    );
                    let request = request.map_err(|_| SignRefusal::Encoding)?;
                    GroupSignRequest::Polynomial(Box::new(request))
                }
                (Some(KeySharing::Ed25519(sharing)), SigningEncoding::Ed25519) => {
                    let known = key.unused.take();
                    let request = RoastRequest::new(sharing, message, known, health, now, deadline);
                    GroupSignRequest::Ed25519(Box::new(request))
                }
                (None, SigningEncoding::Ed25519) => return Err(SignRefusal::NoKey),
                _ => return Err(SignRefusal::Encoding),
            },
            _ => return Err(SignRefusal::Encoding),
        };
        let number = self.next_request;
        self.next_request += 1;
        let has_waited = deadline.saturating_sub(now) < self.settings.timeouts.sign / 2;
        self.requests.insert(number, OwnSignRequest { purpose, request, has_waited });
        self.perform_request_outputs(now, number);
        Ok(())
    }

    /// Ends all requests of an epoch that has ended. Requests of users start again in the next
    /// epoch, if this server is a member.
    pub(super) fn end_requests(&mut self, now: Duration) {
        let is_member = self.epoch.as_ref().is_some_and(|epoch| epoch.index.is_some());
        let is_member = is_member && self.newer.is_none();
        for (_, OwnSignRequest { purpose, request, .. }) in std::mem::take(&mut self.requests) {
            let Some(id) = purpose.request() else { continue };
            if is_member {
                let (message, encoding) = request.into_message();
                let at = now + EPOCH_DELAY;
                self.postponed.push(PostponedSignRequest { at, purpose, message, encoding });
            } else {
                let result = Err(purpose.refusal(SignRefusal::EpochEnded));
                self.push(QuorumServerOutput::Reply { id, result });
            }
        }
    }

    pub(super) fn step_requests(&mut self, now: Duration) {
        let is_due = |it: &OwnSignRequest| it.request.poll_timeout().is_some_and(|at| at <= now);
        let due = self.requests.iter().filter(|(_, it)| is_due(it));
        let due: Vec<u64> = due.map(|(&number, _)| number).collect();
        for it in self.postponed.extract_if(.., |it| it.at <= now).collect::<Vec<_>>() {
            match it.purpose {
                SignRequestPurpose::User(id) => self.sign(now, id, it.message, it.encoding),
                purpose => {
                    let deadline = now + self.settings.timeouts.sign;
                    self.queue_signing(purpose, it.message, it.encoding, deadline);
                }
            }
        }
        for number in due {
            if let Some(own) = self.requests.get_mut(&number) {
                own.request.handle_timeout(now);
            }
            self.perform_request_outputs(now, number);
        }
        self.begin_waiting(now);
    }

    /// Executes the outputs of a request.
    pub(super) fn perform_request_outputs(&mut self, now: Duration, number: u64) {
        while let Some(own) = self.requests.get_mut(&number)
            && let Some(output) = own.request.poll_output()
        {
            let purpose = own.purpose;
            match output {
                GroupSignRequestOutput::Ask { to, query } => self.ask(now, number, to, query),
                GroupSignRequestOutput::AskFrost { to, query } => {
                    self.ask_frost(now, number, to, query);
                }
                GroupSignRequestOutput::Event(event) => {
                    self.request_event(now, number, purpose, event);
                }
            }
        }
        if self.requests.get(&number).is_some_and(|own| own.request.is_finished()) {
            let ended = self.requests.remove(&number);
            if let Some(GroupSignRequest::Ed25519(request)) = ended.map(|own| own.request)
                && let Some(epoch) = &mut self.epoch
                && let EpochKey::Polynomial(key) = &mut epoch.key
            {
                key.unused.put(request.into_unused());
            }
            self.begin_waiting(now);
        }
    }

    fn ask(&mut self, now: Duration, number: u64, to: ServerIndex, query: AnswerQuery) {
        let Some(epoch) = &self.epoch else { return };
        if Some(to) == epoch.index {
            let asker = PartialSignRequester { index: to, request: number };
            match self.begin_answer(asker, query) {
                Ok(()) => {}
                Err(PartialSignRefusal::Busy) => self.busy(now, number, to),
                Err(_) => self.refused(now, number, to),
            }
        } else if let Some(identity) = self.identity_of(to) {
            self.send(
                identity,
                LinkTopic::Signing,
                message(SignMessageKind::Ask, number, &query.to_bytes()),
            );
        }
    }

    fn request_event(
        &mut self,
        now: Duration,
        number: u64,
        purpose: SignRequestPurpose,
        event: signing::SignRequestEvent,
    ) {
        let Some(epoch) = &mut self.epoch else { return };
        match event {
            signing::SignRequestEvent::Answered { server, took } => {
                epoch.health.answered(server, took);
            }
            signing::SignRequestEvent::Silent(server) => epoch.health.silent(server, now),
            signing::SignRequestEvent::Faulty { server, evidence } => {
                epoch.health.faulty(server);
                self.event(QuorumServerEvent::WrongAnswer { server, evidence });
            }
            signing::SignRequestEvent::Signed(signature) => match purpose {
                SignRequestPurpose::User(id) => {
                    self.push(QuorumServerOutput::Reply { id, result: Ok(signature) });
                }
                SignRequestPurpose::Answer(id) => {
                    let own = self.requests.get(&number);
                    let statement = own.map(|own| own.request.message().to_vec());
                    let statement = statement.unwrap_or_default();
                    let signed = SignedServiceAnswer { statement, signature };
                    self.push(QuorumServerOutput::Reply { id, result: Ok(signed.to_bytes()) });
                }
                SignRequestPurpose::Checkpoint(height) => {
                    self.checkpoint_signed(height, signature);
                }
                SignRequestPurpose::Header => {
                    let own = self.requests.get(&number);
                    let header = own.map(|own| own.request.message().to_vec());
                    self.group_signed(&header.unwrap_or_default(), signature);
                }
            },
            signing::SignRequestEvent::Failed => {
                let failed = self.requests.get(&number).map(OwnSignRequest::refusal);
                if let (Some(id), Some(refusal)) = (purpose.request(), failed) {
                    let result = Err(purpose.refusal(refusal));
                    self.push(QuorumServerOutput::Reply { id, result });
                }
            }
        }
    }

    /// Handles the group's signature of a header of its chain or of its open run.
    fn group_signed(&mut self, header: &[u8], signature: Vec<u8>) {
        let Some(epoch) = &mut self.epoch else { return };
        let run = epoch.agreement.run().map(|run| run.header().to_bytes());
        if run.is_some_and(|run| run == header) {
            if let Some(run) = &mut epoch.run {
                run.signature = Some(signature);
            }
            self.invite(None);
        } else {
            self.header_signed(header, &signature);
        }
    }

    pub(super) fn handle_signing(
        &mut self,
        now: Duration,
        from: &IdentityPublicKey,
        bytes: &[u8],
        queued: usize,
    ) -> Result<(), MalformedEncoding> {
        let (kind, number, rest) = parse(bytes)?;
        let Some(epoch) = &self.epoch else { return Ok(()) };
        let Some(index) = epoch.header.group.index_of(from) else {
            return Err(MalformedEncoding("not from a server of this epoch"));
        };
        let is_ed25519 = epoch.header.key == GroupKeyKind::Ed25519;
        if !is_ed25519 && kind as u8 >= SignMessageKind::AskCommitments as u8 {
            return Err(MalformedEncoding("unknown kind of message"));
        }
        match kind {
            // The server does not read its answers, or asks faster than its network can carry them.
            SignMessageKind::Ask | SignMessageKind::AskCommitments | SignMessageKind::AskShare
                if queued > MAX_QUEUED => {}
            SignMessageKind::AskCommitments | SignMessageKind::AskShare => {
                self.take_frost_query(PartialSignRequester { index, request: number }, kind, rest)?;
            }
            SignMessageKind::Commitments | SignMessageKind::OtherCommitments => {
                let mut reader = FieldReader::new(rest);
                let commitments = reader.take()?;
                reader.finish()?;
                self.handle_commitments(now, number, index, &commitments)?;
            }
            SignMessageKind::Share => self.handle_share(now, number, index, rest),
            SignMessageKind::Ask => {
                if is_ed25519 {
                    return Err(MalformedEncoding("a request of a group with an RSA key"));
                }
                let about = epoch.header.epoch;
                let asked = AnswerQuery::parse(&epoch.key, about, rest);
                let asked = asked.ok_or_else(|| not_asked(about, rest));
                let asker = PartialSignRequester { index, request: number };
                if let Err(refusal) = asked.and_then(|query| self.begin_answer(asker, query)) {
                    let kind = if refusal.is_brief() {
                        SignMessageKind::Busy
                    } else {
                        SignMessageKind::Refused
                    };
                    self.send(*from, LinkTopic::Signing, message(kind, number, &[]));
                    if !refusal.is_expected() {
                        let why = refusal.to_string();
                        self.event(QuorumServerEvent::MessageRefused { from: *from, why });
                    }
                }
            }
            SignMessageKind::Answer => {
                self.handle_partial_answer(now, number, index, rest);
            }
            SignMessageKind::Refused => self.refused(now, number, index),
            SignMessageKind::Busy => self.busy(now, number, index),
        }
        Ok(())
    }

    fn handle_partial_answer(&mut self, now: Duration, number: u64, by: ServerIndex, bytes: &[u8]) {
        let Some(identity) = self.identity_of(by) else { return };
        let Some(own) = self.requests.get_mut(&number) else { return };
        match &mut own.request {
            GroupSignRequest::Combinatorial(request) => request.handle_answer(now, by, bytes),
            GroupSignRequest::Polynomial(request) => {
                request.handle_answer(now, by, &identity, bytes);
            }
            GroupSignRequest::Ed25519(_) => return,
        }
        self.perform_request_outputs(now, number);
    }

    /// The identity of a server of this epoch.
    pub(super) fn identity_of(&self, server: ServerIndex) -> Option<IdentityPublicKey> {
        Some(self.epoch.as_ref()?.header.group.member(server)?.identity)
    }

    pub(super) fn busy(&mut self, now: Duration, number: u64, who: ServerIndex) {
        if let Some(own) = self.requests.get_mut(&number) {
            own.request.handle_busy(now, who);
        }
    }

    pub(super) fn refused(&mut self, now: Duration, number: u64, by: ServerIndex) {
        if let Some(own) = self.requests.get_mut(&number) {
            own.request.handle_refusal(now, by);
            self.perform_request_outputs(now, number);
        }
    }

    /// Asks a server, with which there is a link again, for the answers that it owes.
    pub(super) fn ask_linked(&mut self, now: Duration, server: &IdentityPublicKey) {
        let epoch = self.epoch.as_ref();
        let Some(index) = epoch.and_then(|it| it.header.group.index_of(server)) else { return };
        for number in self.requests.keys().copied().collect::<Vec<_>>() {
            if let Some(own) = self.requests.get_mut(&number) {
                own.request.handle_link_up(now, index);
            }
            self.perform_request_outputs(now, number);
        }
    }

    /// Queues an answer, if this server may send it, and computes it on another thread in its turn.
    fn begin_answer(
        &mut self,
        asker: PartialSignRequester,
        query: AnswerQuery,
    ) -> Result<(), PartialSignRefusal> {
        // Before the policy, because to look for a statement costs time.
        if self.answering.is_full(asker.index) {
            return Err(PartialSignRefusal::Busy);
        }
        self.may_sign(query.message())?;
        if self.epoch.as_ref().is_none_or(|epoch| !epoch.key.has_shares()) {
            return Err(PartialSignRefusal::NoShares);
        }
        self.answering.push(asker, query).map_err(|_| PartialSignRefusal::Busy)?;
        self.compute_answers();
        Ok(())
    }

    /// Keeps the processors busy computing answers.
    fn compute_answers(&mut self) {
        let Some(epoch) = &self.epoch else { return };
        let held = epoch.key.as_combinatorial().and_then(|key| key.shares.as_ref());
        let held = held.map(|held| AnswerShares::Combinatorial(held.signing.clone()));
        let share = epoch.key.rsa_share().map(|share| AnswerShares::Polynomial(share.clone()));
        let Some(shares) = held.or(share) else { return };
        while let Some((asker, query)) = self.answering.begin(self.settings.processors) {
            let (shares, identity) = (shares.clone(), self.settings.identity.clone());
            self.job(QuorumServerTask::Answer { asker, query, shares, identity });
        }
    }

    /// Handles a computed answer.
    pub(super) fn answered(
        &mut self,
        now: Duration,
        asker: PartialSignRequester,
        number: u64,
        signed: MessageDigest,
        answer: Option<Vec<u8>>,
    ) {
        self.answering.end(asker.index);
        self.compute_answers();
        let is_current =
            |epoch: &&FollowedEpoch| epoch.header.epoch == number && epoch.key.has_shares();
        let Some(epoch) = self.epoch.as_deref().filter(is_current) else { return };
        let is_own = epoch.index == Some(asker.index);
        let identity = self.identity_of(asker.index);
        match (is_own, identity, answer) {
            (true, _, Some(answer)) => {
                self.handle_partial_answer(now, asker.request, asker.index, &answer);
            }
            (true, _, None) => self.refused(now, asker.request, asker.index),
            (false, Some(identity), answer) => {
                let message = match answer {
                    Some(answer) => {
                        self.event(QuorumServerEvent::Answered { to: identity, message: signed });
                        message(SignMessageKind::Answer, asker.request, &answer)
                    }
                    None => message(SignMessageKind::Refused, asker.request, &[]),
                };
                self.send(identity, LinkTopic::Signing, message);
            }
            (false, None, _) => {}
        }
    }
}

/// Why bytes are not a valid request of this epoch.
fn not_asked(epoch: u64, bytes: &[u8]) -> PartialSignRefusal {
    match FieldReader::new(bytes).u64() {
        Ok(asked) if asked.abs_diff(epoch) == 1 => PartialSignRefusal::Near,
        Ok(asked) if asked != epoch => PartialSignRefusal::Epoch(asked),
        _ => PartialSignRefusal::Malformed,
    }
}

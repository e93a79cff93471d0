//! A server's answers to requesters of an Ed25519 signature: commitments to nonces, and its share
//! of a signature in a session (FROST). They take a fraction of a millisecond, so they are computed
//! on this thread, a few at a time. `docs/protocols/quorum-ed25519.md` specifies them.

use std::time::Duration;

use bytes::Bytes;
use encoding::FieldReader;
use handover::ParticipantId;
use random::{RandomError, RandomGenerator};
use schnorr::{EncodedSession, FrostSigner, NonceCommitments, SessionRefusal};
use zeroize::Zeroizing;

use super::QuorumServer;
use super::answering::{QueuedSignQuery, SignQueryQueue};
use super::key::{EpochKey, PolynomialEpochKey};
use super::output::{PartialSignRequester, QuorumServerEvent};
use super::sign_message::{SignMessageKind, message};
use super::sign_policy::PartialSignRefusal;
use super::sign_request::GroupSignRequest;
use crate::protocol::combination::ServerIndex;
use crate::protocol::key_sharing::KeySigner;
use crate::protocol::link::LinkTopic;
use crate::protocol::policy::MessageDigest;
use crate::protocol::signing::{FrostQuery, SignedShare};
use crate::protocol::wire::MalformedEncoding;

/// The largest number of questions that are answered before the driver handles other events.
const MAX_ANSWERS: usize = 8;

/// The questions of servers, possibly of this one, that wait. They are answered round-robin.
#[derive(Default)]
pub(super) struct FrostQueries {
    waiting: SignQueryQueue<FrostQuestion>,
    /// How many were answered since the driver has handled other events.
    answered: usize,
}

/// A question, with the epoch that it is about.
struct FrostQuestion {
    epoch: u64,
    query: FrostQuery,
}

impl QueuedSignQuery for FrostQuestion {
    fn len(&self) -> usize {
        match &self.query {
            FrostQuery::Commitments => 0,
            FrostQuery::Share(session) => session.len(),
        }
    }
}

impl FrostQueries {
    /// The next question, unless [`MAX_ANSWERS`] were answered.
    fn next(&mut self) -> Option<(PartialSignRequester, FrostQuestion)> {
        if self.answered == MAX_ANSWERS {
            return None;
        }
        let (asker, question) = self.waiting.begin(1)?;
        // It is answered at once.
        self.waiting.end(asker.index);
        self.answered += 1;
        Some((asker, question))
    }

    /// The driver handles other events before it calls again.
    pub(super) fn pause(&mut self) {
        self.answered = 0;
    }

    /// Whether no question waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Drops all, because another epoch has begun.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

/// A server's reply to a question.
enum FrostReply {
    Commitments(NonceCommitments),
    /// The share of a signature of this message.
    Share(SignedShare, MessageDigest),
    /// The nonces of the session are lost. These are others.
    OtherCommitments(NonceCommitments),
    Refused,
    Busy,
}

impl QuorumServer {
    /// Asks a server, possibly this one.
    pub(super) fn ask_frost(
        &mut self,
        now: Duration,
        number: u64,
        to: ServerIndex,
        query: FrostQuery,
    ) {
        let Some(epoch) = &self.epoch else { return };
        let about = epoch.header.epoch;
        if Some(to) == epoch.index {
            let asker = PartialSignRequester { index: to, request: number };
            let question = FrostQuestion { epoch: about, query };
            if self.frost_queries.waiting.push(asker, question).is_err() {
                self.busy(now, number, to);
            }
        } else if let Some(member) = epoch.header.group.member(to) {
            let identity = member.identity;
            let mut rest = about.to_be_bytes().to_vec();
            let kind = match query {
                FrostQuery::Commitments => SignMessageKind::AskCommitments,
                FrostQuery::Share(session) => {
                    rest.extend(session);
                    SignMessageKind::AskShare
                }
            };
            self.send(identity, LinkTopic::Signing, message(kind, number, &rest));
        }
    }

    /// Takes a question of another server of the epoch, which is answered in its turn.
    pub(super) fn take_frost_query(
        &mut self,
        asker: PartialSignRequester,
        kind: SignMessageKind,
        bytes: &[u8],
    ) -> Result<(), MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let epoch = reader.u64()?;
        if self.frost_queries.waiting.is_full(asker.index) {
            self.reply_to(asker, SignMessageKind::Busy, &[]);
            return Ok(());
        }
        let query = if matches!(kind, SignMessageKind::AskShare) {
            FrostQuery::Share(Bytes::copy_from_slice(reader.rest()))
        } else {
            reader.finish()?;
            FrostQuery::Commitments
        };
        let question = FrostQuestion { epoch, query };
        if self.frost_queries.waiting.push(asker, question).is_err() {
            self.reply_to(asker, SignMessageKind::Busy, &[]);
        }
        Ok(())
    }

    /// Answers a few of the questions that wait. The others wait until the driver has handled other
    /// events.
    pub(super) fn answer_frost_queries(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        while let Some((asker, question)) = self.frost_queries.next() {
            let reply = match self.frost_reply(asker, &question, generator)? {
                Ok(reply) => reply,
                Err(refusal) if refusal.is_brief() => FrostReply::Busy,
                Err(refusal) => {
                    self.report_refusal(asker, &refusal);
                    FrostReply::Refused
                }
            };
            if self.epoch.as_ref().is_some_and(|epoch| epoch.index == Some(asker.index)) {
                self.handle_own_reply(now, asker, reply);
            } else {
                self.send_reply(asker, reply);
            }
        }
        Ok(())
    }

    /// The reply to a question. The points of a session are decoded last, by the signer, because
    /// that is costly: only if the message may be signed, and the session has nonces that this
    /// server has given to the asker.
    fn frost_reply(
        &mut self,
        asker: PartialSignRequester,
        question: &FrostQuestion,
        generator: &mut RandomGenerator,
    ) -> Result<Result<FrostReply, PartialSignRefusal>, RandomError> {
        let Some(epoch) = &self.epoch else { return Ok(Err(PartialSignRefusal::NoShares)) };
        let about = question.epoch;
        if about != epoch.header.epoch {
            let is_near = about.abs_diff(epoch.header.epoch) == 1;
            let far = PartialSignRefusal::Epoch(about);
            return Ok(Err(if is_near { PartialSignRefusal::Near } else { far }));
        }
        let session = match &question.query {
            FrostQuery::Commitments => None,
            FrostQuery::Share(bytes) => match EncodedSession::parse(bytes) {
                Ok(session) if session.fits(epoch.header.group.size()) => Some(session),
                _ => return Ok(Err(PartialSignRefusal::Malformed)),
            },
        };
        if let Some(Err(refusal)) = session.as_ref().map(|it| self.may_sign(it.message())) {
            return Ok(Err(refusal));
        }
        let randomness = Zeroizing::new(generator.array::<64>()?);
        let identity = &self.settings.identity;
        let Some((signer, coordinator)) = signer(&mut self.epoch, asker.index) else {
            return Ok(Err(PartialSignRefusal::NoShares));
        };
        let Some(session) = session else {
            return Ok(Ok(FrostReply::Commitments(signer.commit(coordinator, &randomness))));
        };
        Ok(match signer.sign(coordinator, &session, &randomness) {
            Ok(answer) => {
                let message = MessageDigest::of(session.message());
                Ok(FrostReply::Share(SignedShare::new(&answer, identity), message))
            }
            Err(SessionRefusal::Nonces) => {
                Ok(FrostReply::OtherCommitments(signer.commit(coordinator, &randomness)))
            }
            Err(SessionRefusal::Signers | SessionRefusal::Commitments) => {
                Err(PartialSignRefusal::Malformed)
            }
        })
    }

    /// Handles the reply of this server to itself.
    fn handle_own_reply(&mut self, now: Duration, asker: PartialSignRequester, reply: FrostReply) {
        let (number, index) = (asker.request, asker.index);
        match reply {
            FrostReply::Commitments(it) | FrostReply::OtherCommitments(it) => {
                let handled = self.handle_commitments(now, number, index, &it.to_bytes());
                debug_assert!(handled.is_ok(), "its own commitments are points");
            }
            FrostReply::Share(share, _) => self.handle_share(now, number, index, &share.to_bytes()),
            FrostReply::Refused => self.refused(now, number, index),
            FrostReply::Busy => self.busy(now, number, index),
        }
    }

    fn send_reply(&mut self, asker: PartialSignRequester, reply: FrostReply) {
        match reply {
            FrostReply::Commitments(it) => {
                self.reply_to(asker, SignMessageKind::Commitments, &it.to_bytes());
            }
            FrostReply::OtherCommitments(it) => {
                self.reply_to(asker, SignMessageKind::OtherCommitments, &it.to_bytes());
            }
            FrostReply::Share(share, message) => {
                if let Some(to) = self.identity_of(asker.index) {
                    self.event(QuorumServerEvent::Answered { to, message });
                }
                self.reply_to(asker, SignMessageKind::Share, &share.to_bytes());
            }
            FrostReply::Refused => self.reply_to(asker, SignMessageKind::Refused, &[]),
            FrostReply::Busy => self.reply_to(asker, SignMessageKind::Busy, &[]),
        }
    }

    fn reply_to(&mut self, asker: PartialSignRequester, kind: SignMessageKind, rest: &[u8]) {
        if let Some(identity) = self.identity_of(asker.index) {
            self.send(identity, LinkTopic::Signing, message(kind, asker.request, rest));
        }
    }

    fn report_refusal(&mut self, asker: PartialSignRequester, refusal: &PartialSignRefusal) {
        let is_own = self.epoch.as_ref().is_some_and(|it| it.index == Some(asker.index));
        if let Some(from) = self.identity_of(asker.index)
            && !refusal.is_expected()
            && !is_own
        {
            let why = refusal.to_string();
            self.event(QuorumServerEvent::MessageRefused { from, why });
        }
    }

    /// Handles commitments of a server to this one, for a request of this server. They are decoded
    /// only if the request waits for them.
    pub(super) fn handle_commitments(
        &mut self,
        now: Duration,
        number: u64,
        from: ServerIndex,
        commitments: &[u8; 64],
    ) -> Result<(), MalformedEncoding> {
        if let Some(own) = self.requests.get_mut(&number)
            && let GroupSignRequest::Ed25519(request) = &mut own.request
        {
            let handled = request.handle_commitments(now, from, commitments);
            self.perform_request_outputs(now, number);
            return handled;
        }
        Ok(())
    }

    /// Handles a server's share of a signature, for a request of this server.
    pub(super) fn handle_share(
        &mut self,
        now: Duration,
        number: u64,
        from: ServerIndex,
        bytes: &[u8],
    ) {
        let Some(identity) = self.identity_of(from) else { return };
        if let Some(own) = self.requests.get_mut(&number)
            && let GroupSignRequest::Ed25519(request) = &mut own.request
        {
            request.handle_answer(now, from, &identity, bytes);
            self.perform_request_outputs(now, number);
        }
    }
}

/// The signer of the epoch, and a requester as FROST numbers it.
fn signer(
    epoch: &mut Option<Box<super::epoch::FollowedEpoch>>,
    coordinator: ServerIndex,
) -> Option<(&mut FrostSigner, ParticipantId)> {
    match &mut epoch.as_mut()?.key {
        EpochKey::Polynomial(PolynomialEpochKey {
            signer: Some(KeySigner::Ed25519(signer)),
            ..
        }) => Some((signer, coordinator.participant()?)),
        _ => None,
    }
}

//! A server's answers to requesters of an Ed25519 signature: commitments to nonces, and its share
//! of a signature in a session (FROST). They take a fraction of a millisecond, so they are computed
//! at once. `docs/protocols/quorum-ed25519.md` specifies them.

use std::collections::VecDeque;
use std::time::Duration;

use encoding::FieldReader;
use random::{RandomError, RandomGenerator};
use schnorr::{FrostSigner, NonceCommitments, ParticipantId, SessionRefusal, SigningSession};
use zeroize::Zeroizing;

use super::QuorumServer;
use super::key::EpochKey;
use super::output::{PartialSignRequester, QuorumServerEvent};
use super::sign_message::{SignMessageKind, message};
use super::sign_request::GroupSignRequest;
use super::signing::PartialSignRefusal;
use crate::protocol::combination::ServerIndex;
use crate::protocol::link::LinkTopic;
use crate::protocol::policy::MessageDigest;
use crate::protocol::signing::{FrostQuery, SignedShare};
use crate::protocol::wire::MalformedEncoding;

/// The largest number of one server's questions that wait.
const MAX_PER_REQUESTER: usize = 64;

/// The largest number of bytes of one server's sessions that wait, besides one session.
const MAX_BYTES: usize = 4 << 20;

/// The questions that wait for the next step, each with the epoch that it is about.
#[derive(Default)]
pub(super) struct FrostQueries(VecDeque<(PartialSignRequester, u64, FrostQuery)>);

impl FrostQueries {
    /// Whether no more questions of a server are taken now.
    fn is_full(&self, index: ServerIndex) -> bool {
        let of_one = || self.0.iter().filter(|(asker, ..)| asker.index == index);
        let len = |query: &FrostQuery| match query {
            FrostQuery::Commitments => 0,
            FrostQuery::Share(session) => session.len(),
        };
        of_one().count() >= MAX_PER_REQUESTER
            || of_one().map(|(.., query)| len(query)).sum::<usize>() > MAX_BYTES
    }

    /// Drops all, because another epoch has begun.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A server's reply to a question.
enum FrostReply {
    Commitments(NonceCommitments),
    Share(SignedShare),
    /// The nonces of the session are lost. These are others.
    OtherCommitments(NonceCommitments),
    Refused,
    Busy,
}

impl QuorumServer {
    /// Asks a server, possibly this one.
    pub(super) fn ask_frost(&mut self, number: u64, to: ServerIndex, query: FrostQuery) {
        let Some(epoch) = &self.epoch else { return };
        let about = epoch.header.epoch;
        if Some(to) == epoch.index {
            let asker = PartialSignRequester { index: to, request: number };
            self.frost_queries.0.push_back((asker, about, query));
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

    /// Takes a question of another server, which is answered in the next step.
    pub(super) fn take_frost_query(
        &mut self,
        asker: PartialSignRequester,
        kind: SignMessageKind,
        bytes: &[u8],
    ) -> Result<(), MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let about = reader.u64()?;
        let query = if matches!(kind, SignMessageKind::AskShare) {
            FrostQuery::Share(reader.rest().to_vec())
        } else {
            reader.finish()?;
            FrostQuery::Commitments
        };
        if self.frost_queries.is_full(asker.index) {
            self.reply_to(asker, SignMessageKind::Busy, &[]);
        } else {
            self.frost_queries.0.push_back((asker, about, query));
        }
        Ok(())
    }

    /// Answers all questions that wait.
    pub(super) fn answer_frost_queries(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        while let Some((asker, about, query)) = self.frost_queries.0.pop_front() {
            let reply = match self.frost_reply(asker, about, &query, generator)? {
                Ok(reply) => reply,
                Err(PartialSignRefusal::Busy) => FrostReply::Busy,
                Err(refusal) => {
                    self.report_refusal(asker, &refusal);
                    FrostReply::Refused
                }
            };
            if self.epoch.as_ref().is_some_and(|epoch| epoch.index == Some(asker.index)) {
                self.handle_own_reply(now, asker, reply);
            } else {
                self.send_reply(asker, &query, reply);
            }
        }
        Ok(())
    }

    fn frost_reply(
        &mut self,
        asker: PartialSignRequester,
        about: u64,
        query: &FrostQuery,
        generator: &mut RandomGenerator,
    ) -> Result<Result<FrostReply, PartialSignRefusal>, RandomError> {
        let Some(epoch) = &self.epoch else { return Ok(Err(PartialSignRefusal::NoShares)) };
        if about != epoch.header.epoch {
            let is_near = about.abs_diff(epoch.header.epoch) == 1;
            let far = PartialSignRefusal::Epoch(about);
            return Ok(Err(if is_near { PartialSignRefusal::Near } else { far }));
        }
        let session = match query {
            FrostQuery::Commitments => None,
            // The first byte is the number of signers. Their points are costly to decode.
            FrostQuery::Share(bytes)
                if bytes.first().map(|it| usize::from(*it))
                    != Some(epoch.header.group.size().signer_count()) =>
            {
                return Ok(Err(PartialSignRefusal::Malformed));
            }
            FrostQuery::Share(bytes) => match SigningSession::from_bytes(bytes) {
                Ok(session) => Some(session),
                Err(_) => return Ok(Err(PartialSignRefusal::Malformed)),
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
            Ok(answer) => Ok(FrostReply::Share(SignedShare::new(&answer, identity))),
            Err(SessionRefusal::Nonces) => {
                Ok(FrostReply::OtherCommitments(signer.commit(coordinator, &randomness)))
            }
            Err(SessionRefusal::Signers) => Err(PartialSignRefusal::Malformed),
        })
    }

    /// Handles the reply of this server to itself.
    fn handle_own_reply(&mut self, now: Duration, asker: PartialSignRequester, reply: FrostReply) {
        let (number, index) = (asker.request, asker.index);
        match reply {
            FrostReply::Commitments(it) | FrostReply::OtherCommitments(it) => {
                self.handle_commitments(now, number, index, &it);
            }
            FrostReply::Share(share) => self.handle_share(now, number, index, &share.to_bytes()),
            FrostReply::Refused => self.refused(now, number, index),
            FrostReply::Busy => self.busy(now, number, index),
        }
    }

    fn send_reply(&mut self, asker: PartialSignRequester, query: &FrostQuery, reply: FrostReply) {
        match reply {
            FrostReply::Commitments(it) => {
                self.reply_to(asker, SignMessageKind::Commitments, &it.to_bytes());
            }
            FrostReply::OtherCommitments(it) => {
                self.reply_to(asker, SignMessageKind::OtherCommitments, &it.to_bytes());
            }
            FrostReply::Share(share) => {
                if let FrostQuery::Share(session) = query
                    && let Ok(session) = SigningSession::from_bytes(session)
                    && let Some(to) = self.identity_of(asker.index)
                {
                    let message = MessageDigest::of(session.message());
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

    /// Handles commitments of a server to this one, for a request of this server.
    pub(super) fn handle_commitments(
        &mut self,
        now: Duration,
        number: u64,
        from: ServerIndex,
        commitments: &NonceCommitments,
    ) {
        if let Some(own) = self.requests.get_mut(&number)
            && let GroupSignRequest::Ed25519(request) = &mut own.request
        {
            request.handle_commitments(now, from, commitments);
            self.perform_request_outputs(now, number);
        }
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
    let EpochKey::Ed25519(key) = &mut epoch.as_mut()?.key else { return None };
    Some((key.signer.as_mut()?, coordinator.participant()?))
}

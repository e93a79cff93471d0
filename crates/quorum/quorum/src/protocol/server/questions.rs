//! Questions for shares: a server asks others of its group for shares that it lacks. It signs them
//! with its voting key of the epoch that the shares belong to. Identity keys outlive that epoch: an
//! attacker who obtains one later must not get shares from a server that was cut off before the
//! epoch's end.

use keys::IdentityPublicKey;

use super::QuorumServer;
use super::epoch::FollowedEpoch;
use super::key::{CombinatorialEpochKey, EpochKey, PolynomialEpochKey};
use super::output::RefreshJobOwner;
use super::participation::RefreshParticipation;
use super::refreshing::QUESTION;
use crate::protocol::link::LinkTopic;
use crate::protocol::refresh::{self, CommonValue, RefreshMessage, RefreshRun};
use crate::protocol::wire::MalformedEncoding;

/// The bytes that a server signs. They name the receiver, so that a faulty receiver cannot reuse
/// the question with another server.
pub(super) fn signed(from: &IdentityPublicKey, to: &IdentityPublicKey, question: &[u8]) -> Vec<u8> {
    [b"sunder-quorum question v1\0", &from.to_bytes()[..], &to.to_bytes(), question].concat()
}

impl QuorumServer {
    /// Sends a question of a state machine if there is a key for it. Otherwise it is retried later.
    pub(super) fn send_question(
        &mut self,
        machine: RefreshJobOwner,
        to: IdentityPublicKey,
        question: &RefreshMessage,
    ) {
        let Some(epoch) = &self.epoch else { return };
        let is_meant = |run: &&RefreshParticipation| machine == RefreshJobOwner::New(run.id);
        let key = match epoch.run.as_ref().filter(is_meant) {
            Some(run) => run.machines.voting(),
            None => epoch.voting.as_ref(),
        };
        let Some(key) = key else { return };
        let question = question.to_bytes();
        let signature = key.sign(&signed(&self.settings.identity.public(), &to, &question));
        let bytes = [&[QUESTION][..], &signature, &question].concat();
        self.send(to, LinkTopic::Refresh, bytes);
    }

    /// Answers a question that is signed with the sender's voting key of that epoch.
    pub(super) fn handle_question(
        &mut self,
        from: &IdentityPublicKey,
        bytes: &[u8],
    ) -> Result<(), MalformedEncoding> {
        let (signature, question) =
            bytes.split_first_chunk().ok_or(MalformedEncoding("too short for a question"))?;
        let message = RefreshMessage::parse(question)?;
        let signed = signed(from, &self.settings.identity.public(), question);
        let is_by =
            |key: Option<IdentityPublicKey>| key.is_some_and(|key| key.verify(&signed, signature));
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        let FollowedEpoch { agreement, run, header, key, .. } = &mut **epoch;
        let index = header.group.index_of(from);
        let is_of_epoch = is_by(index.and_then(|index| agreement.voting()[usize::from(index.0)]));
        let in_run = |run: &RefreshRun| run.voting(run.group().index_of(from)?);
        let is_of_run = is_by(agreement.run().and_then(in_run));
        match (&message, index) {
            (RefreshMessage::Ask { epoch: asked, witnesses: with_witnesses }, Some(index))
                if *asked == header.epoch && is_of_epoch && key.has_shares() =>
            {
                let answer = match key {
                    EpochKey::Combinatorial(CombinatorialEpochKey {
                        witnesses,
                        shares: Some(held),
                        ..
                    }) => {
                        let witnesses = with_witnesses.then_some(&**witnesses);
                        let group = header.group.combination();
                        Some(refresh::answer(*asked, witnesses, &held.raw, index, group))
                    }
                    EpochKey::Polynomial(PolynomialEpochKey { signer: Some(signer), .. }) => {
                        let value = index.participant().map(|it| signer.common_value(it));
                        let value = value.map(CommonValue);
                        value.map(|value| RefreshMessage::RowValue { epoch: *asked, value })
                    }
                    _ => None,
                };
                if let Some(answer) = answer {
                    self.send_message(*from, &answer);
                }
            }
            (
                RefreshMessage::Ask { .. }
                | RefreshMessage::AskSum { .. }
                | RefreshMessage::AskValue { .. },
                _,
            ) => {
                if let Some(run) = run.as_mut().filter(|_| is_of_run) {
                    run.handle(from, message.clone(), agreement);
                }
                // It concerns the run by which this epoch began.
                if let Some(ended) = self.ended.as_mut().filter(|_| is_of_epoch) {
                    ended.machines.handle(from, message, &ended.agreement);
                }
            }
            _ => return Err(MalformedEncoding("not a question")),
        }
        Ok(())
    }
}

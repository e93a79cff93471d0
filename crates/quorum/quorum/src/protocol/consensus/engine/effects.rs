//! The effects that Malachite requests while it processes one input.

use std::convert::Infallible;
use std::time::Duration;

use arc_malachitebft_core_consensus::{
    Effect, Input, LivenessMsg, MisbehaviorEvidence, Resumable, Resume, VoteExtensionError,
};
use arc_malachitebft_core_types::{
    CertificateError, CommitCertificate, LinearTimeouts, Round, Timeout, TimeoutKind,
};

use super::super::codec::ConsensusMessage;
use super::super::context::ConsensusContext;
use super::super::signing::VoteSigner;
use super::super::timers::ConsensusTimers;

/// The longest additional time for a large proposal: so much may a silent proposer cost.
const MAX_POSTPONED: Duration = Duration::from_secs(10);

/// Performs effects. Signatures and timers are immediate. Messages are collected, and sent after
/// the records are on disk.
pub(super) struct ConsensusEffectHandler<'a> {
    pub(super) signer: &'a VoteSigner,
    pub(super) timeouts: &'a LinearTimeouts,
    pub(super) now: Duration,
    pub(super) pending: &'a mut PendingHeight,
    /// The records for the write-ahead log.
    pub(super) records: Vec<Input<ConsensusContext>>,
    /// Whether a signature or a certificate is invalid.
    pub(super) is_forged: bool,
    /// The messages for all other servers.
    pub(super) messages: Vec<ConsensusMessage>,
    /// The height's certificate, and the servers that have voted or proposed twice.
    pub(super) decision:
        Option<(CommitCertificate<ConsensusContext>, MisbehaviorEvidence<ConsensusContext>)>,
}

/// What a height is waiting for.
#[derive(Debug, Default)]
pub(super) struct PendingHeight {
    pub(super) timers: ConsensusTimers,
    /// The propose timeout of round 0. It does not run while there is nothing to propose.
    pub(super) held: Option<Timeout>,
    /// By how much the propose timeout of this round was postponed.
    pub(super) postponed: Duration,
    /// The round in which Malachite waits for a value from this server.
    pub(super) wanted: Option<Round>,
}

impl PendingHeight {
    /// Resets everything.
    pub(super) fn clear(&mut self) {
        self.timers.cancel_all();
        self.held = None;
        self.wanted = None;
    }

    /// A timer has elapsed. Starts it again if a proposal may take longer than the timeouts say,
    /// because its value is large: `transfer` is how long a server needs to send it to all others.
    /// Returns whether it was started again.
    pub(super) fn postpone(&mut self, timeout: Timeout, transfer: Duration, now: Duration) -> bool {
        if timeout.kind != TimeoutKind::Propose {
            return false;
        }
        // It grows with the round, as all timeouts do: this host or its network may be slow.
        let rounds = timeout.round.as_u32().unwrap_or(0);
        let wanted = (transfer + transfer * rounds / 2).min(MAX_POSTPONED);
        let more = wanted.saturating_sub(self.postponed);
        self.postponed = self.postponed.max(wanted);
        if !more.is_zero() {
            self.timers.start(timeout, now + more);
        }
        !more.is_zero()
    }

    fn cancel(&mut self, timeout: Timeout) {
        self.timers.cancel(timeout);
        if self.held == Some(timeout) {
            self.held = None;
        }
        // The propose step is over, so a value for it would be too late.
        if timeout.kind == TimeoutKind::Propose && self.wanted == Some(timeout.round) {
            self.wanted = None;
        }
    }
}

impl ConsensusEffectHandler<'_> {
    // Malachite's macro requires a result. It is never an error, because the macro would ignore it.
    #[allow(clippy::unnecessary_wraps)]
    pub(super) fn perform(
        &mut self,
        effect: Effect<ConsensusContext>,
    ) -> Result<Resume<ConsensusContext>, Infallible> {
        let verifier = self.signer.verifier();
        Ok(match effect {
            Effect::CancelAllTimeouts(r) => {
                self.pending.clear();
                r.resume_with(())
            }
            Effect::CancelTimeout(timeout, r) => {
                self.pending.cancel(timeout);
                r.resume_with(())
            }
            Effect::ScheduleTimeout(timeout, r) => {
                if timeout.kind == TimeoutKind::Propose {
                    self.pending.postponed = Duration::ZERO;
                }
                if timeout == Timeout::propose(Round::ZERO) {
                    self.pending.held = Some(timeout);
                } else {
                    let at = self.now + self.timeouts.duration_for(timeout);
                    self.pending.timers.start(timeout, at);
                }
                r.resume_with(())
            }
            Effect::GetValue(_, round, _, r) => {
                self.pending.wanted = Some(round);
                r.resume_with(())
            }

            Effect::SignVote(vote, r) => r.resume_with(self.signer.sign_vote(vote)),
            Effect::SignProposal(proposal, r) => {
                r.resume_with(self.signer.sign_proposal(proposal))
            }
            Effect::VerifySignature(message, key, r) => {
                let is_right = verifier.message(&message, key.as_ref());
                self.is_forged |= !is_right;
                r.resume_with(is_right)
            }
            Effect::VerifyCommitCertificate(certificate, set, _, r) => {
                r.resume_with(verifier.commit(&certificate, &set))
            }
            Effect::VerifyPolkaCertificate(certificate, set, _, r) => {
                let checked = verifier.polka(&certificate, &set);
                self.is_forged |= checked.is_err();
                r.resume_with(checked)
            }
            Effect::VerifyRoundCertificate(certificate, set, _, r) => {
                let checked = verifier.round(&certificate, &set);
                self.is_forged |= checked.is_err();
                r.resume_with(checked)
            }

            Effect::WalAppend(_, entry, r) => {
                self.records.push(entry);
                r.resume_with(())
            }
            Effect::PublishConsensusMsg(message, r) => {
                self.messages.push(ConsensusMessage::Consensus(message));
                r.resume_with(())
            }
            Effect::PublishLivenessMsg(message, r) => {
                self.messages.push(ConsensusMessage::Liveness(message));
                r.resume_with(())
            }
            Effect::RepublishVote(vote, r) => {
                self.messages.push(ConsensusMessage::Liveness(LivenessMsg::Vote(vote)));
                r.resume_with(())
            }
            Effect::RepublishRoundCertificate(certificate, r) => {
                let message = LivenessMsg::SkipRoundCertificate(certificate);
                self.messages.push(ConsensusMessage::Liveness(message));
                r.resume_with(())
            }
            // Without a target time, this follows `Decide` immediately, with the same certificate.
            Effect::Finalize(certificate, _, evidence, r) => {
                self.decision = Some((certificate, evidence));
                r.resume_with(())
            }

            // A proposal contains the whole value, so there is nothing to stream again.
            Effect::RestreamProposal(.., r)
            | Effect::StartRound(.., r)
            | Effect::Decide(.., r)
            // The engine catches up by itself, without an input to Malachite.
            | Effect::CertVerifiedSyncValue(.., r)
            | Effect::CertRejectedSyncValue(.., r) => r.resume_with(()),
            Effect::VerifyExtendedCommitCertificate(.., r) => {
                r.resume_with(Err(CertificateError::VerificationError(None)))
            }
            // Vote extensions are off.
            Effect::ExtendVote(.., r) => r.resume_with(None),
            Effect::VerifyVoteExtension(.., r) => {
                r.resume_with(Err(VoteExtensionError::InvalidVoteExtension))
            }
        })
    }
}

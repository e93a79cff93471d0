//! A server's part in the agreement, one height after another.

mod catch_up;
mod effects;
mod output;
mod proposals;
mod requests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_malachitebft_core_consensus::{
    Error, Input, LivenessMsg, LocallyProposedValue, Params, SignedConsensusMsg, State,
    ValuePayload, process,
};
use arc_malachitebft_core_types::{LinearTimeouts, ThresholdParams, VoteExtensionPolicy};
use bytes::Bytes;

use self::effects::{ConsensusEffectHandler, PendingHeight};
pub(crate) use self::output::{ConsensusEngineError, ConsensusOutput};
use self::requests::ValueRequests;
use super::codec::{self, ConsensusMessage, DecidedValue};
use super::compact::UnresolvedProposals;
use super::context::servers::ConsensusValidatorSet;
use super::context::{ConsensusContext, LogValue, MAX_VALUE_LEN, Proposal, ValidatorAddress};
use super::pool::EntryPool;
pub(crate) use super::pool::EntryPoolRefusal;
pub(crate) use super::signing::VoteSigner;
use crate::protocol::admission::EntryCheck;
use crate::protocol::log_types::{Height, ServerSet};
use crate::protocol::voting::VotingSecret;

/// The largest number of one server's messages that are kept for the next height, and of proposals
/// among them, each of which may have the largest length of a value.
const MAX_EARLY_MESSAGES: usize = 16;
const MAX_EARLY_PROPOSALS: usize = 1;

/// The time without progress after which a server asks others for the height's value, and sends
/// them its entries again. The interval doubles up to the second value.
const STALL: Duration = Duration::from_secs(1);
const MAX_STALL: Duration = Duration::from_secs(8);

/// The rate at which a server is expected to send a value to all others, in bytes per second.
const SEND_RATE: u64 = 16_000_000;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Tendermint's timeouts, which grow with each round.
pub(crate) const TIMEOUTS: LinearTimeouts = LinearTimeouts {
    propose: ms(300),
    propose_delta: ms(300),
    prevote: ms(100),
    prevote_delta: ms(100),
    precommit: ms(50),
    precommit_delta: ms(100),
    rebroadcast: ms(500),
    max_timeout: ms(10_000),
};

/// Where the log continues.
#[derive(Debug)]
pub(crate) struct LogResumePoint {
    /// The last height that was committed.
    pub(crate) after: Height,
    /// The server that proposed the value of that height, if it is known.
    pub(crate) leader: Option<ValidatorAddress>,
    /// The write-ahead log of the next height.
    pub(crate) records: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeightPhase {
    /// A height is being decided.
    Running,
    /// The height is committed, and the next one has not begun.
    Committed,
}

/// One server of the log.
///
/// `now` is the time since an arbitrary fixed moment, and does not go back. After each call, the
/// driver takes the [outputs](ConsensusEngine::outputs), and calls [`ConsensusEngine::tick`] at the
/// [deadline](ConsensusEngine::deadline). The engine must not be used after an error.
pub(crate) struct ConsensusEngine {
    signer: VoteSigner,
    state: State<ConsensusContext>,
    pool: EntryPool,
    phase: HeightPhase,
    leader: Option<ValidatorAddress>,
    pending: PendingHeight,
    outputs: Vec<ConsensusOutput>,
    /// Messages for the next height.
    early: Vec<(ValidatorAddress, SignedConsensusMsg<ConsensusContext>)>,
    /// Proposals of this height and the next one with entries that this server lacks.
    unresolved: UnresolvedProposals,
    /// The servers that were sent entries of this server's proposals, by round.
    answered: BTreeSet<(ValidatorAddress, i64)>,
    /// The other servers of the set that have voted or proposed at this height.
    voters: BTreeSet<ValidatorAddress>,
    /// Requests for this height's value.
    requests: ValueRequests,
    /// A server that may have the next height's value.
    ahead: Option<ValidatorAddress>,
    /// When to ask others for help, and the interval until the next time.
    stall: Option<Duration>,
    pause: Duration,
    /// Whether a signature in the last input was wrong.
    is_forged: bool,
}

type ConsensusEngineResult = Result<(), ConsensusEngineError>;

impl ConsensusEngine {
    /// Opens the log, with the set of servers for the next height, this server's voting key, and
    /// the check of the height's entries.
    ///
    /// # Errors
    /// If the write-ahead log cannot be replayed.
    pub(crate) fn open(
        signer: VoteSigner,
        opening: &LogResumePoint,
        (set, key): (&ServerSet, Option<Arc<VotingSecret>>),
        check: EntryCheck,
        now: Duration,
    ) -> Result<Self, ConsensusEngineError> {
        let params = Params {
            address: signer.address(),
            threshold_params: ThresholdParams::default(),
            value_payload: ValuePayload::ProposalOnly,
            // Enabled for each height.
            enabled: false,
        };
        let servers = ConsensusValidatorSet::new(set, opening.after.next(), opening.leader);
        let mut engine = Self {
            signer,
            state: State::new(ConsensusContext, opening.after, servers, params, 1, 1),
            pool: EntryPool::new(check.clone()),
            phase: HeightPhase::Committed,
            leader: opening.leader,
            pending: PendingHeight::default(),
            outputs: Vec::new(),
            early: Vec::new(),
            unresolved: UnresolvedProposals::default(),
            answered: BTreeSet::new(),
            voters: BTreeSet::new(),
            requests: ValueRequests::new(),
            ahead: None,
            stall: None,
            pause: STALL,
            is_forged: false,
        };
        engine.begin((set, key), check, &opening.records, now)?;
        // Others may have continued in the meantime.
        engine.stall = Some(now + STALL);
        Ok(engine)
    }

    /// Begins the height after the last committed one, with its set of servers, this server's
    /// voting key, and the check of the height's entries. If the current height is still being
    /// decided and there is no key, the current key is wiped, and this server signs nothing more at
    /// that height.
    ///
    /// # Errors
    /// If the engine stops.
    pub(crate) fn next(
        &mut self,
        voters: (&ServerSet, Option<Arc<VotingSecret>>),
        check: EntryCheck,
        now: Duration,
    ) -> ConsensusEngineResult {
        if self.phase == HeightPhase::Committed {
            return self.begin(voters, check, &[], now);
        }
        if voters.1.is_none() {
            self.signer.set_key(None);
            self.state.params.enabled = false;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        (set, key): (&ServerSet, Option<Arc<VotingSecret>>),
        check: EntryCheck,
        records: &[Vec<u8>],
        now: Duration,
    ) -> ConsensusEngineResult {
        let inputs =
            records.iter().map(|it| codec::parse_record(it)).collect::<Result<Vec<_>, _>>()?;
        let height = self.height();
        let servers = ConsensusValidatorSet::new(set, height, self.leader);
        self.signer.set_key(key);
        self.state.params.enabled = self.signer.is_voter(&servers);
        self.phase = HeightPhase::Running;
        self.requests.begin();
        self.voters.clear();
        self.answered.clear();
        self.pool.begin(check, now);
        (self.stall, self.pause) = (None, STALL);
        let policy = VoteExtensionPolicy::Disabled;
        self.process(Input::StartHeight(height, servers, false, None, policy), records, now)?;

        // After a restart, everything that this server did at this height happens again. What it
        // signed before is sent again, and nothing else is signed instead.
        self.state.index_wal_entries(&inputs);
        for input in inputs {
            if self.phase == HeightPhase::Running {
                self.process(input, records, now)?;
            }
        }
        self.state.reset_entries_index();
        for (from, message) in std::mem::take(&mut self.early) {
            self.consensus(from, message, now)?;
            self.report_forged(from);
        }
        if self.phase == HeightPhase::Running {
            let mut unresolved = std::mem::take(&mut self.unresolved);
            unresolved.begin(height, |proposal| self.proposes(proposal));
            self.unresolved = unresolved;
            self.resolve_proposals(now)?;
        }
        if self.phase == HeightPhase::Running
            && let Some(server) = self.ahead.take()
        {
            self.ask(server);
            self.stall = Some(now + STALL);
        }
        self.advance(now)
    }

    /// The height that is being decided, or the next one if it is committed.
    pub(crate) fn height(&self) -> Height {
        match self.phase {
            HeightPhase::Running => self.state.height(),
            HeightPhase::Committed => self.state.height().next(),
        }
    }

    /// The current round of that height.
    pub(crate) fn round(&self) -> u32 {
        self.state.round().as_u32().unwrap_or(0)
    }

    /// The proposer of this round.
    pub(crate) fn proposer(&self) -> ValidatorAddress {
        *self.state.get_proposer(self.state.height(), self.state.round())
    }

    /// The other servers that have voted or proposed at this height.
    pub(crate) fn voters(&self) -> impl Iterator<Item = ValidatorAddress> {
        self.voters.iter().copied()
    }

    /// Whether this server is in the height's set and votes.
    pub(crate) fn votes(&self) -> bool {
        self.state.params.enabled
    }

    /// The proposals by digests with entries that this server lacks.
    #[cfg(test)]
    pub(super) fn unresolved(&self) -> &UnresolvedProposals {
        &self.unresolved
    }

    /// The number of waiting entries.
    pub(crate) fn waiting(&self) -> usize {
        self.pool.len()
    }

    /// Since when the oldest entry that this server submitted has waited.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.pool.oldest_of(self.signer.address())
    }

    /// The outputs since the last call, in order.
    pub(crate) fn outputs(&mut self) -> Vec<ConsensusOutput> {
        std::mem::take(&mut self.outputs)
    }

    /// When to call [`Self::tick`].
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let is_running = self.phase == HeightPhase::Running;
        let asks_at = is_running.then(|| self.unresolved.deadline(self.state.height())).flatten();
        self.pending.timers.next().into_iter().chain(self.stall).chain(asks_at).min()
    }

    /// Accepts an entry that was submitted here.
    ///
    /// # Errors
    /// If the engine stops. The inner result is an error if the entry is not accepted.
    pub(crate) fn submit(
        &mut self,
        entry: Bytes,
        now: Duration,
    ) -> Result<Result<(), EntryPoolRefusal>, ConsensusEngineError> {
        match self.pool.submit(self.signer.address(), entry.clone(), now) {
            Ok(is_new) => {
                if is_new {
                    self.outputs.push(ConsensusOutput::Broadcast(ConsensusMessage::Entry(entry)));
                    self.resolve_proposals(now)?;
                }
                self.advance(now).map(Ok)
            }
            Err(why) => Ok(Err(why)),
        }
    }

    /// There is a link with a server, which is sent what it may have missed.
    pub(crate) fn handle_link_up(&mut self, server: ValidatorAddress) {
        let own = self.signer.address();
        let entries = self.pool.of(own).cloned().map(ConsensusMessage::Entry);
        self.outputs.extend(entries.map(|message| ConsensusOutput::Send(server, message)));
        self.want(server);
        if self.phase == HeightPhase::Running {
            let (height, round) = (self.state.height(), self.state.round());
            if let Some(own) = self.state.full_proposal_at_round_and_proposer(&height, round, &own)
            {
                let proposal = SignedConsensusMsg::Proposal(own.proposal.clone());
                self.outputs
                    .push(ConsensusOutput::Send(server, ConsensusMessage::Consensus(proposal)));
            }
            let votes = [&self.state.last_signed_prevote, &self.state.last_signed_precommit];
            for vote in votes.into_iter().flatten().cloned() {
                let message = ConsensusMessage::Liveness(LivenessMsg::Vote(vote));
                self.outputs.push(ConsensusOutput::Send(server, message));
            }
        }
    }

    /// Handles a message of a server. An invalid message is dropped.
    ///
    /// # Errors
    /// If the engine stops.
    pub(crate) fn receive(
        &mut self,
        from: ValidatorAddress,
        message: ConsensusMessage,
        now: Duration,
    ) -> ConsensusEngineResult {
        self.is_forged = false;
        match message {
            ConsensusMessage::Entry(entry) => {
                let is_named = self.unresolved.handle_entry(from, &entry);
                // If it is not accepted here, the server sends it again, or proposes it itself.
                let _ = self.pool.add(from, entry, now);
                if is_named {
                    self.resolve_proposals(now)?;
                }
            }
            ConsensusMessage::Compact(proposal) => self.handle_compact(from, proposal, now)?,
            ConsensusMessage::AskEntries(height, round, digests) => {
                self.answer_entries(from, (height, round), &digests);
            }
            ConsensusMessage::Consensus(message) => self.consensus(from, message, now)?,
            ConsensusMessage::Liveness(LivenessMsg::Vote(vote)) => {
                self.consensus(from, SignedConsensusMsg::Vote(vote), now)?;
            }
            ConsensusMessage::Liveness(LivenessMsg::PolkaCertificate(certificate)) => {
                if self.is_running(certificate.height) {
                    self.process(Input::PolkaCertificate(certificate), &[], now)?;
                }
            }
            ConsensusMessage::Liveness(LivenessMsg::SkipRoundCertificate(certificate)) => {
                if self.is_running(certificate.height) {
                    self.process(Input::RoundCertificate(certificate), &[], now)?;
                }
            }
            ConsensusMessage::Want(height) => {
                if height < self.height() {
                    self.outputs.push(ConsensusOutput::SendCommitted(from, height));
                }
            }
            ConsensusMessage::Decided(decided) => self.adopt(from, decided, now),
        }
        self.report_forged(from);
        self.advance(now)
    }

    /// Reports the server if a signature in its message was wrong.
    fn report_forged(&mut self, server: ValidatorAddress) {
        if std::mem::take(&mut self.is_forged) {
            let what = "a wrong signature or certificate";
            self.outputs.push(ConsensusOutput::Refused(server, what));
        }
    }

    /// Handles the timers that have elapsed.
    ///
    /// # Errors
    /// If the engine stops.
    pub(crate) fn tick(&mut self, now: Duration) -> ConsensusEngineResult {
        while let Some(timeout) = self.pending.timers.elapsed(now) {
            let transfer = self.transfer_time();
            if self.pending.postpone(timeout, transfer, now) {
                continue;
            }
            self.process(Input::TimeoutElapsed(timeout), &[], now)?;
            self.advance(now)?;
        }
        self.ask_for_entries(now)?;
        if self.stall.is_some_and(|at| at <= now) {
            self.handle_stall();
            self.advance(now)?;
        }
        Ok(())
    }

    fn servers(&self) -> &ConsensusValidatorSet {
        self.state.validator_set()
    }

    fn is_running(&self, height: Height) -> bool {
        self.phase == HeightPhase::Running && height == self.state.height()
    }

    /// Handles a vote or a proposal of this height, and keeps some for the next height.
    fn consensus(
        &mut self,
        from: ValidatorAddress,
        message: SignedConsensusMsg<ConsensusContext>,
        now: Duration,
    ) -> ConsensusEngineResult {
        let (author, height, what) = match &message {
            SignedConsensusMsg::Vote(it) => {
                (it.message.voter, it.message.height, "a vote of another server")
            }
            SignedConsensusMsg::Proposal(it) => {
                (it.message.proposer, it.message.height, "a proposal of another server")
            }
        };
        // Every server has a link with every other, so no server relays messages of others.
        if author != from {
            self.outputs.push(ConsensusOutput::Refused(from, what));
            return Ok(());
        }
        let current = self.state.height();
        if self.is_running(height) {
            let is_admitted = match &message {
                SignedConsensusMsg::Vote(_) => true,
                SignedConsensusMsg::Proposal(proposal) => self.admits(&proposal.message),
            };
            if !is_admitted {
                return Ok(());
            }
            if self.servers().contains(&from) {
                self.voters.insert(from);
            }
            let input = match message {
                SignedConsensusMsg::Vote(vote) => Input::Vote(vote),
                SignedConsensusMsg::Proposal(proposal) => Input::Proposal(proposal),
            };
            return self.process(input, &[], now);
        }
        if height == current.next() {
            // The check of the next height is not known yet. No server may fill the queue alone.
            let is_proposal = |it: &_| matches!(it, SignedConsensusMsg::Proposal(_));
            let early = || self.early.iter().filter(|(sender, _)| *sender == from);
            let proposals = early().filter(|(_, it)| is_proposal(it)).count();
            let has_space = early().count() < MAX_EARLY_MESSAGES
                && !(is_proposal(&message) && proposals == MAX_EARLY_PROPOSALS);
            if has_space {
                self.early.push((from, message));
            }
        } else if height > current {
            self.handle_ahead(from);
        }
        Ok(())
    }

    /// Whether a value may be committed at this height. In this mode, Malachite considers every
    /// proposed value valid, so other values are withheld from it, and their proposer counts as
    /// silent.
    fn admits(&mut self, proposal: &Proposal) -> bool {
        if self.state.get_proposer(proposal.height, proposal.round) != &proposal.proposer {
            return false;
        }
        // A value is new unless the proposal names an earlier round. A new value names its
        // proposer.
        let is_new = proposal.pol_round.as_u32().is_none();
        let server = proposal.proposer;
        if is_new && proposal.value.leader() != server {
            self.outputs
                .push(ConsensusOutput::Refused(server, "a value of another server as a new one"));
            return false;
        }
        let (are_admitted, entries) = self.pool.admits(&proposal.value);
        self.outputs.push(ConsensusOutput::Checked { server, entries, are_admitted });
        are_admitted
    }

    /// Proposes if it is this server's turn, and starts the timeout of round 0. Does both only if
    /// there is something to commit.
    fn advance(&mut self, now: Duration) -> ConsensusEngineResult {
        if self.phase != HeightPhase::Running {
            return Ok(());
        }
        if let Some(round) = self.pending.wanted
            && let Some(value) = LogValue::new(self.signer.address(), &self.pool.batch())
        {
            self.pending.wanted = None;
            let proposed = LocallyProposedValue::new(self.state.height(), round, value);
            self.process(Input::Propose(proposed), &[], now)?;
        }
        // f+1 servers have voted, so a correct server has an entry, which will arrive here.
        let has_work = !self.pool.is_empty() || self.voters.len() > self.servers().faulty();
        if let Some(timeout) = self.pending.held.take_if(|_| has_work) {
            self.pending.timers.start(timeout, now + TIMEOUTS.duration_for(timeout));
        }
        let is_waiting = has_work
            || !self.voters.is_empty()
            || !self.early.is_empty()
            || !self.unresolved.is_empty()
            || self.requests.is_unanswered();
        if is_waiting && self.stall.is_none() {
            self.stall = Some(now + self.pause + self.transfer_time());
        }
        Ok(())
    }

    /// How long a server may need to send the waiting entries to all others.
    fn transfer_time(&self) -> Duration {
        let len = self.pool.admitted_len().min(MAX_VALUE_LEN) * (self.servers().len() - 1);
        Duration::from_nanos(len as u64 * 1_000_000_000 / SEND_RATE)
    }

    /// Passes an input to Malachite. In a replay, `stored` are the records on disk.
    fn process(
        &mut self,
        input: Input<ConsensusContext>,
        stored: &[Vec<u8>],
        now: Duration,
    ) -> ConsensusEngineResult {
        let mut effects = ConsensusEffectHandler {
            signer: &self.signer,
            timeouts: &TIMEOUTS,
            now,
            pending: &mut self.pending,
            records: Vec::new(),
            messages: Vec::new(),
            is_forged: false,
            decision: None,
        };
        let result: Result<(), Error<ConsensusContext>> = process!(
            input: input,
            state: &mut self.state,
            metrics: &(),
            with: effect => effects.perform(effect)
        );
        let ConsensusEffectHandler { records, messages, decision, is_forged, .. } = effects;
        self.is_forged |= is_forged;
        result.map_err(|error| ConsensusEngineError::Consensus(error.to_string()))?;

        let value = self.state.decided_value().map(|(_, value)| value);
        if let (Some((certificate, evidence)), Some(value)) = (decision, value) {
            self.commit(DecidedValue { value, certificate }, now);
            let voters = evidence.votes.iter().map(|(server, _)| *server);
            let proposers = evidence.proposals.iter().map(|(server, _)| *server);
            let servers: BTreeSet<_> = voters.chain(proposers).collect();
            self.outputs.extend(servers.into_iter().map(ConsensusOutput::Equivocation));
        } else {
            let records = records.iter().filter_map(codec::encode_record);
            let records: Vec<_> = records.filter(|record| !stored.contains(record)).collect();
            if !records.is_empty() {
                self.outputs.push(ConsensusOutput::Append(records));
            }
        }
        let servers = self.servers().len();
        let messages = messages.into_iter().map(|it| proposals::shortened(it, servers));
        self.outputs.extend(messages.map(ConsensusOutput::Broadcast));
        Ok(())
    }

    /// Ends the height.
    fn commit(&mut self, decided: DecidedValue, now: Duration) {
        self.phase = HeightPhase::Committed;
        self.pending.clear();
        self.stall = None;
        self.leader = Some(decided.value.leader());
        self.pool.committed(&decided.value, now);
        self.outputs.push(ConsensusOutput::Commit(decided));
    }
}

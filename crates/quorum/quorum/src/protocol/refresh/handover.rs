//! A server in the handover of a key that is shared by a polynomial, in one run: as a dealer, as a
//! receiver, or as both. When a key is generated, all servers are both.
//! `docs/protocols/quorum-ed25519.md` specifies it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use handover::{
    HandoverAgreement, HandoverDealer, HandoverEntry, HandoverEntryBody, HandoverEntryKind,
    HandoverReceiver, ParticipantId, ParticipantSet,
};
use keys::IdentitySecretKey;
use random::{RandomError, RandomGenerator, wipe_stack};
use zeroize::Zeroizing;

use super::agreement::{RefreshAgreement, RefreshRun, RunScheme};
use super::dealing_turns::{self, DealingState, DealingTurns};
use super::entry::{LogEntry, LogEntryBody, RefreshRole};
use super::handover_step::EncodedHandoverStep;
use super::manifest::DealingRound;
use super::message::{CommonValue, RefreshMessage};
use super::output::{RefreshDelays, RefreshOutput, RunItemName};
use super::retries::RetrySchedule;
use crate::protocol::combination::ServerIndex;
use crate::protocol::key_sharing::KeySigner;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::{VotingKey, VotingSecret};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The length in bytes of the seed of a dealer or a receiver.
const SEED_LEN: usize = 32;

/// How long a new server waits for rows of f+1 dealings before it says that it holds fewer.
const MAX_HOLD_DELAY: Duration = Duration::from_millis(500);

/// The item with a dealer's seed.
const SEED: RunItemName = RunItemName::Seed(DealingRound::DESIGNATED);

type SavedItems = BTreeMap<RunItemName, Zeroizing<Vec<u8>>>;

/// A server in one run. Its secrets are wiped when it is dropped.
pub(crate) struct HandoverServer<S: RunScheme> {
    run: Sha256Digest,
    identity: Arc<IdentitySecretKey>,
    /// Its index among the dealers.
    dealer_index: Option<ServerIndex>,
    /// On the heap, so that no copy remains where it is moved.
    saved_seed: Option<Zeroizing<Vec<u8>>>,
    dealer: Option<HandoverDealer<S>>,
    turns: DealingTurns,
    /// When its turn to deal comes.
    deals_at: Option<Duration>,
    /// Its dealing. It stays the same when other new servers register, because it is large.
    deal: Option<(Sha256Digest, LogEntry)>,
    /// Since when it has rows that it does not say it holds, because they are too few for a choice,
    /// and until when.
    few_rows_since: Option<Duration>,
    holds_at: Option<Duration>,
    /// Its index in the new group.
    receiver_index: Option<ServerIndex>,
    receiver: Option<RunReceiver<S>>,
    /// The agreed state of which the wants below follow.
    seen: Option<Arc<HandoverAgreement<S>>>,
    /// The entries that it wants committed, by their digests.
    wanted_entries: BTreeMap<Sha256Digest, LogEntry>,
    /// The common values that it lacks: the dealer, and a server that has it. It asks f'+1 servers
    /// at a time, which the number counts.
    wanted_values: Vec<(ServerIndex, ServerIndex, u32)>,
    resend: Duration,
    retries: RetrySchedule<HandoverRetry>,
    outputs: Vec<(RefreshRole, RefreshOutput)>,
}

/// A server of the new group.
struct RunReceiver<S: RunScheme> {
    receiver: HandoverReceiver<S>,
    /// The voting key for the new epoch.
    voting: Arc<VotingSecret>,
    /// The dealings of which it has saved its rows.
    saved: Option<ParticipantSet>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum HandoverRetry {
    Submit(Sha256Digest),
    AskValue(ServerIndex, ServerIndex),
}

/// What a server's steps in a run depend on.
pub(crate) struct HandoverContext<'a> {
    pub(crate) agreement: &'a RefreshAgreement,
    /// The server with its share of the old group's key.
    pub(crate) signer: Option<&'a KeySigner>,
    /// The time of its clock.
    pub(crate) time: UnixSeconds,
}

/// A server in one run, for any way to share a key. It is dropped when the run ends.
pub(crate) trait HandoverMachine: Send {
    /// The voting key with which this server begins the new epoch.
    fn voting(&self) -> Option<&Arc<VotingSecret>>;

    /// Ends the dealer's part, because the old epoch has ended.
    fn end_dealer(&mut self);

    /// Ends the run. Returns the server with its new share, if it has computed it.
    fn into_signer(self: Box<Self>) -> Option<KeySigner>;

    /// When to call [`Self::poll`] again.
    fn deadline(&self) -> Option<Duration>;

    /// What to do now, each for the role in which the server does it. Call this after each input,
    /// each entry of the log, and at [`Self::deadline`].
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    fn poll(
        &mut self,
        now: Duration,
        context: &HandoverContext<'_>,
        generator: &mut RandomGenerator,
    ) -> Result<Vec<(RefreshRole, RefreshOutput)>, RandomError>;

    /// Handles a message from another new server. The caller has checked the signature of a
    /// question.
    fn handle_message(&mut self, from: ServerIndex, message: &RefreshMessage);
}

impl<S: RunScheme> HandoverServer<S> {
    /// A server with this identity in the open run. `dealer` and `receiver` are the items that it
    /// saved in this run as a dealer and as a receiver before a restart.
    ///
    /// # Errors
    /// If a saved item is malformed.
    ///
    /// # Panics
    /// If no run is open, or the key is shared in another way.
    pub(crate) fn new(
        identity: Arc<IdentitySecretKey>,
        agreement: &RefreshAgreement,
        delays: &RefreshDelays,
        (dealer, receiver): (&SavedItems, &SavedItems),
    ) -> Result<Self, MalformedEncoding> {
        let run = agreement.run().expect("a run is open");
        let handover = run.handover().and_then(S::handover).expect("of this kind of key");
        let own = identity.public();
        let receiver_index = run.group().index_of(&own);
        let mut server = Self {
            run: run.id(),
            identity,
            dealer_index: agreement.epoch().group.index_of(&own),
            saved_seed: None,
            dealer: None,
            turns: DealingTurns::new(delays.need),
            deals_at: None,
            deal: None,
            few_rows_since: None,
            holds_at: None,
            receiver_index,
            receiver: None,
            seen: None,
            wanted_entries: BTreeMap::new(),
            wanted_values: Vec::new(),
            resend: delays.resend,
            retries: RetrySchedule::new(delays.resend),
            outputs: Vec::new(),
        };
        if let Some(seed) = dealer.get(&SEED) {
            if seed.len() != SEED_LEN {
                return Err(MalformedEncoding("no seed"));
            }
            server.saved_seed = Some(seed.clone());
        }
        if let (Some(index), Some(saved)) = (receiver_index, receiver.get(&RunItemName::SessionKey))
        {
            let participant = index.participant().ok_or(MalformedEncoding("no server"))?;
            let (voting, rest) =
                saved.split_first_chunk().ok_or(MalformedEncoding("no voting key"))?;
            let receiver = HandoverReceiver::from_bytes(handover.terms(), participant, rest);
            let receiver = receiver.map_err(|why| MalformedEncoding(why.0))?;
            server.receiver = Some(RunReceiver {
                saved: Some(receiver.held()),
                receiver,
                voting: Arc::new(VotingSecret::from_bytes(Zeroizing::new(*voting))),
            });
        }
        Ok(server)
    }

    /// Begins the roles that have not begun. The seeds are saved before anything follows from them.
    /// An old server may have lacked its share before.
    fn begin_roles(
        &mut self,
        context: &HandoverContext<'_>,
        handover: &HandoverAgreement<S>,
        generator: &mut RandomGenerator,
    ) -> Result<bool, RandomError> {
        let mut has_begun = false;
        if let (None, Some(index)) = (&self.receiver, self.receiver_index)
            && let Some(participant) = index.participant()
        {
            let seed = random_seed(generator)?;
            let seed = seed.first_chunk().expect("it has this length");
            let receiver = HandoverReceiver::new(handover.terms(), participant, seed);
            let voting = Arc::new(VotingSecret::random(generator)?);
            self.receiver = receiver.map(|receiver| RunReceiver { receiver, voting, saved: None });
            has_begun = true;
        }
        let share = context.signer.and_then(S::share);
        let can_deal = handover.terms().old.is_none() || share.is_some();
        if let (None, Some(index), true) = (&self.dealer, self.dealer_index, can_deal)
            && let Some(participant) = index.participant()
        {
            let seed = if let Some(seed) = self.saved_seed.take() {
                seed
            } else {
                let seed = random_seed(generator)?;
                let save = RefreshOutput::Save { item: SEED, bytes: seed.clone() };
                self.outputs.push((RefreshRole::Old, save));
                seed
            };
            let share = share.filter(|_| handover.terms().old.is_some());
            let seed = seed.first_chunk().expect("it has this length");
            self.dealer = HandoverDealer::new(handover.terms(), participant, share, seed);
            has_begun |= self.dealer.is_some();
        }
        wipe_stack();
        Ok(has_begun)
    }

    /// Saves the receiver's rows, if it has new ones.
    fn save_receiver(&mut self) {
        let Some(own) = &mut self.receiver else { return };
        let held = own.receiver.held();
        if own.saved == Some(held) {
            return;
        }
        own.saved = Some(held);
        let state = own.receiver.to_bytes();
        let mut bytes = Zeroizing::new(Vec::with_capacity(32 + state.len()));
        bytes.extend(own.voting.to_bytes());
        bytes.extend_from_slice(&state);
        let save = RefreshOutput::Save { item: RunItemName::SessionKey, bytes };
        self.outputs.push((RefreshRole::New, save));
    }

    /// Computes what the server wants in a state of the log.
    fn want(
        &mut self,
        now: Duration,
        context: &HandoverContext<'_>,
        handover: &HandoverAgreement<S>,
    ) {
        self.wanted_values.clear();
        let mut before = std::mem::take(&mut self.wanted_entries);
        if let (Some(own), Some(index)) = (&self.receiver, self.receiver_index) {
            for (dealer, holders) in own.receiver.wanted_values(handover) {
                let dealer = ServerIndex::of(dealer);
                let at_once = handover.terms().new.signer_count();
                let values = in_turn(index, holders).enumerate().map(|(place, holder)| {
                    let turn = u32::try_from(place / at_once).expect("there are 255 servers");
                    (dealer, ServerIndex::of(holder), turn)
                });
                self.wanted_values.extend(values);
            }
            let needed = handover.terms().dealers().signer_count();
            let rows = own.receiver.held().without(handover.faulty_dealers()).len();
            let is_few = |step: &HandoverEntry<S>| {
                rows < needed && matches!(step.body, HandoverEntryBody::Hold(_))
            };
            let steps = own.receiver.wanted_entries(handover);
            // A row waits for those of other dealings, so that one entry names all.
            let has_few = steps.iter().any(is_few);
            self.few_rows_since = has_few.then(|| self.few_rows_since.unwrap_or(now));
            let holds_at = self.few_rows_since.map(|since| since + MAX_HOLD_DELAY);
            self.holds_at = holds_at.filter(|at| *at > now);
            let waits = self.holds_at.is_some();
            for step in steps.into_iter().filter(|step| !waits || !is_few(step)) {
                let digest = Sha256Digest::of(&[&step.to_bytes()]);
                let entry = before.remove(&digest);
                let entry = entry.unwrap_or_else(|| self.entry(index, &step, context.time));
                self.wanted_entries.insert(digest, entry);
            }
        }
        self.want_to_deal(now, context, handover);
    }

    /// Wants its dealing committed, if it is its turn.
    fn want_to_deal(
        &mut self,
        now: Duration,
        context: &HandoverContext<'_>,
        handover: &HandoverAgreement<S>,
    ) {
        self.deals_at = None;
        let (Some(dealer), Some(index)) = (&self.dealer, self.dealer_index) else { return };
        if !dealer.can_deal(handover) {
            return;
        }
        if self.deal.is_none() {
            let (dealers, faulty) = (handover.terms().dealers(), handover.faulty_dealers());
            let Some(own) = index.participant() else { return };
            let place = dealing_turns::place(own, dealers, faulty, approving(context.agreement));
            let turn = self.turns.turn(place, dealers);
            self.deals_at = turn.filter(|turn| *turn > now);
            if turn.is_none() || self.deals_at.is_some() {
                return;
            }
            let Some(step) = dealer.wanted_entry(handover) else { return };
            let entry = self.entry(index, &step, context.time);
            self.deal = Some((Sha256Digest::of(&[&entry.to_bytes()]), entry));
        }
        self.wanted_entries.extend(self.deal.clone());
    }

    fn entry(&self, author: ServerIndex, step: &HandoverEntry<S>, time: UnixSeconds) -> LogEntry {
        let kind = step.kind();
        let own = self.receiver.as_ref().filter(|_| kind == HandoverEntryKind::Key);
        let voting = own.map(|own| Box::new(VotingKey::new(&own.voting, self.run, author)));
        let time = (kind == HandoverEntryKind::Confirm).then_some(time);
        let body = LogEntryBody::Handover { step: EncodedHandoverStep::new(step), voting, time };
        LogEntry::new(author, body, &self.identity)
    }
}

impl<S: RunScheme> HandoverMachine for HandoverServer<S>
where
    Self: Send,
{
    fn voting(&self) -> Option<&Arc<VotingSecret>> {
        self.receiver.as_ref().map(|it| &it.voting)
    }

    fn end_dealer(&mut self) {
        (self.dealer, self.dealer_index, self.saved_seed) = (None, None, None);
        self.deals_at = None;
    }

    fn into_signer(self: Box<Self>) -> Option<KeySigner> {
        self.receiver?.receiver.into_share().map(S::signer)
    }

    fn deadline(&self) -> Option<Duration> {
        self.retries.deadline().into_iter().chain(self.deals_at).chain(self.holds_at).min()
    }

    fn poll(
        &mut self,
        now: Duration,
        context: &HandoverContext<'_>,
        generator: &mut RandomGenerator,
    ) -> Result<Vec<(RefreshRole, RefreshOutput)>, RandomError> {
        let run = context.agreement.run().filter(|run| run.id() == self.run);
        let handover = run.and_then(|run| S::handover(run.handover()?));
        let Some(handover) = handover else { return Ok(Vec::new()) };
        let has_begun = self.begin_roles(context, handover, generator)?;
        let is_new = self.seen.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, handover));
        let due = self.deals_at.into_iter().chain(self.holds_at).min();
        let is_due = due.is_some_and(|at| at <= now);
        if has_begun || is_new {
            if let Some(own) = &mut self.receiver {
                own.receiver.handle_log(handover);
            }
            self.save_receiver();
            self.turns.observe(now, &dealing_state(handover));
            self.seen = Some(handover.clone());
        }
        if has_begun || is_new || is_due {
            self.want(now, context, handover);
        }
        self.retries.begin_pass();
        for (digest, entry) in &self.wanted_entries {
            if self.retries.is_due(HandoverRetry::Submit(*digest), now) {
                self.outputs.push((entry.side(), RefreshOutput::Submit(entry.clone())));
            }
        }
        for &(dealer, holder, turn) in &self.wanted_values {
            let (purpose, delay) = (HandoverRetry::AskValue(dealer, holder), turn * self.resend);
            if self.retries.is_due_after(purpose, now, delay) {
                let message = RefreshMessage::AskValue { run: self.run, dealer };
                let output = RefreshOutput::Send { to: (RefreshRole::New, holder), message };
                self.outputs.push((RefreshRole::New, output));
            }
        }
        Ok(std::mem::take(&mut self.outputs))
    }

    fn handle_message(&mut self, from: ServerIndex, message: &RefreshMessage) {
        let Some(handover) = self.seen.clone() else { return };
        let (Some(own), Some(from_participant)) = (&mut self.receiver, from.participant()) else {
            return;
        };
        match message {
            RefreshMessage::AskValue { run, dealer } if *run == self.run => {
                let dealer_participant = dealer.participant();
                let value = dealer_participant
                    .and_then(|it| own.receiver.common_value(it, from_participant));
                if let Some(value) = value {
                    let value = CommonValue(S::encode_value(&value));
                    let message = RefreshMessage::Value { run: *run, dealer: *dealer, value };
                    let output = RefreshOutput::Send { to: (RefreshRole::New, from), message };
                    self.outputs.push((RefreshRole::New, output));
                }
            }
            // To examine a value takes long.
            RefreshMessage::Value { run, dealer, value }
                if *run == self.run
                    && self.wanted_values.iter().any(|it| (it.0, it.1) == (*dealer, from)) =>
            {
                let value = S::decode_value(&value.0);
                let (Some(dealer), Some(value)) = (dealer.participant(), value) else { return };
                own.receiver.handle_value(&handover, from_participant, dealer, &value);
                // The next poll wants other things.
                if own.saved != Some(own.receiver.held()) {
                    self.save_receiver();
                    self.seen = None;
                }
            }
            _ => {}
        }
    }
}

fn dealing_state<S: RunScheme>(handover: &HandoverAgreement<S>) -> DealingState {
    let dealings = handover.dealings().keys();
    DealingState {
        new: handover.terms().new,
        registered: handover.session_keys().len(),
        progress: dealings.map(|dealer| 1 + handover.holders(*dealer).len()).sum(),
    }
}

/// The dealers that have approved the open run: f+1 servers that were up when it was opened.
fn approving(agreement: &RefreshAgreement) -> ParticipantSet {
    let group = agreement.run().map(RefreshRun::group);
    let approvals = agreement.approvals().iter().filter(|(_, approved)| Some(*approved) == group);
    approvals.filter_map(|(server, _)| server.participant()).collect()
}

/// These servers in the order of their numbers, from the one after a server on: so servers that
/// lack a row do not all ask the same ones first.
fn in_turn(own: ServerIndex, servers: ParticipantSet) -> impl Iterator<Item = ParticipantId> {
    let is_after = move |it: &ParticipantId| ServerIndex::of(*it) > own;
    let (after, before): (Vec<_>, Vec<_>) = servers.iter().partition(is_after);
    after.into_iter().chain(before)
}

/// A new seed. It is on the heap, so that no copy remains where it is moved.
fn random_seed(generator: &mut RandomGenerator) -> Result<Zeroizing<Vec<u8>>, RandomError> {
    let mut seed = Zeroizing::new(vec![0; SEED_LEN]);
    generator.fill(&mut seed)?;
    Ok(seed)
}

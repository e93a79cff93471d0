//! A server in the handover of a key that is shared by a polynomial, in one run: as a dealer, as a
//! receiver, or as both. When a key is generated, all servers are both. What takes long is a job.
//! `docs/protocols/quorum-ed25519.md` specifies it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
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
use super::handover_job::{
    DealOutcome, DealTask, HandoverOutcome, HandoverTask, MovingReceiver, ReceiveTask, RunReceiver,
};
use super::handover_step::EncodedHandoverStep;
use super::manifest::DealingRound;
use super::message::{CommonValue, RefreshMessage};
use super::output::{RefreshDelays, RefreshJob, RefreshOutput, RefreshTask, RunItemName};
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
    /// Shared with the job that computes its dealing.
    dealer: Option<Arc<HandoverDealer<S>>>,
    turns: DealingTurns,
    /// When its turn to deal comes.
    deals_at: Option<Duration>,
    /// Whether a job computes its dealing.
    is_dealing: bool,
    /// Its dealing. It stays the same when other new servers register, because it is large.
    deal: Option<(Sha256Digest, LogEntry)>,
    /// Whether it wants its dealing committed.
    wants_deal: bool,
    /// Since when it has rows that it does not say it holds, because they are too few for a choice,
    /// and until when.
    few_rows_since: Option<Duration>,
    holds_at: Option<Duration>,
    /// Its index in the new group.
    receiver_index: Option<ServerIndex>,
    receiver: Option<RunReceiver<S>>,
    /// The agreed state of which the wants below follow.
    seen: Option<Arc<HandoverAgreement<S>>>,
    /// Whether a job has ended since.
    has_result: bool,
    /// The entries that it wants committed as a receiver, by their digests.
    wanted_entries: BTreeMap<Sha256Digest, LogEntry>,
    /// The common values that it lacks: the dealer, and a server that has it. It asks f'+1 servers
    /// at a time, which the number counts.
    wanted_values: Vec<(ServerIndex, ServerIndex, u32)>,
    resend: Duration,
    retries: RetrySchedule<HandoverRetry>,
    outputs: Vec<(RefreshRole, RefreshOutput)>,
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

    /// Handles the result of one of its jobs.
    fn handle_job(&mut self, outcome: Box<dyn HandoverOutcome>);

    /// What tells whether the secrets of a role are in memory: even when this is dropped, a job may
    /// use them.
    fn in_use(&self, role: RefreshRole) -> Option<Weak<dyn Any + Send + Sync>>;
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
            is_dealing: false,
            deal: None,
            wants_deal: false,
            few_rows_since: None,
            holds_at: None,
            receiver_index,
            receiver: None,
            seen: None,
            has_result: false,
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
            let mut receiver = receiver.map_err(|why| MalformedEncoding(why.0))?;
            let voting = Arc::new(VotingSecret::from_bytes(Zeroizing::new(*voting)));
            let held = receiver.held();
            // The log may end the epoch next. What was saved is erased then, so the share that this
            // server may have confirmed must not be in a job.
            if handover.sharing().is_some() {
                receiver.handle_log(handover);
            }
            server.receiver = Some(RunReceiver::new(receiver, voting, Some(held)));
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
            self.receiver = receiver.map(|receiver| RunReceiver::new(receiver, voting, None));
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
            let dealer = HandoverDealer::new(handover.terms(), participant, share, seed);
            self.dealer = dealer.map(Arc::new);
            has_begun |= self.dealer.is_some();
        }
        wipe_stack();
        Ok(has_begun)
    }

    /// Saves the receiver's rows, if it has new ones.
    fn save_receiver(&mut self) {
        let Some(own) = &mut self.receiver else { return };
        let Some(receiver) = own.present() else { return };
        let held = receiver.held();
        if own.saved == Some(held) {
            return;
        }
        let state = receiver.to_bytes();
        own.saved = Some(held);
        let mut bytes = Zeroizing::new(Vec::with_capacity(32 + state.len()));
        bytes.extend(own.voting.to_bytes());
        bytes.extend_from_slice(&state);
        let save = RefreshOutput::Save { item: RunItemName::SessionKey, bytes };
        self.outputs.push((RefreshRole::New, save));
    }

    /// Has a job decrypt new rows, examine values and compute the share, if there is any of this.
    fn receive(&mut self, handover: &Arc<HandoverAgreement<S>>) {
        let Some(own) = &mut self.receiver else { return };
        let Some(held) = own.present().map(HandoverReceiver::held) else { return };
        own.values.retain(|(dealer, _), _| !held.contains(*dealer));
        let Some(receiver) = own.present() else { return };
        let is_new = own.examined.as_ref().is_none_or(|it| !Arc::ptr_eq(it, handover));
        let has_work = !own.values.is_empty() || is_new && receiver.has_work(handover);
        own.examined = Some(handover.clone());
        let Some(receiver) = own.receiver.take_if(|_| has_work) else { return };
        let (handover, values) = (handover.clone(), std::mem::take(&mut own.values));
        self.job(RefreshRole::New, ReceiveTask { receiver, handover, values });
    }

    fn job(&mut self, role: RefreshRole, task: impl HandoverTask + 'static) {
        let task = RefreshTask::Handover(Box::new(task));
        let job = RefreshOutput::Job(RefreshJob { scope_digest: self.run, task });
        self.outputs.push((role, job));
    }

    /// Computes what the server wants in a state of the log.
    fn want(
        &mut self,
        now: Duration,
        context: &HandoverContext<'_>,
        handover: &Arc<HandoverAgreement<S>>,
    ) {
        self.want_as_receiver(now, context, handover);
        self.want_to_deal(now, context, handover);
    }

    fn want_as_receiver(
        &mut self,
        now: Duration,
        context: &HandoverContext<'_>,
        handover: &HandoverAgreement<S>,
    ) {
        let (Some(own), Some(index)) = (&self.receiver, self.receiver_index) else { return };
        let Some(receiver) = own.present() else { return };
        self.wanted_values.clear();
        let mut before = std::mem::take(&mut self.wanted_entries);
        for (dealer, holders) in receiver.wanted_values(handover) {
            let dealer = ServerIndex::of(dealer);
            let at_once = handover.terms().new.signer_count();
            let values = in_turn(index, holders).enumerate().map(|(place, holder)| {
                let turn = u32::try_from(place / at_once).expect("there are 255 servers");
                (dealer, ServerIndex::of(holder), turn)
            });
            self.wanted_values.extend(values);
        }
        let needed = handover.terms().dealers().signer_count();
        let rows = receiver.held().without(handover.faulty_dealers()).len();
        let is_few = |step: &HandoverEntry<S>| {
            rows < needed && matches!(step.body, HandoverEntryBody::Hold(_))
        };
        let steps = receiver.wanted_entries(handover);
        // A row waits for those of other dealings, so that one entry names all.
        let has_few = steps.iter().any(is_few);
        self.few_rows_since = has_few.then(|| self.few_rows_since.unwrap_or(now));
        let holds_at = self.few_rows_since.map(|since| since + MAX_HOLD_DELAY);
        self.holds_at = holds_at.filter(|at| *at > now);
        let waits = self.holds_at.is_some();
        for step in steps.into_iter().filter(|step| !waits || !is_few(step)) {
            let digest = Sha256Digest::of(&[&step.to_bytes()]);
            let entry = before.remove(&digest);
            let entry = entry.unwrap_or_else(|| {
                let time = (step.kind() == HandoverEntryKind::Confirm).then_some(context.time);
                self.entry(index, EncodedHandoverStep::new(&step), time)
            });
            self.wanted_entries.insert(digest, entry);
        }
    }

    /// Wants its dealing committed, if it is its turn. A job computes the dealing.
    fn want_to_deal(
        &mut self,
        now: Duration,
        context: &HandoverContext<'_>,
        handover: &Arc<HandoverAgreement<S>>,
    ) {
        (self.deals_at, self.wants_deal) = (None, false);
        let (Some(dealer), Some(index)) = (&self.dealer, self.dealer_index) else { return };
        if !dealer.can_deal(handover) {
            return;
        }
        self.wants_deal = self.deal.is_some();
        if self.wants_deal || self.is_dealing {
            return;
        }
        let (dealers, faulty) = (handover.terms().dealers(), handover.faulty_dealers());
        let Some(own) = index.participant() else { return };
        let place = dealing_turns::place(own, dealers, faulty, approving(context.agreement));
        let turn = self.turns.turn(place, dealers);
        self.deals_at = turn.filter(|turn| *turn > now);
        if turn.is_none() || self.deals_at.is_some() {
            return;
        }
        let task = DealTask { dealer: Arc::clone(dealer), handover: Arc::clone(handover) };
        self.is_dealing = true;
        self.job(RefreshRole::Old, task);
    }

    fn entry(
        &self,
        author: ServerIndex,
        step: EncodedHandoverStep,
        time: Option<UnixSeconds>,
    ) -> LogEntry {
        let is_key = step.header().kind == HandoverEntryKind::Key;
        let own = self.receiver.as_ref().filter(|_| is_key);
        let voting = own.map(|own| Box::new(VotingKey::new(&own.voting, self.run, author)));
        LogEntry::new(author, LogEntryBody::Handover { step, voting, time }, &self.identity)
    }

    /// A job has computed the dealing. That of another dealer, of before, is ignored.
    fn handle_dealing(&mut self, outcome: DealOutcome<S>) {
        let is_own = self.dealer.as_ref().is_some_and(|own| Arc::ptr_eq(own, &outcome.dealer));
        let Some(index) = self.dealer_index.filter(|_| is_own) else { return };
        self.deal = outcome.step.map(|step| {
            let entry = self.entry(index, step, None);
            (Sha256Digest::of(&[&entry.to_bytes()]), entry)
        });
        (self.is_dealing, self.has_result) = (false, true);
    }

    /// Answers a server that asks for its common value of a dealing.
    fn answer_question(&mut self, dealer: ServerIndex, from: ServerIndex) {
        let receiver = self.receiver.as_ref().and_then(RunReceiver::present);
        let (Some(receiver), Some(of), Some(other)) =
            (receiver, dealer.participant(), from.participant())
        else {
            return;
        };
        if let Some(value) = receiver.common_value(of, other) {
            let value = CommonValue(S::encode_value(&value));
            let message = RefreshMessage::Value { run: self.run, dealer, value };
            let output = RefreshOutput::Send { to: (RefreshRole::New, from), message };
            self.outputs.push((RefreshRole::New, output));
        }
    }

    /// When it wants something else, unless a job ends or the log changes before.
    fn next_want(&self) -> Option<Duration> {
        // While a job has the receiver, this cannot be known.
        let is_present = self.receiver.as_ref().is_some_and(|own| own.receiver.is_some());
        self.holds_at.filter(|_| is_present).into_iter().chain(self.deals_at).min()
    }
}

impl<S: RunScheme> HandoverMachine for HandoverServer<S> {
    fn voting(&self) -> Option<&Arc<VotingSecret>> {
        self.receiver.as_ref().map(|it| &it.voting)
    }

    fn end_dealer(&mut self) {
        (self.dealer, self.dealer_index, self.saved_seed) = (None, None, None);
        (self.deals_at, self.wants_deal) = (None, false);
    }

    fn into_signer(self: Box<Self>) -> Option<KeySigner> {
        self.receiver?.receiver?.into_signer()
    }

    fn deadline(&self) -> Option<Duration> {
        self.retries.deadline().into_iter().chain(self.next_want()).min()
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
        let is_due = self.next_want().is_some_and(|at| at <= now);
        if has_begun || is_new {
            self.save_receiver();
            self.turns.observe(now, &dealing_state(handover));
            self.seen = Some(handover.clone());
        }
        let has_result = std::mem::take(&mut self.has_result);
        if has_result {
            // Values that have come meanwhile may be a reason for another job, which takes the
            // receiver again: others must not keep it from what follows from its rows.
            let examined = self.receiver.as_ref().and_then(|own| own.examined.clone());
            if let Some(examined) = examined {
                self.want_as_receiver(now, context, &examined);
            }
        }
        self.receive(handover);
        if has_result || has_begun || is_new || is_due {
            self.want(now, context, handover);
        }
        self.retries.begin_pass();
        let deal = self.deal.iter().filter(|_| self.wants_deal).map(|(digest, it)| (digest, it));
        for (digest, entry) in self.wanted_entries.iter().chain(deal) {
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
        let (Some(handover), Some(own)) = (&self.seen, &mut self.receiver) else { return };
        match message {
            RefreshMessage::AskValue { run, dealer } if *run == self.run => {
                if own.receiver.is_some() {
                    self.answer_question(*dealer, from);
                } else if dealer.participant().is_some_and(|it| handover.dealt().contains(it)) {
                    own.questions.insert((*dealer, from));
                }
            }
            // To examine a value takes long.
            RefreshMessage::Value { run, dealer, value }
                if *run == self.run
                    && self.wanted_values.iter().any(|it| (it.0, it.1) == (*dealer, from)) =>
            {
                if let (Some(dealer), Some(from), Some(value)) =
                    (dealer.participant(), from.participant(), S::decode_value(&value.0))
                {
                    own.values.entry((dealer, from)).or_insert(value);
                }
            }
            _ => {}
        }
    }

    fn handle_job(&mut self, outcome: Box<dyn HandoverOutcome>) {
        let outcome: Box<dyn Any> = outcome;
        let outcome = match outcome.downcast::<DealOutcome<S>>() {
            Ok(dealt) => return self.handle_dealing(*dealt),
            Err(outcome) => outcome,
        };
        let (Ok(moved), Some(own)) = (outcome.downcast::<MovingReceiver<S>>(), &mut self.receiver)
        else {
            return;
        };
        // Another one may have begun the same run again.
        if !Weak::ptr_eq(&own.in_use, &moved.in_use()) {
            return;
        }
        own.receiver = Some(moved);
        let questions = std::mem::take(&mut own.questions);
        self.save_receiver();
        for (dealer, from) in questions {
            self.answer_question(dealer, from);
        }
        self.has_result = true;
    }

    fn in_use(&self, role: RefreshRole) -> Option<Weak<dyn Any + Send + Sync>> {
        match role {
            RefreshRole::Old => {
                let dealer: Weak<HandoverDealer<S>> = Arc::downgrade(self.dealer.as_ref()?);
                Some(dealer)
            }
            RefreshRole::New => Some(self.receiver.as_ref()?.in_use.clone()),
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

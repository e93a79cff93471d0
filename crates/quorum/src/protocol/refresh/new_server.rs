//! What a server of the new group does in a refresh (thesis, 3.3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use keys::SecretKey;
use sharing::{Generator, RandomError};
use zeroize::Zeroizing;

use super::board::{Board, Run};
use super::dealing::{Dealing, Proofs, Verdict};
use super::entry::{Body, Complaint, Entry, Side};
use super::manifest::{Manifest, Round};
use super::message::Message;
use super::output::{Delays, Item, Job, JobResult, Outcome, Output, Owner, Shares, Task};
use super::possession::Witnesses;
use super::recovery::{self, Recovery};
use super::retries::Retries;
use super::session::SessionSecret;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::wire::{Digest, Malformed, Reader};

/// A new server in one run. Begins when it has verified the refresh header (new node, step 1) and
/// follows the log (step 2).
pub struct NewServer {
    index: ServerIndex,
    identity: Arc<SecretKey>,
    run: Digest,
    epoch: u64,
    old_witnesses: Arc<Witnesses>,
    delays: Delays,
    /// `r_j`. `None` when it is wiped.
    session: Option<Arc<SessionSecret>>,
    dealings: BTreeMap<(ServerIndex, Round), Received>,
    /// Proofs that were fetched by their digest.
    fetched: BTreeMap<Digest, Arc<Proofs>>,
    complaints: BTreeMap<ServerIndex, Entry>,
    witnesses: Progress<Arc<Witnesses>>,
    shares: Progress<Arc<Shares>>,
    computed: Progress<Entry>,
    recovery: Option<Recovery>,
    /// When to give up the run that has ended (5.2.2).
    give_up_at: Option<Duration>,
    retries: Retries<Purpose>,
    outputs: VecDeque<Output>,
    is_over: bool,
}

/// A dealing that an old server has sent.
struct Received {
    dealing: Dealing,
    state: ReceivedState,
}

enum ReceivedState {
    Waiting,
    InWork,
    Confirmed([u8; 64]),
    /// A ciphertext is wrong: a complaint is due.
    Wrong {
        label: Label,
        subshare: Label,
    },
    Refused,
}

/// What has to be computed once.
enum Progress<T> {
    Missing,
    InWork,
    Done(T),
}

impl<T> Progress<T> {
    fn done(&self) -> Option<&T> {
        if let Self::Done(value) = self { Some(value) } else { None }
    }

    fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    SessionKey,
    Complain(ServerIndex),
    Need,
    Fetch(Digest),
    Recover,
    Computed,
    GiveUp,
}

impl NewServer {
    /// A server of the new group in the open run of `board`. `old_witnesses` are those that the
    /// refresh header names. `saved` are the items that it saved in this run before it was
    /// restarted.
    ///
    /// # Errors
    /// If what was saved is malformed.
    ///
    /// # Panics
    /// If no run is open.
    pub fn new(
        index: ServerIndex,
        identity: Arc<SecretKey>,
        old_witnesses: Arc<Witnesses>,
        delays: &Delays,
        board: &Board,
        saved: &BTreeMap<Item, Zeroizing<Vec<u8>>>,
    ) -> Result<Self, Malformed> {
        let run = board.run().expect("a run is open");
        let mut server = Self {
            index,
            identity,
            run: run.id(),
            epoch: run.header().epoch,
            old_witnesses,
            delays: *delays,
            session: None,
            dealings: BTreeMap::new(),
            fetched: BTreeMap::new(),
            complaints: BTreeMap::new(),
            witnesses: Progress::Missing,
            shares: Progress::Missing,
            computed: Progress::Missing,
            recovery: None,
            give_up_at: None,
            retries: Retries::new(delays.resend),
            outputs: VecDeque::new(),
            is_over: false,
        };
        for (item, bytes) in saved {
            server.restore(*item, bytes, board, run)?;
        }
        Ok(server)
    }

    fn restore(
        &mut self,
        item: Item,
        bytes: &[u8],
        board: &Board,
        run: &Run,
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(bytes);
        match item {
            Item::SessionKey => {
                let bytes = Zeroizing::new(reader.array()?);
                self.session = Some(Arc::new(SessionSecret::from_bytes(&bytes)?));
            }
            Item::Dealing(dealer, round) => {
                let dealing = Dealing::read(&mut reader)?;
                let state = ReceivedState::Confirmed(self.confirm(dealing.proofs.digest));
                self.dealings.insert((dealer, round), Received { dealing, state });
            }
            Item::Shares => {
                let Message::Shares(answer) = Message::parse(bytes)? else {
                    return Err(Malformed("not shares"));
                };
                let (parameters, new) = (board.parameters(), run.group().combination());
                let count = new.label_count();
                let witnesses = Witnesses::parse(&answer.witnesses, count, &parameters.modulus);
                let share = |(&label, bytes): (&Label, &Zeroizing<Vec<u8>>)| {
                    Some((label, parameters.range.parse(bytes)?))
                };
                let shares: Option<Shares> = answer.shares.iter().map(share).collect();
                let is_own = |shares: &Shares| shares.keys().copied().eq(new.labels_of(self.index));
                let shares = shares.filter(is_own).ok_or(Malformed("not this server's shares"))?;
                let witnesses = witnesses.ok_or(Malformed("not witnesses"))?;
                self.witnesses = Progress::Done(Arc::new(witnesses));
                self.shares = Progress::Done(Arc::new(shares));
                return Ok(());
            }
            Item::Seed(_) => return Ok(()),
        }
        reader.finish()
    }

    /// Whether the run is over for this server: it needs the machine no more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether it has its shares.
    pub fn has_shares(&self) -> bool {
        self.shares.done().is_some()
    }

    /// Handles a message from a server of the old or new group.
    pub fn handle_message(
        &mut self,
        (side, from): (Side, ServerIndex),
        message: Message,
        board: &Board,
    ) {
        let Some(run) = board.run().filter(|run| run.id() == self.run) else { return };
        match (side, message) {
            // New node, step 3.
            (Side::Old, Message::Dealing(dealing)) => {
                self.handle_dealing(from, dealing, board, run);
            }
            (Side::New, Message::Fetch { digest }) => {
                if let Some(proofs) = self.proofs(digest) {
                    let message = Message::Proofs(proofs.clone());
                    self.outputs.push_back(Output::Send { to: (Side::New, from), message });
                }
            }
            (Side::New, Message::Proofs(proofs))
                if self.lacking(run, board).contains(&proofs.digest) =>
            {
                self.fetched.insert(proofs.digest, proofs);
            }
            (Side::New, Message::Ask { epoch, witnesses: with_witnesses }) => {
                let (Some(witnesses), Some(shares)) = (self.witnesses.done(), self.shares.done())
                else {
                    return;
                };
                if epoch == self.epoch && from != self.index && !self.is_over {
                    let witnesses = with_witnesses.then_some(&**witnesses);
                    let group = run.group().combination();
                    let message = recovery::answer(epoch, witnesses, shares, from, group);
                    self.outputs.push_back(Output::Send { to: (Side::New, from), message });
                }
            }
            (Side::New, Message::Shares(answer)) => {
                if let Some(recovery) = &mut self.recovery {
                    recovery.handle_answer(from, &answer);
                }
            }
            _ => {}
        }
    }

    /// Keeps one dealing of each dealer and round.
    fn handle_dealing(&mut self, from: ServerIndex, dealing: Dealing, board: &Board, run: &Run) {
        let manifest = &dealing.proofs.manifest;
        let key = (from, manifest.round);
        if let Some(known) = self.dealings.get(&key) {
            // The dealer did not get the confirmation, or sends another dealing.
            if let ReceivedState::Confirmed(signature) = known.state
                && known.dealing.proofs.digest == dealing.proofs.digest
            {
                self.send_confirmation(from, known.dealing.proofs.digest, signature);
            }
            return;
        }
        let old = &board.epoch().group;
        let delivery = &dealing.delivery;
        let message = Manifest::delivery(dealing.proofs.digest, self.index, &delivery.digests());
        let is_dealers = manifest.dealer == from
            && manifest.fits(run.id(), old.combination())
            && old.verify(from, &message, &delivery.signature);
        if is_dealers && self.session.is_some() && !run.excluded().contains(&from) {
            self.dealings.insert(key, Received { dealing, state: ReceivedState::Waiting });
        }
    }

    /// Takes the result of a job of this machine.
    pub fn handle_job(&mut self, result: JobResult) {
        match result.0 {
            Outcome::Verified { dealer, round, digest, verdict } => {
                let confirmation = self.confirm(digest);
                let Some(received) = self.dealings.get_mut(&(dealer, round)) else { return };
                received.state = match verdict {
                    Verdict::Right => ReceivedState::Confirmed(confirmation),
                    Verdict::WrongProofs => ReceivedState::Refused,
                    Verdict::WrongSubshare { label, subshare } => {
                        ReceivedState::Wrong { label, subshare }
                    }
                };
                // New node, step 6 (3.3.1): the confirmation goes to the dealer, after the dealing
                // is stored: others may need its proofs.
                if verdict == Verdict::Right {
                    let mut bytes = Zeroizing::new(Vec::new());
                    received.dealing.write(&mut bytes);
                    let item = Item::Dealing(dealer, round);
                    self.outputs.push_back(Output::Save { item, bytes });
                    self.send_confirmation(dealer, digest, confirmation);
                }
            }
            Outcome::NewWitnesses(Some(witnesses)) => {
                self.witnesses = Progress::Done(Arc::new(witnesses));
            }
            Outcome::NewShares(Some(shares)) if self.session.is_some() && !self.has_shares() => {
                self.shares = Progress::Done(Arc::new(shares));
            }
            Outcome::Possession(possession) => {
                if let Some(witnesses) = self.witnesses.done() {
                    let witnesses = witnesses.to_bytes();
                    let body = Body::Computed { run: self.run, witnesses, possession };
                    let entry = Entry::new(self.index, body, &self.identity);
                    self.computed = Progress::Done(entry);
                }
            }
            Outcome::Checked { .. } => {
                if let Some(recovery) = &mut self.recovery {
                    recovery.handle_job(result);
                }
            }
            _ => {}
        }
    }

    /// What to do next. Asked again until there is nothing; and again after each input, each entry
    /// of the log, and [`Self::deadline`].
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn poll_output(
        &mut self,
        now: Duration,
        board: &Board,
        generator: &mut Generator,
    ) -> Result<Option<Output>, RandomError> {
        if self.outputs.is_empty() && !self.is_over {
            self.retries.begin_pass();
            self.step(now, board, generator)?;
        }
        Ok(self.outputs.pop_front())
    }

    /// The time at which to ask again.
    pub fn deadline(&self) -> Option<Duration> {
        if self.is_over {
            return None;
        }
        let recovery = self.recovery.as_ref().and_then(Recovery::deadline);
        [self.retries.deadline(), recovery].into_iter().flatten().min()
    }

    fn step(
        &mut self,
        now: Duration,
        board: &Board,
        generator: &mut Generator,
    ) -> Result<(), RandomError> {
        let Some(run) = board.run().filter(|run| run.id() == self.run) else {
            self.end(false);
            return Ok(());
        };
        if let Some(next) = run.next_epoch() {
            if self.begin_epoch(run) {
                return Ok(());
            }
            // The timer of 5.2.2.
            let give_up_at = *self.give_up_at.get_or_insert(now + self.delays.grace);
            let delay = give_up_at.saturating_sub(now);
            if self.retries.is_due_after(Purpose::GiveUp, now, delay) || give_up_at <= now {
                self.forget();
            }
            debug_assert_eq!(next.epoch, self.epoch);
        } else {
            self.register_session_key(now, run, generator)?;
        }
        if self.session.is_some() {
            self.check_dealings(board, run);
            self.complain(now, run, generator)?;
            self.say_need(now, board, run);
            self.compute(now, board, run);
        }
        self.recover(now, board, run);
        self.say_computed(now, board, run);
        Ok(())
    }

    /// Refresh, step 2 of the specification.
    fn register_session_key(
        &mut self,
        now: Duration,
        run: &Run,
        generator: &mut Generator,
    ) -> Result<(), RandomError> {
        let secret = if let Some(secret) = &self.session {
            secret.clone()
        } else {
            let secret = Arc::new(SessionSecret::random(generator)?);
            let bytes = Zeroizing::new(secret.to_bytes().to_vec());
            self.outputs.push_back(Output::Save { item: Item::SessionKey, bytes });
            self.session = Some(secret.clone());
            secret
        };
        let is_registered = run.session_keys().contains_key(&self.index);
        if !is_registered && self.retries.is_due(Purpose::SessionKey, now) {
            let body = Body::SessionKey { run: self.run, key: secret.public() };
            self.submit(body);
        }
        Ok(())
    }

    /// New node, steps 4 and 5.
    fn check_dealings(&mut self, board: &Board, run: &Run) {
        let Some(owner) = self.owner(board, run) else { return };
        for received in self.dealings.values_mut() {
            if matches!(received.state, ReceivedState::Waiting) {
                received.state = ReceivedState::InWork;
                self.outputs.push_back(Output::Job(Job(Task::Verify {
                    dealing: received.dealing.clone(),
                    witnesses: self.old_witnesses.clone(),
                    owner: owner.clone(),
                })));
            }
        }
    }

    fn complain(
        &mut self,
        now: Duration,
        run: &Run,
        generator: &mut Generator,
    ) -> Result<(), RandomError> {
        let Some(session) = &self.session else { return Ok(()) };
        for received in self.dealings.values_mut() {
            let ReceivedState::Wrong { label, subshare } = received.state else { continue };
            received.state = ReceivedState::Refused;
            let dealing = &received.dealing;
            let complaint = complaint(dealing, (label, subshare), self.index, session, generator)?;
            let dealer = complaint.manifest.dealer;
            let body = Body::Complaint { run: self.run, complaint: Box::new(complaint) };
            self.complaints.insert(dealer, Entry::new(self.index, body, &self.identity));
        }
        for (&dealer, entry) in &self.complaints {
            if !run.excluded().contains(&dealer)
                && self.retries.is_due(Purpose::Complain(dealer), now)
            {
                self.outputs.push_back(Output::Submit(entry.clone()));
            }
        }
        Ok(())
    }

    /// The request for dealings of all labels (3.3.1).
    fn say_need(&mut self, now: Duration, board: &Board, run: &Run) {
        let old = board.epoch().group.combination();
        if run.next_epoch().is_some() || run.read_chosen(old).is_some() {
            return;
        }
        let delay = self.delays.need;
        if self.retries.is_due_after(Purpose::Need, now, delay) {
            for server in old.servers() {
                let message = Message::Need { run: self.run };
                self.outputs.push_back(Output::Send { to: (Side::Old, server), message });
            }
        }
    }

    /// New node, step 7.
    fn compute(&mut self, now: Duration, board: &Board, run: &Run) {
        let old = board.epoch().group.combination();
        let Some(chosen) = run.read_chosen(old) else { return };
        let (new, parameters) = (run.group().combination().clone(), board.parameters().clone());
        if self.witnesses.is_missing() {
            let proofs: Option<Vec<_>> =
                chosen.iter().map(|&digest| self.proofs(digest).cloned()).collect();
            if let Some(chosen) = proofs {
                self.witnesses = Progress::InWork;
                let task = Task::NewWitnesses { chosen, new, parameters };
                self.outputs.push_back(Output::Job(Job(task)));
            }
            for digest in self.lacking(run, board) {
                // The dealing itself may still be on its way.
                let delay = self.delays.resend;
                if self.retries.is_due_after(Purpose::Fetch(digest), now, delay) {
                    for to in run.group().combination().servers().filter(|&to| to != self.index) {
                        let message = Message::Fetch { digest };
                        self.outputs.push_back(Output::Send { to: (Side::New, to), message });
                    }
                }
            }
        }
        if self.shares.is_missing() {
            let confirmed = |&digest: &Digest| {
                let is_meant = |it: &&Received| {
                    it.dealing.proofs.digest == digest
                        && matches!(it.state, ReceivedState::Confirmed(_))
                };
                self.dealings.values().find(is_meant).map(|it| it.dealing.clone())
            };
            let chosen: Option<Vec<_>> = chosen.iter().map(confirmed).collect();
            if let (Some(chosen), Some(owner)) = (chosen, self.owner(board, run)) {
                self.shares = Progress::InWork;
                self.outputs.push_back(Output::Job(Job(Task::NewShares { chosen, owner })));
            }
        }
    }

    /// Recovers the shares that it cannot compute.
    fn recover(&mut self, now: Duration, board: &Board, run: &Run) {
        if !self.shares.is_missing() {
            self.recovery = None;
            return;
        }
        let witnesses = run.read_new_witnesses().or(self.witnesses.done());
        let Some(witnesses) = witnesses.cloned() else { return };
        // The missing dealing may still be on its way.
        if self.recovery.is_none()
            && !self.retries.is_due_after(Purpose::Recover, now, self.delays.resend)
            && self.session.is_some()
        {
            return;
        }
        let recovery = self.recovery.get_or_insert_with(|| {
            let group = run.group().combination().clone();
            let parameters = board.parameters().clone();
            let digest = Some(witnesses.digest());
            Recovery::new(self.index, self.epoch, group, parameters, digest, &self.delays)
                .with_witnesses(witnesses)
        });
        while let Some(output) = recovery.poll_output(now) {
            self.outputs.push_back(output);
        }
        if let Some((witnesses, shares)) = recovery.take() {
            self.witnesses = Progress::Done(witnesses);
            self.shares = Progress::Done(Arc::new(shares));
            self.recovery = None;
        }
    }

    /// New node, step 8.
    fn say_computed(&mut self, now: Duration, board: &Board, run: &Run) {
        let (Some(witnesses), Some(shares)) = (self.witnesses.done(), self.shares.done()) else {
            return;
        };
        if run.next_epoch().is_some() {
            self.begin_epoch(run);
            return;
        }
        match &self.computed {
            Progress::Missing => {
                let bytes = recovery::save(witnesses, shares);
                self.outputs.push_back(Output::Save { item: Item::Shares, bytes });
                self.outputs.push_back(Output::Job(Job(Task::Possess {
                    run: self.run,
                    witnesses: witnesses.digest(),
                    shares: shares.clone(),
                    owner: self.index,
                    parameters: board.parameters().clone(),
                })));
                self.computed = Progress::InWork;
            }
            Progress::InWork => {}
            Progress::Done(entry) => {
                if !run.has_computed(self.index) && self.retries.is_due(Purpose::Computed, now) {
                    self.outputs.push_back(Output::Submit(entry.clone()));
                }
            }
        }
    }

    /// New node, step 9: 2f'+1 new servers have computed. Whether this one has its shares, too.
    fn begin_epoch(&mut self, run: &Run) -> bool {
        let (Some(header), Some(witnesses), Some(shares)) =
            (run.next_epoch(), run.read_new_witnesses(), self.shares.done())
        else {
            return false;
        };
        let (header, witnesses, shares) = (header.clone(), witnesses.clone(), shares.clone());
        self.outputs.push_back(Output::Begin { header, witnesses, shares });
        self.end(false);
        true
    }

    /// Wipes the session key and everything that it opens.
    fn forget(&mut self) {
        if self.session.take().is_some() {
            self.dealings.clear();
            self.fetched.clear();
            self.complaints.clear();
            self.outputs.push_back(Output::Erase { epoch_ended: false });
        }
    }

    /// Wipes everything secret.
    fn end(&mut self, epoch_ended: bool) {
        self.session = None;
        self.dealings.clear();
        self.fetched.clear();
        self.complaints.clear();
        self.recovery = None;
        self.shares = Progress::Missing;
        self.outputs.push_back(Output::Erase { epoch_ended });
        self.is_over = true;
    }

    fn owner(&self, board: &Board, run: &Run) -> Option<Owner> {
        Some(Owner {
            index: self.index,
            session: self.session.clone()?,
            new: run.group().combination().clone(),
            parameters: board.parameters().clone(),
        })
    }

    /// The proofs with a digest, if this server has them.
    fn proofs(&self, digest: Digest) -> Option<&Arc<Proofs>> {
        let mut received = self.dealings.values().map(|received| &received.dealing.proofs);
        received.find(|proofs| proofs.digest == digest).or_else(|| self.fetched.get(&digest))
    }

    /// The digests of chosen dealings of which it lacks the proofs.
    fn lacking(&self, run: &Run, board: &Board) -> BTreeSet<Digest> {
        let chosen = run.read_chosen(board.epoch().group.combination()).unwrap_or_default();
        chosen.into_iter().filter(|&digest| self.proofs(digest).is_none()).collect()
    }

    fn confirm(&self, digest: Digest) -> [u8; 64] {
        self.identity.sign(&Manifest::confirmation(digest))
    }

    fn send_confirmation(&mut self, to: ServerIndex, digest: Digest, signature: [u8; 64]) {
        let message = Message::Confirmation { digest, signature };
        self.outputs.push_back(Output::Send { to: (Side::Old, to), message });
    }

    fn submit(&mut self, body: Body) {
        self.outputs.push_back(Output::Submit(Entry::new(self.index, body, &self.identity)));
    }
}

/// The evidence that a subshare (t, u) of a dealing is wrong.
pub(super) fn complaint(
    dealing: &Dealing,
    (label, subshare): (Label, Label),
    index: ServerIndex,
    session: &SessionSecret,
    generator: &mut Generator,
) -> Result<Complaint, RandomError> {
    let Dealing { proofs, delivery } = dealing;
    let row = proofs.manifest.labels().position(|it| it == label).expect("the row was checked");
    let agreed = session.agree(&proofs.manifest.ephemeral);
    let context = Complaint::context(proofs.digest, index);
    let proof = session.prove(&proofs.manifest.ephemeral, &agreed, &context, generator)?;
    Ok(Complaint {
        manifest: proofs.manifest.clone(),
        label,
        subshare,
        proofs: proofs.rows[row].clone(),
        ciphertexts: delivery.digests(),
        delivery: delivery.signature,
        ciphertext: delivery.ciphertexts[row].clone(),
        agreed,
        proof,
    })
}

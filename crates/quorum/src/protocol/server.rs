//! A server of a group, without input and output: it composes signing, the board of refreshes, the
//! machines of a refresh, and recovery. The driver hands it messages, committed entries, requests
//! of local users, results of jobs and the time, and does what [`Server::poll_output`] says.

mod answering;
mod change;
mod epoch;
mod inviting;
mod machines;
mod output;
mod questions;
mod refreshing;
mod signing;
mod start;
#[cfg(test)]
mod tests;
mod voting;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::{PublicKey, RsaPublicKey, SecretKey};
use sharing::{Generator, RandomError};

pub use change::{Change, EncodedShares, Saved};
pub use output::{
    Behind, EpochStatus, Event, Job, JobResult, Output, RequestId, RunStatus, SignRefusal, Status,
    Timeouts,
};
pub(crate) use start::chain_to_bytes;
use start::has_same_headers;
pub use start::{SignedHeader, Start, StartError};

use crate::protocol::agreed::{Committed, Height, LogLife};
use crate::protocol::group::{Group, Member};
use crate::protocol::link::{Lane, Topic};
use crate::protocol::policy::{MessageDigest, Rule};
use crate::protocol::refresh::{Delays, Entry, Run};
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::Malformed;
use answering::Answering;
use epoch::Epoch;
use inviting::Newer;
use machines::{Ended, dealer_items};
use output::{Outcome, Task};
use signing::{OwnRequest, Postponed, Waiting};

/// What an operator configures.
pub struct Settings {
    /// The key by which other servers authenticate this one.
    pub identity: Arc<SecretKey>,
    /// The group's public key.
    pub public: RsaPublicKey,
    /// Messages that are signed without being registered.
    pub rules: Vec<Rule>,
    /// How long servers wait in a refresh.
    pub delays: Delays,
    /// How long they wait in signing.
    pub timeouts: Timeouts,
    /// How many answers are computed at a time, at least one.
    pub processors: usize,
}

/// What a server has saved is not the state of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// Its start does not verify.
    #[error("the saved state is not that of a group with this key: {0}")]
    Start(#[from] StartError),
    /// Its shares are malformed or not those of this server.
    #[error("the saved shares of epoch {0} are not this server's: is this its identity key?")]
    Shares(u64),
    /// Its entries or items are malformed.
    #[error("the saved state is damaged: {0}")]
    Malformed(#[from] Malformed),
}

/// A refresh is not started or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefreshRefusal {
    /// This server is not in the group of the current epoch.
    #[error("this server is not in the group that has the key")]
    NoMember,
    /// A refresh to another group is open or approved here.
    #[error(
        "another refresh is under way, or approved here: give it up at f+1 servers first, with \
         `sunder quorum refresh --cancel`"
    )]
    UnderWay,
    /// There is none.
    #[error("no refresh is under way")]
    None,
}

/// A server.
pub struct Server {
    settings: Settings,
    registered: HashSet<MessageDigest>,
    height: Height,
    /// The epoch that it follows; `None` while it waits to be invited.
    epoch: Option<Box<Epoch>>,
    /// The refresh by which this epoch began, while it is not over for this server.
    ended: Option<Box<Ended>>,
    /// The life of the log's file, once the log is open.
    life: Option<LogLife>,
    /// The voting key that was saved for this epoch, until then.
    saved_voting: Option<(Option<LogLife>, VotingSecret)>,
    /// An epoch that has begun and that it has not entered.
    newer: Option<Newer>,
    requests: BTreeMap<u64, OwnRequest>,
    /// Requests that wait for the servers of the epoch that has just begun.
    postponed: Vec<Postponed>,
    next_request: u64,
    /// Requests of local users that wait for those.
    waiting: VecDeque<Waiting>,
    answering: Answering,
    /// What the operator wants of the log, until it is committed.
    wish: Option<Wish>,
    wish_at: Duration,
    peers: Vec<Member>,
    changes: Vec<Change>,
    outputs: VecDeque<Output>,
}

/// What an operator wants of the log.
#[derive(Clone)]
enum Wish {
    Approve(Group),
    Cancel,
}

impl Server {
    /// A server with what it saved, which is nothing at its first start unless the ceremony gave
    /// it a start and shares. `registered` are the messages that it may sign.
    ///
    /// # Errors
    /// When what was saved does not fit the settings, or is malformed.
    pub fn new(
        settings: Settings,
        mut saved: Saved,
        registered: HashSet<MessageDigest>,
        now: Duration,
    ) -> Result<Self, SavedError> {
        let mut server = Self {
            settings,
            registered,
            height: saved.height,
            epoch: None,
            ended: None,
            life: None,
            saved_voting: None,
            newer: None,
            requests: BTreeMap::new(),
            postponed: Vec::new(),
            next_request: 0,
            waiting: VecDeque::new(),
            answering: Answering::default(),
            wish: None,
            wish_at: now,
            peers: Vec::new(),
            changes: Vec::new(),
            outputs: VecDeque::new(),
        };
        let newer = saved.newer.take().filter(|chain| {
            let own = saved.start.as_ref().map_or(&[][..], |start| &start.chain);
            own.len() <= chain.len() && !has_same_headers(own, chain)
        });
        if let Some(start) = saved.start.take() {
            let shares = saved.shares.remove(&start.header().epoch).filter(|_| newer.is_none());
            let voting = saved.voting.remove(&start.header().epoch).filter(|_| newer.is_none());
            server.saved_voting = voting.map(|(life, it)| (life, VotingSecret::from_bytes(it)));
            server.begin_epoch(start, true, now)?;
            if let Some(shares) = shares {
                server.restore_shares(&shares)?;
            }
            server.restore_run(&saved, now)?;
        }
        if let Some(chain) = newer {
            server.set_newer(now, chain);
        }
        let ended: BTreeSet<u64> =
            saved.shares.into_keys().chain(saved.voting.into_keys()).collect();
        for epoch in ended {
            server.changes.push(Change::End { epoch });
        }
        let run = server.epoch.as_ref().and_then(|epoch| epoch.board.run()).map(Run::id);
        let kept = [run, run.map(dealer_items)];
        for id in saved.items.into_keys().filter(|id| !kept.contains(&Some(*id))) {
            server.changes.push(Change::EraseRun { run: id });
        }
        if server.epoch.is_some() {
            server.follow();
        }
        Ok(server)
    }

    /// What to do next. Asked again until there is nothing; and again after each input and at
    /// [`Self::deadline`].
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn poll_output(
        &mut self,
        now: Duration,
        generator: &mut Generator,
    ) -> Result<Option<Output>, RandomError> {
        if self.outputs.is_empty() {
            self.step(now, generator)?;
            self.flush();
        }
        Ok(self.outputs.pop_front())
    }

    /// The time at which to ask again.
    pub fn deadline(&self) -> Option<Duration> {
        let requests = self.requests.values().filter_map(|it| it.request.poll_timeout());
        let postponed = self.postponed.iter().map(|it| it.at);
        let waiting = self.waiting.front().map(|it| it.deadline);
        let requests = requests.chain(postponed).chain(waiting);
        let wish = self.wish.as_ref().map(|_| self.wish_at);
        let refresh = self.refresh_deadlines().chain(self.newer_deadline());
        let headers = self.header_deadlines();
        requests.chain(wish).chain(refresh).chain(headers).chain(self.voting_deadline()).min()
    }

    /// Handles a message of another server, which its link has authenticated. `queued` urgent bytes
    /// wait to be sent to that server.
    pub fn handle_message(
        &mut self,
        now: Duration,
        from: &PublicKey,
        topic: Topic,
        bytes: &[u8],
        queued: usize,
    ) {
        let handled = match topic {
            Topic::Signing => self.handle_signing(now, from, bytes, queued),
            Topic::Refresh => self.handle_refresh(now, from, bytes),
            Topic::Log => Err(Malformed("the log's messages are not the server's")),
        };
        if let Err(why) = handled {
            self.event(Event::MessageRefused { from: *from, why: why.to_string() });
        }
    }

    /// There is a link with another server: what was sent to it before may be lost.
    pub fn handle_link_up(&mut self, server: &PublicKey) {
        self.invite(Some(server));
    }

    /// Applies the next height of the log. A height that was applied before changes nothing.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn handle_committed(
        &mut self,
        now: Duration,
        committed: &Committed,
        generator: &mut Generator,
    ) -> Result<(), RandomError> {
        if self.epoch.is_none() {
            return Ok(());
        }
        let height = committed.height;
        if height > self.height {
            self.height = height;
            self.log_goes_on(now);
            self.apply_all(now, height, &committed.entries, generator)?;
        }
        self.say_applied(height);
        Ok(())
    }

    /// Takes the result of a job.
    pub fn handle_job(&mut self, now: Duration, result: JobResult) {
        match result.0 {
            Outcome::Answer { asker, epoch, message, answer } => {
                self.answered(now, asker, epoch, message, answer);
            }
            Outcome::Refresh { machine, result } => self.handle_refresh_job(machine, result),
        }
    }

    /// The operator has changed the settings. The delays are those of the next refresh, the time
    /// for a signature that of the next request.
    pub fn reconfigure(&mut self, rules: Vec<Rule>, delays: Delays, timeouts: Timeouts) {
        let settings = &mut self.settings;
        (settings.rules, settings.delays, settings.timeouts) = (rules, delays, timeouts);
    }

    /// The driver has registered a message, so that it may be signed.
    pub fn registered(&mut self, message: MessageDigest) {
        self.registered.insert(message);
    }

    /// A registration was evicted.
    pub fn unregistered(&mut self, message: &MessageDigest) {
        self.registered.remove(message);
    }

    /// Approves a refresh to a group, for this server's operator.
    ///
    /// # Errors
    /// When this server is not a member, or another refresh is under way.
    pub fn start_refresh(&mut self, group: Group, now: Duration) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        let approved = epoch.index.and_then(|index| epoch.board.approvals().get(&index));
        let wanted = match (epoch.board.run(), &self.wish) {
            (Some(run), _) => Some(run.group()),
            (None, Some(Wish::Approve(wanted))) => Some(wanted),
            (None, Some(Wish::Cancel)) => return Err(RefreshRefusal::UnderWay),
            (None, None) => approved,
        };
        match wanted {
            Some(wanted) if *wanted == group => Ok(()),
            Some(_) => Err(RefreshRefusal::UnderWay),
            None => {
                (self.wish, self.wish_at) = (Some(Wish::Approve(group)), now);
                Ok(())
            }
        }
    }

    /// Gives up the refresh that is under way, for this server's operator. It ends when f+1 have.
    ///
    /// # Errors
    /// When this server is not a member, or there is none.
    pub fn cancel_refresh(&mut self, now: Duration) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        if epoch.board.run().is_none() && !epoch.board.has_approvals() && self.wish.is_none() {
            return Err(RefreshRefusal::None);
        }
        (self.wish, self.wish_at) = (Some(Wish::Cancel), now);
        Ok(())
    }

    /// Where this server follows its group from: the chain of epochs and the witnesses.
    pub fn start(&self) -> Option<&Start> {
        self.epoch.as_ref().map(|epoch| &epoch.start)
    }

    /// How the server is placed and how far it is.
    pub fn status(&self) -> Status {
        let epoch = self.epoch.as_ref().map(|epoch| epoch.status());
        let requests = self.requests.len() + self.waiting.len();
        let (height, behind) = (self.height, self.behind());
        Status { height, epoch, behind, requests, has_wish: self.wish.is_some() }
    }

    fn step(&mut self, now: Duration, generator: &mut Generator) -> Result<(), RandomError> {
        self.step_newer(now);
        self.step_requests(now);
        self.step_headers(now);
        self.step_wish(now);
        self.step_recovery();
        self.step_voting(now, generator)?;
        self.step_refresh(now, generator)
    }

    /// Submits what the operator wants, again until it is committed.
    fn step_wish(&mut self, now: Duration) {
        let (Some(wish), Some(epoch)) = (&self.wish, &self.epoch) else { return };
        let Some(index) = epoch.index.filter(|_| self.wish_at <= now) else { return };
        let identity = &self.settings.identity;
        let entry = match wish {
            Wish::Approve(group) => epoch.board.approval(index, group.clone(), identity),
            Wish::Cancel => epoch.board.cancellation(index, identity),
        };
        self.wish_at = now + self.settings.timeouts.again;
        self.submit(&entry);
    }

    fn submit(&mut self, entry: &Entry) {
        self.push(Output::Submit(entry.to_bytes().into()));
    }

    fn send(&mut self, to: PublicKey, topic: Topic, bytes: impl Into<Bytes>) {
        let lane = if topic == Topic::Signing { Lane::Urgent } else { Lane::Bulk };
        self.push(Output::Send { to, topic, lane, bytes: bytes.into() });
    }

    fn job(&mut self, task: Task) {
        self.push(Output::Job(Job(task)));
    }

    /// Reports something. That need not wait for what is to be saved.
    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// An output, after what is to be saved before it.
    fn push(&mut self, output: Output) {
        self.flush();
        self.outputs.push_back(output);
    }

    fn flush(&mut self) {
        if !self.changes.is_empty() {
            self.outputs.push_back(Output::Save(std::mem::take(&mut self.changes)));
        }
    }

    /// Opens the log where this server is.
    fn follow(&mut self) {
        self.tell_peers();
        self.push(Output::Log { applied: self.height });
    }
}

//! One group at the proxy: its lock, its timer, and the outboxes of its connections.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use keys::PublicKey;
use service::log::LogRateLimiter;
use tracing::{debug, error, info};
use transport::{Messages, Reader};

use super::super::outbox::{Outbox, STACK_LEN};
use super::super::state::StateFolder;
use super::config::GroupConfig;
use super::status::GroupStatus;
use super::workers::Workers;
use super::{ProxyError, lock};
use crate::Mailbox;
use crate::group::{Group, GroupEvent, GroupSettings, Transmit};
use crate::wire::{Refusal, ToMember};

/// How many lines of a group are logged in 10 s.
const MAX_LINES: u32 = 100;

/// What a proxy has of a client.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A message, of which it sees the length, and the time.
    Message {
        /// Its bytes.
        len: usize,
    },
    /// The member's update of a round, which it adds to the mailbox.
    Update(Mailbox),
}

/// Who looks at what a proxy has.
type Observer = Box<dyn FnMut(PublicKey, Seen) + Send>;

/// A group that runs until it is stopped.
pub(super) struct GroupRunner {
    config: GroupConfig,
    file: String,
    folder: Arc<StateFolder>,
    workers: Workers,
    core: Mutex<Core>,
    /// Wakes the timer when the next deadline has changed.
    rearmed: Condvar,
}

/// What the lock protects.
struct Core {
    group: Group,
    outboxes: HashMap<u64, Outbox>,
    keys: HashMap<u64, PublicKey>,
    observer: Option<Observer>,
    /// What the timer waits for.
    deadline: Option<Instant>,
    is_stopped: bool,
    slow: u64,
    failures: LogRateLimiter,
    events: LogRateLimiter,
}

impl fmt::Debug for GroupRunner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GroupRunner").field("config", &self.config).finish_non_exhaustive()
    }
}

impl GroupRunner {
    /// Reads the group's state, and starts its timer.
    ///
    /// # Errors
    /// When the state cannot be read, or the system gives no thread.
    pub(super) fn start(
        config: GroupConfig,
        folder: Arc<StateFolder>,
        workers: Workers,
    ) -> Result<Arc<Self>, ProxyError> {
        let file = format!("{}.group", config.name);
        let stored = folder.read(&file)?;
        let settings = GroupSettings {
            name: config.name.clone(),
            administrator: config.administrator,
            terms: config.terms,
        };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(ProxyError::Random)?;
        let group = Group::new(settings, stored.as_deref().map(|it| &it[..]), seed);
        let group = group.map_err(|error| ProxyError::Stored {
            path: folder.path().join(&file),
            reason: error.to_string(),
        })?;
        let core = Core {
            group,
            outboxes: HashMap::new(),
            keys: HashMap::new(),
            observer: None,
            deadline: None,
            is_stopped: false,
            slow: 0,
            failures: LogRateLimiter::default(),
            events: LogRateLimiter::default(),
        };
        let runner = Arc::new(Self {
            config,
            file,
            folder,
            workers,
            core: Mutex::new(core),
            rearmed: Condvar::new(),
        });
        let timer = runner.clone();
        let builder = thread::Builder::new().name("mix-timer".into()).stack_size(STACK_LEN);
        builder.spawn(move || timer.run_timer()).map_err(ProxyError::Threads)?;
        Ok(runner)
    }

    /// Its settings.
    pub(super) fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// A client of this key has asked for the group.
    pub(super) fn connected(self: &Arc<Self>, id: u64, key: PublicKey, outbox: Outbox) {
        let mut core = lock(&self.core);
        if core.is_stopped {
            return;
        }
        core.outboxes.insert(id, outbox);
        core.keys.insert(id, key);
        core.group.handle_connected(Instant::now(), id, key);
        self.drive(&mut core);
    }

    /// Takes the messages of a client until its connection ends. Returns why.
    pub(super) fn read(self: &Arc<Self>, id: u64, messages: &mut Messages<Reader>) -> io::Error {
        let max = self.config.terms.max_to_proxy_len();
        loop {
            let message = match messages.receive(max) {
                Ok(Some(message)) => message,
                Ok(None) => return io::ErrorKind::UnexpectedEof.into(),
                Err(error) => return error,
            };
            let mut core = lock(&self.core);
            if !core.outboxes.contains_key(&id) {
                return io::Error::other("the proxy has ended the connection");
            }
            core.observe(id, || Seen::Message { len: message.len() });
            core.group.handle_message(Instant::now(), id, &message);
            self.drive(&mut core);
        }
    }

    /// A connection has ended.
    pub(super) fn disconnected(self: &Arc<Self>, id: u64) {
        let mut core = lock(&self.core);
        core.outboxes.remove(&id);
        core.keys.remove(&id);
        core.group.handle_disconnected(Instant::now(), id);
        self.drive(&mut core);
    }

    /// Stores the state, tells all members that the proxy ends, and closes their connections when
    /// they have been told, or at the deadline.
    pub(super) fn stop(&self, deadline: Instant) {
        let mut core = lock(&self.core);
        core.is_stopped = true;
        self.store(&mut core);
        let outboxes: Vec<_> = core.outboxes.drain().map(|(_, outbox)| outbox).collect();
        drop(core);
        self.rearmed.notify_all();
        let last = ToMember::Refused(Refusal::Stopping).encode();
        let told = outboxes.into_iter().filter(|outbox| outbox.send(last.clone()));
        for outbox in told.collect::<Vec<_>>() {
            outbox.finish(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Shows what it has from now on.
    pub(super) fn observe(&self, observer: impl FnMut(PublicKey, Seen) + Send + 'static) {
        lock(&self.core).observer = Some(Box::new(observer));
    }

    /// What it has done so far.
    pub(super) fn status(&self) -> GroupStatus {
        let core = lock(&self.core);
        status(&core.group.status(Instant::now()), &core, &self.config)
    }

    fn run_timer(self: Arc<Self>) {
        let mut core = lock(&self.core);
        while !core.is_stopped {
            let now = Instant::now();
            core = match core.group.poll_timeout() {
                Some(deadline) if deadline <= now => {
                    core.group.handle_timeout(now);
                    self.drive(&mut core);
                    core
                }
                deadline => {
                    core.deadline = deadline;
                    let left = deadline.map(|deadline| deadline - now);
                    self.wait(core, left)
                }
            };
        }
    }

    fn wait<'a>(&self, core: MutexGuard<'a, Core>, left: Option<Duration>) -> MutexGuard<'a, Core> {
        match left {
            None => self.rearmed.wait(core).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let waited = self.rearmed.wait_timeout(core, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Stores, sends and computes what the group asks for.
    fn drive(self: &Arc<Self>, core: &mut Core) {
        self.store(core);
        while let Some(Transmit { connection, message, is_last }) = core.group.poll_transmit() {
            let Some(outbox) = core.outboxes.get(&connection) else { continue };
            let is_taken = outbox.send(message);
            if !is_taken {
                debug!(connection, "closed: it does not read in time");
                core.slow += 1;
            }
            // The thread that reads from it says so to the group.
            if is_last || !is_taken {
                core.outboxes.remove(&connection);
            }
        }
        while let Some(job) = core.group.poll_job() {
            let runner = self.clone();
            self.workers.spawn(move || {
                let done = job.run();
                let mut core = lock(&runner.core);
                if let Some((id, update)) = done.update() {
                    core.observe(id, || Seen::Update(update.clone()));
                }
                core.group.handle_done(Instant::now(), done);
                runner.drive(&mut core);
            });
        }
        while let Some(event) = core.group.poll_event() {
            self.log(core, &event);
        }
        if core.group.poll_timeout() != core.deadline {
            self.rearmed.notify_one();
        }
    }

    /// Writes the group's state, if it has changed.
    fn store(&self, core: &mut Core) {
        while let Some(state) = core.group.poll_store() {
            if let Err(failed) = self.folder.replace(&self.file, &state)
                && let Some(so_often) = core.failures.happened()
            {
                error!(group = %self.config.name, so_often, "{failed}");
            }
        }
    }

    /// Logs what has happened. Strangers can make it happen as often as they like.
    fn log(&self, core: &mut Core, event: &GroupEvent) {
        let group = &self.config.name;
        if let GroupEvent::RoundClosed { .. } = event {
            debug!(%group, "{event}");
        } else if let Some(so_often) = core.events.happened_of(MAX_LINES) {
            info!(%group, so_often, "{event}");
        }
    }
}

impl Core {
    /// Shows something to who observes.
    fn observe(&mut self, id: u64, seen: impl FnOnce() -> Seen) {
        if let (Some(observer), Some(key)) = (&mut self.observer, self.keys.get(&id)) {
            observer(*key, seen());
        }
    }
}

/// The status of a group, with what only its driver knows.
fn status(now: &crate::group::GroupStatus, core: &Core, config: &GroupConfig) -> GroupStatus {
    let counters = now.counters;
    GroupStatus {
        name: config.name.to_string(),
        engine: format!("{:?}", config.terms.engine()).to_lowercase(),
        epoch: now.epoch,
        round: now.round,
        members: now.members,
        max_members: config.terms.shape().members(),
        connected: now.connected,
        connections: core.outboxes.len(),
        participants: counters.last_participants,
        joins_waiting: now.joins_waiting,
        late_members: now.late_members.len(),
        round_ms: counters.last_round.as_secs_f64() * 1e3,
        received_bytes: counters.bytes_received,
        sent_bytes: counters.bytes_sent,
        rounds: counters.rounds,
        exchanges: counters.exchanges,
        late: counters.late,
        slow: core.slow,
    }
}

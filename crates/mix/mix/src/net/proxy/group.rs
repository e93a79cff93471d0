//! The driver of one group at the proxy: its lock, its timer, and the send queues of its
//! connections.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use keys::IdentityPublicKey;
use service::log::LogRateLimiter;
use tracing::{debug, error, info, warn};
use transport::{ConnectionReader, MessageStream};

use super::super::outbox::{ConnectionOutbox, STACK_LEN};
use super::super::state::StateFolder;
use super::archive::{ArchiveStatus, RoundArchive};
use super::config::MixGroupConfig;
use super::delays::RoundDelays;
use super::status::{
    AuditFailedMemberStatus, KeptRoundsStatus, ProxyGroupStatus, RoundDelayStatus,
    UnwrittenStateStatus,
};
use super::workers::ProxyWorkers;
use super::{MixProxyError, lock};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::group::{
    CatchUpRequest, GroupTransmit, MixGroup, MixGroupEvent, MixGroupSettings,
};
use crate::protocol::wire::{MemberToProxy, MixTerms, ProxyRefusal, ProxyToMember};

/// The interval between attempts to write a state that could not be written.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// The maximum number of log lines of a group in 10 s.
const MAX_LINES: u32 = 100;

/// An observation that the proxy can make of a client.
#[derive(Clone, Debug)]
pub enum MixProxyObservation {
    /// A message. The proxy sees its length and time.
    Message {
        /// Its length in bytes.
        len: usize,
    },
    /// What the member hands in for a round: its update of the mailbox or, in an exchange by
    /// broadcast, its own slots.
    Update(Vec<u8>),
}

/// Called with each observation.
type ProxyObserver = Box<dyn FnMut(IdentityPublicKey, MixProxyObservation) + Send>;

/// A running group.
pub(super) struct GroupRunner {
    config: MixGroupConfig,
    file: String,
    folder: Arc<StateFolder>,
    workers: ProxyWorkers,
    delays: Arc<RoundDelays>,
    core: Mutex<GroupRunnerState>,
    /// Wakes the timer when the next deadline has changed.
    rearmed: Condvar,
    /// The times of the group, and those of its driver, are since then.
    start: Instant,
}

/// The state behind the lock.
struct GroupRunnerState {
    group: MixGroup,
    outboxes: HashMap<u64, ConnectionOutbox>,
    keys: HashMap<u64, IdentityPublicKey>,
    observer: Option<ProxyObserver>,
    /// The deadline of the timer.
    deadline: Option<Duration>,
    /// When what is being handled arrived or was due.
    due: Duration,
    is_stopped: bool,
    slow: u64,
    unwritten: Option<UnwrittenGroupState>,
    archive: RoundArchive,
    /// The day, in days since 1970, and the bytes of messages until it began.
    today: (u64, u64),
    failures: LogRateLimiter,
    events: LogRateLimiter,
}

/// The last state, if it could not be written.
struct UnwrittenGroupState {
    state: Vec<u8>,
    since: Duration,
    /// When to try to write it again.
    again_at: Duration,
    why: String,
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
    /// When the state cannot be read, or the system cannot create a thread.
    pub(super) fn start(
        config: MixGroupConfig,
        folder: Arc<StateFolder>,
        workers: ProxyWorkers,
    ) -> Result<Arc<Self>, MixProxyError> {
        let file = format!("{}.group", config.name);
        let stored = folder.read(&file)?;
        let settings = MixGroupSettings {
            name: config.name.clone(),
            administrator: config.administrator,
            terms: config.terms,
            audit_every_rounds: config.audit_every_rounds,
            archive: config.archive,
        };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(MixProxyError::Random)?;
        let group = MixGroup::new(settings.clone(), stored.as_deref().map(|it| &it[..]), seed);
        let group = group.map_err(|error| MixProxyError::Stored {
            path: folder.path().join(&file),
            reason: error.to_string(),
        })?;
        // The state shows whether the settings are those of the group.
        let (archive, report) = RoundArchive::open(folder.clone(), settings)?;
        for what in report {
            warn!(group = %config.name, "{what}");
        }
        let core = GroupRunnerState {
            group,
            outboxes: HashMap::new(),
            keys: HashMap::new(),
            observer: None,
            deadline: None,
            due: Duration::ZERO,
            is_stopped: false,
            slow: 0,
            unwritten: None,
            archive,
            today: (0, 0),
            failures: LogRateLimiter::default(),
            events: LogRateLimiter::default(),
        };
        let runner = Arc::new(Self {
            config,
            file,
            folder,
            workers,
            delays: Arc::default(),
            core: Mutex::new(core),
            rearmed: Condvar::new(),
            start: Instant::now(),
        });
        let timer = runner.clone();
        let builder = thread::Builder::new().name("mix-timer".into()).stack_size(STACK_LEN);
        builder.spawn(move || timer.run_timer()).map_err(MixProxyError::Threads)?;
        Ok(runner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Its settings.
    pub(super) fn config(&self) -> &MixGroupConfig {
        &self.config
    }

    /// A client with this key has named the group in its greeting.
    pub(super) fn connected(
        self: &Arc<Self>,
        id: u64,
        key: IdentityPublicKey,
        outbox: ConnectionOutbox,
    ) {
        let arrived = self.now();
        let mut core = lock(&self.core);
        if core.is_stopped {
            return;
        }
        core.due = arrived;
        core.outboxes.insert(id, outbox);
        core.keys.insert(id, key);
        core.group.handle_connected(self.now(), id, key);
        self.drive(&mut core);
    }

    /// Reads the messages of a client until its connection ends. Returns why it ended.
    pub(super) fn read(
        self: &Arc<Self>,
        id: u64,
        messages: &mut MessageStream<ConnectionReader>,
    ) -> io::Error {
        let max = self.config.terms.max_to_proxy_len();
        loop {
            let message = match messages.receive(max) {
                Ok(Some(message)) => message,
                Ok(None) => return io::ErrorKind::UnexpectedEof.into(),
                Err(error) => return error,
            };
            let arrived = self.now();
            let mut core = lock(&self.core);
            if !core.outboxes.contains_key(&id) {
                return io::Error::other("the proxy has ended the connection");
            }
            core.due = arrived;
            core.observe_message(id, &message, &self.config.terms);
            core.group.handle_message(self.now(), id, &message);
            self.drive(&mut core);
        }
    }

    /// A connection has ended.
    pub(super) fn disconnected(self: &Arc<Self>, id: u64) {
        let arrived = self.now();
        let mut core = lock(&self.core);
        core.due = arrived;
        core.outboxes.remove(&id);
        core.keys.remove(&id);
        core.group.handle_disconnected(self.now(), id);
        self.drive(&mut core);
    }

    /// Stores the state, tells all clients that the proxy is shutting down, and closes their
    /// connections once this message is sent, at the latest at the deadline.
    pub(super) fn stop(&self, deadline: Instant) -> bool {
        let mut core = lock(&self.core);
        core.is_stopped = true;
        self.store(&mut core);
        let is_stored = core.unwritten.is_none();
        let outboxes: Vec<_> = core.outboxes.drain().map(|(_, outbox)| outbox).collect();
        drop(core);
        self.rearmed.notify_all();
        let last = ProxyToMember::Refused(ProxyRefusal::Stopping).encode();
        let notified = outboxes.into_iter().filter(|outbox| outbox.send(last.clone()));
        for outbox in notified.collect::<Vec<_>>() {
            outbox.finish(deadline.saturating_duration_since(Instant::now()));
        }
        is_stored
    }

    /// Sets the observer, which is called from now on.
    pub(super) fn observe(
        &self,
        observer: impl FnMut(IdentityPublicKey, MixProxyObservation) + Send + 'static,
    ) {
        lock(&self.core).observer = Some(Box::new(observer));
    }

    /// The status of the group.
    pub(super) fn status(&self) -> ProxyGroupStatus {
        let mut core = lock(&self.core);
        let time = self.now();
        let today_bytes = core.bytes_today();
        let status = status(&core.group.status(time), &core, &self.config, time);
        ProxyGroupStatus { today_bytes, delays: self.delays.status(), ..status }
    }

    fn run_timer(self: Arc<Self>) {
        let mut core = lock(&self.core);
        while !core.is_stopped {
            let now = self.now();
            core = match core.group.poll_timeout() {
                Some(deadline) if deadline <= now => {
                    core.due = deadline;
                    core.group.handle_timeout(now);
                    self.drive(&mut core);
                    core
                }
                deadline => {
                    core.deadline = deadline;
                    let left = deadline.map(|deadline| deadline.saturating_sub(now));
                    self.wait(core, left)
                }
            };
        }
    }

    fn wait<'a>(
        &self,
        core: MutexGuard<'a, GroupRunnerState>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, GroupRunnerState> {
        match left {
            None => self.rearmed.wait(core).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let waited = self.rearmed.wait_timeout(core, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Stores, sends and computes what the group returns. A group that was stopped has stored all,
    /// and its files may be those of another proxy now.
    fn drive(self: &Arc<Self>, core: &mut GroupRunnerState) {
        if core.is_stopped {
            return;
        }
        self.store(core);
        self.keep(core);
        let (start, due) = (self.start, core.due);
        while let Some(transmit) = core.group.poll_transmit() {
            let GroupTransmit { connection, message, begins_round, is_last } = transmit;
            let Some(outbox) = core.outboxes.get(&connection) else { continue };
            let is_taken = if begins_round {
                let delays = self.delays.clone();
                let written = move || delays.observe(start.elapsed().saturating_sub(due));
                outbox.send_then(message, written)
            } else {
                outbox.send(message)
            };
            if !is_taken {
                debug!(connection, "closed: it does not read in time");
                core.slow += 1;
            }
            // The reading thread reports the end of the connection to the group.
            if is_last || !is_taken {
                core.outboxes.remove(&connection);
            }
        }
        while let Some(job) = core.group.poll_job() {
            let runner = self.clone();
            self.workers.spawn(move || {
                let done = job.run();
                let computed = runner.now();
                let mut core = lock(&runner.core);
                core.due = computed;
                if let Some((id, update)) = done.update() {
                    core.observe(id, || MixProxyObservation::Update(update.as_bytes().to_vec()));
                }
                core.group.handle_done(runner.now(), done);
                runner.drive(&mut core);
            });
        }
        while let Some(event) = core.group.poll_event() {
            self.log(core, &event);
        }
        core.bytes_today();
        if core.group.poll_timeout() != core.deadline {
            self.rearmed.notify_one();
        }
    }

    /// Writes closed rounds to the archive, and answers members that catch up from it.
    fn keep(&self, core: &mut GroupRunnerState) {
        while let Some(record) = core.group.poll_record() {
            let (is_written, failure) = core.archive.append(self.now(), record);
            if let Some(why) = failure {
                error!(group = %self.config.name, "{why}");
            }
            core.group.handle_written(self.now(), is_written);
            // It may have opened a round.
            self.store(core);
        }
        while let Some(CatchUpRequest { connection, key, after }) = core.group.poll_catch_up() {
            let (is_last, records) = core.archive.past(&key, after);
            core.group.handle_past(connection, is_last, records);
        }
    }

    /// Writes the group's state, if it has changed, or could not be written before.
    fn store(&self, core: &mut GroupRunnerState) {
        let now = self.now();
        let is_stopped = core.is_stopped;
        let is_due = |it: &&UnwrittenGroupState| is_stopped || now >= it.again_at;
        let unwritten = || core.unwritten.as_ref().filter(is_due).map(|it| it.state.clone());
        let Some(state) = core.group.poll_store().or_else(unwritten) else { return };
        let group = &self.config.name;
        let since = core.unwritten.as_ref().map_or(now, |it| it.since);
        match self.folder.replace(&self.file, &state) {
            Ok(()) if core.unwritten.take().is_some() => {
                let for_s = now.saturating_sub(since).as_secs();
                info!(%group, for_s, "the state is written again");
            }
            Ok(()) => {}
            Err(failed) => {
                let why = failed.to_string();
                if let Some(occurrences) = core.failures.count_event() {
                    error!(%group, occurrences, "the state cannot be written: {why}");
                }
                let again_at = now + WRITE_AGAIN;
                core.unwritten = Some(UnwrittenGroupState { state, since, again_at, why });
            }
        }
    }

    /// Logs an event. Anybody can cause events at any rate, so most lines are rate-limited.
    fn log(&self, core: &mut GroupRunnerState, event: &MixGroupEvent) {
        let group = &self.config.name;
        if let MixGroupEvent::RoundClosed { .. } | MixGroupEvent::AuditPassed { .. } = event {
            debug!(%group, "{event}");
        } else if let MixGroupEvent::AuditFailed { .. } | MixGroupEvent::AuditDisputed { .. } =
            event
        {
            // Not rate-limited, because members cannot cause these events often.
            warn!(%group, "{event}");
        } else if let Some(occurrences) = core.events.count_event_of(MAX_LINES) {
            info!(%group, occurrences, "{event}");
        }
    }
}

impl GroupRunnerState {
    /// The bytes of messages of today. Called often enough to notice that a day begins.
    fn bytes_today(&mut self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let day = since_1970.unwrap_or_default().as_secs() / 86_400;
        let counters = self.group.counters();
        let bytes = counters.bytes_received + counters.bytes_sent;
        match &mut self.today {
            // Since the start.
            (0, _) => self.today = (day, 0),
            (today, before) if *today != day => (*today, *before) = (day, bytes),
            _ => {}
        }
        bytes - self.today.1
    }

    /// Calls the observer, if there is one, with a message of a client.
    fn observe_message(&mut self, id: u64, message: &[u8], terms: &MixTerms) {
        self.observe(id, || MixProxyObservation::Message { len: message.len() });
        if self.observer.is_some()
            && terms.exchange() == MixExchangeKind::Broadcast
            && let Ok(MemberToProxy::Request { body, .. }) = MemberToProxy::decode(message, terms)
        {
            self.observe(id, || MixProxyObservation::Update(body));
        }
    }

    /// Calls the observer, if there is one.
    fn observe(&mut self, id: u64, seen: impl FnOnce() -> MixProxyObservation) {
        if let (Some(observer), Some(key)) = (&mut self.observer, self.keys.get(&id)) {
            observer(*key, seen());
        }
    }
}

/// The status of a group at a `time`, including the driver's part of it.
fn status(
    now: &crate::protocol::group::MixGroupStatus,
    core: &GroupRunnerState,
    config: &MixGroupConfig,
    time: Duration,
) -> ProxyGroupStatus {
    let counters = now.counters;
    ProxyGroupStatus {
        name: config.name.to_string(),
        engine: config.terms.exchange().to_string(),
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
        today_bytes: 0,
        rounds: counters.rounds,
        exchanges: counters.exchanges,
        late: counters.late,
        slow: core.slow,
        delays: RoundDelayStatus::default(),
        audits_passed: counters.audits_passed,
        audits_failed: counters.audits_failed,
        audits_disputed: counters.audits_disputed,
        audits_abandoned: counters.audits_abandoned,
        found: now.found.iter().map(AuditFailedMemberStatus::from).collect(),
        kept: kept(core, config, time),
        unwritten: core.unwritten.as_ref().map(|unwritten| UnwrittenStateStatus {
            for_s: time.saturating_sub(unwritten.since).as_secs_f64(),
            why: unwritten.why.clone(),
        }),
    }
}

fn kept(
    core: &GroupRunnerState,
    config: &MixGroupConfig,
    time: Duration,
) -> Option<KeptRoundsStatus> {
    if config.terms.keep().is_zero() {
        return None;
    }
    let ArchiveStatus { rounds, bytes, failure } = core.archive.status();
    let unwritten = failure.map(|(since, why)| UnwrittenStateStatus {
        for_s: time.saturating_sub(since).as_secs_f64(),
        why,
    });
    Some(KeptRoundsStatus { rounds, bytes, unwritten })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use keys::IdentitySecretKey;

    use super::*;
    use crate::protocol::membership::announcement_fixture;
    use crate::proxy::MixProxyConfig;

    #[test]
    fn writing_the_state_is_retried() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(StateFolder::open(place.path()).unwrap());
        let administrator = IdentitySecretKey::new(&[1; 32]);
        let text = format!(
            "identity = \"k\"\nlisten = \"127.0.0.1:0\"\nstate = \"s\"\n[[group]]\n\
             name = \"friends\"\nadministrator = \"{}\"",
            administrator.public()
        );
        let config = MixProxyConfig::from_toml(&text).unwrap().groups.remove(0);
        let group =
            GroupRunner::start(config, folder.clone(), ProxyWorkers::start().unwrap()).unwrap();
        let new = place.path().join("friends.group.new");
        fs::create_dir(&new).unwrap();
        let members = [administrator.public()];
        let announcement = announcement_fixture(&administrator, "friends", 1, &members);
        {
            let mut core = lock(&group.core);
            core.group.handle_connected(group.now(), 1, administrator.public());
            let message = MemberToProxy::Announce(announcement).encode();
            core.group.handle_message(group.now(), 1, &message);
            group.drive(&mut core);
        }
        let unwritten = group.status().unwritten.unwrap();
        assert!(unwritten.why.contains("friends.group: Is a directory"), "{}", unwritten.why);
        assert!(folder.read("friends.group").unwrap().is_none());
        // The timer, which tries again as well, waits.
        let mut core = lock(&group.core);
        fs::remove_dir(&new).unwrap();
        core.unwritten.as_mut().unwrap().again_at = Duration::ZERO;
        group.drive(&mut core);
        drop(core);
        assert_eq!(group.status().unwritten, None);
        assert!(folder.read("friends.group").unwrap().is_some());
        group.stop(Instant::now());
    }
}

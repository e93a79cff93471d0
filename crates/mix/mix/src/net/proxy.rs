//! The proxy: moves messages between connections and independent groups.

mod archive;
mod config;
mod delays;
mod greeting;
mod group;
mod load;
mod status;
mod workers;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use keys::{IdentityPublicKey, IdentitySecretKey, KeyFileError};
use service::log::LogRateLimiter;
use tracing::{debug, error, info, warn};
use transport::{Connection, ConnectionOptions, ConnectionSecurity, Listener, MessageStream};

use super::outbox::{ConnectionOutbox, STACK_LEN};
use super::state::{StateFileError, StateFolder};
use crate::protocol::wire::{
    GroupName, MAX_GREETING_LEN, MixHello, MixWireError, ProxyRefusal, ProxyToMember,
};
use greeting::{PendingGreeting, PendingGreetings};
use group::GroupRunner;
use workers::ProxyWorkers;

pub use config::{GroupProfile, KEYS, MixGroupConfig, MixProxyConfig};
pub use delays::ROUND_DELAY_BOUNDS_MS;
pub use group::MixProxyObservation;
pub use status::{
    AuditFailedMemberStatus, KeptRoundsStatus, MixProxyStatus, ProxyGroupStatus, ProxyLoadStatus,
    RoundDelayStatus, UnwrittenStateStatus,
};

/// The time limit of a connection's greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be silent, in addition to some rounds. A member sends a message in
/// each round.
const SILENCE: Duration = Duration::from_secs(60);

/// The time limit for telling all members that the proxy is shutting down.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval of checks whether the proxy is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum MixProxyError {
    /// The identity key cannot be read.
    #[error("identity: {0}")]
    Identity(#[from] KeyFileError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateFileError),
    /// A group's state is not of this group.
    #[error("state {}: it is not the state of this group: {reason}", .path.display())]
    Stored {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It cannot listen.
    #[error(transparent)]
    Transport(#[from] transport::Error),
    /// The system gives no threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// A proxy that listens. It ends if it is dropped without being run.
#[derive(Debug)]
pub struct MixProxy {
    listener: Listener,
    shared: Arc<SharedProxyState>,
}

/// A handle to a proxy, to query and to stop it.
#[derive(Clone, Debug)]
pub struct MixProxyHandle(Arc<SharedProxyState>);

#[derive(Debug)]
struct SharedProxyState {
    folder: Arc<StateFolder>,
    workers: ProxyWorkers,
    groups: Mutex<BTreeMap<GroupName, Arc<GroupRunner>>>,
    listen: SocketAddr,
    key: IdentityPublicKey,
    started: Instant,
    next_connection: AtomicU64,
    greetings: PendingGreetings,
    refused: AtomicU64,
    refusals: Mutex<LogRateLimiter>,
    is_stopping: AtomicBool,
}

/// Why a client is not served.
enum GreetingFailure {
    /// It has sent no greeting.
    NoGreeting,
    /// It is told the refusal. The log has the reason.
    Refused(ProxyRefusal, String),
}

impl MixProxy {
    /// Reads the state of the groups, and listens.
    ///
    /// # Errors
    /// When something that the configuration names cannot be used.
    pub fn open(config: &MixProxyConfig) -> Result<Self, MixProxyError> {
        let in_dir = |path: &PathBuf| config.config_dir.join(path);
        let identity = IdentitySecretKey::read(&in_dir(&config.identity))?;
        let folder = Arc::new(StateFolder::open(&in_dir(&config.state))?);
        let key = identity.public();
        let options = ConnectionOptions {
            balancers: config.balancers.clone(),
            ..ConnectionOptions::new(ConnectionSecurity::open(identity))
        };
        let listener = Listener::bind(&config.listen, &options)?;
        let shared = Arc::new(SharedProxyState {
            folder,
            workers: ProxyWorkers::start().map_err(MixProxyError::Threads)?,
            groups: Mutex::default(),
            listen: listener.local_addr(),
            key,
            started: Instant::now(),
            next_connection: AtomicU64::new(0),
            greetings: PendingGreetings::default(),
            refused: AtomicU64::new(0),
            refusals: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        });
        for group in &config.groups {
            shared.add(group)?;
        }
        Ok(Self { listener, shared })
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Its key, which members must know.
    pub fn public_key(&self) -> IdentityPublicKey {
        self.shared.key
    }

    /// A handle to query and to stop it.
    pub fn handle(&self) -> MixProxyHandle {
        MixProxyHandle(self.shared.clone())
    }

    /// Accepts connections until [`MixProxyHandle::stop`] is called.
    ///
    /// # Errors
    /// When the listener has failed.
    pub fn run(self) -> Result<(), MixProxyError> {
        let Self { listener, shared } = self;
        let ended = loop {
            if shared.is_stopping.load(Ordering::Relaxed) {
                break Ok(());
            }
            match listener.accept_timeout(STOP_INTERVAL) {
                Ok(Some(connection)) => shared.spawn(connection),
                Ok(None) => {}
                Err(error) => break Err(error.into()),
            }
        };
        let deadline = Instant::now() + LAST_BYTES_TIMEOUT;
        for group in lock(&shared.groups).values() {
            group.stop(deadline);
        }
        ended
    }
}

impl MixProxyHandle {
    /// The status of the proxy.
    pub fn status(&self, name: String) -> MixProxyStatus {
        let shared = &self.0;
        MixProxyStatus {
            name,
            uptime_s: shared.started.elapsed().as_secs_f64(),
            listen: shared.listen.to_string(),
            key: shared.key.to_string(),
            refused_connections: shared.refused.load(Ordering::Relaxed),
            load: load::load(),
            groups: lock(&shared.groups).values().map(|group| group.status()).collect(),
        }
    }

    /// Puts another configuration in force: groups that are new begin, and groups that are gone
    /// end, whose files can then be moved to another proxy. Returns what of it is in force after a
    /// restart only.
    ///
    /// # Errors
    /// When a new group's state cannot be read.
    pub fn reload(
        &self,
        config: &MixProxyConfig,
        before: &MixProxyConfig,
    ) -> Result<Vec<String>, MixProxyError> {
        let mut unchanged: Vec<String> = [
            ("identity", before.identity != config.identity),
            ("listen", before.listen != config.listen),
            ("state", before.state != config.state),
            ("balancers", before.balancers != config.balancers),
        ]
        .into_iter()
        .filter(|(_, has_changed)| *has_changed)
        .map(|(setting, _)| setting.to_owned())
        .collect();
        let is_there = |name: &GroupName| config.groups.iter().any(|group| group.name == *name);
        let mut gone = BTreeMap::new();
        lock(&self.0.groups).retain(|name, group| {
            let is_there = is_there(name);
            if !is_there {
                gone.insert(name.clone(), group.clone());
            }
            is_there
        });
        let deadline = Instant::now() + LAST_BYTES_TIMEOUT;
        for (name, group) in gone {
            if group.stop(deadline) {
                info!(group = %name, "the group has ended: it is not in the configuration any more");
            } else {
                error!(
                    group = %name,
                    "the group has ended, but its last state cannot be written: do not move its \
                     files to another proxy"
                );
            }
        }
        for group in &config.groups {
            let known = lock(&self.0.groups).get(&group.name).cloned();
            match known {
                None => self.0.add(group)?,
                Some(known) if *known.config() == *group => {}
                Some(_) => unchanged.push(format!("group {}", group.name)),
            }
        }
        Ok(unchanged)
    }

    /// Calls `observer` from now on with what a dishonest proxy could see, for demonstrations and
    /// tests. Returns whether there is such a group.
    pub fn observe(
        &self,
        group: &GroupName,
        observer: impl FnMut(IdentityPublicKey, MixProxyObservation) + Send + 'static,
    ) -> bool {
        let group = lock(&self.0.groups).get(group).cloned();
        group.map(|group| group.observe(observer)).is_some()
    }

    /// Stops the proxy: its groups store their state, and connections are closed.
    pub fn stop(&self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
    }
}

impl SharedProxyState {
    fn add(&self, config: &MixGroupConfig) -> Result<(), MixProxyError> {
        let workers = self.workers.of_another_group();
        let group = GroupRunner::start(config.clone(), self.folder.clone(), workers)?;
        lock(&self.groups).insert(config.name.clone(), group);
        Ok(())
    }

    /// Serves a client in new threads.
    fn spawn(self: &Arc<Self>, connection: Connection) {
        let greeting = match self.greetings.begin(connection.peer_addr().ip()) {
            Ok(greeting) => greeting,
            Err(why) => return self.refuse(&connection, why),
        };
        let shared = self.clone();
        let work = move || shared.serve_connection(connection, greeting);
        let builder = thread::Builder::new().name("mix-read".into()).stack_size(STACK_LEN);
        if let Err(error) = builder.spawn(work) {
            warn!(%error, "a connection is closed: cannot start threads");
        }
    }

    /// Handles a client's greeting and then its messages.
    fn serve_connection(&self, mut connection: Connection, greeting: PendingGreeting) {
        let greeted = self.greet(&mut connection);
        drop(greeting);
        let (group, key) = match greeted {
            Ok(greeted) => greeted,
            Err(GreetingFailure::Refused(refusal, why)) => {
                self.refuse(&connection, &why);
                // Whether the client reads it does not matter.
                let _ = MessageStream::new(&mut connection)
                    .send(&ProxyToMember::Refused(refusal).encode());
                let _ = connection.finish();
                return;
            }
            Err(GreetingFailure::NoGreeting) => {
                return self.refuse(&connection, "it sent no greeting in time");
            }
        };
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let timeout = Some(3 * group.config().terms.interval() + SILENCE);
        if connection.set_timeout(timeout).is_err() {
            return;
        }
        let (closer, peer) = (connection.closer(), connection.peer_addr());
        let (reader, writer) = connection.split();
        let max_waiting = 2 * group.config().terms.max_to_member_len();
        let outbox = match ConnectionOutbox::start(writer, closer, max_waiting) {
            Ok(outbox) => outbox,
            Err(error) => {
                warn!(%error, "a connection is closed: cannot start threads");
                return;
            }
        };
        debug!(connection = id, %peer, group = %group.config().name, "connected");
        group.connected(id, key, outbox);
        let ended = group.read(id, &mut MessageStream::new(reader));
        group.disconnected(id);
        debug!(connection = id, reason = %ended, "disconnected");
    }

    /// Returns the group that a client names and the client's key.
    fn greet(
        &self,
        connection: &mut Connection,
    ) -> Result<(Arc<GroupRunner>, IdentityPublicKey), GreetingFailure> {
        let key = connection.peer().ok_or(GreetingFailure::NoGreeting)?;
        let received = connection
            .set_timeout(Some(GREETING_TIMEOUT))
            .and_then(|()| MessageStream::new(&mut *connection).receive(MAX_GREETING_LEN));
        let message = received.ok().flatten().ok_or(GreetingFailure::NoGreeting)?;
        let MixHello { group: name } = MixHello::decode(&message).map_err(|error| {
            let refusal = match error {
                MixWireError::Version(_) => ProxyRefusal::Version,
                _ => ProxyRefusal::Malformed,
            };
            GreetingFailure::Refused(refusal, refusal.to_string())
        })?;
        let group = lock(&self.groups).get(&name).cloned();
        let group = group.ok_or_else(|| {
            let why = format!("this proxy does not have the group {name} that it asks for");
            GreetingFailure::Refused(ProxyRefusal::UnknownGroup, why)
        })?;
        Ok((group, key))
    }

    fn refuse(&self, connection: &Connection, why: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(occurrences) = lock(&self.refusals).count_event() {
            warn!(peer = %connection.peer_addr(), occurrences, "a connection is refused: {why}");
        }
    }
}

/// Locks a mutex, even if it was poisoned by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

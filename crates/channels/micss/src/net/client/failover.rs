//! The servers for all targets that are not peers' addresses: one, or several in order of
//! preference, of which the first one that works carries new streams.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::StreamError;
use crate::net::client::pool::{ConnectionPool, ConnectionSet};
use crate::net::metrics::AtomicMetric;
use crate::protocol::server_choice::{ServerChoice, ServerSwitch};
use crate::status::StreamServerStatus;

/// The interval at which the states of the servers are read.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Servers in order of preference, and which of them carries new streams.
pub(crate) struct FailoverServers {
    pools: Vec<Arc<ConnectionPool>>,
    switch_back_after: Duration,
    epoch: Instant,
    choice: Mutex<ServerChoice>,
    /// The index of the server that is used, for streams that wait for it.
    current: watch::Sender<usize>,
    /// Why the server is used, if it is not the first one from the start.
    reason: Mutex<Option<String>>,
    switches: AtomicMetric,
}

impl FailoverServers {
    /// Chooses among the servers of these pools, of which there is at least one.
    pub(crate) fn new(pools: Vec<Arc<ConnectionPool>>, switch_back_after: Duration) -> Self {
        Self {
            choice: Mutex::new(ServerChoice::new(pools.len(), switch_back_after, Duration::ZERO)),
            pools,
            switch_back_after,
            epoch: Instant::now(),
            current: watch::Sender::new(0),
            reason: Mutex::default(),
            switches: AtomicMetric::default(),
        }
    }

    /// Whether a new value with these arguments would choose among the same servers.
    pub(crate) fn matches(
        &self,
        pools: &[Arc<ConnectionPool>],
        switch_back_after: Duration,
    ) -> bool {
        self.pools.len() == pools.len()
            && self.pools.iter().zip(pools).all(|(own, other)| Arc::ptr_eq(own, other))
            && self.switch_back_after == switch_back_after
    }

    /// Connections for a stream, and the pool to which they return. If the server that is used
    /// fails before the stream has begun, the others that work are tried in their order:
    /// nothing was sent yet.
    ///
    /// # Errors
    /// If no server has connections: that of the server that is used.
    pub(crate) async fn take(&self) -> Result<(Arc<ConnectionPool>, ConnectionSet), StreamError> {
        let mut current = self.current.subscribe();
        loop {
            let used = *current.borrow_and_update();
            let taken = tokio::select! {
                biased;
                taken = self.pools[used].take() => taken,
                // While it was waited for, the server was found gone.
                Ok(()) = current.changed() => continue,
            };
            let error = match taken {
                Ok(set) => return Ok((Arc::clone(&self.pools[used]), set)),
                Err(error) => error,
            };
            let others = self.pools.iter().enumerate().filter(|(server, _)| *server != used);
            for (_, pool) in others.filter(|(_, pool)| pool.why_gone().is_none()) {
                if let Ok(set) = pool.take().await {
                    return Ok((Arc::clone(pool), set));
                }
            }
            return Err(error);
        }
    }

    /// Chooses the server for new streams until the returned task is dropped. A single server
    /// needs no choice.
    pub(crate) fn keep_chosen(this: &Arc<Self>) -> JoinSet<()> {
        if this.pools.len() == 1 {
            return JoinSet::new();
        }
        let this = Arc::clone(this);
        let choose = async move {
            loop {
                this.choose();
                sleep(POLL_INTERVAL).await;
            }
        };
        [choose].into_iter().collect()
    }

    fn choose(&self) {
        let gone: Vec<Option<String>> = self.pools.iter().map(|pool| pool.why_gone()).collect();
        let mut choice = self.choice();
        let before = choice.current();
        // Channels in use are found lost sooner. A server must be found gone without a stream that
        // has to fail first.
        self.pools[..=before].iter().for_each(|pool| pool.mark_used());
        let states = gone.iter().map(Option::is_some);
        let Some(switch) = choice.handle_states(states, self.epoch.elapsed()) else { return };
        drop(choice);
        let (next, reason) = match switch {
            ServerSwitch::Away(next) => {
                let why = gone[before].as_deref().unwrap_or_default();
                let reason = format!("{} is gone: {why}", self.name(before));
                warn!("{reason}; new streams use {}", self.name(next));
                (next, reason)
            }
            ServerSwitch::Back(next) => {
                let working_s = self.switch_back_after.as_secs();
                let reason = format!("{} has worked for {working_s} s", self.name(next));
                info!("{reason}; new streams use it again, and open streams stay where they are");
                (next, reason)
            }
        };
        self.switches.increment();
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        self.current.send_replace(next);
    }

    /// The status of the servers; none if there is only one.
    pub(crate) fn status(&self) -> Vec<StreamServerStatus> {
        if self.pools.len() == 1 {
            return Vec::new();
        }
        let (choice, now) = (self.choice(), self.epoch.elapsed());
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of_server = |(server, pool): (usize, &Arc<ConnectionPool>)| {
            let is_used = server == choice.current();
            StreamServerStatus {
                channels: pool.servers(),
                is_used,
                used_s: is_used.then(|| now.saturating_sub(choice.since()).as_secs_f64()),
                reason: reason.clone().filter(|_| is_used),
                working_s: choice
                    .working_since(server)
                    .map(|since| now.saturating_sub(since).as_secs_f64()),
                gone: pool.why_gone(),
            }
        };
        self.pools.iter().enumerate().map(of_server).collect()
    }

    /// How often another server was chosen.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.value()
    }

    /// The name of a server for the log.
    fn name(&self, server: usize) -> String {
        let channels = self.pools[server].servers();
        format!("server {} ({})", server + 1, channels.first().map_or("", String::as_str))
    }

    fn choice(&self) -> MutexGuard<'_, ServerChoice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

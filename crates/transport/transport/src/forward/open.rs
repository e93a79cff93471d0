//! The open connections of one end of a forward: their limit, their counts, and how they end when
//! the end stops.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use service::log::LogRateLimiter;
use service::status::ServiceProblem;
use tracing::{info, warn};

use super::MAX_CONNECTIONS;
use super::carry::{CarriedConnection, CarryFailure};
use super::status::{PortForwardFailureCounts, PortForwardStatus};

/// How long open connections may continue after a stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long connections that were ended by a stop may take to report that.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of one end, and what is counted of them.
#[derive(Default)]
pub(super) struct OpenForwards {
    list: Mutex<OpenForwardList>,
    /// Signals that a connection has ended.
    ended: Condvar,
    pub(super) from_clients_bytes: Arc<AtomicU64>,
    pub(super) to_clients_bytes: Arc<AtomicU64>,
}

#[derive(Default)]
struct OpenForwardList {
    next: u64,
    /// The number of connections, with those that are being opened.
    count: usize,
    carried: HashMap<u64, (Arc<CarriedConnection>, &'static str)>,
    forwarded: u64,
    failed: PortForwardFailureCounts,
    problem: Option<(String, Instant, String)>,
    failures: LogRateLimiter,
}

impl OpenForwards {
    /// Reserves room for one more connection, if there is some.
    pub(super) fn reserve(self: &Arc<Self>) -> Option<ForwardSlot> {
        let mut list = self.lock();
        if list.count >= MAX_CONNECTIONS {
            return None;
        }
        list.count += 1;
        list.next += 1;
        Some(ForwardSlot { number: list.next, open: self.clone() })
    }

    /// Counts and logs a connection that has failed.
    pub(super) fn record_failure(&self, of: &str, failure: &CarryFailure) {
        let mut list = self.lock();
        *failure.counter(&mut list.failed) += 1;
        if let Some(remedy) = failure.remedy() {
            let text = failure.to_string();
            match &mut list.problem {
                // The time since which connections fail, although the reason may change.
                Some(known) => (known.0, known.2) = (text, remedy),
                None => list.problem = Some((text, Instant::now(), remedy)),
            }
        }
        if failure.is_ordinary() {
            tracing::debug!("{of}: {failure}");
        } else if let Some(occurrences) = list.failures.count_event() {
            warn!(occurrences, "{of}: {failure}");
        }
    }

    /// Waits for the open connections for a while, then ends them.
    pub(super) fn drain(&self) {
        let list = self.wait_until_empty(self.lock(), DRAIN_TIMEOUT);
        if list.count == 0 {
            return;
        }
        info!(connections = list.count, "connections ended by the stop");
        for (carried, _) in list.carried.values() {
            carried.fail(CarryFailure::Stopped);
        }
        drop(self.wait_until_empty(list, ABORT_TIMEOUT));
    }

    fn wait_until_empty<'a>(
        &self,
        list: MutexGuard<'a, OpenForwardList>,
        limit: Duration,
    ) -> MutexGuard<'a, OpenForwardList> {
        let waited = self.ended.wait_timeout_while(list, limit, |list| list.count > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, OpenForwardList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one connection. When dropped, the connection has ended.
pub(super) struct ForwardSlot {
    number: u64,
    open: Arc<OpenForwards>,
}

impl ForwardSlot {
    /// Adds the connection, so that a stop ends it.
    pub(super) fn add(&self, carried: Arc<CarriedConnection>, transport: &'static str) {
        self.open.lock().carried.insert(self.number, (carried, transport));
    }

    /// Counts the connection as forwarded: the target is connected.
    pub(super) fn record_connected(&self) {
        let mut list = self.open.lock();
        list.forwarded += 1;
        list.problem = None;
    }
}

impl Drop for ForwardSlot {
    fn drop(&mut self) {
        let mut list = self.open.lock();
        list.carried.remove(&self.number);
        list.count -= 1;
        self.open.ended.notify_all();
    }
}

/// Reports the status of one end of a forward.
#[derive(Clone)]
pub struct PortForwardStatusSource {
    open: Arc<OpenForwards>,
    listen: String,
    to: String,
    started_at: Instant,
}

impl std::fmt::Debug for PortForwardStatusSource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PortForwardStatusSource").finish_non_exhaustive()
    }
}

impl PortForwardStatusSource {
    pub(super) fn new(open: Arc<OpenForwards>, listen: String, to: String) -> Self {
        Self { open, listen, to, started_at: Instant::now() }
    }

    /// The current status.
    pub fn status(&self) -> PortForwardStatus {
        let list = self.open.lock();
        let mut transports = BTreeMap::new();
        for (_, transport) in list.carried.values() {
            *transports.entry((*transport).to_owned()).or_default() += 1;
        }
        let problem = list.problem.as_ref().map(|(text, since, remedy)| {
            ServiceProblem::new(text, Some(since.elapsed().as_secs_f64()), remedy)
        });
        PortForwardStatus {
            listen: self.listen.clone(),
            to: self.to.clone(),
            uptime_s: self.started_at.elapsed().as_secs_f64(),
            open: list.count as u64,
            max_open: MAX_CONNECTIONS as u64,
            transports,
            forwarded: list.forwarded,
            from_clients_bytes: self.open.from_clients_bytes.load(Ordering::Relaxed),
            to_clients_bytes: self.open.to_clients_bytes.load(Ordering::Relaxed),
            failed: list.failed,
            problem,
        }
    }
}

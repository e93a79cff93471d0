//! What all requests to the page share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::cookie::PageCookie;
use crate::live::LiveProcesses;
use crate::runner::RunQueue;
use crate::template::ScriptIsolation;

/// How many pages may watch runs at a time.
pub(crate) const MAX_VIEWERS: usize = 256;

/// How many of them may have come by a link.
pub(crate) const MAX_LINK_VIEWERS: usize = 128;

/// How many plans are computed at a time. Others wait.
const MAX_PLANS: usize = 2;

/// How many experiments are read at a time: those of requests and of runs. Others wait.
const MAX_EXPERIMENTS: usize = 2;

/// How many long requests are read and answered at a time.
const MAX_LONG_BODIES: usize = 4;

/// What all requests share.
#[derive(Clone)]
pub(crate) struct PanelState {
    pub(crate) queue: Arc<RunQueue>,
    pub(crate) viewers: Arc<Semaphore>,
    pub(crate) link_viewers: Arc<Semaphore>,
    pub(crate) live: Arc<LiveProcesses>,
    /// Places of plans that are computed.
    pub(crate) plans: Arc<Semaphore>,
    /// Places of experiments that are read.
    pub(crate) experiments: Arc<Semaphore>,
    /// Places of long requests.
    pub(crate) long_bodies: Arc<Semaphore>,
    pub(crate) scheme: &'static str,
    /// By what scripts are contained.
    pub(crate) isolation: ScriptIsolation,
    cookie: PageCookie,
}

impl PanelState {
    pub(crate) fn new(
        queue: Arc<RunQueue>,
        scheme: &'static str,
        cookie: PageCookie,
        isolation: ScriptIsolation,
    ) -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        Self {
            queue,
            viewers: places(MAX_VIEWERS),
            link_viewers: places(MAX_LINK_VIEWERS),
            live: Arc::default(),
            plans: places(MAX_PLANS),
            experiments: places(MAX_EXPERIMENTS),
            long_bodies: places(MAX_LONG_BODIES),
            scheme,
            isolation,
            cookie,
        }
    }

    pub(crate) fn queue(&self) -> &Arc<RunQueue> {
        &self.queue
    }

    /// The cookie of a session.
    pub(crate) fn session_cookie(&self) -> &PageCookie {
        &self.cookie
    }
}

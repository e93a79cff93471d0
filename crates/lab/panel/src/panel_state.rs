//! What all requests to the page share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::cookie::PageCookie;
use crate::live::LiveProcesses;
use crate::runner::RunQueue;

/// How many pages may watch runs at a time.
pub(crate) const MAX_VIEWERS: usize = 256;

/// How many of them may be guests.
pub(crate) const MAX_GUESTS: usize = 128;

/// How many plans are computed at a time. Others wait.
const MAX_PLANS: usize = 2;

/// What all requests share.
#[derive(Clone)]
pub(crate) struct PanelState {
    pub(crate) queue: Arc<RunQueue>,
    pub(crate) viewers: Arc<Semaphore>,
    pub(crate) guests: Arc<Semaphore>,
    pub(crate) live: Arc<LiveProcesses>,
    /// How many plans are computed at a time.
    pub(crate) plans: Arc<Semaphore>,
    pub(crate) scheme: &'static str,
    cookie: PageCookie,
}

impl PanelState {
    pub(crate) fn new(queue: Arc<RunQueue>, scheme: &'static str, cookie: PageCookie) -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        let (viewers, guests, plans) = (places(MAX_VIEWERS), places(MAX_GUESTS), places(MAX_PLANS));
        Self { queue, viewers, guests, live: Arc::default(), plans, scheme, cookie }
    }

    pub(crate) fn queue(&self) -> &Arc<RunQueue> {
        &self.queue
    }

    /// The cookie of a session.
    pub(crate) fn session_cookie(&self) -> &PageCookie {
        &self.cookie
    }
}

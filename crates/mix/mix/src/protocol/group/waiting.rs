//! Messages that wait for the administrator: join requests, and the last notices of each member.

use std::collections::BTreeMap;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::connection::MessageCount;
use super::epoch::AnnouncedEpoch;
use super::{MAX_JOINS_PASSED_ON, MAX_NON_MEMBERS};
use crate::protocol::membership::MemberNotice;
use crate::protocol::wire::ProxyRefusal;

/// Pending join requests, and the answers for clients that are not connected.
#[derive(Default)]
pub(super) struct PendingJoins {
    all: BTreeMap<[u8; 32], PendingJoin>,
    next: u64,
    /// Those that were passed on to the administrators in this interval.
    passed_on: MessageCount,
}

struct PendingJoin {
    key: IdentityPublicKey,
    /// The order of arrival: smaller numbers are older.
    order: u64,
    state: PendingJoinState,
}

enum PendingJoinState {
    /// It was not passed on yet.
    New(Vec<u8>),
    /// An administrator that connects gets it.
    Waiting(Vec<u8>),
    Answered(Vec<u8>),
}

impl PendingJoins {
    /// Adds a request, which replaces an older one with the same key. If there is no room, the
    /// oldest request whose client is not connected is evicted. Requests of connected clients are
    /// kept.
    ///
    /// # Errors
    /// If the maximum number of requests is pending, all from connected clients.
    pub(super) fn insert(
        &mut self,
        key: IdentityPublicKey,
        request: Vec<u8>,
        is_connected: impl Fn(&IdentityPublicKey) -> bool,
    ) -> Result<(), ProxyRefusal> {
        if !self.all.contains_key(&key.to_bytes()) && self.all.len() >= MAX_NON_MEMBERS {
            let absent = self.all.values().filter(|join| !is_connected(&join.key));
            let oldest = absent.min_by_key(|join| join.order).map(|join| join.key.to_bytes());
            self.all.remove(&oldest.ok_or(ProxyRefusal::TooManyJoins)?);
        }
        let join = PendingJoin { key, order: self.next, state: PendingJoinState::New(request) };
        self.next += 1;
        self.all.insert(key.to_bytes(), join);
        Ok(())
    }

    pub(super) fn is_waiting(&self, key: &IdentityPublicKey) -> bool {
        let join = self.all.get(&key.to_bytes());
        join.is_some_and(|join| !matches!(join.state, PendingJoinState::Answered(_)))
    }

    /// The number of requests without an answer.
    pub(super) fn count(&self) -> usize {
        let is_answered = |join: &&PendingJoin| matches!(join.state, PendingJoinState::Answered(_));
        self.all.values().filter(|join| !is_answered(join)).count()
    }

    /// The requests that were passed on and have no answer.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (IdentityPublicKey, Vec<u8>)> {
        self.all.values().filter_map(|join| match &join.state {
            PendingJoinState::Waiting(request) => Some((join.key, request.clone())),
            PendingJoinState::New(_) | PendingJoinState::Answered(_) => None,
        })
    }

    /// The next request to pass on to the administrators: the oldest one. They get at most
    /// [`MAX_JOINS_PASSED_ON`] in an interval, however many connections requests come by.
    pub(super) fn pass_on(
        &mut self,
        now: Duration,
        interval: Duration,
    ) -> Option<(IdentityPublicKey, Vec<u8>)> {
        let new = |join: &&mut PendingJoin| matches!(join.state, PendingJoinState::New(_));
        let join = self.all.values_mut().filter(new).min_by_key(|join| join.order)?;
        self.passed_on.add(now, interval, MAX_JOINS_PASSED_ON).ok()?;
        let PendingJoinState::New(request) = &mut join.state else { return None };
        let request = std::mem::take(request);
        join.state = PendingJoinState::Waiting(request.clone());
        Some((join.key, request))
    }

    /// When the next request can be passed on, if one waits for that.
    pub(super) fn timeout(&self, interval: Duration) -> Option<Duration> {
        let is_new = |join: &PendingJoin| matches!(join.state, PendingJoinState::New(_));
        self.all.values().any(is_new).then(|| self.passed_on.next_interval(interval))
    }

    /// Keeps an answer until its client connects. An answer without a request is dropped.
    pub(super) fn answer(&mut self, key: &IdentityPublicKey, answer: Vec<u8>) {
        if let Some(join) = self.all.get_mut(&key.to_bytes()) {
            join.state = PendingJoinState::Answered(answer);
        }
    }

    /// The answer that was kept for a client.
    pub(super) fn take_answer(&mut self, key: &IdentityPublicKey) -> Option<Vec<u8>> {
        match self.all.remove(&key.to_bytes())? {
            PendingJoin { state: PendingJoinState::Answered(answer), .. } => Some(answer),
            waiting @ PendingJoin { .. } => {
                self.all.insert(key.to_bytes(), waiting);
                None
            }
        }
    }

    /// Drops the request of a client. Returns whether there was one.
    pub(super) fn remove(&mut self, key: &IdentityPublicKey) -> bool {
        self.all.remove(&key.to_bytes()).is_some()
    }

    /// Drops the requests of clients that are members now.
    pub(super) fn remove_members(&mut self, epoch: &AnnouncedEpoch) {
        let is_due = |join: &PendingJoin| {
            matches!(join.state, PendingJoinState::Answered(_))
                || epoch.number_of(&join.key).is_none()
        };
        self.all.retain(|_, join| is_due(join));
    }
}

/// The last notices of each member: the last one that it leaves, and the last other one. So a
/// prekey, which is sent in each connection, does not take the place of the wish to leave. Notices
/// are kept even after the administrator has seen them. A wish to leave is dropped when a later
/// notice comes: the member has joined again.
///
/// That a member leaves comes first: an administrator that has learnt a later prekey would take it
/// for an old notice.
#[derive(Default)]
pub(super) struct LastNotices(BTreeMap<([u8; 32], NoticePlace), (IdentityPublicKey, Vec<u8>)>);

/// The order of a member's notices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NoticePlace {
    Leave,
    Other,
}

impl LastNotices {
    /// Stores a member's notice. Returns whether it differs from the previous one.
    pub(super) fn insert(&mut self, key: &IdentityPublicKey, notice: Vec<u8>) -> bool {
        let is_leave = MemberNotice::is_leave(&notice);
        let at = (key.to_bytes(), if is_leave { NoticePlace::Leave } else { NoticePlace::Other });
        let leave = (key.to_bytes(), NoticePlace::Leave);
        let number = MemberNotice::number_in(&notice);
        if !is_leave
            && self.0.get(&leave).is_some_and(|(_, old)| MemberNotice::number_in(old) < number)
        {
            self.0.remove(&leave);
        }
        let before = self.0.insert(at, (*key, notice));
        let now = &self.0[&at].1;
        before.is_none_or(|(_, before)| before != *now)
    }

    /// All of them, in the order in which an administrator gets them.
    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = (IdentityPublicKey, Vec<u8>)> {
        self.0.values().map(|(key, notice)| (*key, notice.clone()))
    }

    /// Drops the notices of clients that are not members of the epoch.
    pub(super) fn keep_members(&mut self, epoch: &AnnouncedEpoch) {
        self.0.retain(|_, (key, _)| epoch.number_of(key).is_some());
    }
}

//! A bounded queue between two threads, which either side can close.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A queue, bounded by the sum of its items' weights.
#[derive(Debug)]
pub(crate) struct WeightedQueue<T> {
    state: Mutex<WeightedQueueState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct WeightedQueueState<T> {
    items: VecDeque<(T, usize)>,
    weight: usize,
    max_weight: usize,
    is_closed: bool,
}

/// Why an item was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightedPushError {
    /// The queue is closed.
    Closed,
    /// There was no room within the time limit.
    Full,
}

/// The result of [`WeightedQueue::pop_within`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WeightedPopResult<T> {
    Item(T),
    /// No item within the time limit.
    Nothing,
    /// The queue is closed and empty.
    Closed,
}

impl<T> WeightedQueue<T> {
    pub(crate) fn new(max_weight: usize) -> Self {
        let state =
            WeightedQueueState { items: VecDeque::new(), weight: 0, max_weight, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, WeightedQueueState<T>> {
        // A poisoned lock is safe to use, because changes are complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, for a limited time, and adds an item. An empty queue accepts an item of any
    /// weight.
    ///
    /// # Errors
    /// If the queue is closed, or stays full.
    pub(crate) fn push(
        &self,
        item: T,
        weight: usize,
        limit: Duration,
    ) -> Result<(), WeightedPushError> {
        // No time limit if it cannot be represented.
        let end = Instant::now().checked_add(limit);
        let mut state = self.lock();
        while !state.is_closed
            && !state.items.is_empty()
            && state.weight + weight > state.max_weight
        {
            let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(WeightedPushError::Full);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.is_closed {
            return Err(WeightedPushError::Closed);
        }
        state.items.push_back((item, weight));
        state.weight += weight;
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for an item; `None` if the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = self.take(&mut state) {
                return Some(item);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for an item for a limited time.
    pub(crate) fn pop_within(&self, limit: Duration) -> WeightedPopResult<T> {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(item) = self.take(&mut state) {
                return WeightedPopResult::Item(item);
            }
            if state.is_closed {
                return WeightedPopResult::Closed;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return WeightedPopResult::Nothing;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// An item if there is one now.
    pub(crate) fn try_pop(&self) -> Option<T> {
        self.take(&mut self.lock())
    }

    fn take(&self, state: &mut WeightedQueueState<T>) -> Option<T> {
        let (item, weight) = state.items.pop_front()?;
        state.weight -= weight;
        self.changed.notify_all();
        Some(item)
    }

    /// Waits until all items are taken, or the queue is closed, for a limited time.
    pub(crate) fn wait_until_taken(&self, limit: Duration) {
        let is_waiting =
            |state: &mut WeightedQueueState<T>| !state.items.is_empty() && !state.is_closed;
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_waiting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Closes the queue for new items. Present items can still be taken.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Closes the queue after a last item, which is always accepted.
    pub(crate) fn close_after(&self, last: Option<T>) {
        let mut state = self.lock();
        if !state.is_closed {
            state.is_closed = true;
            state.items.extend(last.map(|item| (item, 0)));
        }
        self.changed.notify_all();
    }

    /// Closes the queue and drops its items.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.items.clear();
        state.weight = 0;
        self.changed.notify_all();
    }

    /// Changes the bound.
    pub(crate) fn set_max_weight(&self, max_weight: usize) {
        self.lock().max_weight = max_weight;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(9);

    #[test]
    fn items_are_taken_in_their_order() {
        let queue = Arc::new(WeightedQueue::new(3));
        let pushing = queue.clone();
        let thread = thread::spawn(move || {
            let pushed = (0..1_000).all(|item| pushing.push(item, 1 + item % 4, LONG).is_ok());
            pushing.close();
            pushed
        });
        let taken: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert!(thread.join().unwrap());
        assert_eq!(taken, (0..1_000).collect::<Vec<_>>());
        assert_eq!(queue.push(0, 0, LONG), Err(WeightedPushError::Closed));
    }

    #[test]
    fn closing_the_queue_ends_waiting_pushes() {
        let queue = Arc::new(WeightedQueue::new(1));
        queue.push(1, 1, LONG).unwrap();
        let pushing = queue.clone();
        let thread = thread::spawn(move || pushing.push(2, 1, LONG));
        queue.close_after(Some(9));
        assert_eq!(thread.join().unwrap(), Err(WeightedPushError::Closed));
        assert_eq!(queue.pop_within(LONG), WeightedPopResult::Item(1));
        assert_eq!(queue.pop_within(LONG), WeightedPopResult::Item(9));
        assert_eq!(queue.pop_within(LONG), WeightedPopResult::Closed);
    }

    #[test]
    fn wait_until_taken_returns_when_items_are_taken() {
        let queue = Arc::new(WeightedQueue::new(2));
        queue.push(1, 1, LONG).unwrap();
        queue.push(2, 1, LONG).unwrap();
        let taking = queue.clone();
        let thread = thread::spawn(move || [taking.pop(), taking.pop()]);
        queue.wait_until_taken(LONG);
        assert_eq!(queue.try_pop(), None);
        assert_eq!(thread.join().unwrap(), [Some(1), Some(2)]);
    }

    #[test]
    fn queue_waits_time_out() {
        let queue = WeightedQueue::new(1);
        let short = Duration::from_millis(1);
        queue.push((), 0, LONG).unwrap();
        queue.wait_until_taken(short);
        assert_eq!(queue.try_pop(), Some(()));
        queue.wait_until_taken(LONG);
        let closed = WeightedQueue::new(1);
        closed.close_after(Some(()));
        closed.wait_until_taken(LONG);
        assert_eq!(queue.pop_within(short), WeightedPopResult::Nothing);
        queue.push((), 1, Duration::MAX).unwrap();
        assert_eq!(queue.try_pop(), Some(()));
        queue.push((), 2, short).unwrap();
        assert_eq!(queue.push((), 1, short), Err(WeightedPushError::Full));
    }
}

//! Worker threads for the engines, one for each processor. The groups take turns, so that the jobs
//! of a large group do not delay those of small ones.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::lock;

type ProxyWorkerTask = Box<dyn FnOnce() + Send>;

/// A handle of one group to the worker threads. They end when the last handle is dropped and no
/// work is left.
#[derive(Debug)]
pub(super) struct ProxyWorkers {
    queues: Arc<ProxyWorkerQueues>,
    group: u64,
}

#[derive(Default)]
struct ProxyWorkerQueues {
    state: Mutex<ProxyWorkerState>,
    changed: Condvar,
}

#[derive(Default)]
struct ProxyWorkerState {
    /// The groups that have tasks, in the order of their turns, each with its tasks.
    groups: VecDeque<(u64, VecDeque<ProxyWorkerTask>)>,
    handles: usize,
    next_group: u64,
}

impl std::fmt::Debug for ProxyWorkerQueues {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ProxyWorkerQueues").finish_non_exhaustive()
    }
}

impl ProxyWorkers {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system cannot create them.
    pub(super) fn start() -> io::Result<Self> {
        let workers = Self::handle(&Arc::default());
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let queues = workers.queues.clone();
            thread::Builder::new().name("mix-work".into()).spawn(move || queues.work())?;
        }
        Ok(workers)
    }

    /// A handle of another group.
    pub(super) fn of_another_group(&self) -> Self {
        Self::handle(&self.queues)
    }

    fn handle(queues: &Arc<ProxyWorkerQueues>) -> Self {
        let mut state = lock(&queues.state);
        state.handles += 1;
        state.next_group += 1;
        Self { queues: queues.clone(), group: state.next_group }
    }

    /// Runs a task as soon as it is the group's turn and a thread is free. The callers bound the
    /// number of queued tasks.
    pub(super) fn spawn(&self, task: impl FnOnce() + Send + 'static) {
        lock(&self.queues.state).push(self.group, Box::new(task));
        self.queues.changed.notify_one();
    }
}

impl Drop for ProxyWorkers {
    fn drop(&mut self) {
        lock(&self.queues.state).handles -= 1;
        self.queues.changed.notify_all();
    }
}

impl ProxyWorkerState {
    fn push(&mut self, group: u64, task: ProxyWorkerTask) {
        match self.groups.iter_mut().find(|(other, _)| *other == group) {
            Some((_, tasks)) => tasks.push_back(task),
            None => self.groups.push_back((group, VecDeque::from([task]))),
        }
    }

    /// The next task of the group whose turn it is.
    fn pop(&mut self) -> Option<ProxyWorkerTask> {
        let (group, mut tasks) = self.groups.pop_front()?;
        let task = tasks.pop_front();
        if !tasks.is_empty() {
            self.groups.push_back((group, tasks));
        }
        task
    }
}

impl ProxyWorkerQueues {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.pop() {
                drop(state);
                task();
                state = lock(&self.state);
            } else if state.handles == 0 {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn groups_take_turns_at_the_workers() {
        let (sender, done) = channel();
        let mut state = ProxyWorkerState::default();
        for (group, name) in [(1, 'a'), (1, 'b'), (1, 'c'), (2, 'x'), (3, 'y'), (2, 'z')] {
            let sender = sender.clone();
            state.push(group, Box::new(move || sender.send(name).unwrap()));
        }
        while let Some(task) = state.pop() {
            task();
        }
        assert_eq!(done.try_iter().collect::<String>(), "axybzc");
    }

    #[test]
    fn workers_end_with_their_last_handle() {
        let workers = ProxyWorkers::start().unwrap();
        let (other, queues) = (workers.of_another_group(), Arc::downgrade(&workers.queues));
        let (sender, done) = channel();
        other.spawn(move || sender.send(()).unwrap());
        drop((workers, other));
        done.recv().unwrap();
        while queues.strong_count() > 0 {
            thread::yield_now();
        }
    }
}

//! Threads that process jobs. Jobs are added and taken in order.
//!
//! The results do not depend on the number of threads: a job begins when the jobs that it depends
//! on are complete, and jobs are taken in the order in which they were added.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use circuit::MAX_UNDER_WAY;
use random::wipe_stack;

use crate::arena::PartLabelBuffer;

/// The function that processes a job.
type CircuitJobFn<'a, J> = dyn Fn(&mut PartLabelBuffer, &mut J) + Sync + 'a;

/// The pending jobs, for the thread that adds and takes them. While it waits for the next result,
/// this thread processes jobs itself.
pub struct CircuitJobPool<'a, J> {
    shared: &'a SharedCircuitJobs<J>,
    work: &'a CircuitJobFn<'a, J>,
    memory: PartLabelBuffer,
    /// The number of jobs that were added and not taken.
    count: usize,
    max_count: usize,
}

struct SharedCircuitJobs<J> {
    jobs: Mutex<CircuitJobQueue<J>>,
    changed: Condvar,
}

struct CircuitJobQueue<J> {
    /// The number of the first entry.
    first: u64,
    /// In order.
    entries: VecDeque<CircuitJobEntry<J>>,
    is_closed: bool,
    has_panicked: bool,
}

struct CircuitJobEntry<J> {
    dependencies: u32,
    stage: CircuitJobStage<J>,
}

enum CircuitJobStage<J> {
    Added(J),
    Begun,
    Complete(J),
}

/// Runs `drive` while this thread and `threads - 1` others process the jobs that it adds. Jobs that
/// are not taken when it returns are dropped.
///
/// # Panics
/// If `work` or `drive` panics.
pub fn with_workers<J: Send, T>(
    threads: usize,
    work: impl Fn(&mut PartLabelBuffer, &mut J) + Sync,
    drive: impl FnOnce(&mut CircuitJobPool<'_, J>) -> T,
) -> T {
    let jobs = CircuitJobQueue {
        first: 0,
        entries: VecDeque::new(),
        is_closed: false,
        has_panicked: false,
    };
    let shared = SharedCircuitJobs { jobs: Mutex::new(jobs), changed: Condvar::new() };
    let (shared, work) = (&shared, &work);
    thread::scope(|scope| {
        for _ in 1..threads.min(MAX_UNDER_WAY) {
            // If a thread cannot be created, the work takes longer.
            let _ = thread::Builder::new()
                .name("garble".into())
                .spawn_scoped(scope, || shared.work(work));
        }
        let _closing = CircuitJobCloseGuard(shared);
        // One job in progress and one waiting for each thread.
        let max_count = if threads < 2 { 1 } else { (2 * threads).min(MAX_UNDER_WAY) };
        drive(&mut CircuitJobPool {
            shared,
            work,
            memory: PartLabelBuffer::default(),
            count: 0,
            max_count,
        })
    })
}

impl<J> CircuitJobPool<'_, J> {
    /// Whether one more job can be added.
    pub fn has_room(&self) -> bool {
        self.count < self.max_count
    }

    /// Whether all jobs are taken.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a job. If bit k of `waits` is set, it begins only after the job that was added k + 1
    /// before it is complete.
    ///
    /// # Panics
    /// If there is no room.
    pub fn add(&mut self, job: J, waits: u32) {
        assert!(self.has_room(), "too many jobs");
        self.count += 1;
        self.shared
            .lock()
            .entries
            .push_back(CircuitJobEntry { dependencies: waits, stage: CircuitJobStage::Added(job) });
        if self.max_count > 1 {
            self.shared.changed.notify_one();
        }
    }

    /// Waits until the oldest job is complete, and takes it. `None` if there is no job.
    ///
    /// # Panics
    /// If a job has panicked in another thread.
    pub fn take(&mut self) -> Option<J> {
        let mut jobs = self.shared.lock();
        while self.count > 0 {
            assert!(!jobs.has_panicked, "a thread has panicked");
            if let Some(job) = jobs.take_first() {
                self.count -= 1;
                return Some(job);
            }
            jobs = match jobs.begin() {
                Some((number, job)) => {
                    drop(jobs);
                    self.shared.run(number, job, &mut self.memory, self.work)
                }
                None => self.shared.wait(jobs),
            };
        }
        None
    }
}

impl<J> SharedCircuitJobs<J> {
    fn lock(&self) -> MutexGuard<'_, CircuitJobQueue<J>> {
        // Every change is complete before anything can panic.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &'a self,
        jobs: MutexGuard<'a, CircuitJobQueue<J>>,
    ) -> MutexGuard<'a, CircuitJobQueue<J>> {
        self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes jobs until there are no more.
    fn work(&self, work: &CircuitJobFn<'_, J>) {
        let mut memory = PartLabelBuffer::default();
        let mut jobs = self.lock();
        while !jobs.is_closed {
            jobs = match jobs.begin() {
                Some((number, job)) => {
                    drop(jobs);
                    self.run(number, job, &mut memory, work)
                }
                None => self.wait(jobs),
            };
        }
        drop(jobs);
        wipe_stack();
    }

    /// Runs a job that has begun.
    fn run(
        &self,
        number: u64,
        mut job: J,
        memory: &mut PartLabelBuffer,
        work: &CircuitJobFn<'_, J>,
    ) -> MutexGuard<'_, CircuitJobQueue<J>> {
        let panicking = CircuitJobPanicGuard(self);
        work(memory, &mut job);
        std::mem::forget(panicking);
        let mut jobs = self.lock();
        jobs.complete(number, job);
        self.changed.notify_all();
        jobs
    }
}

impl<J> CircuitJobQueue<J> {
    /// The first job that can begin, and its number.
    fn begin(&mut self) -> Option<(u64, J)> {
        // Bit k is set if the job k + 1 before is not complete.
        let mut pending = 0_u32;
        for (number, entry) in (self.first..).zip(&mut self.entries) {
            let is_ready = matches!(entry.stage, CircuitJobStage::Added(_))
                && entry.dependencies & pending == 0;
            if is_ready
                && let CircuitJobStage::Added(job) =
                    std::mem::replace(&mut entry.stage, CircuitJobStage::Begun)
            {
                return Some((number, job));
            }
            let is_complete = matches!(entry.stage, CircuitJobStage::Complete(_));
            pending = pending << 1 | u32::from(!is_complete);
        }
        None
    }

    fn complete(&mut self, number: u64, job: J) {
        // It is not taken before it is complete.
        let at = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        self.entries[at].stage = CircuitJobStage::Complete(job);
    }

    /// The first job, if it is complete.
    fn take_first(&mut self) -> Option<J> {
        if !matches!(self.entries.front()?.stage, CircuitJobStage::Complete(_)) {
            return None;
        }
        self.first += 1;
        match self.entries.pop_front()?.stage {
            CircuitJobStage::Complete(job) => Some(job),
            _ => None,
        }
    }
}

/// Ends the threads when it is dropped.
struct CircuitJobCloseGuard<'a, J>(&'a SharedCircuitJobs<J>);

impl<J> Drop for CircuitJobCloseGuard<'_, J> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

/// Records that a job has panicked if it is dropped.
struct CircuitJobPanicGuard<'a, J>(&'a SharedCircuitJobs<J>);

impl<J> Drop for CircuitJobPanicGuard<'_, J> {
    fn drop(&mut self) {
        let mut jobs = self.0.lock();
        jobs.has_panicked = true;
        jobs.is_closed = true;
        drop(jobs);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn jobs_are_taken_in_order_and_begin_after_their_dependencies() {
        let mut rng = 1_u32;
        for threads in [1, 2, 4, 40] {
            let is_complete: Vec<AtomicBool> = (0..1_000).map(|_| AtomicBool::new(false)).collect();
            let waits: Vec<u32> = (0..1_000)
                .map(|_| {
                    rng = rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    rng & rng >> 7 & rng >> 13
                })
                .collect();
            let work = |_: &mut PartLabelBuffer, job: &mut (usize, bool)| {
                let at = job.0;
                let named = (0..at.min(32)).filter(|k| waits[at] >> k & 1 == 1);
                let mut before = named.map(|k| at - 1 - k);
                let all = before.all(|other| is_complete[other].load(Ordering::Acquire));
                let old =
                    at < MAX_UNDER_WAY || is_complete[at - MAX_UNDER_WAY].load(Ordering::Acquire);
                job.1 = all && old;
                is_complete[at].store(true, Ordering::Release);
            };
            let taken = with_workers(threads, work, |workers| {
                let mut taken = Vec::new();
                for (at, &waits) in waits.iter().enumerate() {
                    if !workers.has_room() {
                        taken.extend(workers.take());
                    }
                    workers.add((at, false), waits);
                }
                taken.extend(std::iter::from_fn(|| workers.take()));
                assert!(workers.is_empty());
                taken
            });
            assert!(taken.iter().copied().eq((0..1_000).map(|at| (at, true))), "{threads}");
        }
    }

    #[test]
    fn untaken_jobs_are_dropped() {
        with_workers(3, |_, _: &mut u32| {}, |workers| workers.add(1, 0));
    }

    #[test]
    #[should_panic(expected = "panicked")]
    fn a_panic_in_a_job_is_passed_on() {
        with_workers(
            2,
            |_, job: &mut u32| assert!(*job < 5, "panicked"),
            |workers| {
                for job in 0..10 {
                    if !workers.has_room() {
                        workers.take();
                    }
                    workers.add(job, 0);
                }
                while workers.take().is_some() {}
            },
        );
    }
}

//! Worker threads for the jobs of all servers, one per processor.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{Scope, available_parallelism};
use std::time::Duration;

use random::{RandomError, RandomGenerator};

use super::processor_time::measured;
use crate::protocol::refresh::{RefreshJob, RefreshJobResult};

/// A job, and where to send its result.
pub(super) struct WorkerJob<T, K> {
    pub(super) job: RefreshJob,
    pub(super) kind: K,
    pub(super) reply: Sender<T>,
}

/// The result of a job, with its kind and the processor time that it took.
pub(super) struct WorkerJobResult<K> {
    pub(super) result: Result<RefreshJobResult, RandomError>,
    pub(super) kind: K,
    pub(super) took: Duration,
}

/// Starts the threads. They end when all senders of jobs are dropped.
pub(super) fn start<'scope, T, K>(
    scope: &'scope Scope<'scope, '_>,
    orders: &'scope Mutex<Receiver<WorkerJob<T, K>>>,
) where
    T: From<WorkerJobResult<K>> + Send + 'scope,
    K: Send + 'scope,
{
    for _ in 0..available_parallelism().map_or(1, usize::from) {
        scope.spawn(|| {
            let mut generator = RandomGenerator::seeded();
            loop {
                let next = orders.lock().map(|orders| orders.recv());
                let Ok(Ok(WorkerJob { job, kind, reply })) = next else { return };
                let (result, took) = measured(|| match &mut generator {
                    Ok(generator) => job.run(generator),
                    Err(error) => Err(*error),
                });
                // Nothing receives it if the server has ended.
                let _ = reply.send(T::from(WorkerJobResult { result, kind, took }));
            }
        });
    }
}

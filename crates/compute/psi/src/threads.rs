//! Work in as many threads as there are processors.

use std::panic;
use std::thread;

use crate::error::Error;

/// The maximum number of threads.
const MAX_THREADS: usize = 64;

/// Divides items among threads, and returns what each has made of its part, in order.
///
/// # Errors
/// If the work fails, or the system starts no thread.
pub(crate) fn in_threads<T: Sync, U: Send>(
    items: &[T],
    work: impl Fn(&[T]) -> Result<U, Error> + Sync,
) -> Result<Vec<U>, Error> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let mut parts = items.chunks(items.len().div_ceil(threads).max(1));
    let own = parts.next_back();
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = parts
            .map(|part| thread::Builder::new().spawn_scoped(scope, move || work(part)))
            .collect();
        let own = own.map(work);
        let mut done = Vec::with_capacity(threads);
        for other in others {
            let joined = other.map_err(Error::Io)?.join();
            done.push(joined.unwrap_or_else(|cause| panic::resume_unwind(cause))?);
        }
        done.extend(own.transpose()?);
        Ok(done)
    })
}

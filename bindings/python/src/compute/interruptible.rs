//! Work in another thread, while this one checks for Ctrl-C and reports the progress.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use pyo3::prelude::*;

use crate::errors::SIGNALS_EVERY;

/// Runs `work` in another thread, without the interpreter's lock. Meanwhile this thread regularly
/// checks for signals and calls `report`, and does so a last time when the work is done. If either
/// raises an exception, calls `stop`, which must end the work, and returns the exception.
pub(super) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send,
    report: impl Fn(Python<'_>) -> PyResult<()> + Send,
    stop: impl Fn() + Send,
) -> PyResult<T> {
    let look = move || Python::attach(|py| py.check_signals().and_then(|()| report(py)));
    py.detach(move || {
        thread::scope(|scope| {
            let (done, is_done) = channel();
            let task = move || {
                let result = work();
                // The other end waits until this one is dropped.
                let _ = done.send(());
                result
            };
            let worker = thread::Builder::new().name("sunder-compute".into());
            let worker = worker.spawn_scoped(scope, task)?;
            let mut raised = None;
            while is_done.recv_timeout(SIGNALS_EVERY) == Err(RecvTimeoutError::Timeout) {
                if raised.is_none() {
                    raised = look().err();
                    if raised.is_some() {
                        stop();
                    }
                }
            }
            let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match raised {
                Some(raised) => Err(raised),
                None => look().map(|()| result),
            }
        })
    })
}

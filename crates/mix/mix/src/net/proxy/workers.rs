//! Worker threads for the engines, one for each processor.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type ProxyWorkerTask = Box<dyn FnOnce() + Send>;

/// A handle to the worker threads. They end when the last clone is dropped and no work is left.
#[derive(Clone)]
pub(super) struct ProxyWorkers(Sender<ProxyWorkerTask>);

impl std::fmt::Debug for ProxyWorkers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ProxyWorkers").finish_non_exhaustive()
    }
}

impl ProxyWorkers {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system cannot create them.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let receiver = receiver.clone();
            thread::Builder::new().name("mix-work".into()).spawn(move || work(&receiver))?;
        }
        Ok(Self(sender))
    }

    /// Runs a job as soon as a thread is free. The callers bound the number of queued jobs.
    pub(super) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        // The receiver exists as long as this handle.
        let _ = self.0.send(Box::new(work));
    }
}

fn work(receiver: &Mutex<Receiver<ProxyWorkerTask>>) {
    loop {
        let taken = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match taken {
            Ok(work) => work(),
            Err(_) => return,
        }
    }
}

//! Threads for the engines' work, one for each processor.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type ProxyWorkerTask = Box<dyn FnOnce() + Send>;

/// Gives work to the threads. They end when the last clone is dropped and no work is left.
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
    /// When the system gives none.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let receiver = receiver.clone();
            thread::Builder::new().name("mix-work".into()).spawn(move || work(&receiver))?;
        }
        Ok(Self(sender))
    }

    /// Does this as soon as a thread is free. What waits is bounded by who gives the work.
    pub(super) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        // The receiver is there as long as this is.
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

//! The send queue of a connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use transport::{ConnectionCloser, ConnectionWriter, MessageStream};

/// The maximum number of queued messages of one connection.
const MAX_WAITING: usize = 1024;

/// The stack size of a thread that only moves bytes.
pub(super) const STACK_LEN: usize = 256 << 10;

/// Writes messages in its own thread, so that a peer that does not read blocks nobody else. When
/// dropped, it closes the connection after the queued messages are written.
#[derive(Debug)]
pub(super) struct ConnectionOutbox {
    messages: SyncSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    max_bytes: usize,
    closer: ConnectionCloser,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl ConnectionOutbox {
    /// Starts the thread. At most `max_bytes` are queued, plus one message.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        writer: ConnectionWriter,
        closer: ConnectionCloser,
        max_bytes: usize,
    ) -> io::Result<Self> {
        let (messages, taken) = sync_channel(MAX_WAITING);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (written, to_close) = (waiting.clone(), closer.clone());
        let (running, ended) = sync_channel(0);
        let work = move || {
            let _running: SyncSender<()> = running;
            // The reading thread notices errors as well. Without an error, this waits for the last
            // bytes.
            _ = write(&taken, MessageStream::new(writer), &written);
            to_close.close();
        };
        thread::Builder::new().name("mix-write".into()).stack_size(STACK_LEN).spawn(work)?;
        Ok(Self { messages, waiting, max_bytes, closer, ended })
    }

    /// Queues a message. If the peer is too slow or gone, closes the connection and returns false.
    pub(super) fn send(&self, message: Vec<u8>) -> bool {
        let len = message.len();
        let waiting = self.waiting.fetch_add(len, Ordering::Relaxed);
        let is_taken = waiting <= self.max_bytes && self.messages.try_send(message).is_ok();
        if !is_taken {
            self.closer.close();
        }
        is_taken
    }

    /// Closes the connection when the queued messages are written, at the latest after `limit`.
    pub(super) fn finish(self, limit: Duration) {
        let Self { messages, closer, ended, .. } = self;
        drop(messages);
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            closer.close();
        }
    }

    /// Closes the connection at once.
    pub(super) fn close(&self) {
        self.closer.close();
    }
}

fn write(
    taken: &Receiver<Vec<u8>>,
    mut messages: MessageStream<ConnectionWriter>,
    waiting: &AtomicUsize,
) -> io::Result<()> {
    while let Ok(message) = taken.recv() {
        let mut next = Some(message);
        while let Some(message) = next {
            messages.send(&message)?;
            waiting.fetch_sub(message.len(), Ordering::Relaxed);
            next = taken.try_recv().ok();
        }
        messages.flush()?;
    }
    Ok(())
}

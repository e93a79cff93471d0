//! The send queue of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use std::{hint, io};

use transport::{ConnectionCloser, ConnectionWriter, MessageStream};

/// The memory of a queued message besides its bytes, so that short messages are bounded as well.
const MESSAGE_OVERHEAD: usize = 128;

/// The stack size of a thread that only moves bytes.
pub(super) const STACK_LEN: usize = 256 << 10;

/// How long before the time of a message its thread is awake: a thread that has just been woken
/// writes later, and how much later depends on what the processor did meanwhile.
const AWAKE_BEFORE: Duration = Duration::from_micros(300);

/// A message that waits. Several connections may share its bytes.
struct OutboxMessage {
    bytes: Arc<[u8]>,
    /// When it may be written at the earliest.
    not_before: Option<Instant>,
    /// To be called when it is written.
    on_written: Option<Box<dyn FnOnce() + Send>>,
}

/// Writes messages in its own thread, so that a peer that does not read blocks nobody else. When
/// dropped, it closes the connection after the queued messages are written.
#[derive(Debug)]
pub(super) struct ConnectionOutbox {
    messages: Sender<OutboxMessage>,
    waiting: Arc<AtomicUsize>,
    max_bytes: usize,
    closer: ConnectionCloser,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl ConnectionOutbox {
    /// Starts the thread. At most `max_bytes` are queued, counting 128 bytes more for each message,
    /// plus one message.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        writer: ConnectionWriter,
        closer: ConnectionCloser,
        max_bytes: usize,
    ) -> io::Result<Self> {
        let (messages, taken) = channel();
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
    pub(super) fn send(&self, message: impl Into<Arc<[u8]>>) -> bool {
        self.queue(OutboxMessage { bytes: message.into(), not_before: None, on_written: None })
    }

    /// The same for a message that is written at this time, or at once if it has passed. Messages
    /// that are queued later are written after it.
    pub(super) fn send_at(&self, message: Vec<u8>, at: Instant) -> bool {
        self.queue(OutboxMessage { bytes: message.into(), not_before: Some(at), on_written: None })
    }

    /// The same. Calls `on_written` when the kernel has taken the message.
    pub(super) fn send_then(
        &self,
        message: Arc<[u8]>,
        on_written: impl FnOnce() + Send + 'static,
    ) -> bool {
        let on_written = Some(Box::new(on_written) as Box<_>);
        self.queue(OutboxMessage { bytes: message, not_before: None, on_written })
    }

    fn queue(&self, message: OutboxMessage) -> bool {
        let waiting = self.waiting.fetch_add(message.memory(), Ordering::Relaxed);
        let is_taken = waiting <= self.max_bytes && self.messages.send(message).is_ok();
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

impl OutboxMessage {
    fn memory(&self) -> usize {
        self.bytes.len() + MESSAGE_OVERHEAD
    }
}

fn write(
    taken: &Receiver<OutboxMessage>,
    mut messages: MessageStream<ConnectionWriter>,
    waiting: &AtomicUsize,
) -> io::Result<()> {
    while let Ok(message) = taken.recv() {
        let (mut next, mut written) = (Some(message), Vec::<Box<dyn FnOnce() + Send>>::new());
        while let Some(message) = next {
            if let Some(time) = message.not_before {
                // What is ready does not wait for the time of a later message.
                messages.flush()?;
                written.drain(..).for_each(|on_written| on_written());
                wait_until(time);
            }
            messages.send(&message.bytes)?;
            waiting.fetch_sub(message.memory(), Ordering::Relaxed);
            written.extend(message.on_written);
            next = taken.try_recv().ok();
        }
        messages.flush()?;
        for on_written in written {
            on_written();
        }
    }
    Ok(())
}

/// Waits until `time` without sleeping at last, so that what follows is not later if the processor
/// has just slept.
fn wait_until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()).saturating_sub(AWAKE_BEFORE));
    while Instant::now() < time {
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use transport::{ConnectionOptions, ConnectionSecurity, Listener, connect, random_identity};

    use super::*;

    /// A proxy could otherwise measure with a second message what a member does.
    #[test]
    fn what_is_ready_does_not_wait_for_the_time_of_a_later_message() {
        let security = ConnectionSecurity::open(random_identity().unwrap());
        let key = security.public_key().unwrap();
        let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security)).unwrap();
        let address = listener.local_addr().to_string();
        let pinned = ConnectionSecurity::pinned(random_identity().unwrap(), vec![key]);
        let other = thread::spawn(move || connect(&address, &ConnectionOptions::new(pinned)));
        let connection = listener.accept().unwrap();
        let closer = connection.closer();
        let (_reader, writer) = connection.split();
        let outbox = ConnectionOutbox::start(writer, closer, 1 << 20).unwrap();

        let (written, is_written) = sync_channel(1);
        let on_written = move || written.send(()).unwrap();
        let hour = Instant::now() + Duration::from_secs(3600);
        assert!(outbox.send_then(b"first".to_vec().into(), on_written));
        assert!(outbox.send_at(b"in an hour".to_vec(), hour));
        assert!(outbox.send(b"after it".to_vec()));

        let mut received = MessageStream::new(other.join().unwrap().unwrap());
        assert_eq!(received.receive(100).unwrap().unwrap(), b"first");
        is_written.recv_timeout(Duration::from_secs(60)).expect("the first one is written");
        // Closing does not wait for the hour.
        outbox.close();
        assert_eq!(received.receive(100).ok().flatten(), None, "a message was early");
    }
}

//! The poll loop of a stream: it moves available bytes between the connections and the protocol.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};

use crate::net::metrics::{ChannelWaitTimer, RedundancyGauge};
use crate::net::paths::path::PathNotifier;
use crate::net::stream::connection::{ChannelReader, ChannelWriter};
use crate::net::stream::open_count::{OpenStreamCountGuard, are_many_open};
use crate::net::stream::path_states::StreamPaths;
use crate::net::tcp_info::{set_receive_buffer, unacknowledged_for};
use crate::protocol::receive_buffer::ReceiveBufferLimiter;
use crate::protocol::stream::{StreamEndpoint, StreamProtocolEvent};

/// How much earlier than its deadline a timer may fire: resetting it after every byte would be
/// slower.
const TIMER_SLACK: Duration = Duration::from_millis(500);

/// From the application to the channels.
pub(super) struct ApplicationToChannels<'a> {
    pub(super) application: Option<ReadHalf<'a>>,
    /// By the channels' indices.
    pub(super) channels: Vec<Option<ChannelWriter<'a>>>,
}

/// From the channels to the application.
pub(super) struct ChannelsToApplication<'a> {
    /// By the channels' indices.
    pub(super) channels: Vec<Option<ChannelReader<'a>>>,
    pub(super) application: Option<WriteHalf<'a>>,
}

/// The state that the poll loop keeps between calls.
pub(super) struct StreamPump {
    pub(super) clock: Arc<PathNotifier>,
    pub(super) paths: StreamPaths,
    /// The system's errors of channels that have broken, by their indices.
    pub(super) errors: Vec<Option<io::Error>>,
    /// The system's error of the application's connection.
    pub(super) application_error: Option<io::Error>,
    /// Counts the stream by the number of channels that it can lose.
    pub(super) spare: Option<RedundancyGauge>,
    timer: DeadlineSleep,
    turn: SearchPermit,
    /// A read of the application was started and found nothing.
    is_reading: bool,
    application_buffer: ReceiveBufferLimiter,
    _open: OpenStreamCountGuard,
    /// Measures how long the stream has waited for a channel.
    pub(super) awaited: Option<ChannelWaitTimer>,
}

impl StreamPump {
    pub(super) fn new(channels: usize, clock: Arc<PathNotifier>) -> Self {
        Self {
            timer: DeadlineSleep::new(&clock),
            clock,
            paths: StreamPaths::default(),
            errors: (0..channels).map(|_| None).collect(),
            application_error: None,
            spare: None,
            turn: SearchPermit::default(),
            is_reading: false,
            application_buffer: ReceiveBufferLimiter::default(),
            _open: OpenStreamCountGuard::new(),
            awaited: None,
        }
    }

    /// Moves bytes until none can be moved or there is an event. Does nothing if a direction has
    /// ended. A direction that is `None` had ended before.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        outbound: &mut Option<&mut ApplicationToChannels<'_>>,
        inbound: &mut Option<&mut ChannelsToApplication<'_>>,
    ) -> Poll<Option<StreamProtocolEvent>> {
        let mut now = self.clock.now();
        let half_closed = stream.half_closed();
        loop {
            self.paths.poll_changes(context, stream, now);
            if let Some(gauge) = &mut self.spare {
                gauge.set(stream.spare());
            }
            let mut has_work = true;
            while has_work {
                let mut may_send = false;
                if let Some(outbound) = outbound {
                    while self.read_application(context, stream, outbound, now)
                        | self.send(context, stream, outbound, now)
                    {}
                    may_send = is_wanted(stream, outbound);
                }
                if let Some(inbound) = inbound {
                    while self.receive(context, stream, inbound, now)
                        | self.deliver(context, stream, inbound, now)
                    {}
                }
                has_work = self.turn.poll(context, stream, now);
                if let Some(event) = stream.poll_event() {
                    return Poll::Ready(Some(event));
                }
                if stream.half_closed() != half_closed {
                    return Poll::Ready(None);
                }
                // Connections wake their waiting tasks, so those need not be polled again.
                if let Some(outbound) = outbound {
                    has_work |= !may_send && is_wanted(stream, outbound);
                }
            }
            ready!(self.timer.poll(context, stream.poll_timeout(), now, &self.clock));
            (now, self.is_reading) = (self.clock.now(), false);
            let silence = |channel: usize| {
                let writer = outbound.as_ref().and_then(|own| own.channels[channel].as_ref());
                let reader = inbound.as_ref().and_then(|own| own.channels[channel].as_ref());
                let socket =
                    writer.map(ChannelWriter::socket).or(reader.map(ChannelReader::socket));
                socket.map_or(Duration::ZERO, unacknowledged_for)
            };
            stream.handle_timeout(now, silence);
        }
    }

    /// Writes received bytes to the application. Returns whether it has moved any, as do the
    /// others.
    fn deliver(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        inbound: &mut ChannelsToApplication<'_>,
        now: Duration,
    ) -> bool {
        let Some(application) = &mut inbound.application else { return false };
        let mut has_moved = false;
        while !stream.to_deliver().is_empty() {
            match Pin::new(&mut *application).poll_write(context, stream.to_deliver()) {
                Poll::Ready(Ok(len)) => stream.handle_delivered(len, now),
                Poll::Ready(Err(error)) => self.fail_application(stream, error, now),
                Poll::Pending => break,
            }
            has_moved = true;
        }
        has_moved
    }

    /// Reads the available bytes of the application, if they may be sent now.
    fn read_application(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        outbound: &mut ApplicationToChannels<'_>,
        now: Duration,
    ) -> bool {
        let Some(application) = &mut outbound.application else { return false };
        if !stream.wants_application() {
            return false;
        }
        let len = match poll_read_application(context, stream, application, &mut self.is_reading) {
            Poll::Ready(Ok(read)) => read,
            Poll::Ready(Err(error)) => {
                self.fail_application(stream, error, now);
                return true;
            }
            Poll::Pending => return false,
        };
        if let Some(size) = self.application_buffer.handle_read(len, are_many_open()) {
            set_receive_buffer(application.as_ref(), size);
        }
        // Then the end is sent with the last bytes.
        let may_end = len > 0 && stream.end_fits_behind(len);
        let ended = if may_end { has_ended(application.as_ref()) } else { Ok(false) };
        stream.handle_application(len, matches!(ended, Ok(true)), now);
        if let Err(error) = ended {
            self.fail_application(stream, error, now);
        }
        true
    }

    pub(super) fn fail_application(
        &mut self,
        stream: &mut StreamEndpoint,
        error: io::Error,
        now: Duration,
    ) {
        self.application_error.get_or_insert(error);
        stream.handle_application_error(now);
    }

    /// Writes sealed records to the channels.
    fn send(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        outbound: &mut ApplicationToChannels<'_>,
        now: Duration,
    ) -> bool {
        let mut has_moved = false;
        for (channel, writer) in outbound.channels.iter_mut().enumerate() {
            let Some(writer) = writer else { continue };
            while !stream.to_send(channel).is_empty() {
                match writer.poll_write(context, stream.to_send(channel)) {
                    Poll::Ready(Ok(len)) => stream.handle_sent(channel, len, now),
                    Poll::Ready(Err(error)) => self.fail_channel(stream, channel, error, now),
                    Poll::Pending => break,
                }
                has_moved = true;
            }
        }
        has_moved
    }

    /// Reads available bytes from the channels, in the order that the protocol requests, up to the
    /// next payload.
    fn receive(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        inbound: &mut ChannelsToApplication<'_>,
        now: Duration,
    ) -> bool {
        let mut has_moved = false;
        while self.receive_next(context, stream, inbound, now) {
            (self.awaited, has_moved) = (None, true);
        }
        if self.awaited.is_none()
            && let Some(channel) = stream.awaited()
            && let Some(reader) = &inbound.channels[channel]
        {
            // The failure detector notices a lost path quickly only if the path is in use.
            reader.mark_used();
            self.awaited = Some(reader.metrics.wait());
        }
        has_moved
    }

    fn receive_next(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        inbound: &mut ChannelsToApplication<'_>,
        now: Duration,
    ) -> bool {
        for channel in stream.wanted() {
            let Some(reader) = &mut inbound.channels[channel] else { continue };
            match reader.poll_read(context, stream.space(channel)) {
                Poll::Ready(Ok(len)) => stream.handle_received(channel, len, now),
                Poll::Ready(Err(error)) => self.fail_channel(stream, channel, error, now),
                Poll::Pending => continue,
            }
            return true;
        }
        false
    }

    pub(super) fn fail_channel(
        &mut self,
        stream: &mut StreamEndpoint,
        channel: usize,
        error: io::Error,
        now: Duration,
    ) {
        let kind = error.kind();
        self.errors[channel].get_or_insert(error);
        stream.handle_broken(channel, kind, now);
    }
}

/// Whether there is something to send, or the application must be read.
fn is_wanted(stream: &StreamEndpoint, outbound: &ApplicationToChannels<'_>) -> bool {
    let mut channels = 0..outbound.channels.len();
    stream.wants_application() || channels.any(|channel| !stream.to_send(channel).is_empty())
}

/// Reads what the application has sent, with space for all of it. No memory is used before it has
/// sent something. Returns the length. A read that was started continues with the space that it
/// has: if the first read after a pause were only as long as the available bytes, Linux would not
/// enlarge a receive window of 64 KiB, which limits these bytes.
fn poll_read_application(
    context: &mut Context<'_>,
    stream: &mut StreamEndpoint,
    application: &mut ReadHalf<'_>,
    is_reading: &mut bool,
) -> Poll<io::Result<usize>> {
    let mut available = 0;
    if !*is_reading {
        ready!(application.as_ref().poll_read_ready(context))?;
        let unread = rustix::io::ioctl_fionread(application.as_ref())?;
        available = usize::try_from(unread).unwrap_or(usize::MAX);
    }
    let mut buffer = ReadBuf::new(stream.application_space(available));
    let read = Pin::new(application).poll_read(context, &mut buffer);
    *is_reading = read.is_pending();
    read.map_ok(|()| buffer.filled().len())
}

/// Whether the peer has ended and everything was read.
///
/// # Errors
/// When the connection is broken. The kernel reports this once only, and afterwards an end.
fn has_ended(connection: &TcpStream) -> io::Result<bool> {
    match SockRef::from(connection).peek(&mut [MaybeUninit::uninit()]) {
        Ok(len) => Ok(len == 0),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        },
    }
}

/// Sleeps until the protocol's deadline.
struct DeadlineSleep {
    sleep: Pin<Box<Sleep>>,
    /// The time for which it is set.
    set: Option<Duration>,
}

impl DeadlineSleep {
    fn new(clock: &PathNotifier) -> Self {
        Self { sleep: Box::pin(sleep_until(clock.at(Duration::ZERO))), set: None }
    }

    /// Waits for the deadline, which may differ from call to call.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        deadline: Option<Duration>,
        now: Duration,
        clock: &PathNotifier,
    ) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        loop {
            let set = match self.set {
                Some(set) if set == deadline || (now + TIMER_SLACK < set && set < deadline) => set,
                _ => {
                    self.sleep.as_mut().reset(clock.at(deadline));
                    deadline
                }
            };
            self.set = Some(set);
            ready!(self.sleep.as_mut().poll(context));
            self.set = None;
            if set == deadline {
                return Poll::Ready(());
            }
        }
    }
}

/// The search for the right channels runs in slices and for one stream at a time, so that all other
/// streams continue, even if an attacker causes many searches.
#[derive(Default)]
struct SearchPermit {
    waiting: Option<Pin<Box<dyn Future<Output = Option<SemaphorePermit<'static>>> + Send>>>,
    permit: Option<SemaphorePermit<'static>>,
}

impl SearchPermit {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        now: Duration,
    ) -> bool {
        /// Streams that do not open do not delay open streams.
        static OPENING: Semaphore = Semaphore::const_new(1);
        static OPEN: Semaphore = Semaphore::const_new(1);
        if !stream.has_work() {
            (self.waiting, self.permit) = (None, None);
            return false;
        }
        let turns = if stream.is_opening() { &OPENING } else { &OPEN };
        let Self { waiting, permit } = self;
        let next = waiting.get_or_insert_with(|| Box::pin(next_turn(permit.take(), turns)));
        let Poll::Ready(permit) = next.as_mut().poll(context) else { return false };
        self.waiting = None;
        stream.advance(now);
        // Released at once: this may not be called again for long if the stream has an event.
        self.permit = permit.filter(|_| stream.has_work());
        true
    }
}

/// Waits for its turn or, if it has it, until other tasks have run.
async fn next_turn(
    held: Option<SemaphorePermit<'static>>,
    turns: &'static Semaphore,
) -> Option<SemaphorePermit<'static>> {
    if held.is_none() {
        // The semaphore is never closed.
        return turns.acquire().await.ok();
    }
    yield_now().await;
    held
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use tokio::time::timeout;

    use super::*;
    use crate::protocol::stream::pair::{client, events, server};

    #[tokio::test]
    async fn a_search_permit_is_released_with_the_work() {
        // The first still exists when the second begins, as while a service is connected.
        let mut turns = [SearchPermit::default(), SearchPermit::default()];
        for turn in &mut turns {
            let mut stream = server(&mut client(2), 2, |share| share[0] ^= 1);
            assert!(stream.has_work());
            let work = poll_fn(|context| {
                while stream.has_work() {
                    if !turn.poll(context, &mut stream, Duration::ZERO) {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(())
            });
            timeout(Duration::from_secs(60), work).await.expect("its turn comes");
            let events = events(&mut stream);
            assert!(
                matches!(
                    events[..],
                    [StreamProtocolEvent::Requested(_), StreamProtocolEvent::Lost(0, _)]
                ),
                "{events:?}"
            );
        }
    }
}

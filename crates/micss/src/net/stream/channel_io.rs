//! The n TCP connections of one stream, and moving shares between them and the protocol.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::field::display;
use tracing::{debug, warn};
use zeroize::Zeroizing;

use crate::StreamError;
use crate::net::stream::channel_stream::ChannelStream;
use crate::net::tcp_info::is_silent;
use crate::protocol::incoming::{Incoming, LATE_CHANNEL_TIMEOUT, Loss, Received};
use crate::protocol::outgoing::Outgoing;
use crate::protocol::record::Kind;

/// How often it is looked whether a peer is silent that does not take its share.
const SILENCE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a peer may leave what it was sent without an answer, where its channel can be lost.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until every channel has taken its share of the sealed record. Goes on without channels that break
/// or whose peer is silent, if that is possible.
pub(crate) async fn send<W: AsyncWrite + Unpin + AsRef<TcpStream>>(
    channels: &mut BTreeMap<usize, ChannelStream<W>>,
    outgoing: &mut Outgoing,
) -> Result<(), StreamError> {
    while outgoing.has_spare() {
        if let Ok(result) = timeout(SILENCE_POLL_INTERVAL, poll_taken(channels, outgoing)).await {
            return result;
        }
        for (&channel, writer) in &*channels {
            let waits = !outgoing.rest(channel).is_empty();
            if waits && is_silent(writer.as_ref(), SILENCE_TIMEOUT) && outgoing.lose(channel) {
                give_up(writer, Loss::Stalled);
            }
        }
    }
    poll_taken(channels, outgoing).await
}

async fn poll_taken<W: AsyncWrite + Unpin + AsRef<TcpStream>>(
    channels: &mut BTreeMap<usize, ChannelStream<W>>,
    outgoing: &mut Outgoing,
) -> Result<(), StreamError> {
    poll_fn(|context| {
        let mut poll_taken = true;
        for (&channel, writer) in &mut *channels {
            while !outgoing.rest(channel).is_empty() {
                match Pin::new(&mut *writer).poll_write(context, outgoing.rest(channel)) {
                    Poll::Ready(Ok(len)) => outgoing.advance(channel, len),
                    Poll::Ready(Err(_)) if outgoing.lose(channel) => {
                        give_up(writer, Loss::Broken);
                    }
                    Poll::Ready(Err(source)) => {
                        return Poll::Ready(Err(StreamError::Channel { channel, source }));
                    }
                    Poll::Pending => {
                        poll_taken = false;
                        break;
                    }
                }
            }
        }
        if poll_taken { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// Waits for bytes, or the end, of the channel furthest behind of those that have any. Goes on without
/// channels that break, if that is possible, and closes those that are lost.
pub(crate) async fn receive<R: AsyncRead + Unpin + AsRef<TcpStream>>(
    channels: &mut BTreeMap<usize, ChannelStream<R>>,
    incoming: &mut Incoming,
) -> Result<(), StreamError> {
    give_up_lost(channels, incoming);
    let mut awaited = None;
    poll_fn(|context| {
        for channel in incoming.wanted() {
            let Some(reader) = channels.get_mut(&channel) else { continue };
            let mut space = ReadBuf::new(incoming.space(channel));
            match Pin::new(reader).poll_read(context, &mut space) {
                Poll::Ready(Ok(())) => match space.filled().len() {
                    0 => incoming.close(channel),
                    len => incoming.filled(channel, len),
                },
                Poll::Ready(Err(_)) if incoming.lose(channel, Loss::Broken) => {}
                Poll::Ready(Err(source)) => {
                    return Poll::Ready(Err(StreamError::Channel { channel, source }));
                }
                Poll::Pending => continue,
            }
            return Poll::Ready(Ok(()));
        }
        if awaited.is_none()
            && let Some(channel) = incoming.awaited().and_then(|channel| channels.get(&channel))
        {
            awaited = Some(channel.metrics.wait());
        }
        Poll::Pending
    })
    .await
}

/// The next of the stream, if it is there. Where it has to be found out which channels are right, that is done
/// in slices and for a stream at a time, so that all others go on meanwhile, whoever causes it.
pub(crate) async fn take_next(
    incoming: &mut Incoming,
) -> Result<Option<Received<'_>>, StreamError> {
    /// Strangers do not keep those waiting whose streams are open.
    static OPENING: Semaphore = Semaphore::const_new(1);
    static OPEN: Semaphore = Semaphore::const_new(1);
    let mut turn = None;
    loop {
        if let Poll::Ready(next) = incoming.poll_next()? {
            return Ok(next.map(|(kind, len)| incoming.received(kind, len)));
        }
        if turn.is_none() {
            let turns = if incoming.is_opening() { &OPENING } else { &OPEN };
            // Nobody closes them.
            turn = turns.acquire().await.ok();
        } else {
            yield_now().await;
        }
    }
}

/// Waits for an end's first record. Where the stream can do without a channel, one whose share of it does not
/// come within a moment of enough others' is lost.
pub(crate) async fn receive_first<R: AsyncRead + Unpin + AsRef<TcpStream>>(
    channels: &mut BTreeMap<usize, ChannelStream<R>>,
    incoming: &mut Incoming,
) -> Result<(Kind, Zeroizing<Vec<u8>>), StreamError> {
    let mut enough_since = None;
    loop {
        if let Some(received) = take_next(incoming).await? {
            return Ok((received.kind, Zeroizing::new(received.payload.to_vec())));
        }
        if !incoming.can_lose_stalled() {
            enough_since = None;
            receive(channels, incoming).await?;
            continue;
        }
        let late = *enough_since.get_or_insert_with(Instant::now) + LATE_CHANNEL_TIMEOUT;
        match timeout_at(late, receive(channels, incoming)).await {
            Ok(received) => received?,
            Err(_) => _ = incoming.lose_stalled(),
        }
    }
}

/// Closes the channels that a stream has lost, in both directions.
pub(crate) fn give_up_lost<R: AsRef<TcpStream>>(
    channels: &BTreeMap<usize, ChannelStream<R>>,
    incoming: &mut Incoming,
) {
    while let Some((channel, why)) = incoming.poll_lost() {
        if let Some(channel) = channels.get(&channel) {
            give_up(channel, why);
        } else {
            // Its client says so, which knows better why.
            debug!(channel = channel + 1, %why, "a stream goes on without a channel");
        }
    }
}

fn give_up<S: AsRef<TcpStream>>(channel: &ChannelStream<S>, why: Loss) {
    let stream: &TcpStream = channel.as_ref();
    if channel.lose(why)
        && let Some(so_often) = channel.metrics.happened(why)
    {
        // Where it is broken already, the system does not say.
        let peer = stream.peer_addr().ok().map(display);
        warn!(channel = channel.place + 1, peer, %why, so_often, "a stream goes on without a channel");
    }
    // It may be broken already.
    let _ = SockRef::from(stream).shutdown(Shutdown::Both);
}

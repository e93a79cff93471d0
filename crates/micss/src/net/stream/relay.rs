//! Moves an application's bytes between its connection and the channels, in both directions,
//! until both have finished. The same at the client and at the server.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use association::{SharingScheme, Terms};
use sharing::{Generator, RandomError, Sharing};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};
use tracing::{debug, info, warn};
use zeroize::Zeroizing;

use crate::StreamError;
use crate::net::metrics::{ChannelMetrics, LogEvent, StreamMetrics};
use crate::net::paths::monitor;
use crate::net::paths::path::Path;
use crate::net::socket::{end_when_dropped, reset_when_dropped};
use crate::net::stream::channel_io;
use crate::net::stream::channel_stream::ChannelStream;
use crate::net::stream::client_handshake::ClientHandshake;
use crate::protocol::incoming::{Incoming, Loss, Received};
use crate::protocol::on_lost_channel::end_of_stream;
use crate::protocol::options::{OPTION_NO_RECORDS, OPTION_ONCE};
use crate::protocol::outgoing::Outgoing;
use crate::protocol::record::{HEADER_LEN, Kind, RecordError};
use crate::protocol::target::Target;

/// After how long without a byte a direction gives its buffers back.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long streams under way may take to finish after a stop, and a client to hear that its request was
/// refused.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the request, or its answer, waits for the application's first words, to go out with them.
const COALESCE_DELAY: Duration = Duration::from_millis(2);

/// How long an abort may take to be sent.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection whose stream is over.
pub(crate) struct ReusableConnection {
    pub(crate) stream: TcpStream,
    pub(crate) metrics: Arc<ChannelMetrics>,
    /// What was read of it behind the stream's end.
    pub(crate) rest: Zeroizing<Vec<u8>>,
}

/// Both halves of a stream and the channels they run over.
pub(crate) struct MultichannelStream {
    /// Whether the connections end with the stream.
    once: bool,
    /// Whether payloads are shared without a header, and channels are to be reset when they are dropped.
    raw: bool,
    /// How many channels may break.
    spare: usize,
    /// How long the stream waits for more of them that are lost, once it is open, and until then.
    patience: [Duration; 2],
    /// Whether the peer has said that the stream is open.
    is_open: AtomicBool,
    /// By the channel's index. At a server, a channel may be missing from the start.
    pub(crate) streams: BTreeMap<usize, ChannelStream<TcpStream>>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
}

impl MultichannelStream {
    /// Those of an association on these terms.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub(crate) fn new(
        streams: BTreeMap<usize, ChannelStream<TcpStream>>,
        terms: Terms,
        mut generator: Generator,
        patience: [Duration; 2],
    ) -> Result<Self, RandomError> {
        let sharing = match terms.scheme() {
            SharingScheme::Xor => Sharing::xor(terms.channels()),
            SharingScheme::Shamir => Sharing::shamir(terms.threshold(), terms.channels()),
        };
        let sharing = sharing.expect("terms are consistent");
        let mut incoming = Incoming::new(sharing, generator.array()?);
        let mut outgoing = Outgoing::new(sharing, generator);
        let all = 0..usize::from(terms.channels());
        for missing in all.filter(|channel| !streams.contains_key(channel)) {
            let possible = outgoing.lose(missing) && incoming.lose(missing, Loss::Missing);
            assert!(possible, "as many channels as are needed");
        }
        incoming.expect_opening();
        let once = terms.options() & (OPTION_ONCE | OPTION_NO_RECORDS) != 0;
        let spare = streams.len() - usize::from(terms.threshold());
        let is_open = AtomicBool::new(false);
        Ok(Self { once, raw: false, spare, patience, is_open, streams, outgoing, incoming })
    }

    /// What ends the stream when channels are lost: to be waited for beside whatever it does.
    pub(crate) fn wait_for_loss(&self) -> impl Future<Output = StreamError> + use<> {
        let patience = self.patience[1];
        wait_for_loss(self.paths(), self.spare, move || patience)
    }

    /// The paths of its channels, as far as they are watched.
    fn paths(&self) -> Vec<Arc<Path>> {
        self.streams.values().filter_map(|channel| channel.path.clone()).collect()
    }

    /// Sends one record.
    pub(crate) async fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), StreamError> {
        self.outgoing.seal_payload(kind, payload)?;
        self.send_sealed().await
    }

    /// Sends what is sealed.
    pub(crate) async fn send_sealed(&mut self) -> Result<(), StreamError> {
        channel_io::send(&mut self.streams, &mut self.outgoing).await
    }

    /// Waits for the first record, which must come within the given time.
    pub(crate) async fn receive(
        &mut self,
        within: Duration,
    ) -> Result<(Kind, Zeroizing<Vec<u8>>), StreamError> {
        let received = channel_io::receive_first(&mut self.streams, &mut self.incoming);
        timeout(within, received).await.map_err(|_| StreamError::Stalled)?
    }

    /// Reads on until the peer has said all, whatever that is.
    pub(crate) async fn drain_until_end(&mut self) {
        loop {
            match channel_io::take_next(&mut self.incoming).await {
                Ok(Some(Received { kind: Kind::Finish | Kind::Abort, .. })) | Err(_) => return,
                Ok(Some(_)) => {}
                Ok(None) => {
                    if channel_io::receive(&mut self.streams, &mut self.incoming).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Relays between the application and the channels until both directions have finished; a client
    /// may begin before the server has answered. Returns the connections with what was read behind the
    /// stream's end, or none if they have ended with it. The application's connection is to be reset when it
    /// is dropped, and is not after a good end.
    ///
    /// # Errors
    /// When the stream breaks. The application's connection has been reset then, and the peer
    /// told, as far as it can be.
    pub(crate) async fn relay(
        mut self,
        mut application: TcpStream,
        handshake: Option<ClientHandshake>,
    ) -> Result<Vec<ReusableConnection>, StreamError> {
        let (spare, [opened, opening_time], paths) = (self.spare, self.patience, self.paths());
        let is_open = &self.is_open;
        if handshake.is_none() {
            is_open.store(true, Ordering::Relaxed);
        }
        let patience = || if is_open.load(Ordering::Relaxed) { opened } else { opening_time };
        let (from_application, to_application) = application.split();
        let halves = |(&channel, stream): (&usize, _)| {
            let (reader, writer) = ChannelStream::split(stream);
            ((channel, reader), (channel, writer))
        };
        let (from_channels, to_channels) = self.streams.iter_mut().map(halves).unzip();
        let result = run_both(
            forward(from_application, to_channels, &mut self.outgoing, self.once),
            deliver(
                from_channels,
                to_application,
                &mut self.incoming,
                handshake.map(|handshake| (handshake, is_open)),
            ),
            spare,
        );
        let result = tokio::select! {
            result = result => result,
            error = wait_for_loss(paths, spare, patience) => Err(error),
        };
        if let Err(error) = result {
            let error = self.attribute(error);
            channel_io::give_up_lost(&self.streams, &mut self.incoming);
            drop(application);
            self.abort().await;
            return Err(error);
        }
        channel_io::give_up_lost(&self.streams, &mut self.incoming);
        end_when_dropped(&application);
        if self.raw {
            self.streams.values().map(AsRef::as_ref).for_each(end_when_dropped);
        }
        if self.once || !self.outgoing.is_whole() || !self.incoming.is_whole() {
            return Ok(Vec::new());
        }
        let finished = |(channel, stream): (usize, ChannelStream<_>)| {
            let rest = Zeroizing::new(self.incoming.rest(channel).to_vec());
            let (stream, metrics) = stream.into_inner();
            ReusableConnection { stream, metrics, rest }
        };
        Ok(self.streams.into_iter().map(finished).collect())
    }

    /// From here on, this end's payloads are shared without a header: `integrity = "none"`. An end is
    /// then the channels' own end, so whatever breaks this off must reset them.
    pub(crate) fn send_no_records(&mut self) {
        self.outgoing.drop_records();
        (self.raw, self.spare) = (true, 0);
        self.reset_when_dropped();
    }

    fn reset_when_dropped(&self) {
        self.streams.values().map(AsRef::as_ref).for_each(reset_when_dropped);
    }

    /// Counts that a channel broke, if one did. Returns the error with the channel's own index: a stream's are
    /// counted without those that it lacks.
    ///
    /// Where a channel is lost, what breaks on the others is its consequence: the peer has given up first.
    pub(crate) fn attribute(&self, mut error: StreamError) -> StreamError {
        let may_follow = matches!(
            error,
            StreamError::Channel { .. }
                | StreamError::NotOpened
                | StreamError::Stalled
                | StreamError::Record(RecordError::Unfinished { .. })
        );
        let lost = |path: &Arc<Path>| Some((path.state().unusable_since()?, Arc::clone(path)));
        if may_follow
            && let Some((_, path)) =
                self.paths().iter().filter_map(lost).min_by_key(|(since, _)| *since)
        {
            error = monitor::lost_error(&path);
        }
        if let StreamError::Lost { channel, .. } = &error {
            let is_it = |own: &&ChannelStream<TcpStream>| {
                own.path.as_ref().is_some_and(|path| path.place == *channel)
            };
            if let Some(own) = self.streams.values().find(is_it) {
                own.lose(Loss::Stalled);
            }
            return error;
        }
        let why = match &error {
            error if error.is_tampering() => Loss::Tampered,
            StreamError::Channel { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
                Loss::Stalled
            }
            _ => Loss::Broken,
        };
        if matches!(error, StreamError::NotOpened | StreamError::Stalled) {
            // Nobody says which, so it may be all.
            self.streams.values().for_each(|channel| channel.metrics.record_silence());
        }
        if may_follow {
            self.paths().iter().for_each(|path| path.suspect());
        }
        if let Some(index) = error.channel_mut()
            && let Some(channel) = self.streams.get(index)
        {
            channel.lose(why);
            *index = channel.place;
        }
        error
    }

    /// Tells the peer that what was sent is incomplete. Where no record can say so, because there
    /// are none or the last one is out or stuck, a reset does.
    async fn abort(mut self) {
        if !self.send_abort().await {
            self.reset_when_dropped();
        }
    }

    /// Returns whether it was sent.
    async fn send_abort(&mut self) -> bool {
        self.outgoing.may_abort()
            && matches!(timeout(ABORT_TIMEOUT, self.send(Kind::Abort, &[])).await, Ok(Ok(())))
    }
}

/// Waits until so many channels are lost, and for so long, that a stream which may lose `spare` of them ends.
async fn wait_for_loss(
    paths: Vec<Arc<Path>>,
    spare: usize,
    patience: impl Fn() -> Duration,
) -> StreamError {
    let Some(events) = paths.first().map(|path| Arc::clone(&path.events)) else {
        return std::future::pending().await;
    };
    let mut changes = events.changes();
    loop {
        let unusable: Vec<_> = paths.iter().map(|path| path.state().unusable_since()).collect();
        // Whoever changes a state has the hub.
        let changed = async { _ = changes.changed().await };
        match end_of_stream(unusable.into_iter(), spare, patience()) {
            Some((end, index)) if events.now() >= end => return monitor::lost_error(&paths[index]),
            Some((end, _)) => _ = timeout_at(events.at(end), changed).await,
            None => changed.await,
        }
    }
}

/// Runs both directions until both have finished. When the first has, nobody reads any more from
/// one end and writes to the other, so they are watched: should one of them break, the second
/// direction may never learn of it by itself.
async fn run_both<'a>(
    forward: impl Future<
        Output = Result<(ReadHalf<'a>, BTreeMap<usize, ChannelStream<WriteHalf<'a>>>), StreamError>,
    >,
    deliver: impl Future<
        Output = Result<(BTreeMap<usize, ChannelStream<ReadHalf<'a>>>, WriteHalf<'a>), StreamError>,
    >,
    spare: usize,
) -> Result<(), StreamError> {
    tokio::pin!(forward, deliver);
    tokio::select! {
        finished = &mut forward => {
            let (application, channels) = finished?;
            tokio::select! {
                biased;
                result = deliver => result.map(drop),
                error = wait_for_break(application.as_ref(), &channels, spare) => Err(error),
            }
        }
        finished = &mut deliver => {
            let (channels, application) = finished?;
            tokio::select! {
                biased;
                result = forward => result.map(drop),
                error = wait_for_break(application.as_ref(), &channels, spare) => Err(error),
            }
        }
    }
}

/// Waits until the application's connection breaks, or more channels than the stream can do without.
async fn wait_for_break(
    application: &TcpStream,
    channels: &BTreeMap<usize, impl AsRef<TcpStream>>,
    spare: usize,
) -> StreamError {
    let all = || std::iter::once(application).chain(channels.values().map(AsRef::as_ref));
    let mut watched: Vec<_> =
        all().map(|stream| Some(Box::pin(stream.ready(Interest::ERROR)))).collect();
    let mut left = spare;
    loop {
        let first = poll_fn(|context| {
            let mut breaks = watched.iter_mut().map(|watch| {
                watch.as_mut().is_some_and(|watch| watch.as_mut().poll(context).is_ready())
            });
            breaks.position(|wait_for_break| wait_for_break).map_or(Poll::Pending, Poll::Ready)
        });
        let place = first.await;
        watched[place] = None;
        let known = all().nth(place).and_then(|stream| stream.take_error().ok().flatten());
        let source = known.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
        match place.checked_sub(1).and_then(|place| channels.keys().nth(place)) {
            None => return StreamError::Application(source),
            Some(&channel) if left == 0 => return StreamError::Channel { channel, source },
            Some(_) => left -= 1,
        }
    }
}

/// From the application to the channels. What is sealed already goes out with the application's first words,
/// if they come soon.
async fn forward<'a>(
    mut application: ReadHalf<'a>,
    mut channels: BTreeMap<usize, ChannelStream<WriteHalf<'a>>>,
    outgoing: &mut Outgoing,
    once: bool,
) -> Result<(ReadHalf<'a>, BTreeMap<usize, ChannelStream<WriteHalf<'a>>>), StreamError> {
    loop {
        let patience = if outgoing.is_taken() { IDLE_TIMEOUT } else { COALESCE_DELAY };
        let read = match timeout(patience, read(&mut application, outgoing)).await {
            Ok(read) => read,
            Err(_) if !outgoing.is_taken() => {
                channel_io::send(&mut channels, outgoing).await?;
                continue;
            }
            Err(_idle) => {
                outgoing.shrink();
                read(&mut application, outgoing).await
            }
        };
        match read.map_err(StreamError::Application)? {
            0 => break,
            len => outgoing.seal(Kind::Data, len)?,
        }
        // Then the end goes out with the last words.
        if outgoing.room() >= HEADER_LEN
            && has_ended(application.as_ref()).map_err(StreamError::Application)?
        {
            break;
        }
        channel_io::send(&mut channels, outgoing).await?;
    }
    outgoing.finish()?;
    channel_io::send(&mut channels, outgoing).await?;
    if once {
        for (&channel, writer) in &mut channels {
            let error = |source| StreamError::Channel { channel, source };
            writer.shutdown().await.map_err(error)?;
        }
    }
    Ok((application, channels))
}

/// Reads what the application has said, with room for all of it. Until it has said something, that takes no
/// memory.
async fn read(application: &mut ReadHalf<'_>, outgoing: &mut Outgoing) -> io::Result<usize> {
    application.readable().await?;
    let said = rustix::io::ioctl_fionread(application.as_ref())?;
    outgoing.make_room(usize::try_from(said).unwrap_or(usize::MAX));
    application.read(outgoing.payload_mut()).await
}

/// Whether the peer has said all, and all of it was read.
///
/// # Errors
/// When the connection is broken. The kernel says so once only, and afterwards as if it had ended.
fn has_ended(stream: &TcpStream) -> io::Result<bool> {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(len) => Ok(len == 0),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        },
    }
}

/// From the channels to the application.
async fn deliver<'a>(
    mut channels: BTreeMap<usize, ChannelStream<ReadHalf<'a>>>,
    mut application: WriteHalf<'a>,
    incoming: &mut Incoming,
    handshake: Option<(ClientHandshake, &AtomicBool)>,
) -> Result<(BTreeMap<usize, ChannelStream<ReadHalf<'a>>>, WriteHalf<'a>), StreamError> {
    if let Some((handshake, is_open)) = handshake {
        handshake.complete(&mut channels, incoming).await?;
        is_open.store(true, Ordering::Relaxed);
    }
    loop {
        while let Some(received) = channel_io::take_next(incoming).await? {
            match received.kind {
                Kind::Data => application.write_all(received.payload).await,
                Kind::Finish => {
                    application.shutdown().await.map_err(StreamError::Application)?;
                    return Ok((channels, application));
                }
                Kind::Abort => return Err(StreamError::PeerAborted),
                kind => return Err(StreamError::Unexpected(kind)),
            }
            .map_err(StreamError::Application)?;
        }
        wait(&mut channels, incoming).await?;
    }
}

/// Waits for bytes on the channels: as long as the protocol has patience while a record is under
/// way, for ever between two.
async fn wait(
    channels: &mut BTreeMap<usize, ChannelStream<ReadHalf<'_>>>,
    incoming: &mut Incoming,
) -> Result<(), StreamError> {
    if let Some(patience) = incoming.patience() {
        return match timeout(patience, channel_io::receive(channels, incoming)).await {
            Ok(result) => result,
            Err(_) if incoming.lose_stalled() => Ok(()),
            Err(_) => Err(StreamError::Stalled),
        };
    }
    if let Ok(result) = timeout(IDLE_TIMEOUT, channel_io::receive(channels, incoming)).await {
        return result;
    }
    incoming.shrink();
    channel_io::receive(channels, incoming).await
}

/// Logs and counts how a stream ended. Returns what is left of it.
pub(crate) fn log_end(
    stream_metrics: &StreamMetrics,
    target: &Target,
    result: Result<Vec<ReusableConnection>, StreamError>,
) -> Vec<ReusableConnection> {
    stream_metrics.end(result.as_ref().err());
    match result {
        Ok(finished) => {
            debug!(%target, "stream finished");
            return finished;
        }
        Err(error) if error.is_tampering() => {
            if let Some(so_often) = stream_metrics.happened(LogEvent::Tampered) {
                warn!(%target, %error, so_often, "TAMPERING: stream aborted");
            }
        }
        Err(error) => {
            if let Some(so_often) = stream_metrics.happened(LogEvent::Broken) {
                info!(%target, %error, so_often, "stream aborted");
            }
        }
    }
    Vec::new()
}

/// Waits for streams to end by themselves for a while, then ends them.
pub(crate) async fn drain<T: 'static>(mut streams: JoinSet<T>) {
    let all_end = async { while streams.join_next().await.is_some() {} };
    if timeout(DRAIN_TIMEOUT, all_end).await.is_err() {
        info!(streams = streams.len(), "streams broken off by the stop");
        streams.shutdown().await;
    }
}

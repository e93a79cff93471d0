//! Runs one stream, at the client or at the server: it moves bytes between the channels, the
//! application and the protocol, executes the protocol's actions, and reports events.
//!
//! It makes no decisions: [`StreamEndpoint`] does.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tracing::field::display;
use tracing::{debug, info};
use zeroize::Zeroizing;

use crate::StreamError;
use crate::net::metrics::{ChannelMetrics, RedundancyGauge};
use crate::net::paths::monitor;
use crate::net::paths::path::{MonitoredPath, PathNotifier};
use crate::net::socket::{end_when_dropped, end_writing, reset, reset_when_dropped};
use crate::net::stream::break_watcher::{BreakWatcher, BrokenConnection};
use crate::net::stream::connection::ChannelConnection;
use crate::net::stream::pump::{ApplicationToChannels, ChannelsToApplication, StreamPump};
use crate::net::stream::rejoins::{ChannelConnector, RejoinAttempts, RejoinClaim, RejoinEvent};
use crate::protocol::incoming::ChannelLossReason;
use crate::protocol::memory::MemoryLease;
use crate::protocol::rejoin::RejoinKeys;
use crate::protocol::stream::{EndedDirection, StreamEndpoint, StreamFailure, StreamProtocolEvent};
use crate::protocol::target::ServiceRefusal;

/// A connection whose stream has ended.
pub(crate) struct ReusableConnection {
    pub(crate) stream: TcpStream,
    pub(crate) metrics: Arc<ChannelMetrics>,
    /// The bytes that were read from it after the stream's end.
    pub(crate) rest: Zeroizing<Vec<u8>>,
}

/// Receives the reason when a stream breaks, before its application's connection is reset.
pub(crate) type StreamFailureSender = watch::Sender<Option<String>>;

/// An event of a stream that its owner handles.
pub(crate) enum StreamProgress {
    /// At a server: the client requests this service.
    Requested(Zeroizing<Vec<u8>>),
    /// At a client: the server is connected to the service.
    Opened,
    /// Both directions have ended.
    Finished,
}

/// A stream, its channels' connections and the application's.
pub(crate) struct StreamDriver {
    stream: StreamEndpoint,
    /// By the channels' indices. At a server, channels may be missing from the start.
    channels: Vec<Option<ChannelConnection>>,
    /// The application's connection, or the service's. It is reset when it is dropped, except after
    /// an orderly end.
    application: Option<TcpStream>,
    pump: StreamPump,
    rejoins: RejoinAttempts,
    /// The index of each channel in the configuration.
    places: Vec<usize>,
    failure: Option<StreamFailureSender>,
}

impl StreamDriver {
    /// Runs `stream` over these channels. Its times are those of `clock`.
    pub(crate) fn new(
        stream: StreamEndpoint,
        channels: Vec<Option<ChannelConnection>>,
        clock: Arc<PathNotifier>,
    ) -> Self {
        let mut pump = StreamPump::new(channels.len(), clock);
        for (channel, connection) in channels.iter().enumerate() {
            if let Some(path) = connection.as_ref().and_then(ChannelConnection::path) {
                pump.paths.add(channel, path);
            }
        }
        let place = |(channel, connection): (usize, &Option<ChannelConnection>)| {
            connection.as_ref().map_or(channel, |connection| connection.channel_index)
        };
        let places = channels.iter().enumerate().map(place).collect();
        let (application, rejoins) = (None, RejoinAttempts::default());
        let failure = None;
        let driver = Self { stream, channels, application, pump, rejoins, places, failure };
        if driver.stream.is_raw() {
            // Then the end of the channels is the end of the stream, so they must be reset if the
            // stream breaks.
            driver.sockets().for_each(reset_when_dropped);
        }
        driver
    }

    /// The number of its connections.
    pub(crate) fn connections(&self) -> usize {
        self.channels.iter().flatten().count()
    }

    /// Registers its connections with the paths of its channels, if `path_of` returns them.
    pub(crate) fn watch(
        &mut self,
        mut path_of: impl FnMut(&ChannelConnection) -> Option<Arc<MonitoredPath>>,
    ) {
        for (channel, connection) in self.channels.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            if let Some(path) = path_of(connection)
                && !connection.is_given_up()
            {
                connection.watch(&path);
                self.pump.paths.add(channel, &path);
            }
        }
    }

    /// Limits the memory of long records by a lease for each direction, and the memory of retained
    /// shares by the third lease.
    pub(crate) fn limit_memory(
        &mut self,
        outgoing: MemoryLease,
        incoming: MemoryLease,
        kept: MemoryLease,
    ) {
        self.stream.limit_memory(outgoing, incoming, kept);
    }

    /// Counts the stream by the number of channels that it can lose.
    pub(crate) fn count_spare(&mut self, gauge: RedundancyGauge) {
        self.pump.spare = Some(gauge);
    }

    /// Sends the reason to this if the stream breaks.
    pub(crate) fn report_failure_to(&mut self, failure: StreamFailureSender) {
        self.failure = Some(failure);
    }

    /// At a client: sets the function that reconnects channels.
    pub(crate) fn set_connector(&mut self, connect: ChannelConnector) {
        self.rejoins.connect_by(connect);
    }

    /// At a server: sets the receiver of connections that replace a channel's.
    pub(crate) fn receive(&mut self, claims: mpsc::Receiver<RejoinClaim>) {
        self.rejoins.receive(claims);
    }

    /// The keys for such connections, once the stream is open.
    pub(crate) fn rejoin_keys(&self) -> Option<&RejoinKeys> {
        self.stream.rejoin_keys()
    }

    /// Moves bytes for this application from now on. At a client that has waited for the answer,
    /// notifies the protocol.
    pub(crate) fn connect(&mut self, application: TcpStream) {
        self.application = Some(application);
        self.stream.connect_application(self.pump.clock.now());
    }

    /// At a server: the service that the client has requested is connected.
    pub(crate) fn accept(&mut self, service: TcpStream) {
        self.application = Some(service);
        self.stream.accept(self.pump.clock.now());
    }

    /// At a server: the service is not connected.
    pub(crate) fn refuse(&mut self, refusal: ServiceRefusal) {
        self.stream.refuse(refusal, self.pump.clock.now());
    }

    fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.channels.iter().flatten().map(ChannelConnection::socket)
    }

    /// Runs the stream to its end. Returns the connections with the bytes that were read after the
    /// stream's end, or none if they have ended with it.
    ///
    /// # Errors
    /// If the stream breaks. Then the application's connection was reset, and the peer was notified
    /// if possible.
    pub(crate) async fn run(mut self) -> Result<Vec<ReusableConnection>, StreamError> {
        loop {
            match self.next().await {
                Ok(StreamProgress::Finished) => return Ok(self.finish()),
                Ok(_) => {}
                Err(error) => {
                    self.close().await;
                    return Err(error);
                }
            }
        }
    }

    /// Runs the stream until an event that its owner must handle.
    ///
    /// # Errors
    /// If the stream breaks. Then the application's connection was reset. The peer was not
    /// notified: [`StreamDriver::close`] does that.
    pub(crate) async fn next(&mut self) -> Result<StreamProgress, StreamError> {
        loop {
            match self.event().await {
                StreamProtocolEvent::Requested(request) => {
                    return Ok(StreamProgress::Requested(request));
                }
                StreamProtocolEvent::Opened => return Ok(StreamProgress::Opened),
                StreamProtocolEvent::Finished => return Ok(StreamProgress::Finished),
                StreamProtocolEvent::Failed(failure) => {
                    let error = self.report(failure);
                    if let Some(failure) = &self.failure {
                        failure.send_replace(Some(error.to_string()));
                    }
                    self.application = None;
                    return Err(error);
                }
                StreamProtocolEvent::Lost(channel, why) => self.give_up(channel, why),
                StreamProtocolEvent::Detached(channel) => self.detach(channel),
                StreamProtocolEvent::Rejoin(channel) => {
                    self.rejoins.begin(channel, self.places[channel]);
                }
                StreamProtocolEvent::Probe(channel) => {
                    self.pump.paths.path(channel).into_iter().for_each(|path| path.request_probe());
                }
                StreamProtocolEvent::ShutApplication => self.shut_application(),
                StreamProtocolEvent::ShutChannels => self.shut_channels(),
                StreamProtocolEvent::Closed { .. } => {}
            }
        }
    }

    /// Notifies the peer that the stream is broken, if possible.
    pub(crate) async fn close(&mut self) {
        loop {
            match self.event().await {
                StreamProtocolEvent::Closed { reset } => {
                    let set = if reset { reset_when_dropped } else { end_when_dropped };
                    return self.sockets().for_each(set);
                }
                StreamProtocolEvent::Lost(channel, why) => self.give_up(channel, why),
                _ => {}
            }
        }
    }

    /// Moves bytes until the protocol has an event.
    async fn event(&mut self) -> StreamProtocolEvent {
        loop {
            let Self { stream, channels, application, pump, rejoins, .. } = self;
            let step = tokio::select! {
                biased;
                step = rejoins.next() => step,
                event = next_event(stream, channels, application.as_mut(), pump) => match event {
                    Some(event) => return event,
                    None => continue,
                },
            };
            self.handle_step(step);
        }
    }

    /// Handles a step of a new connection.
    fn handle_step(&mut self, step: RejoinEvent) {
        let now = self.pump.clock.now();
        match step {
            RejoinEvent::Failed { channel, is_refused } => {
                self.stream.handle_rejoin_failed(channel, is_refused, now);
            }
            RejoinEvent::Greeted(channel, connection, cookie) => {
                match self.stream.offer(channel, cookie) {
                    Some(offer) => self.rejoins.offer(channel, connection, offer),
                    None => self.stream.handle_rejoin_failed(channel, false, now),
                }
            }
            RejoinEvent::Answered(channel, connection, answer) => {
                let metrics = self.channels[channel].as_ref().map(|own| Arc::clone(&own.metrics));
                let path = self.pump.paths.path(channel).map(Arc::clone);
                let Some(metrics) = metrics else {
                    return self.stream.handle_rejoin_failed(channel, false, now);
                };
                if self.stream.handle_answer(channel, &answer, now) {
                    let place = self.places[channel];
                    let mut connection = ChannelConnection::new(connection, metrics, place);
                    if let Some(path) = &path {
                        connection.watch(path);
                    }
                    self.replace(channel, connection);
                }
            }
            RejoinEvent::Claimed(claim) => {
                let RejoinClaim { rejoin, cookie, connection } = *claim;
                let Some(answer) = self.stream.handle_rejoin(&rejoin, cookie, now) else { return };
                // A new connection has room for it.
                let written = connection.socket().try_write(&answer);
                let channel = usize::from(rejoin.channel);
                connection.path().into_iter().for_each(|path| self.pump.paths.add(channel, path));
                self.replace(channel, connection);
                if !matches!(written, Ok(len) if len == answer.len()) {
                    self.stream.handle_broken(channel, io::ErrorKind::WriteZero, now);
                }
            }
        }
    }

    /// Replaces a channel's connection. The peer is notified at once that the old one is no longer
    /// used.
    fn replace(&mut self, channel: usize, connection: ChannelConnection) {
        if let Some(occurrences) = connection.metrics.record_rejoin() {
            let peer = connection.socket().peer_addr().ok().map(display);
            info!(
                channel = connection.channel_index + 1,
                peer, occurrences, "a stream uses a channel again"
            );
        }
        (self.pump.awaited, self.pump.errors[channel]) = (None, None);
        if let Some(before) = self.channels[channel].replace(connection) {
            reset(before.into_inner().0);
        }
    }

    /// Closes the connection of a channel that the stream needs, until another replaces it.
    fn detach(&mut self, channel: usize) {
        self.pump.awaited = None;
        self.channels[channel].iter_mut().for_each(ChannelConnection::detach);
    }

    /// Continues the stream without a channel.
    fn give_up(&mut self, channel: usize, why: ChannelLossReason) {
        self.pump.awaited = None;
        if let Some(connection) = &mut self.channels[channel] {
            connection.give_up(why);
        } else {
            // The client logs it, because it knows more about the cause.
            debug!(channel = channel + 1, %why, "a stream continues without a channel");
        }
    }

    fn shut_application(&mut self) {
        let Some(application) = &self.application else { return };
        if let Err(error) = end_writing(application) {
            self.pump.application_error.get_or_insert(error);
            self.stream.handle_application_error(self.pump.clock.now());
        }
    }

    fn shut_channels(&mut self) {
        let now = self.pump.clock.now();
        for (channel, connection) in self.channels.iter().enumerate() {
            let Some(connection) = connection.as_ref().filter(|own| !own.is_given_up()) else {
                continue;
            };
            if let Err(error) = end_writing(connection.socket()) {
                self.pump.fail_channel(&mut self.stream, channel, error, now);
            }
        }
    }

    /// Records why the stream is broken. Returns the error with the channel's index in the
    /// configuration: a stream's own indices omit channels that it lacks.
    fn report(&mut self, failure: StreamFailure) -> StreamError {
        if failure.is_silence() {
            // The silent channel is unknown, so it may be any.
            self.channels.iter().flatten().for_each(|channel| channel.metrics.record_silence());
        }
        if failure.may_follow_loss() {
            self.pump.paths.all().for_each(MonitoredPath::suspect);
        }
        let channel = failure.channel();
        let connection = channel.and_then(|channel| self.channels[channel].as_mut());
        let path = connection.as_ref().and_then(|connection| connection.path().map(Arc::clone));
        if let Some(connection) = connection {
            connection.lose(failure.loss());
        }
        if let (StreamFailure::Lost(_), Some(path)) = (failure, path) {
            return monitor::lost_error(&path);
        }
        let place = |channel: usize| {
            self.channels[channel].as_ref().map_or(channel, |own| own.channel_index)
        };
        let source = match channel {
            Some(channel) => self.pump.errors[channel].take(),
            None => self.pump.application_error.take(),
        };
        StreamError::of(failure, place, source)
    }

    /// The channels' connections after the stream's end.
    fn finish(self) -> Vec<ReusableConnection> {
        self.application.iter().for_each(end_when_dropped);
        if self.stream.is_raw() {
            self.sockets().for_each(end_when_dropped);
        }
        if !self.stream.is_reusable() {
            return Vec::new();
        }
        let stream = &self.stream;
        let reusable = |(channel, connection): (usize, Option<ChannelConnection>)| {
            let rest = Zeroizing::new(stream.trailing_bytes(channel).to_vec());
            let (stream, metrics) = connection?.into_inner();
            Some(ReusableConnection { stream, metrics, rest })
        };
        self.channels.into_iter().enumerate().filter_map(reusable).collect()
    }
}

/// Moves bytes until the protocol has an event. `None`: a direction has ended.
async fn next_event(
    stream: &mut StreamEndpoint,
    channels: &mut [Option<ChannelConnection>],
    application: Option<&mut TcpStream>,
    pump: &mut StreamPump,
) -> Option<StreamProtocolEvent> {
    let half_closed = stream.half_closed();
    let (mut outbound, mut inbound) = split(channels, application);
    match half_closed {
        None => {
            let (mut outbound, mut inbound) = (Some(&mut outbound), Some(&mut inbound));
            poll_fn(|context| pump.poll(context, stream, &mut outbound, &mut inbound)).await
        }
        Some(EndedDirection::Sent) => {
            // With records, the channels carry acknowledgements.
            let application = outbound.application.take();
            let application = application.as_ref().map(AsRef::as_ref);
            if !stream.is_raw() {
                let breaks = breaks(pump, application, std::iter::empty());
                return run_half(pump, stream, (Some(&mut outbound), Some(&mut inbound)), breaks)
                    .await;
            }
            let channels = outbound.channels.iter().map(|writer| Some(writer.as_ref()?.socket()));
            let breaks = breaks(pump, application, channels);
            run_half(pump, stream, (None, Some(&mut inbound)), breaks).await
        }
        Some(EndedDirection::Received) => {
            let application = inbound.application.as_ref().map(AsRef::as_ref);
            let channels = inbound.channels.iter().map(|reader| Some(reader.as_ref()?.socket()));
            let breaks = breaks(pump, application, channels);
            run_half(pump, stream, (Some(&mut outbound), None), breaks).await
        }
    }
}

/// The halves of all connections, by their directions.
fn split<'a>(
    channels: &'a mut [Option<ChannelConnection>],
    application: Option<&'a mut TcpStream>,
) -> (ApplicationToChannels<'a>, ChannelsToApplication<'a>) {
    let (from_application, to_application) = application.map(TcpStream::split).unzip();
    let halves = |connection: &'a mut Option<ChannelConnection>| {
        connection.as_mut().filter(|own| !own.is_given_up()).map(ChannelConnection::split).unzip()
    };
    let (readers, writers) = channels.iter_mut().map(halves).unzip();
    let outbound = ApplicationToChannels { application: from_application, channels: writers };
    (outbound, ChannelsToApplication { channels: readers, application: to_application })
}

/// Watches the connections of a direction that has ended.
fn breaks<'a>(
    pump: &StreamPump,
    application: Option<&'a TcpStream>,
    channels: impl Iterator<Item = Option<&'a TcpStream>>,
) -> BreakWatcher<'a> {
    let channels = channels.enumerate().filter_map(|(channel, connection)| {
        let is_new = pump.errors[channel].is_none();
        connection
            .filter(|_| is_new)
            .map(|connection| (BrokenConnection::Channel(channel), connection))
    });
    let application = application.map(|connection| (BrokenConnection::Application, connection));
    BreakWatcher::new(application.into_iter().chain(channels))
}

/// Moves bytes in the direction that has not ended.
async fn run_half(
    pump: &mut StreamPump,
    stream: &mut StreamEndpoint,
    (mut outbound, mut inbound): (
        Option<&mut ApplicationToChannels<'_>>,
        Option<&mut ChannelsToApplication<'_>>,
    ),
    mut breaks: BreakWatcher<'_>,
) -> Option<StreamProtocolEvent> {
    poll_fn(|context| {
        loop {
            if let Poll::Ready(event) = pump.poll(context, stream, &mut outbound, &mut inbound) {
                return Poll::Ready(event);
            }
            let (broken, error) = std::task::ready!(breaks.poll(context));
            let now = pump.clock.now();
            match broken {
                BrokenConnection::Application => pump.fail_application(stream, error, now),
                BrokenConnection::Channel(channel) => {
                    pump.fail_channel(stream, channel, error, now);
                }
            }
        }
    })
    .await
}

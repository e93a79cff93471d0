//! Runs one stream: moves bytes between its channels, the application and the protocol, does what
//! the protocol says, and reports what happens. The same at the client and at the server.
//!
//! It decides nothing: [`Stream`] does.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::net::TcpStream;
use tracing::debug;
use zeroize::Zeroizing;

use crate::StreamError;
use crate::net::metrics::ChannelMetrics;
use crate::net::paths::monitor;
use crate::net::paths::path::{Path, PathEvents};
use crate::net::socket::{end_when_dropped, end_writing, reset_when_dropped};
use crate::net::stream::breaks::{Breaks, Broken};
use crate::net::stream::connection::ChannelConnection;
use crate::net::stream::pump::{Inbound, Outbound, Pump};
use crate::protocol::incoming::Loss;
use crate::protocol::memory::Lease;
use crate::protocol::stream::{Event, Failure, Half, Stream};
use crate::protocol::target::Refusal;

/// A connection whose stream is over.
pub(crate) struct ReusableConnection {
    pub(crate) stream: TcpStream,
    pub(crate) metrics: Arc<ChannelMetrics>,
    /// What was read of it behind the stream's end.
    pub(crate) rest: Zeroizing<Vec<u8>>,
}

/// What a stream has come to.
pub(crate) enum Progress {
    /// At a server: the client asks for this service.
    Requested(Zeroizing<Vec<u8>>),
    /// At a client: the server is connected to the service.
    Opened,
    /// Both directions have ended.
    Finished,
}

/// A stream, its channels' connections and the application's.
pub(crate) struct Driver {
    stream: Stream,
    /// By the channels' indices. At a server, channels may be missing from the start.
    channels: Vec<Option<ChannelConnection>>,
    /// The application's connection, or the service's. It is to be reset when it is dropped, and is
    /// not after a good end.
    application: Option<TcpStream>,
    pump: Pump,
}

impl Driver {
    /// Runs `stream` over these channels, whose times are of `clock`.
    pub(crate) fn new(
        stream: Stream,
        channels: Vec<Option<ChannelConnection>>,
        clock: Arc<PathEvents>,
    ) -> Self {
        let mut pump = Pump::new(channels.len(), clock);
        for (channel, connection) in channels.iter().enumerate() {
            if let Some(path) = connection.as_ref().and_then(ChannelConnection::path) {
                pump.paths.add(channel, path);
            }
        }
        let driver = Self { stream, channels, application: None, pump };
        if driver.stream.is_raw() {
            // An end is then the channels' own end, so whatever breaks the stream off must reset
            // them.
            driver.sockets().for_each(reset_when_dropped);
        }
        driver
    }

    /// How many connections it has.
    pub(crate) fn connections(&self) -> usize {
        self.channels.iter().flatten().count()
    }

    /// From here on, the paths of its channels are watched by its connections, as far as `path_of`
    /// knows them.
    pub(crate) fn watch(
        &mut self,
        mut path_of: impl FnMut(&ChannelConnection) -> Option<Arc<Path>>,
    ) {
        for (channel, connection) in self.channels.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            if let Some(path) = path_of(connection) {
                connection.watch(&path);
                self.pump.paths.add(channel, &path);
            }
        }
    }

    /// From here on, long records need memory of these leases, one for each direction.
    pub(crate) fn limit_memory(&mut self, outgoing: Lease, incoming: Lease) {
        self.stream.limit_memory(outgoing, incoming);
    }

    /// Moves bytes for this application, too. At a client whose application has waited for the
    /// answer, the protocol is told.
    pub(crate) fn connect(&mut self, application: TcpStream) {
        self.application = Some(application);
        self.stream.connect_application(self.pump.clock.now());
    }

    /// At a server: the service that the client has asked for is connected.
    pub(crate) fn accept(&mut self, service: TcpStream) {
        self.application = Some(service);
        self.stream.accept(self.pump.clock.now());
    }

    /// At a server: the service is not connected.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.stream.refuse(refusal, self.pump.clock.now());
    }

    fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.channels.iter().flatten().map(ChannelConnection::socket)
    }

    /// Runs it to its end. Returns the connections with what was read behind the stream's end, or
    /// none if they have ended with it.
    ///
    /// # Errors
    /// When the stream breaks. The application's connection has been reset then, and the peer told,
    /// as far as it can be.
    pub(crate) async fn run(mut self) -> Result<Vec<ReusableConnection>, StreamError> {
        loop {
            match self.next().await {
                Ok(Progress::Finished) => return Ok(self.finish()),
                Ok(_) => {}
                Err(error) => {
                    self.close().await;
                    return Err(error);
                }
            }
        }
    }

    /// Runs it until something happens that its owner has to know.
    ///
    /// # Errors
    /// When the stream breaks. The application's connection has been reset then. The peer has not
    /// been told: [`Driver::close`] does that.
    pub(crate) async fn next(&mut self) -> Result<Progress, StreamError> {
        loop {
            match self.event().await {
                Event::Requested(request) => return Ok(Progress::Requested(request)),
                Event::Opened => return Ok(Progress::Opened),
                Event::Finished => return Ok(Progress::Finished),
                Event::Failed(failure) => {
                    self.application = None;
                    return Err(self.report(failure));
                }
                Event::Lost(channel, why) => self.give_up(channel, why),
                Event::ShutApplication => self.shut_application(),
                Event::ShutChannels => self.shut_channels(),
                Event::Closed { .. } => {}
            }
        }
    }

    /// Tells the peer that the stream is broken, as far as that can be.
    pub(crate) async fn close(&mut self) {
        loop {
            match self.event().await {
                Event::Closed { reset } => {
                    let set = if reset { reset_when_dropped } else { end_when_dropped };
                    return self.sockets().for_each(set);
                }
                Event::Lost(channel, why) => self.give_up(channel, why),
                _ => {}
            }
        }
    }

    /// Moves bytes until the protocol has an event.
    async fn event(&mut self) -> Event {
        loop {
            let half_closed = self.stream.half_closed();
            let Self { stream, channels, application, pump } = self;
            let (mut outbound, mut inbound) = split(channels, application.as_mut());
            let event = match half_closed {
                None => {
                    let (mut outbound, mut inbound) = (Some(&mut outbound), Some(&mut inbound));
                    poll_fn(|context| pump.poll(context, stream, &mut outbound, &mut inbound)).await
                }
                Some(Half::Sent) => {
                    let application = outbound.application.as_ref().map(AsRef::as_ref);
                    let channels =
                        outbound.channels.iter().map(|writer| Some(writer.as_ref()?.socket()));
                    let breaks = breaks(pump, application, channels);
                    run_half(pump, stream, (None, Some(&mut inbound)), breaks).await
                }
                Some(Half::Received) => {
                    let application = inbound.application.as_ref().map(AsRef::as_ref);
                    let channels =
                        inbound.channels.iter().map(|reader| Some(reader.as_ref()?.socket()));
                    let breaks = breaks(pump, application, channels);
                    run_half(pump, stream, (Some(&mut outbound), None), breaks).await
                }
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// The stream goes on without a channel.
    fn give_up(&mut self, channel: usize, why: Loss) {
        if let Some(connection) = &mut self.channels[channel] {
            connection.give_up(why);
        } else {
            // Its client says so, which knows better why.
            debug!(channel = channel + 1, %why, "a stream goes on without a channel");
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
            let Some(connection) = connection.as_ref().filter(|own| !own.is_lost()) else {
                continue;
            };
            if let Err(error) = end_writing(connection.socket()) {
                self.pump.fail_channel(&mut self.stream, channel, error, now);
            }
        }
    }

    /// Counts why the stream is broken. Returns it with the channel's own index: a stream's are
    /// counted without those that it lacks.
    fn report(&mut self, failure: Failure) -> StreamError {
        if failure.is_silence() {
            // Nobody says which, so it may be all.
            self.channels.iter().flatten().for_each(|channel| channel.metrics.record_silence());
        }
        if failure.may_follow_loss() {
            self.pump.paths.all().for_each(Path::suspect);
        }
        let channel = failure.channel();
        let connection = channel.and_then(|channel| self.channels[channel].as_mut());
        let path = connection.as_ref().and_then(|connection| connection.path().map(Arc::clone));
        if let Some(connection) = connection {
            connection.lose(failure.loss());
        }
        if let (Failure::Lost(_), Some(path)) = (failure, path) {
            return monitor::lost_error(&path);
        }
        let place =
            |channel: usize| self.channels[channel].as_ref().map_or(channel, |own| own.place);
        let source = match channel {
            Some(channel) => self.pump.errors[channel].take(),
            None => self.pump.application_error.take(),
        };
        StreamError::of(failure, place, source)
    }

    /// What is left of the stream after its end.
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
            let rest = Zeroizing::new(stream.rest(channel).to_vec());
            let (stream, metrics) = connection?.into_inner();
            Some(ReusableConnection { stream, metrics, rest })
        };
        self.channels.into_iter().enumerate().filter_map(reusable).collect()
    }
}

/// The halves of all connections, by their directions.
fn split<'a>(
    channels: &'a mut [Option<ChannelConnection>],
    application: Option<&'a mut TcpStream>,
) -> (Outbound<'a>, Inbound<'a>) {
    let (from_application, to_application) = application.map(TcpStream::split).unzip();
    let halves = |connection: &'a mut Option<ChannelConnection>| {
        connection.as_mut().filter(|own| !own.is_lost()).map(ChannelConnection::split).unzip()
    };
    let (readers, writers) = channels.iter_mut().map(halves).unzip();
    let outbound = Outbound { application: from_application, channels: writers };
    (outbound, Inbound { channels: readers, application: to_application })
}

/// The connections of a direction that has ended, which are watched from here on.
fn breaks<'a>(
    pump: &Pump,
    application: Option<&'a TcpStream>,
    channels: impl Iterator<Item = Option<&'a TcpStream>>,
) -> Breaks<'a> {
    let channels = channels.enumerate().filter_map(|(channel, connection)| {
        let is_new = pump.errors[channel].is_none();
        connection.filter(|_| is_new).map(|connection| (Broken::Channel(channel), connection))
    });
    let application = application.map(|connection| (Broken::Application, connection));
    Breaks::new(application.into_iter().chain(channels))
}

/// Moves bytes in the direction that has not ended.
async fn run_half(
    pump: &mut Pump,
    stream: &mut Stream,
    (mut outbound, mut inbound): (Option<&mut Outbound<'_>>, Option<&mut Inbound<'_>>),
    mut breaks: Breaks<'_>,
) -> Option<Event> {
    poll_fn(|context| {
        loop {
            if let Poll::Ready(event) = pump.poll(context, stream, &mut outbound, &mut inbound) {
                return Poll::Ready(event);
            }
            let (broken, error) = std::task::ready!(breaks.poll(context));
            let now = pump.clock.now();
            match broken {
                Broken::Application => pump.fail_application(stream, error, now),
                Broken::Channel(channel) => pump.fail_channel(stream, channel, error, now),
            }
        }
    })
    .await
}

//! One end of a stream, without input or output: the last part of the handshake, records in both
//! directions, lost channels, and all timeouts. Bytes and the time come in; bytes, events and the
//! next deadline go out. Channels are given by their index in the association.
//!
//! A driver does the following, in any order and repeatedly:
//!
//! - handles events first, and calls [`StreamEndpoint::advance`] while
//!   [`StreamEndpoint::has_work`];
//! - writes [`to_send`](StreamEndpoint::to_send) of each channel, and reports it by
//!   [`StreamEndpoint::handle_sent`];
//! - reads the channels of [`wanted`](StreamEndpoint::wanted) into
//!   [`space`](StreamEndpoint::space), in that order, and reports the first that has bytes by
//!   [`StreamEndpoint::handle_received`];
//! - while [`wants_application`](StreamEndpoint::wants_application), reads the application into
//!   [`application_space`](StreamEndpoint::application_space);
//! - writes [`to_deliver`](StreamEndpoint::to_deliver) to the application;
//! - reports which connections break, and while [`half_closed`](StreamEndpoint::half_closed)
//!   watches for that;
//! - calls [`StreamEndpoint::handle_timeout`] at [`StreamEndpoint::poll_timeout`].

mod application;
mod confirming;
mod failure;
mod losing;
mod progress;
mod rejoining;
mod timers;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use association::{
    AssociationMessage, AssociationProtocol, AssociationTerms, ClientHandshakeAbort,
    ConnectionCookie, CookieList, SharingScheme,
};
use random::{RandomError, RandomGenerator};
use sharing::SharingParameters;
use zeroize::Zeroizing;

use self::confirming::PendingConfirms;
pub(crate) use self::failure::StreamFailure;
pub use self::failure::StreamProtocolError;
use self::rejoining::StreamRejoinState;
pub(crate) use self::timers::LostChannelTimeouts;
use self::timers::StreamDeadlines;
use crate::protocol::incoming::{ChannelLossReason, IncomingRecords};
use crate::protocol::memory::MemoryLease;
use crate::protocol::options::{OPTION_NO_RECORDS, OPTION_REJOIN, OPTION_SINGLE_USE};
use crate::protocol::outgoing::OutgoingRecords;
use crate::protocol::record::MicssRecordKind;
use crate::protocol::rejoin::RejoinKeys;
use crate::protocol::target::ServiceRefusal;

/// How long sealed records wait for the application's first bytes, to be sent with them.
const COALESCE_DELAY: Duration = Duration::from_millis(2);

/// How long a server keeps reading after a refusal: if it closed before the client has sent
/// everything, the close would be a reset, which can overtake the answer.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(10);

/// An action for the driver, or an event.
#[derive(Debug)]
pub(crate) enum StreamProtocolEvent {
    /// At a server: the client requests this service. [`StreamEndpoint::accept`] or
    /// [`StreamEndpoint::refuse`] answers.
    Requested(Zeroizing<Vec<u8>>),
    /// At a client: the server is connected to the service.
    Opened,
    /// The stream continues without a channel, which must be closed in both directions.
    Lost(usize, ChannelLossReason),
    /// A channel that the stream needs has lost its connection, which must be closed. Nothing is
    /// read from the channel or sent on it until another connection replaces it.
    Detached(usize),
    /// At a client: a channel must be reconnected. The driver connects it, reads its cookie, sends
    /// what [`StreamEndpoint::offer`] returns, and passes the server's answer to
    /// [`StreamEndpoint::handle_answer`]. If this fails, it calls
    /// [`StreamEndpoint::handle_rejoin_failed`].
    Rejoin(usize),
    /// At a client: the same, but the path of the channel is lost, and must be probed soon.
    Probe(usize),
    /// The application's connection must be shut down for writing: the peer has ended its
    /// direction.
    ShutApplication,
    /// Without records, the channels must be shut down for writing: this direction has ended.
    ShutChannels,
    /// Both directions have ended.
    Finished,
    /// The stream is broken. The application's connection must be reset. There may still be bytes
    /// to send: [`StreamProtocolEvent::Closed`] follows.
    Failed(StreamFailure),
    /// The channels must be closed: after a failure or, at a server, a refusal, all remaining bytes
    /// were sent if possible.
    Closed {
        /// Whether they must be reset, because no record could tell the peer.
        reset: bool,
    },
}

/// A direction that has ended, while the other has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedDirection {
    /// The application is not read any more.
    Sent,
    /// The channels are not read any more.
    Received,
}

/// A client's request.
pub(crate) struct StreamRequest<'a> {
    /// The number of channels that the stream needs.
    pub(crate) threshold: u8,
    /// The cookies of its channels, which are all different.
    pub(crate) cookies: &'a [ConnectionCookie],
    /// The service, encoded.
    pub(crate) target: &'a [u8],
    /// Whether there are records: without `integrity = "none"`.
    pub(crate) has_records: bool,
    /// Whether the connections may be reused.
    pub(crate) is_reusable: bool,
    /// Whether there is no application to read from until [`StreamProtocolEvent::Opened`] and
    /// [`StreamEndpoint::connect_application`].
    pub(crate) waits_for_answer: bool,
}

impl StreamRequest<'_> {
    /// # Panics
    /// If there are fewer channels than needed, or more than a stream may have.
    fn terms(&self) -> AssociationTerms {
        let channels = u8::try_from(self.cookies.len()).expect("checked with the configuration");
        let is_whole = channels == self.threshold;
        let scheme = if is_whole { SharingScheme::Xor } else { SharingScheme::Shamir };
        let raw = if self.has_records { OPTION_REJOIN } else { OPTION_NO_RECORDS };
        let once = if self.is_reusable { 0 } else { OPTION_SINGLE_USE };
        AssociationTerms::new(
            AssociationProtocol::MicssStream,
            scheme,
            self.threshold,
            channels,
            raw | once,
        )
        .expect("as many channels as are needed")
    }
}

/// One end of a stream.
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
pub(crate) struct StreamEndpoint {
    terms: AssociationTerms,
    outgoing: OutgoingRecords,
    incoming: IncomingRecords,
    phase: StreamPhase,
    application: ApplicationReadState,
    timers: StreamDeadlines,
    /// The record that is being delivered: its kind, the length of its payload, and how much of it
    /// the application has taken.
    delivery: Option<(MicssRecordKind, usize, usize)>,
    /// Whether the search for the right channels is running: see [`StreamEndpoint::has_work`].
    has_work: bool,
    /// The peer's last record has arrived.
    has_received_all: bool,
    /// When all sealed records have been sent, payloads have no header.
    drops_records: bool,
    /// Whether an acknowledgement is due, because the peer has requested it or must learn that
    /// channels can take more.
    owes_acknowledgement: bool,
    /// The replacement of the channels' connections.
    rejoining: StreamRejoinState,
    /// Since when the path of each channel has been unusable.
    unusable_since: Vec<Option<Duration>>,
    events: VecDeque<StreamProtocolEvent>,
}

enum StreamPhase {
    /// A client waits for the channels' Confirms.
    Confirming(PendingConfirms),
    /// A client waits for the server's answer.
    Answer,
    /// A server waits for the request.
    Request,
    /// A server connects to the service.
    Connecting,
    /// A server has refused the request, and keeps reading.
    Refused,
    Open,
    /// The stream is broken, and the abort is being sent.
    Aborting,
    Over,
}

/// The state of the application as a source of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplicationReadState {
    /// There is none yet.
    Absent,
    Reading,
    /// It has ended, and its end is sealed.
    Ended,
    /// The end has been sent on all channels.
    Sent,
}

impl StreamEndpoint {
    /// A client's end on channels that have these cookies.
    ///
    /// # Errors
    /// If the cookies do not form a valid list, or the random source fails.
    ///
    /// # Panics
    /// If there are fewer channels than needed, or more than a stream may have.
    pub(crate) fn client(
        request: &StreamRequest<'_>,
        lost_channel: LostChannelTimeouts,
        generator: RandomGenerator,
        now: Duration,
    ) -> Result<Self, StreamFailure> {
        let terms = request.terms();
        let list = CookieList::new(terms, request.cookies.to_vec());
        let list =
            list.map_err(|error| StreamProtocolError::from(ClientHandshakeAbort::from(error)))?;
        let phase = StreamPhase::Confirming(PendingConfirms::new(list.clone()));
        let mut stream = Self::new(
            terms,
            phase,
            generator,
            StreamDeadlines::new(terms.channels(), lost_channel, now),
        )?;
        stream.drops_records = stream.is_raw();
        stream.outgoing.precede(AssociationMessage::List(list).encode());
        stream.outgoing.seal_payload(MicssRecordKind::Open, request.target)?;
        if !request.waits_for_answer {
            stream.application = ApplicationReadState::Reading;
            stream.hold(now);
        }
        stream.update(now);
        Ok(stream)
    }

    /// A server's end. `channels` are those that have delivered this list, with the bytes that were
    /// read after it; the others are lost.
    ///
    /// # Errors
    /// If the random source fails.
    ///
    /// # Panics
    /// If there are fewer channels than needed, or more bytes than [`IncomingRecords::put`] takes.
    pub(crate) fn server<'a>(
        list: CookieList,
        channels: impl IntoIterator<Item = (usize, &'a [u8])>,
        lost_channel: Duration,
        generator: RandomGenerator,
        now: Duration,
    ) -> Result<Self, RandomError> {
        let timeouts = LostChannelTimeouts { open: lost_channel, opening: lost_channel };
        let terms = list.terms();
        let timers = StreamDeadlines::new(terms.channels(), timeouts, now);
        let mut stream = Self::new(terms, StreamPhase::Request, generator, timers)?;
        stream.outgoing.precede(AssociationMessage::Confirm(list).encode());
        let mut is_there = vec![false; stream.unusable_since.len()];
        for (channel, rest) in channels {
            is_there[channel] = true;
            stream.incoming.put(channel, rest);
        }
        for missing in stream.channels().filter(|&channel| !is_there[channel]) {
            assert!(
                stream.lose(missing, ChannelLossReason::Missing),
                "as many channels as are needed"
            );
        }
        stream.update(now);
        Ok(stream)
    }

    fn new(
        terms: AssociationTerms,
        phase: StreamPhase,
        mut generator: RandomGenerator,
        timers: StreamDeadlines,
    ) -> Result<Self, RandomError> {
        let sharing = match terms.scheme() {
            SharingScheme::Xor => SharingParameters::xor(terms.channels()),
            SharingScheme::Shamir => SharingParameters::shamir(terms.threshold(), terms.channels()),
        };
        let sharing = sharing.expect("terms are consistent");
        let mut incoming = IncomingRecords::new(sharing, generator.array()?);
        incoming.expect_opening();
        let mut outgoing = OutgoingRecords::new(sharing, generator);
        if may_rejoin(terms) {
            outgoing.keep();
        }
        let is_client = matches!(phase, StreamPhase::Confirming(_));
        Ok(Self {
            terms,
            outgoing,
            incoming,
            phase,
            application: ApplicationReadState::Absent,
            timers,
            delivery: None,
            has_work: false,
            has_received_all: false,
            drops_records: false,
            owes_acknowledgement: false,
            rejoining: StreamRejoinState::new(is_client, terms.channels().into()),
            unusable_since: vec![None; terms.channels().into()],
            events: VecDeque::new(),
        })
    }

    /// Limits the memory of long records by these leases from now on, and the memory of shares that
    /// are kept for replaced connections by the last one.
    pub(crate) fn limit_memory(
        &mut self,
        outgoing: MemoryLease,
        incoming: MemoryLease,
        kept: MemoryLease,
    ) {
        self.outgoing.limit_memory(outgoing, kept);
        self.incoming.limit_memory(incoming);
    }

    /// All channels of the association.
    fn channels(&self) -> impl Iterator<Item = usize> + use<> {
        0..usize::from(self.terms.channels())
    }

    /// The channels that are not lost.
    fn live(&self) -> impl Iterator<Item = usize> {
        self.channels().filter(|&channel| self.outgoing.is_live(channel))
    }

    /// Whether payloads are shared without a header. Then the end of the channels is the end of the
    /// stream, so the channels must be reset if the stream breaks.
    pub(crate) fn is_raw(&self) -> bool {
        self.terms.options() & OPTION_NO_RECORDS != 0
    }

    /// Whether the channels end with the stream.
    fn is_once(&self) -> bool {
        self.terms.options() & (OPTION_NO_RECORDS | OPTION_SINGLE_USE) != 0
    }

    /// After [`StreamProtocolEvent::Finished`]: whether the channels may be reused. Then none is
    /// lost or behind.
    pub(crate) fn is_reusable(&self) -> bool {
        let is_whole = self.outgoing.has_all_channels() && self.incoming.has_all_channels();
        let is_level = self.incoming.is_caught_up() && !self.rejoining.has_rejoined();
        !self.is_once() && is_whole && is_level
    }

    /// After [`StreamProtocolEvent::Finished`]: the bytes that were read from a channel after the
    /// stream's end.
    pub(crate) fn trailing_bytes(&self, channel: usize) -> &[u8] {
        self.incoming.trailing_bytes(channel)
    }

    /// The direction that has ended, if one has and the other has not. Its connections are no
    /// longer used, so the driver watches them and reports if they break: the application, and
    /// without records also the channels, which with records are used to the stream's end.
    pub(crate) fn half_closed(&self) -> Option<EndedDirection> {
        match (self.application == ApplicationReadState::Sent, self.has_received_all, &self.phase) {
            (true, false, StreamPhase::Confirming(_) | StreamPhase::Answer | StreamPhase::Open) => {
                Some(EndedDirection::Sent)
            }
            (false, true, StreamPhase::Open) if self.is_raw() => Some(EndedDirection::Received),
            _ => None,
        }
    }

    // The service, at a server, and the application.

    /// At a server: reports that the service is connected. The client is notified, and the
    /// service's bytes are carried.
    pub(crate) fn accept(&mut self, now: Duration) {
        if !matches!(self.phase, StreamPhase::Connecting) {
            return;
        }
        // A client that has already sent something waits for the service's answer.
        let may_hold = self.incoming.next_record_timeout().is_some();
        if let Err(error) = self.seal_opened() {
            self.fail(error.into(), now);
            return;
        }
        if self.is_raw() {
            self.incoming.drop_records();
            self.drops_records = true;
        }
        self.phase = StreamPhase::Open;
        self.application = ApplicationReadState::Reading;
        if may_hold {
            self.hold(now);
        }
        self.timers.received(now);
        self.update(now);
    }

    /// Seals the answer to a request, with the keys by which connections are replaced.
    fn seal_opened(&mut self) -> Result<(), RandomError> {
        let keys = may_rejoin(self.terms)
            .then(|| RejoinKeys::random(self.terms.channels(), &mut self.outgoing))
            .transpose()?;
        let payload = keys.as_ref().map(RejoinKeys::encode).unwrap_or_default();
        self.rejoining.set_keys(keys);
        self.outgoing.seal_payload(MicssRecordKind::Opened, &payload)
    }

    /// At a server: reports that the service is not connected. The client is sent the reason.
    pub(crate) fn refuse(&mut self, refusal: ServiceRefusal, now: Duration) {
        if !matches!(self.phase, StreamPhase::Connecting) {
            return;
        }
        if let Err(error) = self.outgoing.seal_payload(MicssRecordKind::Refused, &[refusal as u8]) {
            self.fail(error.into(), now);
            return;
        }
        if self.is_raw() {
            self.incoming.drop_records();
        }
        self.application = ApplicationReadState::Ended;
        self.phase = StreamPhase::Refused;
        self.timers.limit(Some(now + REFUSED_TIMEOUT));
        self.update(now);
    }

    // The channels.

    /// The bytes to send next on a channel.
    pub(crate) fn to_send(&self, channel: usize) -> &[u8] {
        let is_silent = self.timers.is_coalescing()
            || matches!(self.phase, StreamPhase::Over)
            || !self.has_connection(channel);
        if is_silent { &[] } else { self.outgoing.unsent(channel) }
    }

    /// A channel has taken the next `len` bytes.
    pub(crate) fn handle_sent(&mut self, channel: usize, len: usize, now: Duration) {
        self.outgoing.advance(channel, len);
        self.timers.sent(now);
        if self.outgoing.is_sent_on_enough() {
            self.update(now);
        }
    }

    /// The channels to read from, the one furthest behind first.
    pub(crate) fn wanted(&self) -> Vec<usize> {
        match &self.phase {
            StreamPhase::Confirming(confirming) => confirming.wanted(),
            _ if self.is_receiving() && !self.has_work => {
                self.incoming.wanted().filter(|&channel| self.has_connection(channel)).collect()
            }
            _ if self.awaits_late() => {
                let is_late = |&channel: &usize| {
                    self.incoming.behind(channel) > 0 && self.has_connection(channel)
                };
                self.incoming.wanted().filter(is_late).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The channel furthest behind, if others have brought more.
    pub(crate) fn awaited(&self) -> Option<usize> {
        let is_waiting = self.is_receiving() && !self.has_work;
        is_waiting.then(|| self.incoming.awaited()).flatten()
    }

    /// The buffer for the next bytes of a channel that is wanted.
    pub(crate) fn space(&mut self, channel: usize) -> &mut [u8] {
        match &mut self.phase {
            StreamPhase::Confirming(confirming) => confirming.space(channel),
            _ => self.incoming.space(channel),
        }
    }

    /// Records that a channel that is wanted has filled the first `len` bytes of its space, or has
    /// ended if there are none.
    pub(crate) fn handle_received(&mut self, channel: usize, len: usize, now: Duration) {
        self.timers.received(now);
        if let StreamPhase::Confirming(confirming) = &mut self.phase {
            if let Some(why) = confirming.handle_received(channel, len, now) {
                self.lose_or_fail(channel, why, now);
            }
        } else if len == 0 {
            let is_needed = !self.incoming.has_spare() || self.rejoining.has_offer(channel);
            let waits = is_needed && !self.has_received_all;
            if !waits || !self.wait_for_rejoin(channel, now) {
                self.incoming.close(channel);
            }
        } else {
            self.incoming.filled(channel, len);
        }
        self.update(now);
    }

    /// A channel is broken.
    pub(crate) fn handle_broken(&mut self, channel: usize, kind: io::ErrorKind, now: Duration) {
        // The server resets it when it accepts another. Bytes that arrived before count.
        let is_replaced = self.rejoining.has_offer(channel) && self.wait_for_rejoin(channel, now);
        let goes_on = is_replaced
            || self.lose(channel, ChannelLossReason::Broken)
            || self.wait_for_rejoin(channel, now);
        if !goes_on {
            self.fail(StreamFailure::Channel { channel, kind }, now);
        }
        self.update(now);
    }

    /// Sets since when the path of a channel has been unusable, if it is.
    pub(crate) fn handle_path(
        &mut self,
        channel: usize,
        unusable_since: Option<Duration>,
        now: Duration,
    ) {
        self.unusable_since[channel] = unusable_since;
        self.rejoining.handle_path(channel, unusable_since.is_none(), now);
        self.update(now);
    }
}

/// Whether connections may be replaced.
fn may_rejoin(terms: AssociationTerms) -> bool {
    terms.options() & (OPTION_REJOIN | OPTION_NO_RECORDS) == OPTION_REJOIN
}

#[cfg(test)]
pub(crate) mod pair;
#[cfg(test)]
mod simulation;

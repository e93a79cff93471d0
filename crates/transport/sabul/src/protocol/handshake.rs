//! The handshake (draft-gg-udt-03, section 4), in two round trips.
//!
//! | from | message | destination socket |
//! |---|---|---|
//! | client | first request, cookie 0 | 0 |
//! | listener | first request, with a cookie | the client's |
//! | client | second request, with the cookie | 0 |
//! | listener | second request, with its own window and socket | the client's |
//!
//! The cookie proves that the client receives at its address. Before that, the listener keeps no
//! state.
//!
//! A client sends each first request in three forms: as long as the longest packet, as long as
//! every IPv6 path carries, and as long as UDT's. Each answer is as long as the request. So the
//! client learns whether the path carries the longest packets in both directions: if only the
//! shorter answer arrives, all packets are as short as that. UDT answers only its own form, which
//! says nothing about the path.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use udp::cookies::AddressCookies;
use zeroize::Zeroizing;

use super::congestion::UdtCongestionControl;
use super::connection::SabulConnection;
use super::number::MAX_WIRE;
use super::packet::{
    SabulHandshakeBody, SabulPacket, SabulPacketContent, SabulRequestKind, address_words,
};
use super::session_parameters::{MAX_MSS, MIN_MSS, SabulConfig, SabulSessionParameters, write};

/// A request is repeated after this time.
const REPEAT: Duration = Duration::from_millis(250);

/// The longest datagram on a path that only carries packets of 1,280 bytes.
const SHORT_DATAGRAM: u16 = 1232;

/// How much longer an IPv6 header is than an IPv4 header.
const IPV6_EXCESS: u16 = 20;

/// After a shorter answer, the longest one is awaited for this long plus a quarter of the round
/// trip.
const LONG_ANSWER_WAIT: Duration = Duration::from_millis(10);

/// The period of cookies. A cookie is valid for one to two periods.
const COOKIE_PERIOD: Duration = Duration::from_secs(60);

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SabulConnectError {
    /// The first request was not answered.
    #[error("no answer: is a listener there, and does a firewall let UDP through?")]
    NoAnswer,
    /// The first request was answered, but the second was not.
    #[error("the listener did not answer the second request of the handshake")]
    NotAccepted,
    /// The listener has rejected the request, because it has too many connections or another
    /// version.
    #[error("the listener refused the connection")]
    Refused,
}

/// A client's handshake.
#[derive(Debug)]
pub struct SabulClientHandshake {
    config: SabulConfig,
    request: SabulHandshakeBody,
    seed: u64,
    began_at: Duration,
    /// When the request was sent for the first and for the last time.
    first_sent_at: Option<Duration>,
    sent_at: Option<Duration>,
    /// The forms in which the request is still to be sent now, in reverse order.
    unsent: Vec<SabulRequestForm>,
    /// The longest form of the first request.
    longest: SabulRequestForm,
    /// The longest form that was answered, its cookie, and until when to wait for a longer one.
    answered: Option<(SabulRequestForm, u32, Duration)>,
    /// The form of the second request.
    second: SabulRequestForm,
}

/// A form of a request: whether the request is padded to the length of the longest packet that it
/// proposes, and that length. The greatest form is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SabulRequestForm {
    is_long: bool,
    mss: u16,
}

/// The outcome of a datagram for a client that is connecting.
#[derive(Debug)]
pub enum SabulConnectOutcome {
    /// The connection is open.
    Yes(Box<SabulConnection>),
    /// The handshake has failed.
    Failed(SabulConnectError),
    /// The handshake has not finished yet.
    NotYet,
}

impl SabulClientHandshake {
    /// Begins a handshake with a listener at `peer`. `random` must be unpredictable: the socket
    /// identifier and the first packet number are made from it, so that an off-path attacker cannot
    /// guess them.
    pub fn new(config: SabulConfig, peer: IpAddr, random: [u32; 2], now: Duration) -> Self {
        let [socket, first_number] = random;
        let mss = match peer.to_canonical() {
            IpAddr::V4(_) => config.mss(),
            IpAddr::V6(_) => config.mss().min(1500).saturating_sub(IPV6_EXCESS).max(MIN_MSS),
        };
        let request = SabulHandshakeBody {
            request: SabulRequestKind::First,
            first_number: first_number & MAX_WIRE,
            mss: u32::from(mss),
            window: config.window(mss),
            socket: socket.max(1),
            cookie: 0,
            address: address_words(peer),
        };
        let seed = u64::from(socket) << 32 | u64::from(first_number);
        Self {
            config,
            request,
            seed,
            began_at: now,
            first_sent_at: None,
            sent_at: None,
            unsent: Vec::new(),
            longest: SabulRequestForm { is_long: true, mss },
            answered: None,
            second: SabulRequestForm { is_long: true, mss },
        }
    }

    /// The socket identifier of this end.
    pub fn socket(&self) -> u32 {
        self.request.socket
    }

    /// Writes the next datagram to be sent now, into an empty buffer. Returns whether there is one.
    pub fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> bool {
        if self.sent_at.is_none_or(|at| now >= at + REPEAT) {
            self.sent_at = Some(now);
            self.first_sent_at.get_or_insert(now);
            self.unsent = self.forms();
        }
        let Some(SabulRequestForm { is_long, mss }) = self.unsent.pop() else { return false };
        let window = self.config.window(mss);
        write(SabulHandshakeBody { mss: mss.into(), window, ..self.request }, 0, datagram);
        if is_long {
            datagram.resize(usize::from(SabulConfig::datagram(mss)), 0);
        }
        true
    }

    /// The forms in which the request is sent, in reverse order.
    fn forms(&self) -> Vec<SabulRequestForm> {
        if self.request.request != SabulRequestKind::First {
            return vec![self.second];
        }
        let longest = self.longest;
        let short =
            SabulRequestForm { mss: SabulConfig::mss_of_datagram(SHORT_DATAGRAM), ..longest };
        let of_udt = SabulRequestForm { is_long: false, ..longest };
        if short < longest { vec![of_udt, short, longest] } else { vec![of_udt, longest] }
    }

    /// The time of the next call of [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn poll_timeout(&self) -> Duration {
        let end = self.began_at + self.config.connect_timeout;
        match (self.sent_at, &self.answered) {
            (Some(at), _) if !self.unsent.is_empty() => at,
            (Some(at), None) => end.min(at + REPEAT),
            (Some(at), Some((.., until))) => end.min(at + REPEAT).min(*until),
            (None, _) => self.began_at,
        }
    }

    /// Fails the handshake when its time is over.
    ///
    /// # Errors
    /// If no answer has arrived in time.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), SabulConnectError> {
        if let Some((form, cookie, _)) = self.answered.take_if(|(.., until)| now >= *until) {
            self.send_second_request(form, cookie);
        }
        if now < self.began_at + self.config.connect_timeout {
            return Ok(());
        }
        Err(match self.request.request {
            SabulRequestKind::First => SabulConnectError::NoAnswer,
            SabulRequestKind::Second | SabulRequestKind::Refused => SabulConnectError::NotAccepted,
        })
    }

    /// Handles a datagram from the listener's address.
    pub fn handle_datagram(&mut self, now: Duration, datagram: &[u8]) -> SabulConnectOutcome {
        let Some(SabulPacket {
            destination, content: SabulPacketContent::Handshake(answer), ..
        }) = SabulPacket::parse(datagram)
        else {
            return SabulConnectOutcome::NotYet;
        };
        if destination != self.request.socket {
            return SabulConnectOutcome::NotYet;
        }
        match (answer.request, self.request.request) {
            (SabulRequestKind::First, SabulRequestKind::First) => {
                let mss = u16::try_from(answer.mss).unwrap_or(0);
                let is_long =
                    datagram.len() == usize::from(SabulConfig::datagram(mss.max(MIN_MSS)));
                self.handle_answer(now, SabulRequestForm { is_long, mss }, answer.cookie);
                SabulConnectOutcome::NotYet
            }
            (SabulRequestKind::Second, SabulRequestKind::Second) => match self.agree(&answer) {
                Some(agreed) => {
                    // If the request was repeated and only the repetition has arrived, this is too
                    // long by the time between them. Later measurements correct it.
                    let round_trip = self.first_sent_at.map(|at| now.saturating_sub(at));
                    SabulConnectOutcome::Yes(Box::new(connection(
                        agreed, self.seed, round_trip, now,
                    )))
                }
                None => SabulConnectOutcome::NotYet,
            },
            (SabulRequestKind::Refused, SabulRequestKind::Second) => {
                SabulConnectOutcome::Failed(SabulConnectError::Refused)
            }
            _ => SabulConnectOutcome::NotYet,
        }
    }

    /// Handles an answer to one form of the first request.
    fn handle_answer(&mut self, now: Duration, form: SabulRequestForm, cookie: u32) {
        if form >= self.longest {
            return self.send_second_request(self.longest, cookie);
        }
        let is_better = self.answered.is_none_or(|(answered, ..)| form > answered);
        if is_better && (MIN_MSS..=self.longest.mss).contains(&form.mss) {
            let round_trip = self.first_sent_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
            self.answered = Some((form, cookie, now + LONG_ANSWER_WAIT + round_trip / 4));
        }
    }

    /// Sends the second request.
    fn send_second_request(&mut self, form: SabulRequestForm, cookie: u32) {
        let SabulRequestForm { mss, .. } = form;
        let window = self.config.window(mss);
        let request = SabulRequestKind::Second;
        self.request =
            SabulHandshakeBody { request, cookie, mss: mss.into(), window, ..self.request };
        self.second = form;
        (self.sent_at, self.first_sent_at, self.answered) = (None, None, None);
    }

    fn agree(&self, answer: &SabulHandshakeBody) -> Option<SabulSessionParameters> {
        let mss = u16::try_from(answer.mss).ok()?;
        let is_right = answer.first_number == self.request.first_number
            && mss >= MIN_MSS
            && u32::from(mss) <= self.request.mss
            && answer.socket != 0;
        is_right.then_some(SabulSessionParameters {
            socket: self.request.socket,
            peer_socket: answer.socket,
            first_number: self.request.first_number,
            mss,
            window: self.request.window,
            peer_window: answer.window,
            send_buffer: self.config.send_buffer,
            silence: self.config.silence,
            response: None,
        })
    }
}

/// Answers requests for connections, without keeping state.
#[derive(Debug)]
pub struct SabulListener {
    config: SabulConfig,
    cookies: AddressCookies,
}

/// The action that a listener takes for a datagram.
#[derive(Debug)]
pub enum SabulListenerAction {
    /// This datagram is to be sent back.
    Answer(Vec<u8>),
    /// The client has proved its address. A connection is to be created with
    /// [`SabulListener::accept`], unless there is one for this request.
    Request(SabulConnectRequest),
    /// The datagram is not a request.
    Nothing,
}

/// A client's request with a valid cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SabulConnectRequest {
    handshake: SabulHandshakeBody,
}

impl SabulConnectRequest {
    /// The client's socket identifier. With the client's address it identifies the request.
    pub fn socket(&self) -> u32 {
        self.handshake.socket
    }

    /// The datagram by which the listener rejects this request.
    pub fn refusal(&self) -> Vec<u8> {
        let mut datagram = Vec::new();
        let refusal = SabulHandshakeBody { request: SabulRequestKind::Refused, ..self.handshake };
        write(refusal, self.handshake.socket, &mut datagram);
        datagram
    }
}

impl SabulListener {
    /// Creates a listener. `secret` must be random: cookies are derived from it.
    pub fn new(config: SabulConfig, secret: [u8; 32]) -> Self {
        let cookies = AddressCookies::new(&Zeroizing::new(secret), COOKIE_PERIOD);
        Self { config, cookies }
    }

    /// Handles a datagram for socket 0.
    pub fn handle_datagram(
        &self,
        now: Duration,
        from: SocketAddr,
        datagram: &[u8],
    ) -> SabulListenerAction {
        let Some(SabulPacket {
            destination: 0,
            content: SabulPacketContent::Handshake(handshake),
            ..
        }) = SabulPacket::parse(datagram)
        else {
            return SabulListenerAction::Nothing;
        };
        let is_sound = handshake.socket != 0
            && (u32::from(MIN_MSS)..=u32::from(MAX_MSS)).contains(&handshake.mss);
        match handshake.request {
            SabulRequestKind::First if is_sound => {
                let cookie = u32::from_be_bytes(self.cookies.make(now, from, &[]));
                let mut answer = Vec::new();
                write(SabulHandshakeBody { cookie, ..handshake }, handshake.socket, &mut answer);
                answer.resize(datagram.len(), 0);
                SabulListenerAction::Answer(answer)
            }
            SabulRequestKind::Second if is_sound => {
                if self.cookies.verify(now, from, &[], &handshake.cookie.to_be_bytes()) {
                    SabulListenerAction::Request(SabulConnectRequest { handshake })
                } else {
                    SabulListenerAction::Nothing
                }
            }
            _ => SabulListenerAction::Nothing,
        }
    }

    /// Creates the connection for a request from `from`. The connection first sends the response.
    /// `socket` is its identifier: unpredictable, unique and not 0.
    pub fn accept(
        &self,
        request: &SabulConnectRequest,
        from: IpAddr,
        socket: u32,
        now: Duration,
    ) -> SabulConnection {
        let SabulConnectRequest { handshake } = *request;
        let own = self.config.mss();
        let mss = u16::try_from(handshake.mss).map_or(own, |mss| mss.min(own));
        let response = SabulHandshakeBody {
            request: SabulRequestKind::Second,
            mss: u32::from(mss),
            window: self.config.window(mss),
            socket,
            address: address_words(from),
            ..handshake
        };
        let agreed = SabulSessionParameters {
            socket,
            peer_socket: handshake.socket,
            first_number: handshake.first_number,
            mss,
            window: response.window,
            peer_window: handshake.window,
            send_buffer: self.config.send_buffer,
            silence: self.config.silence,
            response: Some(response),
        };
        let seed = u64::from(socket) << 32 | u64::from(handshake.socket);
        let mut connection = connection(agreed, seed, None, now);
        connection.respond();
        connection
    }
}

fn connection(
    agreed: SabulSessionParameters,
    seed: u64,
    round_trip: Option<Duration>,
    now: Duration,
) -> SabulConnection {
    let window = u64::from(agreed.peer_window);
    let congestion = UdtCongestionControl::new(agreed.mss, window, seed);
    SabulConnection::new(agreed, Box::new(congestion), round_trip, now)
}

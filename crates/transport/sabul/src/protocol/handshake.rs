//! The handshake (draft-gg-udt-03, section 4): two round trips.
//!
//! | from | message | socket it is for |
//! |---|---|---|
//! | client | first request, cookie 0 | 0 |
//! | listener | first request, with a cookie | the client's |
//! | client | second request, with the cookie | 0 |
//! | listener | second request, with its own window and socket | the client's |
//!
//! The cookie proves that the client receives at its address. Until then the listener keeps
//! nothing.
//!
//! A client sends each first request three times: as long as the longest packet, as long as any
//! path of IPv6 carries, and as UDT does. The answers have the same lengths. So the client knows
//! whether the path carries the longest packets both ways: if only the shorter answer comes, all
//! packets are as short. UDT answers its own form only, which says nothing of the path.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
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

/// The longest datagram on a path that carries packets of 1,280 bytes only.
const SHORT_DATAGRAM: u16 = 1232;

/// The header of IPv6 has so many bytes more than that of IPv4.
const IPV6_EXCESS: u16 = 20;

/// After another answer the longest one may take a quarter of the round trip more, and this.
const LONG_ANSWER_WAIT: Duration = Duration::from_millis(10);

/// How long a cookie is made of the same time. It is valid for one to two of these.
const COOKIE_PERIOD_SECS: u64 = 60;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SabulConnectError {
    /// Nobody has answered the first request.
    #[error("no answer: is a listener there, and does a firewall let UDP through?")]
    NoAnswer,
    /// The listener has answered the first request, and not the second.
    #[error("the listener did not answer the second request of the handshake")]
    NotAccepted,
    /// The listener has refused, for lack of room or for another version.
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
    /// When the request was sent first and last.
    first_sent_at: Option<Duration>,
    sent_at: Option<Duration>,
    /// The forms in which the request is still to be sent now, the first one last.
    unsent: Vec<SabulRequestForm>,
    /// The longest form of the first request.
    longest: SabulRequestForm,
    /// The longest form that was answered, with its cookie, and until when a longer one is waited
    /// for.
    answered: Option<(SabulRequestForm, u32, Duration)>,
    /// The form of the second request.
    second: SabulRequestForm,
}

/// A form of a request: whether it is as long as the longest packet that it proposes, and the
/// length of that. The greatest one is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SabulRequestForm {
    is_long: bool,
    mss: u16,
}

/// What a datagram has brought to a client that connects.
#[derive(Debug)]
pub enum SabulConnectOutcome {
    /// The connection is there.
    Yes(Box<SabulConnection>),
    /// It will never be.
    Failed(SabulConnectError),
    /// Not yet.
    NotYet,
}

impl SabulClientHandshake {
    /// Begins a handshake with a listener at `peer`. `random` is unpredictable to others: it makes
    /// the number of this socket and of the first packet, so that strangers cannot guess them.
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

    /// The identifier of this end's socket.
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

    /// The forms in which the request is sent, the first one last.
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

    /// Gives up when it is time.
    ///
    /// # Errors
    /// If nobody has answered in time.
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

    /// Takes a datagram from the listener's address.
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
                    // Too long by the time until the request was repeated, if only the repeated one
                    // has arrived. Later measurements correct it.
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

    /// Takes an answer to the first request in one of its forms.
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

/// Answers requests for connections. It keeps nothing of them.
#[derive(Debug)]
pub struct SabulListener {
    config: SabulConfig,
    secret: Zeroizing<[u8; 32]>,
}

/// What a listener does with a datagram.
#[derive(Debug)]
pub enum SabulListenerAction {
    /// Send this datagram back.
    Answer(Vec<u8>),
    /// The client has proved its address: make a connection with
    /// [`SabulListener::accept`], unless there is one for this request.
    Request(SabulConnectRequest),
    /// It is no request.
    Nothing,
}

/// A client's request, whose cookie is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SabulConnectRequest {
    handshake: SabulHandshakeBody,
}

impl SabulConnectRequest {
    /// The identifier of the client's socket. With the client's address it tells requests apart.
    pub fn socket(&self) -> u32 {
        self.handshake.socket
    }

    /// The listener's refusal.
    pub fn refusal(&self) -> Vec<u8> {
        let mut datagram = Vec::new();
        let refusal = SabulHandshakeBody { request: SabulRequestKind::Refused, ..self.handshake };
        write(refusal, self.handshake.socket, &mut datagram);
        datagram
    }
}

impl SabulListener {
    /// A listener. `secret` is random; cookies are made of it.
    pub fn new(config: SabulConfig, secret: [u8; 32]) -> Self {
        Self { config, secret: Zeroizing::new(secret) }
    }

    /// Takes a datagram that is for socket 0.
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
        let period = now.as_secs() / COOKIE_PERIOD_SECS;
        match handshake.request {
            SabulRequestKind::First if is_sound => {
                let cookie = self.cookie(from, period);
                let mut answer = Vec::new();
                write(SabulHandshakeBody { cookie, ..handshake }, handshake.socket, &mut answer);
                answer.resize(datagram.len(), 0);
                SabulListenerAction::Answer(answer)
            }
            SabulRequestKind::Second if is_sound => {
                let is_valid = [period, period.wrapping_sub(1)]
                    .iter()
                    .any(|&period| self.cookie(from, period) == handshake.cookie);
                if is_valid {
                    SabulListenerAction::Request(SabulConnectRequest { handshake })
                } else {
                    SabulListenerAction::Nothing
                }
            }
            _ => SabulListenerAction::Nothing,
        }
    }

    /// Makes the connection of a request from `from`. Its first datagram is the response. `socket`
    /// is its unpredictable identifier, not 0, that no other connection has.
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

    /// 32 bits that only this listener can compute for an address and a time.
    fn cookie(&self, from: SocketAddr, period: u64) -> u32 {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.secret[..])
            .expect("HMAC takes a key of any length");
        match from.ip() {
            IpAddr::V4(address) => mac.update(&address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => mac.update(&address.octets()),
        }
        mac.update(&from.port().to_be_bytes());
        mac.update(&period.to_be_bytes());
        let code: [u8; 32] = mac.finalize().into_bytes().into();
        u32::from_be_bytes([0, 1, 2, 3].map(|index| code[index]))
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

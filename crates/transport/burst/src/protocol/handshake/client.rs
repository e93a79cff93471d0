//! The client's side of the handshake.

use std::time::Duration;

use keys::noise::{EphemeralKey, handshake};
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::{BurstHandshakeResult, BurstPacketCipher};
use crate::protocol::config::{BurstConfig, Error};
use crate::protocol::packet::{
    self, BurstConnectionId, BurstEncryptionMode, BurstHandshakeMessage, BurstRefusalReason,
    MAX_DATAGRAM_LEN, MIN_DATAGRAM_LEN,
};

/// The time until the hello is repeated for the first time. It doubles within ten repetitions.
const REPEAT: Duration = Duration::from_secs(1);

/// How long a client ignores a refusal, as refusals are not authenticated.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// The largest number of cookies that a client accepts.
const MAX_COOKIES: u8 = 3;

/// The largest number of datagrams in a train.
const MAX_TRAIN: u8 = 128;

/// The length of an answer's payload.
pub(super) const ANSWER_LEN: usize = 30;

/// How a client authenticates the listener and itself.
#[derive(Clone)]
pub(in crate::protocol) enum BurstHandshakeSecurity<'a> {
    /// The client's key, and the listener's.
    Noise(&'a IdentitySecretKey, IdentityPublicKey),
    Insecure,
}

pub(in crate::protocol) struct BurstClientHandshake {
    id: BurstConnectionId,
    /// `None` without encryption.
    noise: Option<Box<HandshakeState>>,
    peer_key: Option<IdentityPublicKey>,
    hello: Vec<u8>,
    train: u8,
    /// The position of the next datagram: the hello, the datagrams of the train, or the hello
    /// again.
    next: u16,
    /// When the hello was sent that began the train, and when the latest hello was sent.
    began_at: Duration,
    sent_at: Duration,
    repeats: u32,
    cookies: u8,
    refusal: Option<(Duration, Error)>,
    gives_up_at: Duration,
}

impl BurstClientHandshake {
    /// # Errors
    /// If the operating system provides no random bytes.
    pub(in crate::protocol) fn new(
        config: &BurstConfig,
        security: &BurstHandshakeSecurity<'_>,
        generator: &mut RandomGenerator,
        now: Duration,
    ) -> Result<Self, RandomError> {
        let id = random_connection_id(generator)?;
        let train = config.train.min(MAX_TRAIN);
        let window = (config.receive_buffer as u64).to_be_bytes();
        let (noise, peer_key, hello) = match security {
            BurstHandshakeSecurity::Noise(own, peer) => {
                let (mut hello, prologue) = packet::hello(id, BurstEncryptionMode::Noise, train);
                let ephemeral = EphemeralKey(Zeroizing::new(generator.array()?));
                let mut noise = handshake(own, Some(peer), &prologue, ephemeral);
                let payload = [&own.public().to_bytes()[..], &window].concat();
                let mut message = [0; 256];
                // Pinned keys are not of small order, so that there is a shared secret.
                let len = noise.write_message(&payload, &mut message).unwrap_or(0);
                packet::finish_hello(&mut hello, &message[..len]);
                (Some(Box::new(noise)), Some(*peer), hello)
            }
            BurstHandshakeSecurity::Insecure => {
                let (mut hello, _) = packet::hello(id, BurstEncryptionMode::Insecure, train);
                packet::finish_hello(&mut hello, &window);
                (None, None, hello)
            }
        };
        Ok(Self {
            id,
            noise,
            peer_key,
            hello,
            train,
            next: 0,
            began_at: now,
            sent_at: now,
            repeats: 0,
            cookies: 0,
            refusal: None,
            gives_up_at: now + config.connect_timeout,
        })
    }

    /// The own connection id.
    pub(in crate::protocol) fn id(&self) -> BurstConnectionId {
        self.id
    }

    /// The position after the last one.
    fn end(&self) -> u16 {
        if self.train == 0 { 1 } else { u16::from(self.train) + 2 }
    }

    /// Writes the next datagram. Returns whether there is one.
    pub(in crate::protocol) fn poll_transmit(
        &mut self,
        now: Duration,
        datagram: &mut Vec<u8>,
    ) -> bool {
        if self.next >= self.end() {
            return false;
        }
        match u8::try_from(self.next.wrapping_sub(1)) {
            Ok(position) if position < self.train => {
                packet::write_train(self.id, position, self.train, datagram);
            }
            _ => {
                datagram.extend(&self.hello);
                if self.next == 0 {
                    self.began_at = now;
                }
                self.sent_at = now;
            }
        }
        self.next += 1;
        true
    }

    pub(in crate::protocol) fn poll_timeout(&self) -> Duration {
        if self.next < self.end() {
            return Duration::ZERO;
        }
        let refused_at = self.refusal.as_ref().map_or(Duration::MAX, |(at, _)| *at);
        self.repeat_at().min(self.gives_up_at).min(refused_at)
    }

    fn repeat_at(&self) -> Duration {
        self.sent_at + REPEAT + REPEAT * self.repeats.min(100) / 10
    }

    /// Handles timers that are due.
    ///
    /// # Errors
    /// If the handshake has failed.
    pub(in crate::protocol) fn handle_timeout(&mut self, now: Duration) -> Result<(), Error> {
        if let Some((at, error)) = &self.refusal
            && now >= *at
        {
            return Err(error.clone());
        }
        if now >= self.gives_up_at {
            let refusal = self.refusal.take().map(|(_, error)| error);
            return Err(refusal.unwrap_or(Error::NoAnswer));
        }
        if self.next >= self.end() && now >= self.repeat_at() {
            // The train is not repeated.
            self.next = self.end() - 1;
            self.repeats += 1;
        }
        Ok(())
    }

    /// Handles a datagram about this connection that arrived at `arrived_at`.
    pub(in crate::protocol) fn handle(
        &mut self,
        arrived_at: Duration,
        handshake: &BurstHandshakeMessage<'_>,
    ) -> Option<BurstHandshakeResult> {
        match handshake {
            BurstHandshakeMessage::Answer(message) => self.established(arrived_at, message),
            BurstHandshakeMessage::Retry(cookie) => {
                if self.cookies < MAX_COOKIES {
                    self.cookies += 1;
                    packet::set_cookie(&mut self.hello, *cookie);
                    self.next = 0;
                    self.repeats = 0;
                }
                None
            }
            BurstHandshakeMessage::Refusal(reason) => {
                let error = match reason {
                    BurstRefusalReason::OtherKey => Error::OtherKey,
                    BurstRefusalReason::UnknownKey => Error::UnknownKey,
                    BurstRefusalReason::OtherMode => Error::OtherMode,
                    BurstRefusalReason::OtherVersion => Error::OtherVersion,
                    BurstRefusalReason::Busy => Error::Busy,
                };
                self.refusal.get_or_insert((arrived_at + REFUSAL_WAIT, error));
                None
            }
            BurstHandshakeMessage::Hello(_)
            | BurstHandshakeMessage::OtherVersion
            | BurstHandshakeMessage::Train(..) => None,
        }
    }

    /// Reads the second message. Nothing changes if it is not from the listener.
    fn established(
        &mut self,
        arrived_at: Duration,
        message: &[u8],
    ) -> Option<BurstHandshakeResult> {
        let mut payload = [0; ANSWER_LEN];
        if let Some(noise) = &mut self.noise {
            let mut text = [0; ANSWER_LEN + 256];
            let len = noise.read_message(message, text.get_mut(..message.len())?).ok()?;
            payload = *text[..len].first_chunk()?;
        } else {
            payload.copy_from_slice(message.get(..ANSWER_LEN)?);
        }
        let crypt = match self.noise.take() {
            Some(noise) => BurstPacketCipher::of(noise, true),
            None => BurstPacketCipher::Insecure,
        };
        let number = |at: usize| {
            payload[at..].first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_be_bytes(*bytes))
        };
        let rate = number(16);
        let longest = usize::from(u16::from_be_bytes([payload[24], payload[25]]));
        let delay = u32::from_be_bytes([payload[26], payload[27], payload[28], payload[29]]);
        // The listener's delay counts from the first hello that it received. If hellos were
        // repeated, the client does not know which one that was.
        let sent_at = if self.repeats == 0 { self.began_at } else { self.sent_at };
        let round_trip =
            arrived_at.saturating_sub(sent_at).saturating_sub(Duration::from_micros(delay.into()));
        Some(BurstHandshakeResult {
            crypt,
            peer_id: BurstConnectionId::new(number(0).to_be_bytes())?,
            window: number(8),
            rate: (rate > 0).then_some(to_f64(rate)),
            longest: longest.clamp(MIN_DATAGRAM_LEN, MAX_DATAGRAM_LEN),
            round_trip: Some(round_trip),
            peer_key: self.peer_key,
        })
    }
}

/// Draws a connection id.
pub(in crate::protocol) fn random_connection_id(
    generator: &mut RandomGenerator,
) -> Result<BurstConnectionId, RandomError> {
    loop {
        if let Some(id) = BurstConnectionId::new(generator.array()?) {
            return Ok(id);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate")]
fn to_f64(rate: u64) -> f64 {
    rate as f64
}

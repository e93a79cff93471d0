//! The listener's side of the handshake, from the client's hello to its first packet.

use std::time::Duration;

use keys::noise::{EphemeralKey, handshake};
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::RandomGenerator;
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::client::ANSWER_LEN;
use super::{BurstHandshakeResult, BurstPacketCipher, IP_OVERHEAD};
use crate::protocol::config::ClientKeyFilter;
use crate::protocol::packet::{
    self, BurstConnectionId, BurstHello, BurstRefusalReason, MAX_DATAGRAM_LEN, MIN_DATAGRAM_LEN,
};
use crate::protocol::to_u64;
use crate::protocol::train::PacketTrain;

/// How long a listener waits for the client's first packet.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

/// The longest time that a listener waits for a train.
const MAX_TRAIN_WAIT: Duration = Duration::from_millis(100);

/// How long a listener waits for the first datagram of a train, and at least for each later one.
const FIRST_TRAIN_WAIT: Duration = Duration::from_millis(20);
const NEXT_TRAIN_WAIT: Duration = Duration::from_millis(5);

pub(in crate::protocol) struct BurstServerHandshake {
    /// The client's connection id, which datagrams to it carry.
    client: BurstConnectionId,
    own: BurstConnectionId,
    own_window: u64,
    /// `None` without encryption, and once the answer is made.
    noise: Option<Box<HandshakeState>>,
    peer_key: Option<IdentityPublicKey>,
    window: u64,
    train: MeasuredTrain,
    /// The answer, once it is made.
    answer: Option<Vec<u8>>,
    /// The position of the next datagram: the answer, the datagrams of a train, or the answer
    /// again.
    next: u16,
    end: u16,
    /// The amplification limit: the bytes received from the client's address, minus those sent to
    /// it.
    amplification_allowance: usize,
    answered_at: Duration,
    gives_up_at: Duration,
}

/// A rejected hello, with the reason.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::protocol) struct RefusedBurstHello(
    pub(in crate::protocol) Option<BurstRefusalReason>,
);

impl BurstServerHandshake {
    /// Answers a hello, if `known` accepts the client's key.
    ///
    /// # Errors
    /// If the hello is not for this listener, or the client is not accepted.
    pub(in crate::protocol) fn new(
        own: Option<(&IdentitySecretKey, &ClientKeyFilter)>,
        [own_id, client]: [BurstConnectionId; 2],
        own_window: u64,
        hello: &BurstHello<'_>,
        generator: &mut RandomGenerator,
        arrived_at: Duration,
    ) -> Result<Self, RefusedBurstHello> {
        let silent = RefusedBurstHello(None);
        let (noise, peer_key, window) = match own {
            None => {
                let window = hello.message.first_chunk().ok_or(silent)?;
                (None, None, u64::from_be_bytes(*window))
            }
            Some((own, known)) => {
                let Ok(ephemeral) = generator.array() else { return Err(silent) };
                let ephemeral = EphemeralKey(Zeroizing::new(ephemeral));
                let mut noise = handshake(own, None, &hello.prologue, ephemeral);
                let mut payload = [0; 256];
                let message =
                    hello.message.get(..FIRST_MESSAGE_LEN).ok_or(RefusedBurstHello(None))?;
                let Ok(PAYLOAD_LEN) = noise.read_message(message, &mut payload) else {
                    return Err(RefusedBurstHello(Some(BurstRefusalReason::OtherKey)));
                };
                let stated =
                    payload.first_chunk().and_then(|key| IdentityPublicKey::from_bytes(key).ok());
                let proven =
                    stated.filter(|key| noise.get_remote_static() == Some(&key.x25519()[..]));
                let Some(peer) = proven else { return Err(silent) };
                if !known(&peer) {
                    return Err(RefusedBurstHello(Some(BurstRefusalReason::UnknownKey)));
                }
                let window = payload[32..].first_chunk().ok_or(RefusedBurstHello(None))?;
                (Some(Box::new(noise)), Some(peer), u64::from_be_bytes(*window))
            }
        };
        Ok(Self {
            client,
            own: own_id,
            own_window,
            noise,
            peer_key,
            window,
            train: MeasuredTrain::new(hello.train, arrived_at),
            answer: None,
            next: 0,
            end: 0,
            amplification_allowance: MIN_DATAGRAM_LEN,
            answered_at: arrived_at,
            gives_up_at: arrived_at + GIVES_UP_AFTER,
        })
    }

    /// Handles a repeated hello of the same client. While a train is arriving, it follows that
    /// train.
    pub(in crate::protocol) fn handle_hello(&mut self, arrived_at: Duration, len: usize) {
        self.amplification_allowance += len;
        self.gives_up_at = arrived_at + GIVES_UP_AFTER;
        self.train.is_over = true;
        if self.next > 0 && self.next >= self.end {
            // The answer was lost.
            self.next = self.end.saturating_sub(1);
        }
    }

    /// Records a datagram of the train.
    pub(in crate::protocol) fn handle_train(&mut self, arrived_at: Duration, at: u8, len: usize) {
        self.amplification_allowance += len;
        self.train.add(arrived_at, at, len);
    }

    /// When the next datagram is due.
    pub(in crate::protocol) fn poll_timeout(&self) -> Duration {
        match &self.answer {
            None => self.train.wait_until().min(self.gives_up_at),
            Some(_) if self.next < self.end => Duration::ZERO,
            Some(_) => self.gives_up_at,
        }
    }

    /// Whether the client has exceeded its time.
    pub(in crate::protocol) fn is_late(&self, now: Duration) -> bool {
        now >= self.gives_up_at
    }

    /// Makes the answer if it is due. It opens the connection, which only the owner of the key that
    /// the client has stated can use.
    pub(in crate::protocol) fn poll_answer(
        &mut self,
        now: Duration,
    ) -> Option<BurstHandshakeResult> {
        if self.answer.is_some() || now < self.train.wait_until() {
            return None;
        }
        let rate = self.train.train.estimate().map_or(0, |estimate| to_u64(estimate.rate));
        let delay = now.saturating_sub(self.train.began_at).as_micros();
        let mut payload = Vec::with_capacity(ANSWER_LEN);
        payload.extend(self.own.to_bytes());
        payload.extend(self.own_window.to_be_bytes());
        payload.extend(rate.to_be_bytes());
        payload.extend(self.train.longest.to_be_bytes());
        payload.extend(u32::try_from(delay).unwrap_or(u32::MAX).to_be_bytes());
        let (message, crypt) = match self.noise.take() {
            None => (payload, BurstPacketCipher::Insecure),
            Some(mut noise) => {
                let mut message = vec![0; 256];
                // It fails if the client's ephemeral key is of small order.
                let len = noise.write_message(&payload, &mut message).ok()?;
                message.truncate(len);
                (message, BurstPacketCipher::of(noise, false))
            }
        };
        let answer = packet::answer(self.client, &message);
        self.end = 2 + u16::from(self.train_len(answer.len()));
        self.answer = Some(answer);
        self.answered_at = now;
        Some(BurstHandshakeResult {
            crypt,
            peer_id: self.client,
            window: self.window,
            rate: None,
            longest: MIN_DATAGRAM_LEN,
            round_trip: None,
            peer_key: self.peer_key,
        })
    }

    /// The length of the train that the amplification limit allows beside two answers.
    fn train_len(&self, answer: usize) -> u8 {
        let spare = self.amplification_allowance.saturating_sub(2 * answer + 4 * MAX_DATAGRAM_LEN);
        let fit = u8::try_from(spare / MIN_DATAGRAM_LEN).unwrap_or(u8::MAX);
        if fit < 4 { 0 } else { fit.saturating_add(4).min(self.train.expected) }
    }

    /// Writes the next datagram. Returns whether there is one.
    pub(in crate::protocol) fn poll_transmit(&mut self, datagram: &mut Vec<u8>) -> bool {
        let Some(answer) = &self.answer else { return false };
        if self.next >= self.end {
            return false;
        }
        let count = u8::try_from(self.end - 2).unwrap_or(0);
        match u8::try_from(self.next.wrapping_sub(1)) {
            Ok(position) if position < count => {
                packet::write_train(self.client, position, count, datagram);
            }
            _ => datagram.extend(answer),
        }
        self.next += 1;
        let Some(allowance) = self.amplification_allowance.checked_sub(datagram.len()) else {
            datagram.clear();
            self.next = self.end;
            return false;
        };
        self.amplification_allowance = allowance;
        true
    }

    /// The time from the answer to the client's first packet.
    pub(in crate::protocol) fn round_trip(&self, arrived_at: Duration) -> Duration {
        arrived_at.saturating_sub(self.answered_at)
    }
}

/// The length of the first message: an ephemeral key, the static key and the payload, each of the
/// latter two with a tag.
const FIRST_MESSAGE_LEN: usize = 32 + 48 + PAYLOAD_LEN + 16;
const PAYLOAD_LEN: usize = 40;

/// A train that is being received.
pub(in crate::protocol) struct MeasuredTrain {
    pub(in crate::protocol) train: PacketTrain,
    expected: u8,
    arrived: u8,
    pub(in crate::protocol) longest: u16,
    began_at: Duration,
    last_at: Duration,
    longest_gap: Duration,
    /// Whether the listener waits for no more of it.
    is_over: bool,
}

impl MeasuredTrain {
    /// Begins a train of `expected` datagrams, after the hello, which has arrived.
    pub(in crate::protocol) fn new(expected: u8, arrived_at: Duration) -> Self {
        let mut train = PacketTrain::new();
        train.add(0, arrived_at, MIN_DATAGRAM_LEN + IP_OVERHEAD);
        Self {
            train,
            expected,
            arrived: 0,
            longest: u16::try_from(MIN_DATAGRAM_LEN).unwrap_or(u16::MAX),
            began_at: arrived_at,
            last_at: arrived_at,
            longest_gap: Duration::ZERO,
            is_over: expected == 0,
        }
    }

    pub(in crate::protocol) fn add(&mut self, arrived_at: Duration, position: u8, len: usize) {
        if position >= self.expected || self.is_over {
            return;
        }
        if self.arrived > 0 {
            self.longest_gap = self.longest_gap.max(arrived_at.saturating_sub(self.last_at));
        }
        self.last_at = self.last_at.max(arrived_at);
        self.arrived = self.arrived.saturating_add(1);
        self.longest = self.longest.max(u16::try_from(len).unwrap_or(0));
        self.train.add(u32::from(position) + 1, arrived_at, len + IP_OVERHEAD);
        self.is_over = self.arrived >= self.expected;
    }

    /// Until when to wait for more of the train.
    pub(in crate::protocol) fn wait_until(&self) -> Duration {
        if self.is_over {
            return Duration::ZERO;
        }
        let next = match self.arrived {
            0 => FIRST_TRAIN_WAIT,
            _ => NEXT_TRAIN_WAIT.max(self.longest_gap * 4),
        };
        (self.last_at + next).min(self.began_at + MAX_TRAIN_WAIT)
    }
}

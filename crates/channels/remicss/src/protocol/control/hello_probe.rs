//! Measures the channels to a server that runs, without an association: a Hello is answered by a
//! Cookie of the same length, and changes nothing at the server.
//!
//! Single Hellos measure the round trip and its loss. Trains, sent back to back, measure the rate
//! at which Cookies arrive, which is that of the slower direction.

use std::time::Duration;

use keys::SharedKey;
use random::{RandomError, RandomGenerator};

use super::handshake::proof::{is_proven, prove};
use crate::protocol::wire::handshake::{
    HELLO_LEN, HandshakeBody, HandshakeDatagram, HandshakeNonce,
};

/// Single Hellos on each channel, and the time from one to the next.
const SINGLES: u32 = 200;
const SINGLE_INTERVAL: Duration = Duration::from_millis(20);

/// Trains on each channel, their Hellos, and the time from one train to the next.
const TRAINS: u32 = 8;
const TRAIN_LEN: u32 = 64;
const TRAIN_INTERVAL: Duration = Duration::from_millis(200);

/// How long the last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The Cookies of a train, in percent, without which it does not count.
const TRAIN_ANSWERED_PERCENT: usize = 75;

/// Trains whose Cookies arrive within this time show only that the rate is at least so high:
/// hosts handle datagrams in groups.
const SHORTEST_TRAIN: Duration = Duration::from_millis(1);

/// What was measured of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredChannel {
    /// The single Hellos that were sent, and that were answered.
    pub sent: u32,
    /// See `sent`.
    pub answered: u32,
    /// The median round trip, in ms. `None` if nothing was answered.
    pub round_trip_ms: Option<f64>,
    /// The rate in Mbit/s of IP packets. `None` if no train was answered.
    pub rate_mbit: Option<f64>,
    /// Whether the rate may be higher.
    pub is_rate_at_least: bool,
}

/// The measurement of all channels at the same time.
pub struct HelloProbe {
    key: Option<SharedKey>,
    channels: Vec<ProbedChannel>,
    generator: RandomGenerator,
    began: Duration,
    /// Hellos on each channel so far.
    next: u32,
}

struct ProbedChannel {
    /// The length of the headers of IP and UDP.
    headers: usize,
    hellos: Vec<SentHello>,
}

struct SentHello {
    nonce: HandshakeNonce,
    sent_at: Duration,
    answered_at: Option<Duration>,
}

impl HelloProbe {
    /// A measurement that begins now, of channels with IP and UDP headers of these lengths.
    pub fn new(
        key: Option<SharedKey>,
        headers: &[usize],
        generator: RandomGenerator,
        now: Duration,
    ) -> Self {
        let channel = |headers: &usize| ProbedChannel { headers: *headers, hellos: Vec::new() };
        let channels = headers.iter().map(channel).collect();
        Self { key, channels, generator, began: now, next: 0 }
    }

    /// When the next Hellos are due, or when it is over.
    pub fn poll_timeout(&self) -> Duration {
        self.began
            + match self.next {
                single if single < SINGLES => SINGLE_INTERVAL * single,
                next if next < SINGLES + TRAINS * TRAIN_LEN => {
                    SINGLE_INTERVAL * SINGLES + TRAIN_INTERVAL * ((next - SINGLES) / TRAIN_LEN)
                }
                _ => SINGLE_INTERVAL * SINGLES + TRAIN_INTERVAL * TRAINS + LAST_ANSWERS,
            }
    }

    /// Whether it is over.
    pub fn is_over(&self, now: Duration) -> bool {
        self.next == SINGLES + TRAINS * TRAIN_LEN && now >= self.poll_timeout()
    }

    /// The Hellos that are due, each with its channel.
    ///
    /// # Errors
    /// If the random source fails.
    pub fn poll_transmit(&mut self, now: Duration) -> Result<Vec<(usize, Vec<u8>)>, RandomError> {
        let mut hellos = Vec::new();
        while self.next < SINGLES + TRAINS * TRAIN_LEN && now >= self.poll_timeout() {
            self.next += 1;
            for (index, channel) in self.channels.iter_mut().enumerate() {
                let nonce = HandshakeNonce::new(self.generator.array()?);
                let mut bytes = HandshakeDatagram { nonce, body: HandshakeBody::Hello }.encode();
                prove(self.key.as_ref(), index, &mut bytes);
                channel.hellos.push(SentHello { nonce, sent_at: now, answered_at: None });
                hellos.push((index, bytes));
            }
        }
        Ok(hellos)
    }

    /// Handles a datagram of the server. Others, and second answers, are ignored.
    pub fn handle_datagram(&mut self, channel: usize, bytes: &[u8], at: Duration) {
        let Ok(HandshakeDatagram { nonce, body: HandshakeBody::Cookie { .. } }) =
            HandshakeDatagram::parse(bytes)
        else {
            return;
        };
        if !is_proven(self.key.as_ref(), channel, bytes) {
            return;
        }
        let Some(channel) = self.channels.get_mut(channel) else { return };
        if let Some(hello) = channel.hellos.iter_mut().rev().find(|hello| hello.nonce == nonce) {
            hello.answered_at.get_or_insert(at);
        }
    }

    /// What was measured of each channel.
    pub fn measured(&self) -> Vec<MeasuredChannel> {
        self.channels.iter().map(ProbedChannel::measured).collect()
    }
}

impl ProbedChannel {
    fn measured(&self) -> MeasuredChannel {
        let singles = &self.hellos[..self.hellos.len().min(SINGLES as usize)];
        let round_trips = singles.iter().filter_map(|hello| {
            Some(hello.answered_at?.saturating_sub(hello.sent_at).as_secs_f64() * 1e3)
        });
        let mut round_trips: Vec<f64> = round_trips.collect();
        let trains = self.hellos[singles.len()..].chunks(TRAIN_LEN as usize);
        let mut times: Vec<f64> = trains.filter_map(Self::slot).collect();
        let slot = median(&mut times);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "a length")]
        let bits = (8 * (HELLO_LEN + self.headers)) as f64;
        MeasuredChannel {
            sent: count(singles.len()),
            answered: count(round_trips.len()),
            round_trip_ms: median(&mut round_trips),
            rate_mbit: slot.map(|slot| bits / slot / 1e6),
            is_rate_at_least: slot
                .is_some_and(|slot| slot * f64::from(TRAIN_LEN) < SHORTEST_TRAIN.as_secs_f64()),
        }
    }

    /// The mean time from one Cookie of a train to the next, in seconds.
    #[expect(clippy::cast_precision_loss, reason = "a train is short")]
    fn slot(train: &[SentHello]) -> Option<f64> {
        let arrivals: Vec<Duration> = train.iter().filter_map(|hello| hello.answered_at).collect();
        if arrivals.len() * 100 < train.len() * TRAIN_ANSWERED_PERCENT {
            return None;
        }
        let (first, last) = (arrivals.iter().min()?, arrivals.iter().max()?);
        // At least a nanosecond, so that the rate is a number.
        let time = last.saturating_sub(*first).max(Duration::from_nanos(1));
        Some(time.as_secs_f64() / (arrivals.len() - 1) as f64)
    }
}

/// The median; `None` of nothing.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use association::{COOKIE_LEN, ConnectionCookie};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Probes two channels of which the server answers the first, with a delay, a rate, and each
    /// `lost`th Hello lost.
    #[expect(clippy::cast_precision_loss, reason = "a length")]
    fn probe(key: Option<&SharedKey>, mbit: f64, lost: usize) -> Vec<MeasuredChannel> {
        let generator = RandomGenerator::seeded().unwrap();
        let mut probe = HelloProbe::new(key.cloned(), &[28, 28], generator, MS);
        let slot = Duration::from_secs_f64(8.0 * (HELLO_LEN + 28) as f64 / mbit / 1e6);
        let (mut now, mut free, mut count) = (MS, MS, 0);
        let mut answers = Vec::new();
        while !probe.is_over(now) {
            for (channel, hello) in probe.poll_transmit(now).unwrap() {
                if channel == 1 {
                    continue;
                }
                count += 1;
                if lost > 0 && count % lost == 0 {
                    continue;
                }
                let HandshakeDatagram { nonce, .. } = HandshakeDatagram::parse(&hello).unwrap();
                let cookie = ConnectionCookie::new([9; COOKIE_LEN]);
                let body = HandshakeBody::Cookie { cookie };
                let mut answer = HandshakeDatagram { nonce, body }.encode();
                assert_eq!(answer.len(), hello.len());
                prove(key, channel, &mut answer);
                free = free.max(now) + slot;
                answers.push((free + 30 * MS, answer));
            }
            now = probe.poll_timeout();
        }
        for (at, answer) in answers {
            probe.handle_datagram(0, &answer, at);
            probe.handle_datagram(1, &answer, at);
            probe.handle_datagram(0, &answer[1..], at);
        }
        probe.measured()
    }

    #[test]
    fn round_trip_loss_and_rate_are_measured() {
        let key = SharedKey::new(&[3; 32]);
        for key in [None, Some(&key)] {
            let [first, second] = probe(key, 20.0, 0)[..] else { panic!() };
            assert_eq!((first.sent, first.answered), (SINGLES, SINGLES));
            assert!((first.round_trip_ms.unwrap() - 30.0).abs() < 0.1, "{first:?}");
            assert!((first.rate_mbit.unwrap() - 20.0).abs() < 0.1, "{first:?}");
            assert!(!first.is_rate_at_least);
            assert_eq!((second.sent, second.answered), (SINGLES, 0), "its answers are of another");
            assert_eq!((second.round_trip_ms, second.rate_mbit), (None, None));
        }
        let lossy = probe(None, 20.0, 10)[0];
        assert!((150..200).contains(&lossy.answered), "{lossy:?}");
        assert!((lossy.rate_mbit.unwrap() - 20.0).abs() < 5.0, "{lossy:?}");
        assert!(probe(None, 1000.0, 0)[0].is_rate_at_least);
    }
}

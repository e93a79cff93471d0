//! The control message and its bytes.
//!
//! | length | field |
//! |---|---|
//! | 4 | number of the message, from 1 |
//! | 8 | time of sending, in µs of the sender's clock |
//! | 1 | 128 if the sender is active, 64 if it requests new keys, and n; then for each channel: |
//! | 1 | state (high half: 0 up, 1 down, 2 quarantine) and number of arrivals (low half: 0 to 3) |
//! | 12 each | arrivals of the other end's control shares, the oldest first |
//!
//! An arrival:
//!
//! | length | field |
//! |---|---|
//! | 4 | number of the message |
//! | 4 | how long before the time of sending it arrived, in µs |
//! | 4 | datagrams received on the channel before it: the low 32 bits of the count |

use encoding::{FieldError, FieldReader};
use thiserror::Error;

use crate::protocol::wire::datagram::MAX_CHANNELS;

/// The maximum number of arrivals reported for a channel. Usually there is one.
pub const MAX_ARRIVALS: usize = 3;

/// Times of sending are below this, so that differences do not overflow.
pub(crate) const LATEST_US: u64 = 1 << 62;

/// The bit beside n: the sender is active.
const ACTIVE: u8 = 0x80;

/// The bit beside n: the sender requests new keys.
const WANTS_KEYS: u8 = 0x40;

/// The state of a channel, as the end that receives on it sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TunnelChannelState {
    /// Shares arrive on it.
    #[default]
    Up = 0,
    /// Nothing has arrived on it for a while, and on others something has.
    Down = 1,
    /// Too many wrong shares have arrived on it, so its shares are not used.
    Quarantine = 2,
}

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    /// The number of the message, counted from 1 at each end.
    pub number: u32,
    /// The time of sending, in µs of the sender's clock, below 2^62.
    pub sent_us: u64,
    /// Whether the sender has sent or received packets recently.
    pub is_active: bool,
    /// Whether the sender requests new keys, because too many joins have failed under these.
    pub wants_keys: bool,
    /// One report for each channel, 1 to [`MAX_CHANNELS`].
    pub reports: Vec<ChannelReport>,
}

/// The report on a channel, from the end that receives on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelReport {
    /// The channel's state.
    pub state: TunnelChannelState,
    /// The control shares that have arrived since the last message, the oldest first, at most
    /// [`MAX_ARRIVALS`].
    pub arrivals: Vec<ControlShareArrival>,
}

/// The arrival of a control share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlShareArrival {
    /// The message's number, from 1.
    pub number: u32,
    /// The time from the arrival to the sending of this message, in µs.
    pub age_us: u32,
    /// The number of datagrams received on the channel before it, modulo 2^32.
    pub received: u32,
}

/// Bytes that are not a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ControlMessageError {
    /// Too few bytes, or too many.
    #[error("{0} bytes are not a control message")]
    Length(usize),
    /// A message or arrival with the number 0.
    #[error("a message has the number 0")]
    Number,
    /// A time of sending of 2^62 µs or later.
    #[error("the time of sending is too large")]
    Time,
    /// A wrong number of channels.
    #[error("a control message for {0} channels")]
    Channels(u8),
    /// An unknown state, or too many arrivals.
    #[error("a channel in the state {0:#04x}")]
    ChannelState(u8),
}

impl ControlMessage {
    /// Parses a message.
    ///
    /// # Errors
    /// If the bytes are not exactly one message.
    pub fn parse(bytes: &[u8]) -> Result<Self, ControlMessageError> {
        let length = |_: FieldError| ControlMessageError::Length(bytes.len());
        let mut fields = FieldReader::new(bytes);
        let number = fields.u32().map_err(length)?;
        let sent_us = fields.u64().map_err(length)?;
        let n = fields.u8().map_err(length)?;
        let (is_active, wants_keys) = (n & ACTIVE != 0, n & WANTS_KEYS != 0);
        let n = n & !(ACTIVE | WANTS_KEYS);
        if number == 0 {
            return Err(ControlMessageError::Number);
        }
        if sent_us >= LATEST_US {
            return Err(ControlMessageError::Time);
        }
        if !(1..=MAX_CHANNELS).contains(&usize::from(n)) {
            return Err(ControlMessageError::Channels(n));
        }
        let mut reports = Vec::with_capacity(usize::from(n));
        for _ in 0..n {
            let first = fields.u8().map_err(length)?;
            let (state, count) =
                parse_state(first).ok_or(ControlMessageError::ChannelState(first))?;
            let arrivals = (0..count).map(|_| read_arrival(&mut fields));
            let arrivals = arrivals.collect::<Result<Vec<_>, _>>().map_err(length)?;
            if arrivals.iter().any(|arrival| arrival.number == 0) {
                return Err(ControlMessageError::Number);
            }
            reports.push(ChannelReport { state, arrivals });
        }
        fields.finish().map_err(length)?;
        Ok(Self { number, sent_us, is_active, wants_keys, reports })
    }

    /// The message's bytes: 605 at most.
    ///
    /// # Panics
    /// If there are no reports or too many, or one with too many arrivals.
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=MAX_CHANNELS).contains(&self.reports.len()), "1 to 16 channels");
        let mut bytes = Vec::new();
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(self.sent_us.to_be_bytes());
        let active = if self.is_active { ACTIVE } else { 0 };
        let wants_keys = if self.wants_keys { WANTS_KEYS } else { 0 };
        bytes.push(low(self.reports.len()) | active | wants_keys);
        for report in &self.reports {
            assert!(report.arrivals.len() <= MAX_ARRIVALS, "3 arrivals at most");
            bytes.push((report.state as u8) << 4 | low(report.arrivals.len()));
            for arrival in &report.arrivals {
                bytes.extend(arrival.number.to_be_bytes());
                bytes.extend(arrival.age_us.to_be_bytes());
                bytes.extend(arrival.received.to_be_bytes());
            }
        }
        bytes
    }
}

fn parse_state(byte: u8) -> Option<(TunnelChannelState, usize)> {
    let state = match byte >> 4 {
        0 => TunnelChannelState::Up,
        1 => TunnelChannelState::Down,
        2 => TunnelChannelState::Quarantine,
        _ => return None,
    };
    let count = usize::from(byte & 0x0f);
    (count <= MAX_ARRIVALS).then_some((state, count))
}

fn read_arrival(fields: &mut FieldReader<'_>) -> Result<ControlShareArrival, FieldError> {
    Ok(ControlShareArrival {
        number: fields.u32()?,
        age_us: fields.u32()?,
        received: fields.u32()?,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "at most 16")]
fn low(count: usize) -> u8 {
    count as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> ControlMessage {
        let arrivals = vec![ControlShareArrival { number: 7, age_us: 0x0102_0304, received: 9 }];
        let reports = vec![
            ChannelReport { state: TunnelChannelState::Up, arrivals },
            ChannelReport { state: TunnelChannelState::Quarantine, arrivals: Vec::new() },
        ];
        ControlMessage { number: 5, sent_us: 1000, is_active: true, wants_keys: false, reports }
    }

    #[test]
    fn bytes_are_as_specified() {
        let expected = [
            &[0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 3, 0xe8, 0x82][..],
            &[0x01, 0, 0, 0, 7, 1, 2, 3, 4, 0, 0, 0, 9],
            &[0x20],
        ];
        assert_eq!(message().encode(), expected.concat());
        let wants = ControlMessage { wants_keys: true, is_active: false, ..message() };
        assert_eq!(wants.encode()[12], 0x42);
    }

    #[test]
    fn the_longest_fits_everywhere() {
        let arrival = ControlShareArrival { number: 1, age_us: 1, received: 1 };
        let report =
            ChannelReport { state: TunnelChannelState::Up, arrivals: vec![arrival; MAX_ARRIVALS] };
        let longest = ControlMessage { reports: vec![report; MAX_CHANNELS], ..message() };
        assert_eq!(longest.encode().len(), 605);
    }

    #[test]
    fn malformed_messages_are_rejected() {
        let changed = |place: usize, value: u8| {
            let mut bytes = message().encode();
            bytes[place] = value;
            ControlMessage::parse(&bytes).unwrap_err()
        };
        assert_eq!(changed(3, 0), ControlMessageError::Number);
        assert_eq!(changed(17, 0), ControlMessageError::Number);
        assert_eq!(changed(4, 0x40), ControlMessageError::Time);
        assert_eq!(changed(12, 0), ControlMessageError::Channels(0));
        assert_eq!(changed(12, 17), ControlMessageError::Channels(17));
        assert_eq!(changed(13, 0x31), ControlMessageError::ChannelState(0x31));
        assert_eq!(changed(13, 0x04), ControlMessageError::ChannelState(0x04));
        let bytes = message().encode();
        for len in 0..bytes.len() {
            assert_eq!(ControlMessage::parse(&bytes[..len]), Err(ControlMessageError::Length(len)));
        }
        assert_eq!(
            ControlMessage::parse(&[&bytes[..], &[0]].concat()),
            Err(ControlMessageError::Length(28))
        );
    }

    proptest! {
        #[test]
        fn parsing_inverts_encoding(
            number in 1_u32.., sent_us in 0..LATEST_US, is_active: bool, wants_keys: bool,
            reports in prop::collection::vec(
                (0_usize..3, prop::collection::vec((1_u32.., any::<u32>(), any::<u32>()), 0..=3)),
                1..=16,
            ),
        ) {
            let reports = reports.into_iter().map(|(state, arrivals)| ChannelReport {
                state: [TunnelChannelState::Up, TunnelChannelState::Down, TunnelChannelState::Quarantine][state],
                arrivals: arrivals
                    .into_iter()
                    .map(|(number, age_us, received)| ControlShareArrival { number, age_us, received })
                    .collect(),
            });
            let reports = reports.collect();
            let message = ControlMessage { number, sent_us, is_active, wants_keys, reports };
            prop_assert_eq!(ControlMessage::parse(&message.encode()), Ok(message));
        }

        #[test]
        fn arbitrary_bytes_parse_or_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            if let Ok(message) = ControlMessage::parse(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}

//! The messages with which a forwarded connection begins, specified in
//! `docs/protocols/transport.md`.

use std::fmt;
use std::io;

/// The first bytes of the end that has accepted a program's connection.
pub(crate) const OPENING: &[u8; 8] = b"forward1";

/// The answer if the target is connected. Its bytes follow.
const CONNECTED: u8 = 0;

/// The answer if it is not. A reason follows.
const REFUSED: u8 = 1;

/// The longest answer.
pub(crate) const MAX_ANSWER_LEN: usize = 2;

/// Why the exposing end does not connect to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TargetRefusal {
    /// No program listens at the target.
    NobodyListens = 1,
    /// The target's host does not answer.
    NoAnswer = 2,
    /// The target's name has no address.
    NoAddress = 3,
    /// The exposing end has too many connections.
    Busy = 4,
    /// Another error of the system.
    System = 5,
}

impl TargetRefusal {
    const ALL: [Self; 5] =
        [Self::NobodyListens, Self::NoAnswer, Self::NoAddress, Self::Busy, Self::System];

    /// The reason for an error of connecting to the target.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::NobodyListens,
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => Self::NoAnswer,
            io::ErrorKind::NotFound => Self::NoAddress,
            _ => Self::System,
        }
    }

    /// What to do about it at the exposing end.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::NobodyListens => {
                "start the service at the other end, or correct its address there"
            }
            Self::NoAnswer => {
                "check the target's host, and the firewall between it and the other end"
            }
            Self::NoAddress => "correct the target's name at the other end",
            Self::Busy => "end connections that are not needed",
            Self::System => "see the log of the other end",
        }
    }
}

impl fmt::Display for TargetRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NobodyListens => "nobody listens at its target",
            Self::NoAnswer => "its target does not answer",
            Self::NoAddress => "its target's name has no address",
            Self::Busy => "it has too many connections",
            Self::System => "it cannot connect to its target",
        })
    }
}

/// The answer of the exposing end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardAnswer {
    Connected,
    Refused(TargetRefusal),
}

impl ForwardAnswer {
    /// Its bytes.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Connected => vec![CONNECTED],
            Self::Refused(reason) => vec![REFUSED, reason as u8],
        }
    }

    /// Parses the bytes that have arrived; `None` if there are too few.
    ///
    /// # Errors
    /// If they are no answer.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, NotExposing> {
        match *bytes {
            [] | [REFUSED] => Ok(None),
            [CONNECTED] => Ok(Some(Self::Connected)),
            [REFUSED, reason] => {
                let known = TargetRefusal::ALL.into_iter().find(|known| *known as u8 == reason);
                Ok(Some(Self::Refused(known.unwrap_or(TargetRefusal::System))))
            }
            _ => Err(NotExposing),
        }
    }
}

/// The other end does not answer as an exposing end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`sunder transport expose` does not run at the other end")]
pub(crate) struct NotExposing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_parsed_byte_by_byte() {
        let refused = TargetRefusal::ALL.map(ForwardAnswer::Refused);
        for answer in refused.into_iter().chain([ForwardAnswer::Connected]) {
            let bytes = answer.bytes();
            assert!(bytes.len() <= MAX_ANSWER_LEN);
            for len in 0..bytes.len() {
                assert_eq!(ForwardAnswer::parse(&bytes[..len]), Ok(None));
            }
            assert_eq!(ForwardAnswer::parse(&bytes), Ok(Some(answer)));
        }
    }

    #[test]
    fn other_bytes_are_no_answer() {
        for first in 2..=u8::MAX {
            assert_eq!(ForwardAnswer::parse(&[first]), Err(NotExposing));
        }
        let unknown = ForwardAnswer::parse(&[REFUSED, 200]);
        assert_eq!(unknown, Ok(Some(ForwardAnswer::Refused(TargetRefusal::System))));
    }
}

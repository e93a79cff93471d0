//! The messages of a guest, over a serial port: one line each.
//!
//! | line | sender | meaning |
//! |---|---|---|
//! | `ready` | guest | the guest has booted |
//! | `go` | host | the command may start |
//! | `started` | guest | the command starts |
//! | `open` | guest | a port is open in the guest |
//! | `terminate` | host | every process of the command is to be asked to end |
//! | `limit NAME` | guest | the command has reached the limit `memory`, `processes` or `disk` |
//! | `ended` | guest | the command has ended |
//! | `code NUMBER` | guest | its exit code; all that it has printed was sent before |
//!
//! The host believes the guest only about the guest: how its own command ended. A line that is not
//! in the table, or too many lines, end the guest.

use crate::limits::ContainmentLimit;

/// The longest line.
const MAX_LINE: usize = 64;

/// The longest text that a guest can send.
const MAX_TEXT: usize = 4096;

/// A message of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestMessage {
    Ready,
    Started,
    Open,
    Limit(ContainmentLimit),
    Ended,
    Code(i32),
}

/// A guest has sent an invalid message, or too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidGuestMessage;

/// The messages in what a guest has sent.
#[derive(Debug, Default)]
pub(crate) struct GuestMessages {
    /// The beginning of a line.
    line: Vec<u8>,
    /// The bytes of all lines.
    length: usize,
}

impl GuestMessages {
    /// Takes the next bytes, and returns the messages that are complete.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
    ) -> Result<Vec<GuestMessage>, InvalidGuestMessage> {
        self.length += bytes.len();
        if self.length > MAX_TEXT {
            return Err(InvalidGuestMessage);
        }
        let mut messages = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                messages.push(GuestMessage::parse(&self.line).ok_or(InvalidGuestMessage)?);
                self.line.clear();
            } else if self.line.len() < MAX_LINE {
                self.line.push(*byte);
            } else {
                return Err(InvalidGuestMessage);
            }
        }
        Ok(messages)
    }
}

impl GuestMessage {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line).ok()?;
        Some(match line.split_once(' ') {
            None if line == "ready" => Self::Ready,
            None if line == "started" => Self::Started,
            None if line == "open" => Self::Open,
            None if line == "ended" => Self::Ended,
            Some(("limit", "memory")) => Self::Limit(ContainmentLimit::Memory),
            Some(("limit", "processes")) => Self::Limit(ContainmentLimit::Processes),
            Some(("limit", "disk")) => Self::Limit(ContainmentLimit::Disk),
            Some(("code", code)) => Self::Code(code.parse::<u8>().ok()?.into()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_pieces() {
        let mut messages = GuestMessages::default();
        assert_eq!(messages.receive(b"rea"), Ok(vec![]));
        let expected = vec![GuestMessage::Ready, GuestMessage::Started];
        assert_eq!(messages.receive(b"dy\nstarted\nlimit "), Ok(expected));
        let limit = GuestMessage::Limit(ContainmentLimit::Disk);
        assert_eq!(messages.receive(b"disk\ncode 7\n"), Ok(vec![limit, GuestMessage::Code(7)]));
    }

    #[test]
    fn a_guest_that_sends_anything_else_is_not_believed() {
        for line in [
            "reddy\n",
            "\n",
            "code\n",
            "code 256\n",
            "code -1\n",
            "code 1 2\n",
            "limit time\n",
            "limit output\n",
            "ready \n",
            "\u{ff}\n",
            "Ready\n",
        ] {
            let answer = GuestMessages::default().receive(line.as_bytes());
            assert_eq!(answer, Err(InvalidGuestMessage), "{line:?}");
        }
        assert_eq!(GuestMessages::default().receive(&[b'a'; 65]), Err(InvalidGuestMessage));
        assert_eq!(GuestMessages::default().receive(b"\xff\n"), Err(InvalidGuestMessage));
        let mut messages = GuestMessages::default();
        let answers: Vec<_> = (0..1000).map(|_| messages.receive(b"open\n")).collect();
        assert!(answers[0].is_ok() && answers[999].is_err());
    }
}

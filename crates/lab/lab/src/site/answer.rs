//! The answers of an agent, as bytes. Each request has one.

use std::time::Duration;

use containment::ContainmentLimit;
use encoding::{FieldError, FieldReader, FieldWrite as _};

use super::message::contained::{number_of, read_limit};
use super::message::emulation::{put_reports, read_reports};
use super::message::{AgentMessageError, MAX_PIECE_LEN, flag};
use super::path::PathReading;
use crate::link::LinkEndReport;

/// The maximum length of an answer, in bytes.
pub(super) const MAX_ANSWER_LEN: usize = MAX_PIECE_LEN + 64;

/// The maximum length of a text in an answer, in bytes. The rest is not sent.
const MAX_TEXT_LEN: usize = 4000;

/// The maximum number of open ports in an answer.
const MAX_PORTS: usize = 4096;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentAnswer {
    /// The agent takes this controller.
    Welcome {
        /// The properties of the agent's machine, in JSON.
        machine: String,
        /// Whether the machine itself has the address at which the other sites reach it.
        has_address: bool,
        /// The time after which a silent controller counts as lost.
        silence: Duration,
    },
    /// The agent does not take this controller, or this request.
    Refused(AgentRefusal),
    /// It is done.
    Done,
    /// It has failed: why, in one line.
    Failed(String),
    /// A program runs: its number.
    Started(u8),
    /// Within the wait, the program did not end, or did not become ready.
    NotYet,
    /// The program is ready.
    Ready,
    /// A program has ended.
    Ended {
        /// Its wait status, as of wait(2).
        status: i32,
        /// The time from its start to its end.
        time: Duration,
        /// The limit at which it was stopped, if it was contained.
        limit: Option<ContainmentLimit>,
    },
    /// A text in one line.
    Line(String),
    /// A piece of an output. An empty one: there is no more.
    Piece(Vec<u8>),
    /// The open ports of programs: 0 TCP or 1 UDP, and the number.
    Ports(Vec<(u8, u16)>),
    /// A measured path.
    Path(PathReading),
    /// The trial is over.
    Over {
        /// Whether there was no room left for its files.
        was_full: bool,
    },
    /// What the ends of links have done, in the order in which they were made.
    Links(Vec<LinkEndReport>),
    /// A contained program runs.
    Contained {
        /// Its number.
        program: u8,
        /// By what its limits are enforced, in words.
        means: String,
    },
}

/// Why an agent refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentRefusal {
    /// It has another version: which.
    Version(String),
    /// Another controller uses it.
    Busy,
    /// The request cannot be made now, or a bound is reached: which.
    Request(String),
}

impl AgentAnswer {
    /// The bytes. Texts are cut.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind()];
        match self {
            Self::Welcome { machine, has_address, silence } => {
                bytes.push((*has_address).into());
                bytes.put_u64(micros(*silence));
                put_cut(&mut bytes, machine);
            }
            Self::Refused(AgentRefusal::Version(version)) => {
                bytes.push(0);
                put_cut(&mut bytes, version);
            }
            Self::Refused(AgentRefusal::Busy) => bytes.push(1),
            Self::Refused(AgentRefusal::Request(why)) => {
                bytes.push(2);
                put_cut(&mut bytes, why);
            }
            Self::Done | Self::NotYet | Self::Ready => {}
            Self::Failed(text) | Self::Line(text) => put_cut(&mut bytes, text),
            Self::Started(program) => bytes.push(*program),
            Self::Ended { status, time, limit } => {
                bytes.extend(status.to_be_bytes());
                bytes.put_u64(micros(*time));
                bytes.push(number_of(*limit));
            }
            Self::Piece(piece) => bytes.extend_from_slice(piece),
            Self::Ports(ports) => {
                for (protocol, port) in ports.iter().take(MAX_PORTS) {
                    bytes.push(*protocol);
                    bytes.put_u16(*port);
                }
            }
            Self::Path(reading) => put_reading(&mut bytes, reading),
            Self::Over { was_full } => bytes.push((*was_full).into()),
            Self::Links(reports) => put_reports(&mut bytes, reports),
            Self::Contained { program, means } => {
                bytes.push(*program);
                put_cut(&mut bytes, means);
            }
        }
        bytes
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Welcome { .. } => 0,
            Self::Refused(_) => 1,
            Self::Done => 2,
            Self::Failed(_) => 3,
            Self::Started(_) => 4,
            Self::NotYet => 5,
            Self::Ready => 6,
            Self::Ended { .. } => 7,
            Self::Line(_) => 8,
            Self::Piece(_) => 9,
            Self::Ports(_) => 10,
            Self::Path(_) => 11,
            Self::Over { .. } => 12,
            Self::Links(_) => 13,
            Self::Contained { .. } => 14,
        }
    }

    /// Parses an answer.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, AgentMessageError> {
        let mut reader = FieldReader::new(bytes);
        let answer = match reader.u8()? {
            0 => {
                let (has_address, silence) = (flag(&mut reader)?, duration(&mut reader)?);
                Self::Welcome { machine: text(&mut reader)?, has_address, silence }
            }
            1 => Self::Refused(match reader.u8()? {
                0 => AgentRefusal::Version(text(&mut reader)?),
                1 => AgentRefusal::Busy,
                2 => AgentRefusal::Request(text(&mut reader)?),
                _ => return Err(AgentMessageError::Value("refusal")),
            }),
            2 => Self::Done,
            3 => Self::Failed(text(&mut reader)?),
            4 => Self::Started(reader.u8()?),
            5 => Self::NotYet,
            6 => Self::Ready,
            7 => {
                let status = i32::from_be_bytes(reader.take()?);
                let (time, limit) = (duration(&mut reader)?, read_limit(&mut reader)?);
                Self::Ended { status, time, limit }
            }
            8 => Self::Line(text(&mut reader)?),
            9 => Self::Piece(reader.rest_up_to(MAX_PIECE_LEN)?.to_vec()),
            10 => Self::Ports(ports(&mut reader)?),
            11 => Self::Path(reading(&mut reader)?),
            12 => Self::Over { was_full: flag(&mut reader)? },
            13 => Self::Links(read_reports(&mut reader)?),
            14 => Self::Contained { program: reader.u8()?, means: text(&mut reader)? },
            kind => return Err(AgentMessageError::Unknown(kind)),
        };
        reader.finish()?;
        Ok(answer)
    }
}

/// A text, cut after its maximum length.
fn put_cut(bytes: &mut Vec<u8>, text: &str) {
    let end = (0..=text.len().min(MAX_TEXT_LEN)).rev().find(|end| text.is_char_boundary(*end));
    bytes.put_counted(&text.as_bytes()[..end.unwrap_or(0)]);
}

fn text(reader: &mut FieldReader<'_>) -> Result<String, AgentMessageError> {
    let bytes = reader.counted_up_to(MAX_TEXT_LEN)?;
    let text = std::str::from_utf8(bytes).map_err(|_| FieldError::NotText)?;
    // It may be shown on a terminal.
    Ok(text.replace(char::is_control, " "))
}

fn ports(reader: &mut FieldReader<'_>) -> Result<Vec<(u8, u16)>, AgentMessageError> {
    let mut ports = Vec::new();
    while !reader.is_empty() {
        if ports.len() == MAX_PORTS {
            return Err(AgentMessageError::Value("number of ports"));
        }
        ports.push((reader.u8()?, reader.u16()?));
    }
    Ok(ports)
}

fn put_reading(bytes: &mut Vec<u8>, reading: &PathReading) {
    let PathReading { round_trip_ms, sent, lost, up_mbit, down_mbit } = reading;
    bytes.extend(round_trip_ms.to_be_bytes());
    bytes.put_u32(*sent);
    bytes.put_u32(*lost);
    for rate in [up_mbit, down_mbit] {
        bytes.extend(rate.unwrap_or(0.0).to_be_bytes());
    }
}

fn reading(reader: &mut FieldReader<'_>) -> Result<PathReading, AgentMessageError> {
    let number = |reader: &mut FieldReader<'_>| {
        let number = f64::from_be_bytes(reader.take()?);
        if number.is_finite() && number >= 0.0 {
            Ok(number)
        } else {
            Err(AgentMessageError::Value("number"))
        }
    };
    let round_trip_ms = number(reader)?;
    let (sent, lost) = (reader.u32()?, reader.u32()?);
    if lost > sent {
        return Err(AgentMessageError::Value("loss"));
    }
    let [up, down] = [number(reader)?, number(reader)?];
    let rate = |rate: f64| (rate > 0.0).then_some(rate);
    Ok(PathReading { round_trip_ms, sent, lost, up_mbit: rate(up), down_mbit: rate(down) })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn duration(reader: &mut FieldReader<'_>) -> Result<Duration, AgentMessageError> {
    Ok(Duration::from_micros(reader.u64()?))
}

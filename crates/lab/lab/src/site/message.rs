//! The requests of a controller to an agent, as bytes.

pub(super) mod contained;
pub(super) mod emulation;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use encoding::{FieldError, FieldReader, FieldWrite as _};

use super::address::is_plain_name;
use super::trial_path::TrialFilePath;
use contained::ContainedStart;
use emulation::{SiteHost, SiteLinkEnd, read_host};

/// The version of the protocol, and the version and the revision of Sunder. Both ends have the
/// same.
pub(crate) fn version() -> String {
    let revision = option_env!("SUNDER_REVISION").map(|it| format!(" ({it})")).unwrap_or_default();
    format!("protocol 2, sunder {}{revision}", env!("CARGO_PKG_VERSION"))
}

/// The maximum length of a request, in bytes.
pub(crate) const MAX_REQUEST_LEN: usize = MAX_PIECE_LEN + (64 << 10);

/// The maximum length of a piece of a file or of an output, in bytes.
pub(crate) const MAX_PIECE_LEN: usize = 1 << 20;

/// The maximum time that an agent waits before it answers.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(10);

/// The maximum number of arguments of a program, and of variables of its environment.
const MAX_WORDS: usize = 4096;

/// The maximum length of the name under which a program's output is kept.
const MAX_NAME_LEN: usize = 64;

/// A request of the controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentRequest {
    /// The first one.
    Hello {
        /// The controller's [`version`].
        version: String,
        /// The address at which the other sites reach this one.
        address: IpAddr,
    },
    /// Ends all programs and removes all files: a trial begins.
    Begin,
    /// A piece of a file.
    Put(FilePiece),
    /// A file of zero bytes.
    Zeros {
        /// The file.
        path: TrialFilePath,
        /// Its length.
        length: u32,
    },
    /// Starts a program.
    Start(ProgramStart),
    /// Waits until a program is ready.
    Await {
        /// The number of the program.
        program: u8,
        /// When it is ready.
        readiness: ProgramReadiness,
        /// How long to wait.
        wait: Duration,
    },
    /// Which ports programs have opened.
    Ports {
        /// The emulated host. `None`: the machine.
        host: Option<String>,
    },
    /// Waits until a program has ended.
    Wait {
        /// The number of the program.
        program: u8,
        /// How long to wait.
        wait: Duration,
    },
    /// Sends a signal to a program and all that it has started.
    Signal {
        /// The number of the program.
        program: u8,
        /// The signal.
        signal: ProgramSignal,
    },
    /// Whether a program that was to run on has failed.
    Check {
        /// The number of the program.
        program: u8,
    },
    /// What went wrong, in one line, with the last words of a program.
    Explain {
        /// The number of the program.
        program: u8,
        /// What went wrong; if it is empty, how the program has ended.
        what: String,
    },
    /// A piece of what a program has printed on standard output.
    Output {
        /// The number of the program.
        program: u8,
        /// Where the piece begins.
        offset: u64,
    },
    /// Measures the path to another agent.
    Probe {
        /// Where it listens.
        address: SocketAddr,
    },
    /// The controller is there.
    Keepalive,
    /// Ends all programs and removes all files: the trial is over.
    End,
    /// Makes a host in the network of its own.
    Host(SiteHost),
    /// Makes an end of a link between hosts of two sites.
    Link(Box<SiteLinkEnd>),
    /// What the ends of links have done.
    Links,
    /// Starts a program in a sandbox with limits.
    Contain(ContainedStart),
}

/// A piece of a file. Pieces of a file come in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePiece {
    /// The file.
    pub(crate) path: TrialFilePath,
    /// Whether it is executable.
    pub(crate) is_executable: bool,
    /// Where the piece begins: at the end of the file so far. 0: the file is a new one.
    pub(crate) offset: u64,
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
}

/// How to start a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramStart {
    /// The name under which its output is kept: letters a-z, digits and `-`.
    pub(crate) name: String,
    /// The emulated host on which it runs. `None`: the machine.
    pub(crate) host: Option<String>,
    /// The program and its arguments.
    pub(crate) run: Vec<String>,
    /// Variables of its environment.
    pub(crate) environment: Vec<(String, String)>,
    /// Its working directory. `None`: that of the trial's files.
    pub(crate) directory: Option<TrialFilePath>,
    /// Whether its standard error is kept apart.
    pub(crate) has_errors: bool,
}

/// When a program is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramReadiness {
    /// When this TCP port is open.
    Port(u16),
    /// When it has printed this text.
    Text(String),
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramSignal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AgentMessageError {
    /// A field is missing, or something follows the last one.
    #[error("malformed: {0}")]
    Field(#[from] FieldError),
    /// The first byte is none of a message's.
    #[error("unknown message {0}")]
    Unknown(u8),
    /// A field has a value that it cannot have.
    #[error("impossible {0}")]
    Value(&'static str),
}

impl AgentRequest {
    /// The bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind()];
        match self {
            Self::Hello { version, address } => {
                bytes.put_text(version);
                put_address(&mut bytes, *address);
            }
            Self::Begin | Self::Keepalive | Self::End | Self::Links => {}
            Self::Ports { host } => bytes.put_text(host.as_deref().unwrap_or_default()),
            Self::Put(FilePiece { path, is_executable, offset, bytes: piece }) => {
                bytes.put_text(path.as_str());
                bytes.push((*is_executable).into());
                bytes.put_u64(*offset);
                bytes.extend_from_slice(piece);
            }
            Self::Zeros { path, length } => {
                bytes.put_text(path.as_str());
                bytes.put_u32(*length);
            }
            Self::Start(start) => start.put(&mut bytes),
            Self::Await { program, readiness, wait } => {
                bytes.push(*program);
                put_wait(&mut bytes, *wait);
                match readiness {
                    ProgramReadiness::Port(port) => {
                        bytes.push(0);
                        bytes.put_u16(*port);
                    }
                    ProgramReadiness::Text(text) => {
                        bytes.push(1);
                        bytes.put_counted(text.as_bytes());
                    }
                }
            }
            Self::Wait { program, wait } => {
                bytes.push(*program);
                put_wait(&mut bytes, *wait);
            }
            Self::Signal { program, signal } => {
                let signal = u8::from(*signal == ProgramSignal::Kill);
                bytes.extend([*program, signal]);
            }
            Self::Check { program } => bytes.push(*program),
            Self::Explain { program, what } => {
                bytes.push(*program);
                bytes.put_counted(what.as_bytes());
            }
            Self::Output { program, offset } => {
                bytes.push(*program);
                bytes.put_u64(*offset);
            }
            Self::Probe { address } => {
                put_address(&mut bytes, address.ip());
                bytes.put_u16(address.port());
            }
            Self::Host(host) => host.put(&mut bytes),
            Self::Link(end) => end.put(&mut bytes),
            Self::Contain(start) => start.put(&mut bytes),
        }
        bytes
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 0,
            Self::Begin => 1,
            Self::Put(_) => 2,
            Self::Zeros { .. } => 3,
            Self::Start(_) => 4,
            Self::Await { .. } => 5,
            Self::Ports { .. } => 6,
            Self::Wait { .. } => 7,
            Self::Signal { .. } => 8,
            Self::Check { .. } => 9,
            Self::Explain { .. } => 10,
            Self::Output { .. } => 11,
            Self::Probe { .. } => 12,
            Self::Keepalive => 13,
            Self::End => 14,
            Self::Host(_) => 15,
            Self::Link(_) => 16,
            Self::Links => 17,
            Self::Contain(_) => 18,
        }
    }

    /// Parses a request.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, AgentMessageError> {
        let mut reader = FieldReader::new(bytes);
        let request = match reader.u8()? {
            0 => {
                let version = reader.text()?.to_owned();
                // What another version says after its version is not read.
                if version != self::version() {
                    let address = IpAddr::from([0; 4]);
                    return Ok(Self::Hello { version, address });
                }
                Self::Hello { version, address: read_address(&mut reader)? }
            }
            1 => Self::Begin,
            2 => Self::Put(FilePiece {
                path: path(&mut reader)?,
                is_executable: flag(&mut reader)?,
                offset: reader.u64()?,
                bytes: reader.rest_up_to(MAX_PIECE_LEN)?.to_vec(),
            }),
            3 => Self::Zeros { path: path(&mut reader)?, length: reader.u32()? },
            4 => Self::Start(ProgramStart::read(&mut reader)?),
            5 => {
                let (program, wait) = (reader.u8()?, wait(&mut reader)?);
                let readiness = match reader.u8()? {
                    0 => ProgramReadiness::Port(reader.u16()?),
                    1 => ProgramReadiness::Text(long_text(&mut reader)?),
                    _ => return Err(AgentMessageError::Value("readiness")),
                };
                Self::Await { program, readiness, wait }
            }
            6 => Self::Ports { host: read_host(&mut reader)? },
            7 => Self::Wait { program: reader.u8()?, wait: wait(&mut reader)? },
            8 => {
                let program = reader.u8()?;
                let signal = match reader.u8()? {
                    0 => ProgramSignal::Terminate,
                    1 => ProgramSignal::Kill,
                    _ => return Err(AgentMessageError::Value("signal")),
                };
                Self::Signal { program, signal }
            }
            9 => Self::Check { program: reader.u8()? },
            10 => Self::Explain { program: reader.u8()?, what: long_text(&mut reader)? },
            11 => Self::Output { program: reader.u8()?, offset: reader.u64()? },
            12 => {
                let address = SocketAddr::new(read_address(&mut reader)?, reader.u16()?);
                Self::Probe { address }
            }
            13 => Self::Keepalive,
            14 => Self::End,
            15 => Self::Host(SiteHost::read(&mut reader)?),
            16 => Self::Link(Box::new(SiteLinkEnd::read(&mut reader)?)),
            17 => Self::Links,
            18 => Self::Contain(ContainedStart::read(&mut reader)?),
            kind => return Err(AgentMessageError::Unknown(kind)),
        };
        reader.finish()?;
        Ok(request)
    }
}

impl ProgramStart {
    pub(super) fn put(&self, bytes: &mut Vec<u8>) {
        bytes.put_text(&self.name);
        bytes.put_text(self.host.as_deref().unwrap_or_default());
        bytes.push(self.has_errors.into());
        bytes.put_text(self.directory.as_ref().map_or("", TrialFilePath::as_str));
        bytes.put_count(self.run.len());
        for word in &self.run {
            bytes.put_counted(word.as_bytes());
        }
        variables(bytes, &self.environment);
    }

    pub(super) fn read(reader: &mut FieldReader<'_>) -> Result<Self, AgentMessageError> {
        let name = reader.text()?;
        if !is_plain_name(name, MAX_NAME_LEN) {
            return Err(AgentMessageError::Value("name of a program"));
        }
        let (name, host, has_errors) = (name.to_owned(), read_host(reader)?, flag(reader)?);
        let directory = match reader.text()? {
            "" => None,
            path => Some(TrialFilePath::new(path).ok_or(AgentMessageError::Value("directory"))?),
        };
        let run = (0..count(reader)?).map(|_| word(reader)).collect::<Result<Vec<_>, _>>()?;
        if run.is_empty() {
            return Err(AgentMessageError::Value("command"));
        }
        let environment = read_variables(reader)?;
        Ok(Self { name, host, run, environment, directory, has_errors })
    }
}

/// Writes names and their values.
pub(super) fn variables(bytes: &mut Vec<u8>, variables: &[(String, String)]) {
    bytes.put_count(variables.len());
    for (name, value) in variables {
        bytes.put_counted(name.as_bytes());
        bytes.put_counted(value.as_bytes());
    }
}

pub(super) fn read_variables(
    reader: &mut FieldReader<'_>,
) -> Result<Vec<(String, String)>, AgentMessageError> {
    let variables = (0..count(reader)?).map(|_| {
        let (name, value) = (word(reader)?, word(reader)?);
        if name.is_empty() || name.contains('=') {
            return Err(AgentMessageError::Value("variable"));
        }
        Ok((name, value))
    });
    variables.collect()
}

/// The number of the words that follow.
fn count(reader: &mut FieldReader<'_>) -> Result<usize, AgentMessageError> {
    let count = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
    if count > MAX_WORDS { Err(AgentMessageError::Value("number of words")) } else { Ok(count) }
}

/// An argument, or a name or a value of a variable: text without a zero byte.
fn word(reader: &mut FieldReader<'_>) -> Result<String, AgentMessageError> {
    let word = long_text(reader)?;
    if word.contains('\0') { Err(AgentMessageError::Value("argument")) } else { Ok(word) }
}

/// Text that may be longer than 255 bytes.
pub(super) fn long_text(reader: &mut FieldReader<'_>) -> Result<String, AgentMessageError> {
    let bytes = reader.counted_up_to(MAX_REQUEST_LEN)?;
    Ok(std::str::from_utf8(bytes).map_err(|_| FieldError::NotText)?.to_owned())
}

fn path(reader: &mut FieldReader<'_>) -> Result<TrialFilePath, AgentMessageError> {
    TrialFilePath::new(reader.text()?).ok_or(AgentMessageError::Value("path"))
}

pub(super) fn flag(reader: &mut FieldReader<'_>) -> Result<bool, AgentMessageError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(AgentMessageError::Value("flag")),
    }
}

/// A wait, in milliseconds.
fn put_wait(bytes: &mut Vec<u8>, wait: Duration) {
    let ms = wait.min(MAX_WAIT).as_millis();
    bytes.put_u16(u16::try_from(ms).expect("the maximum fits"));
}

fn wait(reader: &mut FieldReader<'_>) -> Result<Duration, AgentMessageError> {
    let wait = Duration::from_millis(reader.u16()?.into());
    if wait > MAX_WAIT { Err(AgentMessageError::Value("wait")) } else { Ok(wait) }
}

pub(super) fn put_address(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            bytes.push(4);
            bytes.extend(address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(6);
            bytes.extend(address.octets());
        }
    }
}

pub(super) fn read_address(reader: &mut FieldReader<'_>) -> Result<IpAddr, AgentMessageError> {
    match reader.u8()? {
        4 => Ok(IpAddr::from(reader.take::<4>()?)),
        6 => Ok(IpAddr::from(reader.take::<16>()?)),
        _ => Err(AgentMessageError::Value("address")),
    }
}

//! The messages of file transfers, specified in `docs/protocols/transport.md`.

mod chunks;

pub(crate) use chunks::{
    ChunkDigest, ChunkLengths, FileChunk, FileChunkList, FileChunkRun, MAX_CHUNKS_IN_MESSAGE,
    OlderChunks, RebuildPlan, RebuildSource, RebuildStep,
};

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

/// The version of the messages.
const VERSION: u8 = 3;

/// The version of the offer of a stream.
const STREAM_VERSION: u8 = 1;

/// The permission bits of a file's mode that are transferred.
const PERMISSIONS: u32 = 0o777;

/// The number of nanoseconds in a second.
const NANOS: u32 = 1_000_000_000;

/// The longest name of a file, in bytes: file systems allow 255, and `.NAME.part` is longer.
pub(crate) const MAX_NAME_LEN: usize = 240;

/// The largest number of bytes in one message.
pub(crate) const MAX_DATA_LEN: usize = 256 << 10;

/// The longest text of a failure, in bytes.
const MAX_TEXT_LEN: usize = 300;

/// The length of a SHA-256 digest.
pub(crate) const DIGEST_LEN: usize = 32;

/// A message of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileSenderMessage {
    /// The first message: a file of this name, length and attributes. Data follows at once, from
    /// its beginning, if `is_eager`; otherwise the sender waits for [`FileReceiverMessage::Have`].
    Offer { is_eager: bool, length: u64, attributes: FileAttributes, name: FileName },
    /// Data follows from this offset. The digest is that of everything before it.
    Start { offset: u64, digest: [u8; DIGEST_LEN] },
    /// This number of bytes follows.
    Data(usize),
    /// The sender is busy with a long operation.
    Working,
    /// The digest of the whole file, after all data.
    End([u8; DIGEST_LEN]),
    /// The first message, in place of [`Self::Offer`]: data of unknown length follows at once. It
    /// is complete only if [`Self::End`] arrives.
    Stream,
    /// The next chunks of the file, in reply to [`FileReceiverMessage::HaveOlder`].
    Chunks(Vec<FileChunk>),
}

/// A message of the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileReceiverMessage {
    /// The receiver has this many bytes of a file of this name. The sender replies with
    /// [`FileSenderMessage::Start`] and their digest. Data before that is ignored, unless the
    /// receiver has nothing.
    Have(u64),
    /// The receiver has another file of this name, which it may replace: probably an older version.
    /// The sender replies with [`FileSenderMessage::Chunks`]. Data before that is ignored.
    HaveOlder,
    /// The receiver wants these chunks. The sender replies with their data.
    WantedChunks(Vec<FileChunkRun>),
    /// The receiver has this many bytes now. Sent at least every few seconds.
    Progress(u64),
    /// The file is complete, and its digest is correct.
    Done,
    /// The receiver has failed.
    Failed(FileTransferFailure),
}

/// Why the receiver has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct FileTransferFailure {
    /// The kind.
    pub reason: FileTransferFailureReason,
    /// A text for the user, in one line. It comes from the peer and may be false.
    pub text: String,
}

/// The kinds of failures of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileTransferFailureReason {
    /// Another file of this name exists.
    Exists = 1,
    /// The name is not accepted.
    Name = 2,
    /// The disk is full.
    Space = 3,
    /// The receiver's system has returned an error.
    System = 4,
    /// The digest of the received data is wrong.
    Digest = 5,
    /// A file of this name is being received.
    Busy = 6,
    /// The sender has violated the protocol.
    Protocol = 7,
    /// Received data was changed on the path.
    Changed = 8,
    /// The receiver takes files and no stream, or the reverse.
    Kind = 9,
}

impl FileTransferFailureReason {
    const ALL: [Self; 9] = [
        Self::Exists,
        Self::Name,
        Self::Space,
        Self::System,
        Self::Digest,
        Self::Busy,
        Self::Protocol,
        Self::Changed,
        Self::Kind,
    ];
}

/// The attributes of a file other than its name and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileAttributes {
    /// Its permissions: the last nine bits of its mode.
    pub(crate) permissions: u32,
    /// The time of its last change: seconds since 1970, and nanoseconds.
    pub(crate) changed_at: (i64, u32),
}

impl FileAttributes {
    /// The attributes of an existing file.
    pub(crate) fn of(file: &Metadata) -> Self {
        let nanos = u32::try_from(file.mtime_nsec()).unwrap_or(0);
        Self { permissions: file.mode() & PERMISSIONS, changed_at: (file.mtime(), nanos) }
    }

    /// Encodes them.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let (seconds, nanos) = self.changed_at;
        bytes.extend(self.permissions.to_be_bytes());
        bytes.extend(seconds.to_be_bytes());
        bytes.extend(nanos.to_be_bytes());
    }

    /// Reads and checks them.
    ///
    /// # Errors
    /// As for the reader, and if they are impossible.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let permissions = u32::from_be_bytes(array(from)?);
        let changed_at = (i64::from_be_bytes(array(from)?), u32::from_be_bytes(array(from)?));
        if permissions > PERMISSIONS || changed_at.1 >= NANOS {
            return Err(invalid("a file has impossible attributes"));
        }
        Ok(Self { permissions, changed_at })
    }
}

/// A file name that is safe to create in a directory: not empty, not hidden, not too long, and
/// without separators, control characters or characters that change how others are displayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileName(String);

/// Why a name is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileNameError {
    /// Not 1 to 240 bytes.
    #[error("its name must have 1 to {MAX_NAME_LEN} bytes")]
    Length,
    /// Not UTF-8.
    #[error("its name is not UTF-8")]
    Encoding,
    /// It has a separator, or a character that is invisible or changes how others are displayed.
    #[error("its name has a slash, a backslash or a character that cannot be seen")]
    Character,
    /// It begins with a dot.
    #[error("its name begins with a dot: such files change the behaviour of programs unseen")]
    Hidden,
}

impl FileName {
    /// Parses and checks a name.
    ///
    /// # Errors
    /// If a file of this name must not be created.
    pub fn parse(bytes: &[u8]) -> Result<Self, FileNameError> {
        if bytes.is_empty() || bytes.len() > MAX_NAME_LEN {
            return Err(FileNameError::Length);
        }
        let name = std::str::from_utf8(bytes).map_err(|_| FileNameError::Encoding)?;
        if name.chars().any(|c| is_unseen(c) || c == '/' || c == '\\') {
            return Err(FileNameError::Character);
        }
        if name.starts_with('.') {
            return Err(FileNameError::Hidden);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// Whether a character is invisible, or changes how the text around it is displayed: control
/// characters, line separators, and characters that change the writing direction. Joiners are
/// allowed, as some languages need them.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}' | '\u{200E}' | '\u{200F}')
        || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
        || matches!(c, '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

/// The error for an invalid message.
pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl FileSenderMessage {
    /// Encodes the message. The bytes of [`Self::Data`] follow it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Offer { is_eager, length, attributes, name } => {
                bytes.extend([1, VERSION, u8::from(*is_eager)]);
                bytes.extend(length.to_be_bytes());
                attributes.encode(&mut bytes);
                let len = u16::try_from(name.0.len()).expect("a name is short");
                bytes.extend(len.to_be_bytes());
                bytes.extend(name.0.as_bytes());
            }
            Self::Start { offset, digest } => {
                bytes.push(2);
                bytes.extend(offset.to_be_bytes());
                bytes.extend(digest);
            }
            Self::Data(len) => {
                bytes.push(3);
                let len = u32::try_from(*len).expect("a message is short");
                bytes.extend(len.to_be_bytes());
            }
            Self::Working => bytes.push(4),
            Self::End(digest) => {
                bytes.push(5);
                bytes.extend(digest);
            }
            Self::Stream => bytes.extend([8, STREAM_VERSION]),
            Self::Chunks(chunks) => {
                bytes.push(9);
                chunks::encode_chunks(chunks, &mut bytes);
            }
        }
        bytes
    }

    /// Reads a message. The name in an offer may be one that is not accepted.
    ///
    /// # Errors
    /// As for the reader, and if the message is invalid.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Result<Self, FileNameError>> {
        Ok(Ok(match array::<1>(from)?[0] {
            1 => {
                let [version, eager] = array(from)?;
                if version != VERSION || eager > 1 {
                    return Err(invalid("the sender has another version of Sunder"));
                }
                let length = u64::from_be_bytes(array(from)?);
                let attributes = FileAttributes::read(from)?;
                let len = usize::from(u16::from_be_bytes(array(from)?));
                if len > 4 * MAX_NAME_LEN {
                    return Err(invalid("the name of a file is too long"));
                }
                let mut name = vec![0; len];
                from.read_exact(&mut name)?;
                match FileName::parse(&name) {
                    Ok(name) => Self::Offer { is_eager: eager == 1, length, attributes, name },
                    Err(error) => return Ok(Err(error)),
                }
            }
            2 => Self::Start { offset: u64::from_be_bytes(array(from)?), digest: array(from)? },
            3 => {
                let len = u32::from_be_bytes(array(from)?) as usize;
                if len == 0 || len > MAX_DATA_LEN {
                    return Err(invalid("a message has an impossible length"));
                }
                Self::Data(len)
            }
            4 => Self::Working,
            5 => Self::End(array(from)?),
            8 => match array(from)? {
                [STREAM_VERSION] => Self::Stream,
                _ => return Err(invalid("the sender has another version of Sunder")),
            },
            9 => Self::Chunks(chunks::read_chunks(from)?),
            _ => return Err(invalid("a message of an unknown kind")),
        }))
    }
}

impl FileReceiverMessage {
    /// Encodes the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Have(count) => {
                bytes.push(16);
                bytes.extend(count.to_be_bytes());
            }
            Self::HaveOlder => bytes.push(21),
            Self::WantedChunks(runs) => {
                bytes.push(22);
                chunks::encode_runs(runs, &mut bytes);
            }
            Self::Progress(count) => {
                bytes.push(17);
                bytes.extend(count.to_be_bytes());
            }
            Self::Done => bytes.push(18),
            Self::Failed(FileTransferFailure { reason, text }) => {
                bytes.extend([19, *reason as u8]);
                let end =
                    (0..=text.len().min(MAX_TEXT_LEN)).rfind(|end| text.is_char_boundary(*end));
                let text = &text[..end.unwrap_or(0)];
                let len = u16::try_from(text.len()).expect("a text is short");
                bytes.extend(len.to_be_bytes());
                bytes.extend(text.as_bytes());
            }
        }
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// As for the reader, and if the message is invalid.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        Ok(match array::<1>(from)?[0] {
            16 => Self::Have(u64::from_be_bytes(array(from)?)),
            17 => Self::Progress(u64::from_be_bytes(array(from)?)),
            18 => Self::Done,
            19 => {
                let [reason] = array(from)?;
                let reason =
                    FileTransferFailureReason::ALL.into_iter().find(|known| *known as u8 == reason);
                let reason = reason.ok_or_else(|| invalid("a failure of an unknown kind"))?;
                let len = usize::from(u16::from_be_bytes(array(from)?));
                if len > MAX_TEXT_LEN {
                    return Err(invalid("a message has an impossible length"));
                }
                let mut text = vec![0; len];
                from.read_exact(&mut text)?;
                let text = String::from_utf8_lossy(&text);
                let text = text.chars().filter(|c| !is_unseen(*c)).collect();
                Self::Failed(FileTransferFailure { reason, text })
            }
            21 => Self::HaveOlder,
            22 => Self::WantedChunks(chunks::read_runs(from)?),
            _ => return Err(invalid("a message of an unknown kind")),
        })
    }
}

pub(crate) fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof if error.get_ref().is_none() => closed_early(),
        _ => error,
    })?;
    Ok(bytes)
}

/// The error if the connection ended before the file was complete.
pub(crate) fn closed_early() -> io::Error {
    let what = "the other end has closed the connection without saying why";
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_read_as_they_were_sent() {
        let name = FileName::parse("Pläne 1.pdf".as_bytes()).unwrap();
        let attributes = FileAttributes { permissions: 0o640, changed_at: (-5, 999_999_999) };
        let messages = [
            FileSenderMessage::Offer { is_eager: true, length: u64::MAX, attributes, name },
            FileSenderMessage::Start { offset: 7, digest: [3; 32] },
            FileSenderMessage::Data(MAX_DATA_LEN),
            FileSenderMessage::Working,
            FileSenderMessage::End([4; 32]),
            FileSenderMessage::Stream,
            FileSenderMessage::Chunks(vec![FileChunk { len: 9, digest: [5; 16] }; 2]),
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(FileSenderMessage::read(&mut &bytes[..]).unwrap(), Ok(message));
            assert!(FileSenderMessage::read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        let failed = |reason| {
            FileReceiverMessage::Failed(FileTransferFailure { reason, text: "no room".into() })
        };
        let mut messages = vec![
            FileReceiverMessage::Have(5),
            FileReceiverMessage::Progress(6),
            FileReceiverMessage::Done,
            FileReceiverMessage::HaveOlder,
            FileReceiverMessage::WantedChunks(vec![FileChunkRun { first: 7, count: 2 }; 2]),
        ];
        messages.extend(FileTransferFailureReason::ALL.map(failed));
        for message in messages {
            let bytes = message.encode();
            assert_eq!(FileReceiverMessage::read(&mut &bytes[..]).unwrap(), message);
            assert!(FileReceiverMessage::read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn names_lead_nowhere_else() {
        for wrong in [
            "",
            ".",
            "..",
            "a/b",
            "/etc/passwd",
            "../x",
            "a\\b",
            "a\nb",
            "a\0",
            ".profile",
            "\u{9b}2J",
            "a\u{202e}fdp.exe",
            "a\u{2028}b",
        ] {
            assert!(FileName::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(FileName::parse(&[0xFF]).is_err());
        assert!(FileName::parse(&[b'a'; MAX_NAME_LEN + 1]).is_err());
        for right in ["a", "a.b", "-rf", "a b", "Ω", "می\u{200c}خواهم", "👩\u{200d}🔬"]
        {
            assert_eq!(FileName::parse(right.as_bytes()).unwrap().as_str(), right);
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let failure = FileTransferFailure {
            reason: FileTransferFailureReason::System,
            text: "ä".repeat(1000),
        };
        let bytes = FileReceiverMessage::Failed(failure).encode();
        let FileReceiverMessage::Failed(read) = FileReceiverMessage::read(&mut &bytes[..]).unwrap()
        else {
            panic!()
        };
        assert_eq!(read.text, "ä".repeat(MAX_TEXT_LEN / 2));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = FileSenderMessage::read(&mut &bytes[..]);
            let _ = FileReceiverMessage::read(&mut &bytes[..]);
        }
    }
}

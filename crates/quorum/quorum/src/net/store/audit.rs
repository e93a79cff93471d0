//! The audit log: a text file to which a server appends its actions, one JSON object per line.
//!
//! Each line contains its number, the time, the event, the hash of the previous line (`previous`)
//! and its own hash (`hash`): the SHA-256 of a prefix and of the line's bytes before `,"hash"`,
//! closed by a brace. Anyone who keeps a later hash can prove that an earlier line was changed or
//! removed. An attacker who can write to the file can replace all of it, so send the lines, or the
//! hash in the status, to another host.
//!
//! A full file is renamed to `audit-NUMBER.log`, where NUMBER is the number of its last line, and a
//! new file continues the chain. When the total length would exceed a limit, the oldest files are
//! removed, and a line records that. The chain of the remaining files is intact.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::info;

use super::error::{QuorumStoreError, of_file};
use crate::net::api::ApiCaller;
use crate::protocol::policy::MessageDigest;

/// The name of the file.
pub(super) const NAME: &str = "audit.log";

/// The default limit on the total length of the files, in bytes.
pub const MAX_LEN: u64 = 1 << 30;

/// A new file is begun when the current one reaches the limit divided by this number.
const FILES: u64 = 16;

/// The largest length of a line, in bytes.
const MAX_LINE: u64 = 4096;

/// The prefix that is hashed before a line.
const DOMAIN: &[u8] = b"sunder quorum audit 1\0";

/// The text between the hashed part of a line and its hash.
const HASH_KEY: &str = ",\"hash\":\"";

/// The largest length of a text from outside in an event, in bytes.
const MAX_TEXT: usize = 256;

/// An action or a refusal of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum AuditEvent {
    /// The log began.
    Opened,
    /// The shares of an epoch have been stored.
    EpochBegun {
        /// The epoch.
        epoch: u64,
        /// The number of shares.
        shares: usize,
    },
    /// The shares of an epoch have been wiped.
    EpochEnded {
        /// The epoch.
        epoch: u64,
    },
    /// The database was replaced by a backup.
    Restored {
        /// Its epochs.
        epochs: Vec<u64>,
    },
    /// A message was registered.
    Registered {
        /// The SHA-256 of the message, in hexadecimal digits.
        digest: String,
        /// The local user.
        #[serde(flatten)]
        by: ApiCaller,
    },
    /// A registration was withdrawn by a local user.
    Withdrawn {
        /// The SHA-256 of the message, in hexadecimal digits.
        digest: String,
        /// The local user.
        #[serde(flatten)]
        by: ApiCaller,
    },
    /// A registration has expired.
    Expired {
        /// The SHA-256 of the message, in hexadecimal digits.
        digest: String,
    },
    /// A message was signed for a local user.
    Signed {
        /// The SHA-256 of the message, in hexadecimal digits.
        digest: String,
        /// The epoch.
        epoch: u64,
        /// The local user.
        #[serde(flatten)]
        by: ApiCaller,
    },
    /// Partial signatures were sent to another server.
    Answered {
        /// The SHA-256 of the message, in hexadecimal digits.
        digest: String,
        /// The epoch.
        epoch: u64,
        /// The server that asked.
        to: String,
        /// The number of answers for this message and server since the previous line about them.
        #[serde(default = "one")]
        count: u64,
    },
    /// A server has answered a request for partial signatures wrongly.
    WrongAnswer {
        /// The epoch.
        epoch: u64,
        /// The server's number in its group, from 1.
        server: u8,
        /// The SHA-256 of the evidence, in hexadecimal digits.
        evidence: String,
    },
    /// A refresh was approved by a local user.
    RefreshApproved {
        /// The epoch that is to begin.
        epoch: u64,
        /// The SHA-256 of the new group, in hexadecimal digits.
        group: String,
        /// The local user.
        #[serde(flatten)]
        by: ApiCaller,
    },
    /// The agreement log has the withdrawal of this server's approval of a refresh. Without a user,
    /// it was submitted before a restart.
    ApprovalWithdrawn {
        /// The epoch that was to begin.
        epoch: u64,
        /// The SHA-256 of the new group, in hexadecimal digits.
        group: Option<String>,
        /// The local user.
        #[serde(flatten)]
        by: ApiCaller,
    },
    /// The agreement log has the withdrawal of this server's approval of a refresh, because too few
    /// others have approved it in time.
    ApprovalExpired {
        /// The epoch that was to begin.
        epoch: u64,
        /// The SHA-256 of the new group, in hexadecimal digits.
        group: String,
    },
    /// This server has approved new shares for the same group, as `refresh_every` says.
    RefreshDue {
        /// The epoch that is to begin.
        epoch: u64,
        /// The SHA-256 of the group, in hexadecimal digits.
        group: String,
    },
    /// A refresh was cancelled by a local user.
    RefreshCancelled {
        /// The epoch that was to begin.
        epoch: u64,
        /// The SHA-256 of the new group, in hexadecimal digits, if one was approved or open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        /// The local user.
        #[serde(flatten)]
        by: ApiCaller,
    },
    /// The oldest files were removed because the total length exceeded the limit.
    Removed {
        /// The number of the last line that was removed.
        through: u64,
    },
    /// A request was refused.
    Refused {
        /// The kind of the request.
        request: String,
        /// Why it was refused.
        reason: String,
        /// The number of such refusals since the last one that was recorded.
        count: u64,
        /// The SHA-256 of the message or the list that the request was about, in hexadecimal
        /// digits, if it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// The local user.
        #[serde(flatten)]
        by: ApiCaller,
    },
}

/// The count in lines of earlier versions.
fn one() -> u64 {
    1
}

impl AuditEvent {
    /// A refusal, with texts truncated to a bounded length.
    pub fn refused(
        request: &str,
        reason: &str,
        count: u64,
        digest: Option<MessageDigest>,
        by: ApiCaller,
    ) -> Self {
        let short = |text: &str| text.chars().take(MAX_TEXT / 4).collect();
        let digest = digest.map(|digest| digest.to_string());
        Self::Refused { request: short(request), reason: short(reason), count, digest, by }
    }

    /// Whether the event must be durable before the next step.
    fn is_durable(&self) -> bool {
        !matches!(
            self,
            Self::Signed { .. }
                | Self::Answered { .. }
                | Self::Refused { .. }
                | Self::Expired { .. }
        )
    }
}

/// The part of a line that is hashed.
#[derive(Serialize, Deserialize)]
struct AuditLogLine {
    number: u64,
    time: String,
    #[serde(flatten)]
    event: AuditEvent,
    previous: String,
}

/// An audit log that is open for appending.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    file: File,
    len: u64,
    /// The limit on the total length of the files.
    max_len: u64,
    last: AuditLogPosition,
}

/// The position of a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLogPosition {
    /// The number of lines in all files up to this one.
    pub number: u64,
    /// The hash of the line, in hexadecimal digits. Zeros if there is no line.
    pub hash: String,
}

impl AuditLog {
    /// Opens the log in a store's directory, or creates it. Removes a last line that a crash left
    /// incomplete, and zeros that a power failure left at the end.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the chain is broken.
    pub(super) fn open(directory: &Path, now: SystemTime) -> Result<Self, QuorumStoreError> {
        let path = directory.join(NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(of_file(&path))?;
        let (last, len) = verify(&file, &path)?;
        let repaired = file.set_len(len).and_then(|()| file.seek(SeekFrom::End(0)));
        repaired.map_err(of_file(&path))?;
        let last = match last {
            None => last_of_full_files(directory)?,
            last => last,
        };
        let is_new = last.is_none();
        let last = last.unwrap_or_else(|| AuditLogPosition { number: 0, hash: "0".repeat(64) });
        let mut log = Self { path, file, len, max_len: MAX_LEN, last };
        if is_new {
            log.append(&AuditEvent::Opened, now)?;
        }
        Ok(log)
    }

    /// Appends an event.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn append(
        &mut self,
        event: &AuditEvent,
        now: SystemTime,
    ) -> Result<(), QuorumStoreError> {
        if self.len >= self.max_len / FILES {
            self.rotate()?;
            if let Some(through) = self.remove_oldest()? {
                info!(through, "the oldest files of the audit log were removed: see audit_mib");
                self.write(&AuditEvent::Removed { through }, now)?;
            }
        }
        self.write(event, now)
    }

    /// Sets the limit on the total length of the files.
    pub(super) fn set_max_len(&mut self, max_len: u64) {
        self.max_len = max_len;
    }

    fn write(&mut self, event: &AuditEvent, now: SystemTime) -> Result<(), QuorumStoreError> {
        let number = self.last.number + 1;
        let time = humantime::format_rfc3339_millis(now).to_string();
        let (event, is_durable) = (event.clone(), event.is_durable());
        let line = AuditLogLine { number, time, event, previous: self.last.hash.clone() };
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        let hash = hash(text.as_bytes());
        text.pop();
        text = format!("{text}{HASH_KEY}{hash}\"}}\n");
        let written = self.file.write_all(text.as_bytes());
        let written =
            written.and_then(|()| if is_durable { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // Remove the written part of the line, so that the next line does not follow it.
            let _ = self.file.set_len(self.len).and_then(|()| self.file.seek(SeekFrom::End(0)));
            return Err(of_file(&self.path)(error));
        }
        self.len += text.len() as u64;
        self.last = AuditLogPosition { number, hash };
        Ok(())
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The position of the last line.
    pub fn last(&self) -> &AuditLogPosition {
        &self.last
    }

    /// Renames the file, and begins a new one that continues the chain.
    fn rotate(&mut self) -> Result<(), QuorumStoreError> {
        let full = self.path.with_file_name(format!("audit-{}.log", self.last.number));
        fs::rename(&self.path, &full).map_err(of_file(&full))?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&self.path);
        self.file = file.map_err(of_file(&self.path))?;
        self.len = 0;
        Ok(())
    }

    /// Removes the oldest files to make room for another one. Returns the number of the last
    /// removed line.
    fn remove_oldest(&self) -> Result<Option<u64>, QuorumStoreError> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let mut left = self.max_len - self.max_len / FILES;
        let mut removed = None;
        for (number, path) in full_files(directory)?.into_iter().rev() {
            let len = fs::metadata(&path).map_err(of_file(&path))?.len();
            match left.checked_sub(len) {
                Some(rest) if removed.is_none() => left = rest,
                _ => {
                    fs::remove_file(&path).map_err(of_file(&path))?;
                    removed = removed.or(Some(number));
                }
            }
        }
        Ok(removed)
    }
}

/// The full files with the numbers of their last lines, in ascending order.
fn full_files(directory: &Path) -> Result<Vec<(u64, PathBuf)>, QuorumStoreError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(of_file(directory))? {
        let path = entry.map_err(of_file(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("audit-").and_then(|name| name.strip_suffix(".log"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The last line of the latest full file.
fn last_of_full_files(directory: &Path) -> Result<Option<AuditLogPosition>, QuorumStoreError> {
    let Some((_, path)) = full_files(directory)?.pop() else { return Ok(None) };
    let file = File::open(&path).map_err(of_file(&path))?;
    Ok(verify(file, &path)?.0)
}

/// Checks the chain of a log. Returns the last complete line and the length up to its end, or
/// `None` if there is no line. Ignores an incomplete last line, and zeros at the end.
///
/// # Errors
/// If the file cannot be read, or a complete line does not continue the chain.
pub fn verify(
    file: impl Read,
    path: &Path,
) -> Result<(Option<AuditLogPosition>, u64), QuorumStoreError> {
    let mut reader = BufReader::new(file);
    let (mut last, mut len): (Option<AuditLogPosition>, u64) = (None, 0);
    for line in 1.. {
        let mut text = Vec::new();
        let mut limited = (&mut reader).take(MAX_LINE);
        limited.read_until(b'\n', &mut text).map_err(of_file(path))?;
        let is_last = !text.ends_with(b"\n") && (text.len() as u64) < MAX_LINE;
        if is_last || is_unwritten(&text, &mut reader).map_err(of_file(path))? {
            break;
        }
        let position = checked(&text, last.as_ref());
        let broken = || QuorumStoreError::BrokenChain { path: path.to_owned(), line };
        last = Some(position.ok_or_else(broken)?);
        len += text.len() as u64;
    }
    Ok((last, len))
}

/// Whether the file consists of zeros from within this line on. After a power failure, the file
/// system may have kept the file's length but not its last bytes. No line contains a zero byte.
fn is_unwritten(text: &[u8], rest: &mut impl Read) -> io::Result<bool> {
    let zeros = text.iter().position(|&byte| byte == 0).map(|begin| &text[begin..]);
    if zeros.is_none_or(|zeros| zeros.iter().any(|&byte| byte != 0)) {
        return Ok(false);
    }
    let mut buffer = [0; 4096];
    loop {
        match rest.read(&mut buffer)? {
            0 => return Ok(true),
            len if buffer[..len].iter().any(|&byte| byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// The position of a line after `last`. `None` if it does not continue the chain. The first line of
/// a file may have any previous hash.
fn checked(line: &[u8], last: Option<&AuditLogPosition>) -> Option<AuditLogPosition> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix("\"}\n")?;
    let (body, stated) = text.rsplit_once(HASH_KEY)?;
    let body = format!("{body}}}");
    let line: AuditLogLine = serde_json::from_str(&body).ok()?;
    let follows = last.is_none_or(|last| {
        line.previous == last.hash && Some(line.number) == last.number.checked_add(1)
    });
    let hash = hash(body.as_bytes());
    (follows && hash == stated).then_some(AuditLogPosition { number: line.number, hash })
}

fn hash(body: &[u8]) -> String {
    let digest = Sha256::new().chain_update(DOMAIN).chain_update(body).finalize();
    MessageDigest(digest.into()).to_string()
}

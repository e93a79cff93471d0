//! Failures of commands and their exit codes.

use std::fmt;
use std::io;
use std::path::Path;

use service::ServiceError;

/// Why a command failed: one line that says what is wrong, where, and what to do.
#[derive(Debug)]
pub enum CommandFailure {
    /// An operation failed: exit code 1.
    Failed(String),
    /// The arguments or the input are wrong: exit code 2.
    Usage(String),
    /// Tampering was detected, or a security check failed: exit code 3.
    Refused(String),
    /// The reader of standard output has closed it: exit code 1, without a message.
    Unread,
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl From<ServiceError> for CommandFailure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Levels { .. } => Self::Usage(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl CommandFailure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Unread => 1,
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
        }
    }

    /// The message, empty if there is none.
    pub fn message(&self) -> &str {
        match self {
            Self::Failed(message) | Self::Usage(message) | Self::Refused(message) => message,
            Self::Unread => "",
        }
    }

    /// Adds a further fact to the message.
    #[must_use]
    pub fn and(self, more: &str) -> Self {
        let add = |message| format!("{message}; {more}");
        match self {
            Self::Failed(message) => Self::Failed(add(message)),
            Self::Usage(message) => Self::Usage(add(message)),
            Self::Refused(message) => Self::Refused(add(message)),
            Self::Unread => Self::Unread,
        }
    }

    /// A failure to read from `path`. A file that does not exist is wrong usage.
    pub fn reading(path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::Usage(format!("no such file: {path}; check its name"))
            }
            io::ErrorKind::IsADirectory => {
                Self::Usage(format!("{path} is a directory; name a file in it"))
            }
            _ => Self::Failed(format!("cannot read {path}: {error}")),
        }
    }

    /// A failure to write to or create `path`.
    pub fn writing(path: &Path, error: &io::Error) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; make room there, or choose another place with --out"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; choose another place with --out"
            }
            _ => "",
        };
        Self::Failed(format!("cannot write {}: {error}{advice}", path.display()))
    }
}

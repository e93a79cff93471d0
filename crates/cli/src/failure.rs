//! Why a command did not do its job, and the exit code that says so.

use std::fmt;
use std::io;
use std::path::Path;

use service::ServiceError;

/// Why a command did not do its job: one line for a person, which says what was wrong, where, and
/// what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It went wrong on the way: exit code 1.
    Failed(String),
    /// It was asked for what cannot be: exit code 2.
    Usage(String),
    /// It was refused because of tampering, or because a security check failed: exit code 3.
    Refused(String),
    /// Whoever reads standard output has closed it: exit code 1, and nobody is to be told.
    Unread,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Levels { .. } => Self::Usage(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Unread => 1,
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
        }
    }

    /// The line for a person, empty if there is nothing to say.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Failed(message) | Self::Usage(message) | Self::Refused(message) => message,
            Self::Unread => "",
        }
    }

    /// The same, and something that has to be known besides.
    pub(crate) fn and(self, more: &str) -> Self {
        let add = |message| format!("{message}; {more}");
        match self {
            Self::Failed(message) => Self::Failed(add(message)),
            Self::Usage(message) => Self::Usage(add(message)),
            Self::Refused(message) => Self::Refused(add(message)),
            Self::Unread => Self::Unread,
        }
    }

    /// Reading from `path` went wrong.
    pub(crate) fn reading(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("cannot read {}: {error}", path.display()))
    }

    /// Writing to `path`, or creating it, went wrong.
    pub(crate) fn writing(path: &Path, error: &io::Error) -> Self {
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

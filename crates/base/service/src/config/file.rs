//! Reads the file of a configuration.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The largest configuration, in bytes. With this limit, a device that is named by mistake does not
/// exhaust memory.
const MAX_LEN: u64 = 1 << 20;

/// Why a file cannot be read as a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// The file does not exist.
    #[error("no such file: {}; check its name", .path.display())]
    Missing {
        /// Its name.
        path: PathBuf,
    },
    /// It is a directory.
    #[error("{} is a directory; name a file in it", .path.display())]
    Directory {
        /// Its name.
        path: PathBuf,
    },
    /// It is not text, or too large.
    #[error(
        "{} is not a configuration: it must be text in UTF-8, 1 MiB at most", .path.display()
    )]
    NoText {
        /// Its name.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// Its name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Reads the text of a configuration: UTF-8, at most 1 MiB.
///
/// # Errors
/// When there is no such file, or it does not contain such a text.
pub fn read_file(path: &Path) -> Result<String, ConfigFileError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LEN + 1).read_to_string(&mut text));
    let path = path.to_owned();
    match read {
        Ok(len) if len as u64 > MAX_LEN => Err(ConfigFileError::NoText { path }),
        Ok(_) => Ok(text),
        Err(source) => Err(match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => ConfigFileError::Missing { path },
            ErrorKind::IsADirectory => ConfigFileError::Directory { path },
            ErrorKind::InvalidData => ConfigFileError::NoText { path },
            _ => ConfigFileError::Unreadable { path, source },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let message = |path: &Path| read_file(path).unwrap_err().to_string();
        assert!(message(&path).starts_with("no such file"));
        assert!(message(directory.path()).contains("is a directory"));
        for bytes in [vec![0xFF], vec![b'#'; (1 << 20) + 1]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(message(&path).contains("must be text"), "{}", message(&path));
        }
    }
}

//! Key files: 64 hexadecimal digits, which white space may surround.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::storage;
use crate::trusted::{TrustError, TrustedFolder};

/// The length of a key, in bytes.
pub const KEY_LEN: usize = 32;

/// The longest key file, in bytes: the digits, and white space around them.
const MAX_FILE: usize = 256;

/// Why no key was read from a file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file does not exist.
    #[error("key {}: no such file; {fix}", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What to do.
        fix: String,
    },
    /// It cannot be read.
    #[error("key {}: {source}{}", .path.display(), remedy(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It does not contain a key.
    #[error("key {}: it must be 64 hexadecimal digits and nothing else", .path.display())]
    Digits {
        /// The file.
        path: PathBuf,
    },
    /// It contains no RSA public key.
    #[error(
        "key {}: it must be an RSA public key of 1024, 2048, 3072 or 4096 bits with exponent 65537 \
         in PEM form (\"BEGIN PUBLIC KEY\")",
        .path.display()
    )]
    Rsa {
        /// The file.
        path: PathBuf,
    },
    /// It contains no public key.
    #[error("key {}: {why}", .path.display())]
    Public {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Why other users of this host may read this key file or replace it; `None` if they cannot. A file
/// that cannot be inspected cannot be read either, and [`read`] reports that.
pub fn exposure(path: &Path) -> Option<TrustError> {
    let checked =
        TrustedFolder::containing(path).and_then(|(folder, name)| folder.check_secret(&name));
    checked.err().filter(|error| !matches!(error, TrustError::Unreadable { .. }))
}

/// The key in a file.
///
/// # Errors
/// When the file cannot be read or contains no key.
pub fn read(path: &Path) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyFileError> {
    // Bounded: the path may be a disk by mistake.
    let mut text = Zeroizing::new([0; MAX_FILE]);
    let len = read_into(path, &mut *text, || {
        let path = path.display();
        format!("copy it from where it is, or make one: sunder key new {path}")
    })?;
    let whole = text.get(..len).filter(|text| text.len() < MAX_FILE);
    let key = whole.and_then(|text| parse_digits(text.trim_ascii()));
    key.ok_or_else(|| KeyFileError::Digits { path: path.to_owned() })
}

/// What to do about a file that cannot be read, after a semicolon.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::IsADirectory => "; name a file in it",
        ErrorKind::PermissionDenied => "; run this as the user whose key it is, or as root",
        _ => "",
    }
}

/// Reads a key file until it ends or `buffer` is full. Returns the number of bytes read. `fix` says
/// what to do if there is no such file.
pub(crate) fn read_into(
    path: &Path,
    buffer: &mut [u8],
    fix: impl FnOnce() -> String,
) -> Result<usize, KeyFileError> {
    read_all(path, buffer).map_err(|source| match source.kind() {
        ErrorKind::NotFound => {
            let has_tilde = path.iter().any(|part| part == "~");
            let whole = || "only a shell replaces ~: write the whole path".to_owned();
            let fix = if has_tilde { whole() } else { fix() };
            KeyFileError::Missing { path: path.to_owned(), fix }
        }
        _ => KeyFileError::Unreadable { path: path.to_owned(), source },
    })
}

/// Writes a key to a new file that only its owner can read. For a random identity key there is
/// [`IdentitySecretKey::create`](crate::IdentitySecretKey::create).
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] if there is such a file, and others when it cannot be written.
pub fn create(path: &Path, key: &[u8; KEY_LEN]) -> io::Result<()> {
    let digits = Zeroizing::new(base16ct::lower::encode_string(key));
    storage::create(path, digits.as_bytes(), 0o600)
}

fn read_all(path: &Path, buffer: &mut [u8]) -> io::Result<usize> {
    let mut file = File::open(path)?;
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// The key that 64 hexadecimal digits stand for; `None` if the text is anything else.
pub(crate) fn parse_digits(text: &[u8]) -> Option<Zeroizing<[u8; KEY_LEN]>> {
    let mut key = Zeroizing::new([0; KEY_LEN]);
    let len = base16ct::mixed::decode(text, &mut *key).ok()?.len();
    (len == KEY_LEN).then_some(key)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_64_digits_in_a_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let written = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path)
        };
        let mixed = "0aF9".repeat(16);
        let expected = [0x0A, 0xF9].repeat(16);
        assert_eq!(written(&format!("{mixed}\n")).unwrap()[..], expected);
        assert_eq!(written(&format!(" {mixed}\r\n\n")).unwrap()[..], expected);
        let padded = format!("{mixed}{}", " ".repeat(MAX_FILE));
        for wrong in ["", "00", &"0g".repeat(32), &"00".repeat(33), &padded] {
            let error = written(wrong).unwrap_err().to_string();
            assert!(error.ends_with("64 hexadecimal digits and nothing else"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let missing = read(&path).unwrap_err().to_string();
        assert!(missing.contains("sunder key new") && missing.lines().count() == 1);
        let unreadable = read(place.path()).unwrap_err();
        assert!(matches!(unreadable, KeyFileError::Unreadable { .. }), "{unreadable}");
    }

    #[test]
    fn a_key_that_others_may_read_or_replace_is_exposed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        assert!(exposure(&path).is_none());
        fs::write(&path, "").unwrap();
        for (mode, exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(exposure(&path).is_some(), exposed, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(exposure(&path), Some(TrustError::Writable { .. })));
    }
}

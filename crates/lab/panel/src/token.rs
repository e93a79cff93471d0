//! Secrets in addresses: that of the page, and those of links to single runs.

use std::io::{self, ErrorKind};
use std::path::Path;

use keys::storage;
use random::RandomGenerator;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// A secret in an address.
#[derive(Clone)]
pub(crate) struct PageToken(String);

/// The length of a token in bytes, of which hexadecimal has twice as many.
const TOKEN_LEN: usize = 16;

impl PageToken {
    /// A random token.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub(crate) fn new() -> io::Result<Self> {
        let token = RandomGenerator::system().array::<TOKEN_LEN>().map_err(io::Error::other)?;
        Ok(Self(base16ct::lower::encode_string(&token)))
    }

    /// The token in a file, which only this user can read. Creates the file if there is none, so
    /// that addresses stay valid when the server starts again.
    ///
    /// # Errors
    /// If the file cannot be read or written, or has something else.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let new = Self::new()?;
        match storage::create(path, new.0.as_bytes(), 0o600) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::read(path),
            created => created.map(|()| new),
        }
    }

    /// Reads the token in a file.
    ///
    /// # Errors
    /// If the file cannot be read, or has something else.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let token = std::fs::read_to_string(path)?;
        let is_token =
            token.len() == 2 * TOKEN_LEN && token.bytes().all(|it| it.is_ascii_hexdigit());
        if is_token {
            return Ok(Self(token));
        }
        Err(io::Error::other("this is no token; remove the file to get a new one"))
    }

    /// The token, for an address.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }

    /// The digest by which it is recognised where it is not kept.
    pub(crate) fn digest(&self) -> String {
        digest(&self.0)
    }
}

/// The SHA-256 of a token, in hexadecimal digits.
pub(crate) fn digest(token: &str) -> String {
    base16ct::lower::encode_string(&Sha256::digest(token))
}

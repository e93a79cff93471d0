//! Keys that several ends share.

use std::fmt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use random::wipe_stack;
use sha2::Sha256;

use crate::file::{self, KEY_LEN, KeyFileError};

/// A key that was given to all ends in advance: 32 random bytes. Secret. Each holder can
/// impersonate every other holder.
#[derive(Clone)]
pub struct SharedKey {
    /// HMAC with the key block already processed, so that an authentication does not hash the key
    /// again.
    keyed: Hmac<Sha256>,
}

impl SharedKey {
    /// A key of random bytes.
    #[expect(clippy::missing_panics_doc, reason = "HMAC takes keys of any length")]
    pub fn new(random: &[u8; KEY_LEN]) -> Self {
        let keyed = Hmac::new_from_slice(random).expect("HMAC takes keys of any length");
        Self { keyed }
    }

    /// Reads a key from its file.
    ///
    /// # Errors
    /// When the file cannot be read or contains no key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let key = Self::new(&*file::read(path)?);
        wipe_stack();
        Ok(key)
    }

    /// The HMAC-SHA-256 code of a message, which is the concatenation of `parts`.
    pub fn authenticate(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.code(parts).finalize().into_bytes().into()
    }

    /// Whether `code` is the code of this message. For a wrong code of 32 bytes, the time does not
    /// depend on its content; a code of another length is wrong.
    pub fn verify(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        self.code(parts).verify_slice(code).is_ok()
    }

    /// A number by which people see that two ends have the same key. It says nothing else about the
    /// key, and other keys have the same one with a probability of 2^-64.
    pub fn fingerprint(&self) -> [u8; 8] {
        let code = self.authenticate(&[b"sunder key fingerprint"]);
        std::array::from_fn(|i| code[i])
    }

    fn code(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        parts.iter().fold(self.keyed.clone(), Mac::chain_update)
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 1: a key of 20 bytes, which HMAC pads with zeros.
    #[test]
    fn codes_are_those_of_rfc_4231() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let key = SharedKey::new(&key);
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        let code = key.authenticate(&[b"Hi There"]);
        assert_eq!(code, *file::parse_digits(expected.as_bytes()).unwrap());
        assert_eq!(key.authenticate(&[b"Hi", b" ", b"There"]), code);
        assert!(key.verify(&[b"Hi There"], &code));
        assert!(!key.verify(&[b"Hi there"], &code));
        assert!(!key.verify(&[b"Hi There"], &code[..31]));
        assert!(!SharedKey::new(&[0; 32]).verify(&[b"Hi There"], &code));
    }

    /// RFC 4231, test case 2: `hmac` computes HMAC-SHA-256.
    #[test]
    fn the_code_is_the_published_one() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let expected = file::parse_digits(expected.as_bytes()).unwrap();
        assert!(SharedKey::new(&key).verify(&[b"what do ya want for nothing?"], &*expected));
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", SharedKey::new(&[0xAB; 32])), "SharedKey(..)");
    }
}

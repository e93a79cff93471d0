//! The first message of each party, with the terms on which both must agree.

use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::terms::{MAX_ITEMS, PsiLearners, PsiRole};

const MAGIC: &[u8; 7] = b"SNDRPSI";
const VERSION: u8 = 1;

/// The length of a salt, in bytes.
pub(crate) const SALT_LEN: usize = 16;

/// The length of a party's first message, in bytes.
pub(crate) const HELLO_LEN: usize = 8 + 2 + 4 + SALT_LEN + 32;

/// A party's first message.
pub(crate) struct PsiHello {
    pub(crate) role: PsiRole,
    pub(crate) learners: PsiLearners,
    /// The number of items, or the one that hides it.
    pub(crate) size: u32,
    pub(crate) salt: [u8; SALT_LEN],
    pub(crate) comparison: [u8; 32],
}

impl PsiHello {
    pub(crate) fn to_bytes(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..7].copy_from_slice(MAGIC);
        bytes[7] = VERSION;
        bytes[8] = self.role as u8;
        bytes[9] = self.learners as u8;
        bytes[10..14].copy_from_slice(&self.size.to_be_bytes());
        bytes[14..14 + SALT_LEN].copy_from_slice(&self.salt);
        bytes[14 + SALT_LEN..].copy_from_slice(&self.comparison);
        bytes
    }

    /// The number of items of the other party, from its first message.
    ///
    /// # Errors
    /// If it is malformed, or the parties do not agree.
    pub(crate) fn check(&self, theirs: &[u8; HELLO_LEN]) -> Result<u32, Error> {
        if theirs[..7] != *MAGIC {
            return Err(Error::NotThisProtocol);
        }
        if theirs[7] != VERSION {
            return Err(Error::Version { ours: VERSION, theirs: theirs[7] });
        }
        if theirs[8] == self.role as u8 {
            return Err(Error::SameRole { role: self.role });
        }
        if theirs[8] != self.role.other() as u8 {
            return Err(Error::Malformed("an unknown role"));
        }
        if theirs[9] != self.learners as u8 {
            return Err(Error::Differs { what: "who learns the result (--output-to)" });
        }
        if theirs[14 + SALT_LEN..] != self.comparison {
            let what = "how values are compared (--normalize, the number of --column)";
            return Err(Error::Differs { what });
        }
        let size = u32::from_be_bytes([theirs[10], theirs[11], theirs[12], theirs[13]]);
        if size as usize > MAX_ITEMS {
            return Err(Error::Malformed("a number of items above the maximum"));
        }
        Ok(size)
    }
}

/// What distinguishes this run from all others: a digest of both parties' first messages.
#[derive(Clone, Copy)]
pub(crate) struct PsiRunDigest([u8; 32]);

impl PsiRunDigest {
    pub(crate) fn new(receiver: &[u8; HELLO_LEN], sender: &[u8; HELLO_LEN]) -> Self {
        Self(Sha256::new().chain_update(receiver).chain_update(sender).finalize().into())
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A public key of this run for a purpose.
    pub(crate) fn key(&self, purpose: &[u8]) -> blocks::Block {
        let digest = Sha256::new().chain_update(self.0).chain_update(purpose).finalize();
        blocks::Block::from_bytes(*digest.first_chunk().expect("a digest is longer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(role: PsiRole) -> PsiHello {
        let (salt, comparison) = ([1; SALT_LEN], [2; 32]);
        PsiHello { role, learners: PsiLearners::Both, size: 1 << 24, salt, comparison }
    }

    #[test]
    fn terms_that_differ_are_named() {
        let (ours, theirs) = (hello(PsiRole::Receiver), hello(PsiRole::Sender).to_bytes());
        assert_eq!(ours.check(&theirs).unwrap(), 1 << 24);
        let with = |at: usize, value: u8| {
            let mut bytes = theirs;
            bytes[at] = value;
            ours.check(&bytes).unwrap_err().to_string()
        };
        assert!(with(0, b'G').contains("does not speak"));
        assert!(with(7, 2).contains("version 2"));
        assert!(with(8, 0).contains("both parties are the receiver"));
        assert!(with(8, 2).contains("unknown role"));
        assert!(with(9, 1).contains("--output-to"));
        assert!(with(13, 1).contains("above the maximum"));
        assert!(with(HELLO_LEN - 1, 0).contains("--normalize"));
    }
}

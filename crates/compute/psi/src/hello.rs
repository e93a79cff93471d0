//! The first message of each party, with the terms on which both must agree.

use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::terms::{MAX_DECIMALS, MAX_ITEMS, PsiFunction, PsiLearners, PsiRole};

const MAGIC: &[u8; 7] = b"SNDRPSI";
const VERSION: u8 = 2;

/// The length of what every version begins its first message with, in bytes.
pub(crate) const VERSION_LEN: usize = 8;

/// The length of a salt, in bytes.
pub(crate) const SALT_LEN: usize = 16;

/// The places of fields.
const ROLE: usize = VERSION_LEN;
const LEARNERS: usize = ROLE + 1;
const FUNCTION: usize = LEARNERS + 1;
const DECIMALS: usize = FUNCTION + 1;
const SIZE: usize = DECIMALS + 1;
const SALT: usize = SIZE + 4;
const COMPARISON: usize = SALT + SALT_LEN;
const NUMBERS: usize = COMPARISON + 32;

/// The length of a party's first message, in bytes.
pub(crate) const HELLO_LEN: usize = NUMBERS + 32;

/// A party's first message.
pub(crate) struct PsiHello<'a> {
    pub(crate) role: PsiRole,
    pub(crate) learners: PsiLearners,
    pub(crate) function: PsiFunction<'a>,
    /// The number of items, or the one that hides it.
    pub(crate) size: u32,
    pub(crate) salt: [u8; SALT_LEN],
    pub(crate) comparison: [u8; 32],
}

/// What the other party's first message says besides the terms.
pub(crate) struct OtherHello {
    /// The number of items that it shows.
    pub(crate) size: u32,
    /// The decimal places of the sender's numbers.
    pub(crate) decimals: u8,
}

impl PsiHello<'_> {
    pub(crate) fn to_bytes(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..7].copy_from_slice(MAGIC);
        bytes[7] = VERSION;
        bytes[ROLE] = self.role as u8;
        bytes[LEARNERS] = self.learners as u8;
        bytes[FUNCTION] = self.function.code();
        bytes[SIZE..SALT].copy_from_slice(&self.size.to_be_bytes());
        bytes[SALT..COMPARISON].copy_from_slice(&self.salt);
        bytes[COMPARISON..NUMBERS].copy_from_slice(&self.comparison);
        if let PsiFunction::Sum(numbers) = &self.function {
            bytes[NUMBERS..].copy_from_slice(&numbers.column);
            if self.role == PsiRole::Sender {
                bytes[DECIMALS] = numbers.decimals;
            }
        }
        bytes
    }

    /// What the other party's first message says.
    ///
    /// # Errors
    /// If it is malformed, or the parties do not agree.
    pub(crate) fn check(&self, theirs: &[u8; HELLO_LEN]) -> Result<OtherHello, Error> {
        let differs = |what| Err(Error::Differs { what });
        if theirs[ROLE] == self.role as u8 {
            return Err(Error::SameRole { role: self.role });
        }
        if theirs[ROLE] != self.role.other() as u8 {
            return Err(Error::Malformed("an unknown role"));
        }
        if theirs[FUNCTION] != self.function.code() {
            return differs("what is computed (--count, --sum)");
        }
        if theirs[LEARNERS] != self.learners as u8 {
            return differs("who learns the result (--output-to)");
        }
        if theirs[COMPARISON..NUMBERS] != self.comparison {
            return differs("how values are compared (--normalize, the number of --column)");
        }
        if theirs[NUMBERS..] != self.to_bytes()[NUMBERS..] {
            return differs("the column of numbers (--sum)");
        }
        let size: [u8; 4] = std::array::from_fn(|at| theirs[SIZE + at]);
        let (size, decimals) = (u32::from_be_bytes(size), theirs[DECIMALS]);
        if size as usize > MAX_ITEMS {
            return Err(Error::Malformed("a number of items above the maximum"));
        }
        if decimals > MAX_DECIMALS {
            return Err(Error::Malformed("a number of decimal places above the maximum"));
        }
        Ok(OtherHello { size, decimals })
    }
}

/// Checks the beginning of the other party's first message.
///
/// # Errors
/// If it is another protocol, or another version.
pub(crate) fn check_version(theirs: [u8; VERSION_LEN]) -> Result<(), Error> {
    let (magic, version) = theirs.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Error::NotThisProtocol);
    }
    if version != [VERSION] {
        return Err(Error::Version { ours: VERSION, theirs: version[0] });
    }
    Ok(())
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
    use crate::terms::PsiNumbers;

    fn hello(role: PsiRole, function: PsiFunction<'_>) -> PsiHello<'_> {
        let (salt, comparison) = ([1; SALT_LEN], [2; 32]);
        let learners = PsiLearners::Both;
        PsiHello { role, learners, function, size: 1 << 24, salt, comparison }
    }

    #[test]
    fn terms_that_differ_are_named() {
        let numbers = |decimals| PsiNumbers { column: [3; 32], values: &[], decimals };
        let ours = hello(PsiRole::Receiver, PsiFunction::Sum(numbers(0)));
        let theirs = hello(PsiRole::Sender, PsiFunction::Sum(numbers(2))).to_bytes();
        let checked = ours.check(&theirs).unwrap();
        assert_eq!((checked.size, checked.decimals), (1 << 24, 2));
        let with = |at: usize, value: u8| {
            let mut bytes = theirs;
            bytes[at] = value;
            ours.check(&bytes).err().unwrap().to_string()
        };
        assert!(with(ROLE, 0).contains("both parties are the receiver"));
        assert!(with(ROLE, 2).contains("unknown role"));
        assert!(with(LEARNERS, 1).contains("--output-to"));
        assert!(with(FUNCTION, 1).contains("--count"));
        assert!(with(SIZE + 3, 1).contains("above the maximum"));
        assert!(with(DECIMALS, 255).contains("decimal places"));
        assert!(with(COMPARISON, 0).contains("--normalize"));
        assert!(with(NUMBERS, 0).contains("the column of numbers"));
        let version = |at: usize, value: u8| {
            let mut bytes = *theirs.first_chunk().unwrap();
            bytes[at] = value;
            check_version(bytes).map_err(|error| error.to_string())
        };
        assert_eq!(version(7, VERSION), Ok(()));
        assert!(version(0, b'G').unwrap_err().contains("does not speak"));
        assert!(version(7, 1).unwrap_err().contains("version 1"));
    }
}

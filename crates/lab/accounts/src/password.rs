//! Hashes of passwords: Argon2id (RFC 9106).

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use random::RandomGenerator;
use thiserror::Error;

/// The memory of a hash in KiB: 46 MiB, as the first of the settings that OWASP recommends. That
/// one has one pass, and this two.
const MEMORY_KIB: u32 = 47_104;
const PASSES: u32 = 2;

/// The length of a password, in characters and bytes.
const MIN_CHARACTERS: usize = 12;
const MAX_BYTES: usize = 1024;

/// The length of the salt in bytes, as RFC 9106 recommends.
const SALT_LEN: usize = 16;

/// Hashes passwords. Each hash takes a tenth of a second and 46 MiB, so the caller bounds how many
/// are computed at a time.
#[derive(Clone, Debug)]
pub struct PasswordHasher(Params);

/// Why a password cannot be used.
#[derive(Debug, Error)]
pub enum PasswordError {
    /// It is too short.
    #[error("choose at least {MIN_CHARACTERS} characters, for example four random words")]
    TooShort,
    /// It is too long.
    #[error("choose at most {MAX_BYTES} bytes")]
    TooLong,
    /// It could not be hashed.
    #[error("the password cannot be hashed: {0}")]
    Hashing(String),
}

impl Default for PasswordHasher {
    fn default() -> Self {
        Self::new(MEMORY_KIB, PASSES)
    }
}

impl PasswordHasher {
    /// Hashes that cost so much. For tests; [`PasswordHasher::default`] is for people.
    ///
    /// # Panics
    /// If Argon2 has no such costs.
    pub fn new(memory_kib: u32, passes: u32) -> Self {
        Self(Params::new(memory_kib, passes, 1, None).expect("the costs are of Argon2"))
    }

    /// The hash of a new password, with its salt and costs.
    ///
    /// # Errors
    /// If the password is too short or too long, or the system has no memory or random bytes.
    pub fn hash(&self, password: &str) -> Result<String, PasswordError> {
        if password.chars().count() < MIN_CHARACTERS {
            return Err(PasswordError::TooShort);
        }
        if password.len() > MAX_BYTES {
            return Err(PasswordError::TooLong);
        }
        let failed = |error: &dyn std::fmt::Display| PasswordError::Hashing(error.to_string());
        let salt: [u8; SALT_LEN] =
            RandomGenerator::system().array().map_err(|error| failed(&error))?;
        let hash = self.argon2().hash_password_with_salt(password.as_bytes(), &salt);
        hash.map(|hash: PasswordHash| hash.to_string()).map_err(|error| failed(&error))
    }

    /// Whether a password has this hash. Without a hash, because there is no such account, it takes
    /// as long and the answer is no.
    pub fn is_right(&self, password: &str, hash: Option<&str>) -> bool {
        if password.len() > MAX_BYTES {
            return false;
        }
        let known = hash.and_then(|hash| PasswordHash::new(hash).ok());
        if let Some(hash) = known {
            return self.argon2().verify_password(password.as_bytes(), &hash).is_ok();
        }
        let hashed: Result<PasswordHash, _> =
            self.argon2().hash_password_with_salt(password.as_bytes(), &[0; SALT_LEN]);
        drop(hashed);
        false
    }

    fn argon2(&self) -> Argon2<'static> {
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_its_hash_only() {
        let hasher = PasswordHasher::new(64, 1);
        let hash = hasher.hash("correct horse").unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=64,t=1,p=1$"), "{hash}");
        assert_ne!(hash, hasher.hash("correct horse").unwrap());
        assert!(hasher.is_right("correct horse", Some(&hash)));
        // Hashes keep their costs when those of new ones change.
        assert!(PasswordHasher::new(128, 2).is_right("correct horse", Some(&hash)));
        for wrong in ["", "correct horse ", "Correct horse", &"x".repeat(2000)] {
            assert!(!hasher.is_right(wrong, Some(&hash)), "{wrong}");
        }
        assert!(!hasher.is_right("correct horse", None));
        assert!(!hasher.is_right("correct horse", Some("")));
    }

    #[test]
    fn people_get_at_least_the_costs_that_owasp_recommends() {
        let hash = PasswordHasher::default().hash("correct horse").unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=47104,t=2,p=1$"), "{hash}");
    }

    #[test]
    fn passwords_have_twelve_characters_and_any_script() {
        let hasher = PasswordHasher::new(64, 1);
        assert!(matches!(hasher.hash("elevenchars"), Err(PasswordError::TooShort)));
        assert!(matches!(hasher.hash("ääääääääääa"), Err(PasswordError::TooShort)));
        assert!(matches!(hasher.hash(&"x".repeat(1025)), Err(PasswordError::TooLong)));
        hasher.hash("äöü äöü äöü ").unwrap();
    }
}

//! Internals for fuzz targets. Tests run the same code with a few changes of valid bytes.

use rsa_arithmetic::fixture;

pub use crate::net::api::fuzzing as api;
pub use crate::net::consensus::fuzzing::open_log;
use crate::protocol::ceremony::share_file::QuorumShareFile;
pub use crate::protocol::consensus::fuzzing as log;
use crate::protocol::group::{QuorumGroup, QuorumMember};
pub use crate::protocol::link::fuzzing as link;
pub use crate::protocol::signing::fuzzing::PolynomialExamples;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::Sha256Digest;

/// The share files of a ceremony for four servers. The secret identity keys repeat the bytes 1 to
/// 4.
///
/// # Panics
/// If the system provides no random bytes.
pub fn share_files() -> Vec<QuorumShareFile> {
    let member = |number: u8| QuorumMember {
        identity: keys::IdentitySecretKey::new(&[number; 32]).public(),
        address: ([127, 0, 0, 1], 5000 + u16::from(number)).into(),
    };
    let group = QuorumGroup::new((1..=4).map(member).collect()).expect("four servers");
    let mut generator = random::RandomGenerator::seeded().expect("random bytes");
    QuorumShareFile::deal(&fixture::small_key(), &group, UnixSeconds(0), &mut generator)
        .expect("random bytes")
}

/// The bytes, with their last 32 replaced by the digest that a valid share file has there.
pub fn with_digest(bytes: &[u8]) -> Vec<u8> {
    let content = &bytes[..bytes.len().saturating_sub(32)];
    [content, &Sha256Digest::of(&[content]).0].concat()
}

/// The bytes with a few random changes.
#[cfg(test)]
pub(crate) fn changed(bytes: &[u8], random: &mut sim::SeededRng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.below(4) {
        let at = random.index(bytes.len());
        match (random.below(6), bytes.get_mut(at)) {
            (0, Some(byte)) => *byte = random.next_u64().to_le_bytes()[0],
            (1, Some(byte)) => *byte ^= 1 << random.below(8),
            (2, _) => bytes.truncate(at),
            (3, _) => bytes.insert(at, random.next_u64().to_le_bytes()[0]),
            (4, Some(byte)) => *byte = 255,
            _ => bytes.extend(bytes.clone()),
        }
    }
    bytes
}

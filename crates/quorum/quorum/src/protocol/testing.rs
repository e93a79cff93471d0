//! Keys and groups for tests.

use std::net::SocketAddr;

use keys::IdentitySecretKey;
use random::RandomGenerator;
use rsa_arithmetic::fixture::small_key;

use super::ceremony::share_file::QuorumShareFile;
use super::group::{QuorumGroup, QuorumMember};
use crate::protocol::unix_seconds::UnixSeconds;

/// The identity key with a number.
pub(crate) fn identity(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

/// A group whose servers have the identities from `first` on.
pub(crate) fn group(faulty: u8, first: u8) -> QuorumGroup {
    let member = |i| QuorumMember {
        identity: identity(first + i).public(),
        address: SocketAddr::from(([127, 0, 0, 1], 5000 + u16::from(first + i))),
    };
    QuorumGroup::new((0..=3 * faulty).map(member).collect()).unwrap()
}

/// The files of a ceremony with a short key, for the group of the identities 1 to 4.
pub(crate) fn share_files() -> Vec<QuorumShareFile> {
    QuorumShareFile::deal(
        &small_key(),
        &group(1, 1),
        UnixSeconds(1_800_000_000),
        &mut RandomGenerator::seeded().unwrap(),
    )
    .unwrap()
}

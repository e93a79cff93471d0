//! Keys and groups for tests.

use std::net::SocketAddr;

use keys::SecretKey;
use sharing::Generator;

use super::ceremony::share_file::ShareFile;
use super::fixture::small_key;
use super::group::{Group, Member};

/// The identity key with a number.
pub(crate) fn identity(number: u8) -> SecretKey {
    SecretKey::new(&[number; 32])
}

/// A group whose servers have the identities `first` and following.
pub(crate) fn group(faulty: u8, first: u8) -> Group {
    let member = |i| Member {
        identity: identity(first + i).public(),
        address: SocketAddr::from(([127, 0, 0, 1], 5000 + u16::from(first + i))),
    };
    Group::new((0..=3 * faulty).map(member).collect()).unwrap()
}

/// The files of a ceremony with a short key, for the group of the identities 1 to 4.
pub(crate) fn share_files() -> Vec<ShareFile> {
    ShareFile::deal(&small_key(), &group(1, 1), &mut Generator::seeded().unwrap()).unwrap()
}

//! Keys and groups for tests.

use std::net::SocketAddr;

use keys::SecretKey;

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

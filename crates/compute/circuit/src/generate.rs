//! Generators of circuits.

mod aes;
mod edit_distance;
mod intersection;
mod millionaires;
mod minimum;
mod sha256;

pub use aes::{aes128, aes128_block};
pub use edit_distance::edit_distance;
pub use intersection::{intersection, shuffle, shuffle_bits};
pub use millionaires::millionaires;
pub use minimum::{min_cut, minimum};
pub use sha256::{sha256, sha256_block, sha256_message};

use crate::circuit::Circuit;

/// The names of [`named`].
pub const NAMES: [&str; 3] = ["aes128", "sha256", "mincut"];

/// A circuit by its name: [`aes128`], [`sha256`] with 32 bytes of each party, or [`min_cut`].
pub fn named(name: &str) -> Option<Circuit> {
    match name {
        "aes128" => Some(aes128()),
        "sha256" => Some(sha256(32)),
        "mincut" => Some(min_cut()),
        _ => None,
    }
}

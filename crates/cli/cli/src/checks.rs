//! Tests of this host that change nothing, and what they find: for `sunder doctor`, and for the
//! warnings of commands that keep running.

#[cfg(feature = "tunnel")]
pub(crate) mod closed;
pub(crate) mod files;
pub(crate) mod finding;
pub(crate) mod greeting;
pub(crate) mod host;
#[cfg(feature = "tunnel")]
pub(crate) mod inbound;
pub(crate) mod links;
pub(crate) mod listeners;
pub(crate) mod uplinks;

use std::fs;

/// The text of a file of the kernel's. Empty if it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

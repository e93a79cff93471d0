//! Configuration errors.

use thiserror::Error;

use crate::wire::datagram::MAX_CHANNELS;

/// Configuration errors.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The text is not TOML, or a key is missing, unknown or of the wrong type.
    #[error("{}", said(.0))]
    Toml(#[from] toml::de::Error),
    /// There are no channels, or too many.
    #[error("{found} channels: give 1 to {MAX_CHANNELS}")]
    Channels {
        /// Their number.
        found: usize,
    },
    /// The channels do not agree on which end this is.
    #[error(
        "channel {number} has {found}: give every channel `server` (at the end that connects) or every channel `listen` (at the other)"
    )]
    End {
        /// The channel, counted from 1.
        number: usize,
        /// Which keys it has.
        found: &'static str,
    },
    /// Keys that exclude each other.
    #[error("{0}")]
    Conflict(String),
    /// A number is out of its range.
    #[error("{key} = {found}: give {range}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        found: f64,
        /// The range.
        range: String,
    },
}

/// TOML's message on one line, without names of Rust types.
fn said(error: &toml::de::Error) -> String {
    let mut message = error.message().replace('\n', " ");
    if message.starts_with("unknown field") && message.contains("expected one of `server`") {
        message += "; settings of the whole tunnel stand above the first [[channel]]";
    }
    if message == "invalid type: map, expected a sequence" {
        return "write [[channel]], with two brackets".into();
    }
    let words =
        [("expected f64", "expected a number"), ("expected i64", "expected a whole number")];
    words.iter().fold(message, |message, (from, to)| message.replace(from, to))
}

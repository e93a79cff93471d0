//! Why a configuration is none.

use thiserror::Error;

use crate::wire::datagram::MAX_CHANNELS;

/// Why a configuration is none.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is not TOML, or lacks a key, or has one that is unknown or of the wrong type.
    #[error("{}", said(.0))]
    Toml(#[from] toml::de::Error),
    /// No channels, or too many.
    #[error("{found} channels: give 1 to {MAX_CHANNELS}")]
    Channels {
        /// How many there are.
        found: usize,
    },
    /// It is not clear which end this is.
    #[error(
        "channel {number} has {found}: give every channel `server` (at the end that connects) or every channel `listen` (at the other)"
    )]
    End {
        /// The channel, counted from 1.
        number: usize,
        /// What it has.
        found: &'static str,
    },
    /// Keys that do not go together.
    #[error("{0}")]
    Conflict(String),
    /// A number is out of its range.
    #[error("{key} = {found}: give {range}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        found: f64,
        /// What is possible.
        range: String,
    },
}

/// TOML's message in one line, and in words for people.
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

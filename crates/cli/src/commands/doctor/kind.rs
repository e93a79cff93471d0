//! Which command a configuration is for, and why that command refuses it.

use std::ops::Range;

use micss::config::{ClientConfig, ServerConfig};
use remicss::config::Config;

use super::{Kind, keys};
use crate::daemon::{At, Mistake};

/// Why a text is no configuration.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) clue: Clue,
}

/// What is known of the place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Clue {
    /// Its bytes. None at all mean the whole.
    Span(Range<usize>),
    /// A text in quotes.
    Text(String),
    /// A key.
    Key(String),
    /// Nothing.
    Whole,
}

impl Kind {
    /// The command whose keys a text has the most of. Nothing if it has none of any.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let likeness = |kind: &Self| keys::all(*kind).likeness(text);
        // Of equals the last: a text with nothing but channels is most likely a proxy's.
        let kinds = [Self::Tunnel, Self::Serve, Self::Proxy];
        kinds.into_iter().filter(|kind| likeness(kind) > 0).max_by_key(likeness)
    }

    /// Why the command refuses a text. Nothing if it takes it.
    pub(crate) fn refusal(self, text: &str) -> Option<Refusal> {
        match self {
            Self::Proxy => ClientConfig::from_toml(text).err().map(|error| Refusal::of(&error)),
            Self::Serve => ServerConfig::from_toml(text).err().map(|error| Refusal::of(&error)),
            Self::Tunnel => Config::from_toml(text).err().map(|error| Refusal::of(&error)),
        }
    }
}

impl Refusal {
    fn of(mistake: &impl Mistake) -> Self {
        let clue = match mistake.at() {
            At::Toml(error) => Clue::Span(error.span().unwrap_or_default()),
            At::Text(text) => Clue::Text(text.to_owned()),
            At::Key(key) | At::Number(key, _) | At::Last(key, _) => Clue::Key(key.to_owned()),
            At::Whole => Clue::Whole,
        };
        Self { message: mistake.to_string(), clue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_by_its_keys() {
        for (text, expected) in [
            (include_str!("../proxy.toml"), Some(Kind::Proxy)),
            (include_str!("../serve.toml"), Some(Kind::Serve)),
            (include_str!("../tunnel.toml"), Some(Kind::Tunnel)),
            (include_str!("../tunnel-server.toml"), Some(Kind::Tunnel)),
            ("[[channel]]\nserver = \"192.0.2.1:1\"\n", Some(Kind::Proxy)),
            ("[[channel]]\nserver = \"192.0.2.1:1\"\nrisk = 0.1\n", Some(Kind::Tunnel)),
            ("listen = []\n", Some(Kind::Serve)),
            // Misspelt keys are keys, and so are those of a text that is not quite TOML.
            ("alow = []\nlisen = []\n", Some(Kind::Serve)),
            ("kappa = \nmu = 2\n", Some(Kind::Tunnel)),
            ("", None),
            ("something = \"else\"\n", None),
        ] {
            assert_eq!(Kind::of(text), expected, "{text}");
        }
    }
}

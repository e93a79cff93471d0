//! The path to a value in a TOML document.

use std::fmt;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyPathStep {
    /// Into a table.
    Key(String),
    /// Into a list.
    Index(usize),
}

/// The path to a value in a document. It is empty for the document itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath(Vec<KeyPathStep>);

impl KeyPath {
    /// The path to the value of this key in a table.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        self.step(KeyPathStep::Key(name.to_owned()))
    }

    /// The path to the value at this index in a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.step(KeyPathStep::Index(index))
    }

    fn step(&self, step: KeyPathStep) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// Whether it is the path to the document itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last key.
    pub fn name(&self) -> &str {
        self.keys().last().unwrap_or_default()
    }

    /// The path of the table that contains the last key, as in `peer.channel`; empty for the
    /// outermost table.
    pub fn table(&self) -> String {
        let keys: Vec<&str> = self.keys().collect();
        keys.split_last().map(|(_, before)| before.join(".")).unwrap_or_default()
    }

    /// All keys, without indices, as in `peer.channel`.
    pub(super) fn dotted(&self) -> String {
        self.keys().collect::<Vec<_>>().join(".")
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|step| match step {
            KeyPathStep::Key(name) => Some(name.as_str()),
            KeyPathStep::Index(_) => None,
        })
    }
}

/// For the user, counted from 1: `channel 2, server`.
impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                KeyPathStep::Key(name) if place == 0 => f.write_str(name)?,
                KeyPathStep::Key(name) => write!(f, ", {name}")?,
                KeyPathStep::Index(index) => write!(f, " {}", index + 1)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_paths_are_displayed() {
        let size = KeyPath::default().key("channel").index(1).key("pool").key("size");
        assert_eq!(size.to_string(), "channel 2, pool, size");
        assert_eq!((size.name(), size.table()), ("size", "channel.pool".to_owned()));
        assert_eq!(KeyPath::default().key("list").index(1).name(), "list");
    }
}

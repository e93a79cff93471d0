//! The keys that a configuration may have, with an example of each.

use strsim::damerau_levenshtein;
use toml::de::{DeTable, DeValue};

use super::KeyPath;

/// A key of a configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigKey {
    /// The path of its table, as in `peer.channel`; empty for the outermost table.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// An example of a value, as TOML.
    pub example: &'static str,
}

/// A key of a table such as `peer.channel`; the outermost table has an empty name. `example` is a
/// value, as TOML.
pub const fn key(table: &'static str, name: &'static str, example: &'static str) -> ConfigKey {
    ConfigKey { table, name, example }
}

/// All keys of a configuration, in one list for each of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigKeys(pub &'static [&'static [ConfigKey]]);

impl ConfigKeys {
    /// All keys.
    pub fn iter(self) -> impl Iterator<Item = &'static ConfigKey> {
        self.0.iter().copied().flatten()
    }

    /// The key of this name in a table.
    pub fn find(self, table: &str, name: &str) -> Option<&'static ConfigKey> {
        self.iter().find(|key| key.table == table && key.name == name)
    }

    /// The key of this name in any table, the outermost first.
    pub fn find_in_any_table(self, name: &str) -> Option<&'static ConfigKey> {
        self.find("", name).or_else(|| self.iter().find(|key| key.name == name))
    }

    /// The key of a table that is most similar to a misspelt name, if one is similar.
    pub fn nearest(self, table: &str, name: &str) -> Option<&'static ConfigKey> {
        let distance = |key: &&ConfigKey| damerau_levenshtein(key.name, name);
        let is_near = |key: &&'static ConfigKey| {
            distance(key) <= 1 + name.len() / 5 && distance(key) < key.name.len()
        };
        self.of_table(table).filter(is_near).min_by_key(|key| distance(key))
    }

    /// The names of a table's keys.
    pub fn names(self, table: &str) -> Vec<&'static str> {
        self.of_table(table).map(|key| key.name).collect()
    }

    fn of_table(self, table: &str) -> impl Iterator<Item = &'static ConfigKey> {
        self.iter().filter(move |key| key.table == table)
    }

    /// How well the keys of a text fit a configuration with these keys: 4 for each known key, 1 for
    /// each misspelt one. The text may contain lines that are not TOML.
    pub fn match_score(self, text: &str) -> usize {
        let (document, _) = DeTable::parse_recoverable(text);
        self.likeness_of_table(document.get_ref(), &KeyPath::default())
    }

    fn likeness_of_table(self, table: &DeTable<'_>, path: &KeyPath) -> usize {
        let entries = table.iter().map(|(name, value)| {
            let own = match self.find(&path.dotted(), name.get_ref()) {
                Some(_) => 4,
                None => usize::from(self.nearest(&path.dotted(), name.get_ref()).is_some()),
            };
            own + self.likeness_of_value(value.get_ref(), &path.key(name.get_ref()))
        });
        entries.sum()
    }

    fn likeness_of_value(self, value: &DeValue<'_>, path: &KeyPath) -> usize {
        match value {
            DeValue::Table(table) => self.likeness_of_table(table, path),
            DeValue::Array(list) => {
                list.iter().map(|value| self.likeness_of_value(value.get_ref(), path)).sum()
            }
            _ => 0,
        }
    }

    /// The fix for a key that is unknown in its table.
    pub fn unknown_key_fix(self, table: &str, name: &str) -> String {
        if let Some(elsewhere) = self.find_in_any_table(name) {
            return if elsewhere.table.is_empty() {
                "put it above the first [[...]]: it is a setting of the whole".to_owned()
            } else {
                format!("put it below a {}", self.table_header(elsewhere.table))
            };
        }
        match self.nearest(table, name) {
            Some(meant) => format!("write `{}`", meant.name),
            None => format!("remove it; the keys here are {}", self.names(table).join(", ")),
        }
    }

    /// The header of a table: `[pool]`, or `[[channel]]` for a list of tables.
    pub fn table_header(self, table: &str) -> String {
        let (around, last) = table.rsplit_once('.').unwrap_or(("", table));
        let is_list = self.find(around, last).is_some_and(|key| key.example.starts_with("[{"));
        if is_list { format!("[[{table}]]") } else { format!("[{table}]") }
    }
}

impl ConfigKey {
    /// Its setting as it is written: `threshold = 2`, or the header of a table and what is below
    /// it.
    pub fn example_setting(&self) -> String {
        let Self { name, example, .. } = self;
        let within = |open, close| example.strip_prefix(open)?.strip_suffix(close);
        match (within("[{ ", " }]"), within("{ ", " }")) {
            (Some(inner), _) => format!("[[{name}]] with {inner}"),
            (None, Some(inner)) => format!("[{name}] with {inner}"),
            (None, None) => format!("{name} = {example}"),
        }
    }
}

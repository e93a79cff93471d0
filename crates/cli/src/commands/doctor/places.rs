//! Where things stand in a TOML document.

use std::fmt;
use std::ops::Range;

use toml::Value;
use toml::de::{DeTable, DeValue};

/// One step of the way to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a table.
    Key(String),
    /// Into a list.
    Index(usize),
}

/// The way to a value in a document. The document itself has none to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// On to what a table has under this name.
    pub(crate) fn key(&self, name: &str) -> Self {
        self.step(Step::Key(name.to_owned()))
    }

    /// On to what a list has at this place.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// The last step.
    pub(crate) fn last(&self) -> Option<&Step> {
        self.0.last()
    }

    /// All steps but the last. Nothing if there is none.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, before) = self.0.split_last()?;
        Some(Self(before.to_vec()))
    }

    /// Whether the other is on the way.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The last key.
    pub(crate) fn name(&self) -> &str {
        self.keys().last().unwrap_or_default()
    }

    /// The tables that the last key stands in, as in `peer.channel`; empty for the outermost.
    pub(crate) fn table(&self) -> String {
        let keys: Vec<&str> = self.keys().collect();
        keys.split_last().map(|(_, before)| before.join(".")).unwrap_or_default()
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|step| match step {
            Step::Key(name) => Some(name.as_str()),
            Step::Index(_) => None,
        })
    }

    /// What is there.
    pub(crate) fn of<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(document, |value, step| match step {
            Step::Key(name) => value.get(name),
            Step::Index(index) => value.get(*index),
        })
    }

    /// What is there, to be changed.
    pub(crate) fn of_mut<'a>(&self, document: &'a mut Value) -> Option<&'a mut Value> {
        self.0.iter().try_fold(document, |value, step| match step {
            Step::Key(name) => value.get_mut(name),
            Step::Index(index) => value.get_mut(*index),
        })
    }
}

/// As a person would say it: `channel 2, server`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(name) if place == 0 => f.write_str(name)?,
                Step::Key(name) => write!(f, ", {name}")?,
                Step::Index(index) => write!(f, " {}", index + 1)?,
            }
        }
        Ok(())
    }
}

/// The ways to all values that are like this, those inside before those around them.
pub(crate) fn find(document: &Value, is: impl Fn(&Path, &Value) -> bool) -> Vec<Path> {
    let mut found = Vec::new();
    collect(document, &Path::default(), &is, &mut found);
    found
}

fn collect(value: &Value, path: &Path, is: &impl Fn(&Path, &Value) -> bool, found: &mut Vec<Path>) {
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(name, value)| collect(value, &path.key(name), is, found));
        }
        Value::Array(list) => {
            let elements = list.iter().enumerate();
            elements.for_each(|(index, value)| collect(value, &path.index(index), is, found));
        }
        _ => {}
    }
    if is(path, value) {
        found.push(path.clone());
    }
}

/// The places of everything in a document's text, those of what is inside before those around it.
pub(crate) struct Places(Vec<Place>);

struct Place {
    path: Path,
    /// What is there, by bytes: in a list the same as the value.
    key: Range<usize>,
    value: Range<usize>,
    /// Counted from 1.
    line: usize,
}

impl Places {
    /// Those of a text, as far as it is TOML.
    pub(crate) fn of(text: &str) -> Self {
        let (document, _) = DeTable::parse_recoverable(text);
        let mut places = Self(Vec::new());
        places.add_table(document.get_ref(), &Path::default());
        let ends: Vec<usize> = text.match_indices('\n').map(|(end, _)| end).collect();
        for place in &mut places.0 {
            place.line = 1 + ends.partition_point(|end| *end < place.key.start);
        }
        places
    }

    fn add_table(&mut self, table: &DeTable<'_>, path: &Path) {
        for (key, value) in table {
            let path = path.key(key.get_ref());
            self.add_value(value.get_ref(), &path);
            self.0.push(Place { path, key: key.span(), value: value.span(), line: 0 });
        }
    }

    fn add_value(&mut self, value: &DeValue<'_>, path: &Path) {
        match value {
            DeValue::Table(table) => self.add_table(table, path),
            DeValue::Array(list) => {
                for (index, element) in list.iter().enumerate() {
                    let path = path.index(index);
                    self.add_value(element.get_ref(), &path);
                    let span = element.span();
                    self.0.push(Place { path, key: span.clone(), value: span, line: 0 });
                }
            }
            _ => {}
        }
    }

    /// What exactly these bytes are.
    pub(crate) fn at(&self, span: &Range<usize>) -> Option<&Path> {
        let is_there = |place: &&Place| place.key == *span || place.value == *span;
        self.0.iter().find(is_there).map(|place| &place.path)
    }

    /// The line of something, or of what it would be in. Nothing for the document itself.
    pub(crate) fn line(&self, path: &Path) -> Option<usize> {
        let known = self.0.iter().find(|place| place.path == *path);
        known.map(|place| place.line).or_else(|| self.line(&path.parent()?))
    }

    /// From here on, something has another last key.
    pub(crate) fn rename(&mut self, path: &Path, name: &str) {
        let depth = path.0.len() - 1;
        for place in self.0.iter_mut().filter(|place| place.path.is_within(path)) {
            place.path.0[depth] = Step::Key(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\nlist = [\n  \"x\",\n  \"y\",\n]\n\n[[channel]]\nserver = \"s\"\n\n\
                        [[channel]]\npool = { size = 2 }\n";

    fn path(text: &str) -> Path {
        text.split(' ').fold(Path::default(), |path, step| match step.parse() {
            Ok(index) => path.index(index),
            Err(_) => path.key(step),
        })
    }

    #[test]
    fn lines_are_those_of_the_text() {
        let places = Places::of(TEXT);
        for (way, line) in [
            ("a", 1),
            ("list", 2),
            ("list 1", 4),
            ("channel 0", 7),
            ("channel 0 server", 8),
            ("channel 1 pool size", 11),
            // What is not there is where it should be.
            ("channel 1 server", 10),
        ] {
            assert_eq!(places.line(&path(way)), Some(line), "{way}");
        }
        assert_eq!(places.line(&path("none")), None);
        let y = TEXT.find("\"y\"").unwrap();
        assert_eq!(places.at(&(y..y + 3)), Some(&path("list 1")));
        assert_eq!(places.at(&(0..1)), Some(&path("a")));
        assert_eq!(places.at(&(0..0)), None);
    }

    #[test]
    fn ways_lead_to_values_and_are_said() {
        let mut document = Value::Table(TEXT.parse().unwrap());
        let size = path("channel 1 pool size");
        assert_eq!(size.of(&document), Some(&Value::Integer(2)));
        assert_eq!(size.to_string(), "channel 2, pool, size");
        assert_eq!((size.name(), size.table()), ("size", "channel.pool".to_owned()));
        *size.of_mut(&mut document).unwrap() = Value::Boolean(true);
        let found = find(&document, |_, value| value.as_bool().is_some());
        assert_eq!(found, [size]);
        assert_eq!(path("list 1").name(), "list");
        assert_eq!(path("list 7").of(&document), None);
    }

    #[test]
    fn what_is_renamed_keeps_its_line() {
        let mut places = Places::of(TEXT);
        places.rename(&path("channel"), "channels");
        assert_eq!(places.line(&path("channels 0 server")), Some(8));
        assert_eq!(places.line(&path("channel 0 server")), None);
    }
}

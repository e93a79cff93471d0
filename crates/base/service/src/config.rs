//! Reads a configuration in TOML, and returns all its problems at once.
//!
//! A configuration lists the [`ConfigKeys`] that it may have, each with an example. [`read`] walks
//! the text's tables: a [`ConfigTable`] reports keys that are unknown or missing, a [`ConfigValue`]
//! reports a wrong type or range, and the caller reports settings that contradict each other. Each
//! error becomes a [`ConfigProblem`] with its place in the text and its fix, and reading continues.
//! Lines that are not TOML are reported too, and do not hide errors elsewhere.
//!
//! The spans come from the `toml` crate's parser. `toml::Spanned` in types that derive
//! `Deserialize` was considered: serde stops at the first error.
//!
//! ```
//! use sunder_service::config::{ConfigKeys, ConfigProblems, key, read};
//!
//! struct Echo {
//!     port: u16,
//!     greeting: Option<String>,
//! }
//!
//! const KEYS: ConfigKeys =
//!     ConfigKeys(&[&[key("", "port", "7"), key("", "greeting", "\"hello\"")]]);
//!
//! fn parse(text: &str) -> Result<Echo, ConfigProblems> {
//!     read(text, KEYS, |table| {
//!         let port = table.require("port").and_then(|port| port.integer_in(1..=65_535));
//!         let greeting = table.get("greeting").and_then(|greeting| greeting.text());
//!         Some(Echo { port: port?, greeting: greeting.map(str::to_owned) })
//!     })
//! }
//!
//! let echo = parse("port = 7").unwrap();
//! assert_eq!((echo.port, echo.greeting), (7, None));
//!
//! let text = "prot = 0\ngreeting = 1\n";
//! let problems = parse(text).err().unwrap();
//! let texts: Vec<String> = problems
//!     .iter()
//!     .map(|problem| {
//!         let line = problem.line(text).unwrap();
//!         format!("line {line}, {}: {} -> {}", problem.key, problem.what, problem.fix)
//!     })
//!     .collect();
//! assert_eq!(
//!     texts,
//!     [
//!         "line 1, prot: unknown key `prot` -> write `port`",
//!         "line 1, port: port = 0 -> give 1 to 65535",
//!         "line 2, greeting: invalid type: integer `1`, expected a string -> \
//!          write it as in: greeting = \"hello\"",
//!     ]
//! );
//! ```

mod file;
mod keys;
mod path;
mod syntax;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

pub use file::{ConfigFileError, read_file};
pub use keys::{ConfigKey, ConfigKeys, key};
pub use path::KeyPath;
pub use table::{ConfigTable, ConfigValue};

use table::ConfigReadContext;

/// One error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Its place in the text, in bytes. `None` if it is about the whole configuration.
    pub span: Option<Range<usize>>,
    /// The path of its key. Empty if it is about the whole configuration.
    pub key: KeyPath,
    /// The error.
    pub what: String,
    /// The fix.
    pub fix: String,
    /// Both in one line.
    summary: String,
    /// Whether the error is a key that is unknown in its table.
    is_unknown_key: bool,
}

impl ConfigProblem {
    /// A problem of the whole configuration.
    pub fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        let (what, fix) = (what.into(), fix.into());
        let summary = format!("{what}: {fix}");
        Self { span: None, key: KeyPath::default(), what, fix, summary, is_unknown_key: false }
    }

    /// The same problem at this place.
    pub(crate) fn at(self, span: Option<Range<usize>>, key: KeyPath) -> Self {
        Self { span, key, ..self }
    }

    /// The same problem with another summary.
    #[must_use]
    pub fn summarized(self, summary: impl Into<String>) -> Self {
        Self { summary: summary.into(), ..self }
    }

    /// Whether the error is a key that is unknown in its table.
    pub fn is_unknown_key(&self) -> bool {
        self.is_unknown_key
    }

    /// Its line in the text, counted from 1.
    pub fn line(&self, text: &str) -> Option<usize> {
        let start = self.span.as_ref()?.start;
        Some(1 + text.get(..start).unwrap_or(text).matches('\n').count())
    }

    /// One line for the user, without the file's name: the place and the summary.
    pub fn in_one_line(&self, text: &str) -> String {
        let Some(number) = self.line(text) else { return format!(": {self}") };
        let line = text.lines().nth(number - 1).unwrap_or_default();
        let key = line.split_once('=').map(|(key, _)| key.trim());
        let key = key.filter(|key| !has_word(&self.summary, key));
        let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
        format!(", line {number}: {key}{self}")
    }
}

/// Whether a text has this word.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

/// The summary: the error and its fix, without the place.
impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

/// All errors in a configuration, in the order of the text; those about the whole come last. There
/// is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblems(Vec<ConfigProblem>);

impl ConfigProblems {
    /// The first problem.
    pub fn first(&self) -> &ConfigProblem {
        &self.0[0]
    }

    /// All problems.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigProblem> {
        self.0.iter()
    }
}

impl IntoIterator for ConfigProblems {
    type Item = ConfigProblem;
    type IntoIter = std::vec::IntoIter<ConfigProblem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ConfigProblems {
    type Item = &'a ConfigProblem;
    type IntoIter = std::slice::Iter<'a, ConfigProblem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// The error of a reader of TOML, which stops at the first problem.
impl From<toml::de::Error> for ConfigProblems {
    fn from(error: toml::de::Error) -> Self {
        let what = error.message().replace('\n', " ");
        let problem =
            ConfigProblem::new(&what, "begin with the command's example").summarized(&what);
        Self(vec![problem.at(error.span(), KeyPath::default())])
    }
}

/// The first problem.
impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first().fmt(f)
    }
}

impl std::error::Error for ConfigProblems {}

/// Reads a configuration with these keys. `read` may return `None` only if it has reported a
/// problem.
///
/// # Errors
/// When there are problems.
pub fn read<T>(
    text: &str,
    keys: ConfigKeys,
    read: impl FnOnce(&ConfigTable<'_>) -> Option<T>,
) -> Result<T, ConfigProblems> {
    read_all(text, keys, true, read)
}

/// The same for a part of a configuration: unknown keys of the outermost table belong to other
/// parts, and are not reported.
///
/// # Errors
/// When there are problems.
pub fn read_part<T>(
    text: &str,
    keys: ConfigKeys,
    read: impl FnOnce(&ConfigTable<'_>) -> Option<T>,
) -> Result<T, ConfigProblems> {
    read_all(text, keys, false, read)
}

fn read_all<T>(
    text: &str,
    keys: ConfigKeys,
    is_whole: bool,
    read: impl FnOnce(&ConfigTable<'_>) -> Option<T>,
) -> Result<T, ConfigProblems> {
    let (mut problems, rest) = syntax::check(text, keys);
    let mut config = None;
    if let Some(rest) = rest
        && let Ok(document) = toml::de::DeTable::parse(&rest.text)
    {
        let context = ConfigReadContext::new(keys, rest.malformed_keys);
        config = read(&ConfigTable::outermost(&context, document.get_ref(), is_whole));
        problems.extend(context.into_problems());
    }
    match config {
        Some(config) if problems.is_empty() => return Ok(config),
        None if problems.is_empty() => {
            problems
                .push(ConfigProblem::new("it cannot be read", "begin with the command's example"));
        }
        _ => {}
    }
    problems.sort_by_key(|problem| problem.span.as_ref().map_or(usize::MAX, |span| span.start));
    Err(ConfigProblems(problems))
}

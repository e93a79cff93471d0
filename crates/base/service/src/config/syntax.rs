//! Lines of a configuration that are not TOML.

use std::collections::BTreeMap;

use toml::de::{DeTable, Error};

use super::{ConfigKeys, ConfigProblem, KeyPath};

/// A text whose lines that are not TOML are blank.
pub(super) struct BlankedToml {
    pub(super) text: String,
    /// The keys in these lines.
    pub(super) malformed_keys: Vec<String>,
}

/// The problems of lines that are not TOML; and the rest of the text, if it can be read without
/// them.
pub(super) fn check(text: &str, keys: ConfigKeys) -> (Vec<ConfigProblem>, Option<BlankedToml>) {
    let (_, errors) = DeTable::parse_recoverable(text);
    let lines: Vec<&str> = text.lines().collect();
    // Further errors in a line are consequences of its first one.
    let mut wrong: BTreeMap<usize, &Error> = BTreeMap::new();
    for error in &errors {
        let start = error.span().unwrap_or_default().start;
        let line = text.get(..start).unwrap_or(text).matches('\n').count();
        wrong.entry(line.min(lines.len().saturating_sub(1))).or_insert(error);
    }
    let (mut problems, mut lost, mut rest) = (Vec::new(), Vec::new(), String::new());
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match wrong.get(&number) {
            Some(error) => {
                let key = key_in(line);
                let span = start..start + line.trim_end().len();
                let path =
                    if key.is_empty() { KeyPath::default() } else { KeyPath::default().key(key) };
                problems.push(problem(error, line, key, keys).at(Some(span), path));
                lost.push(key.to_owned());
                // Spans in the rest are the same as in the text.
                rest.extend(line.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
            }
            None => rest.push_str(line),
        }
        start += line.len();
    }
    // After an invalid header, the table of a line is unknown.
    let has_lost_head = lost.iter().any(|key| key.starts_with('['));
    let is_rest = !has_lost_head && DeTable::parse(&rest).is_ok();
    (problems, is_rest.then_some(BlankedToml { text: rest, malformed_keys: lost }))
}

/// The key of a line, or the beginning of the line in its place.
fn key_in(line: &str) -> &str {
    line.split_once('=').map_or(line, |(key, _)| key).trim()
}

fn problem(error: &Error, line: &str, key: &str, keys: ConfigKeys) -> ConfigProblem {
    let message = error.message().replace('\n', " ");
    let known = keys.find_in_any_table(key);
    if let Some(value) = unquoted_value(line) {
        let fix = match known {
            Some(key) if !key.example.starts_with('"') => {
                format!("write it as in: {}", key.example_setting())
            }
            _ => format!("write {key} = \"{value}\""),
        };
        return ConfigProblem::new(format!("{value} is not in quotes"), fix);
    }
    let fix = match known {
        _ if message.starts_with("duplicate key") => "leave one of them".to_owned(),
        Some(key) => format!("write it as in: {}", key.example_setting()),
        None => "write KEY = VALUE, with texts in \"quotes\" and lists in [brackets]".to_owned(),
    };
    ConfigProblem::new(message, fix)
}

/// The value of a line, if it is a text without the quotes that it needs.
fn unquoted_value(line: &str) -> Option<&str> {
    let value = line.split_once('=')?.1.split(" #").next()?.trim();
    let is_text = value.contains(|c: char| c.is_alphabetic() || ".:/~".contains(c));
    let is_one_word = !value.contains(|c: char| c.is_whitespace() || "\"'[]{}".contains(c));
    let is_toml = DeTable::parse(&format!("key = {value}")).is_ok();
    (is_text && is_one_word && !is_toml).then_some(value)
}

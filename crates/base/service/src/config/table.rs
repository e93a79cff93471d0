//! Tables and values of a configuration; they report their errors.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use serde::de::Unexpected;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigKeys, ConfigProblem, KeyPath};

/// What all tables and values of one configuration share.
pub(super) struct ConfigReadContext {
    keys: ConfigKeys,
    /// The keys in lines that are not TOML.
    malformed_keys: Vec<String>,
    problems: RefCell<Vec<ConfigProblem>>,
}

impl ConfigReadContext {
    pub(super) fn new(keys: ConfigKeys, malformed_keys: Vec<String>) -> Self {
        Self { keys, malformed_keys, problems: RefCell::default() }
    }

    pub(super) fn into_problems(self) -> Vec<ConfigProblem> {
        self.problems.into_inner()
    }

    /// Reports a problem, unless it is known: a value may be read several times.
    fn report(&self, problem: ConfigProblem) {
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    fn is_malformed(&self, name: &str) -> bool {
        self.malformed_keys.iter().any(|lost| lost == name)
    }
}

/// A table. Its unknown keys are reported when it is created; a misspelt key is read as the key
/// that was probably meant.
pub struct ConfigTable<'a> {
    context: &'a ConfigReadContext,
    path: KeyPath,
    /// `None` for the outermost table.
    span: Option<Range<usize>>,
    values: Vec<(&'static str, ConfigValue<'a>)>,
}

impl<'a> ConfigTable<'a> {
    /// The document itself. `is_whole` tells whether to report its unknown keys.
    pub(super) fn outermost(
        context: &'a ConfigReadContext,
        document: &'a DeTable<'a>,
        is_whole: bool,
    ) -> Self {
        Self::new(context, KeyPath::default(), None, document, is_whole)
    }

    fn new(
        context: &'a ConfigReadContext,
        path: KeyPath,
        span: Option<Range<usize>>,
        table: &'a DeTable<'a>,
        is_whole: bool,
    ) -> Self {
        let (keys, name) = (context.keys, path.dotted());
        let mut values: Vec<(&'static str, ConfigValue<'a>)> = Vec::new();
        let mut unknown = Vec::new();
        for (key, value) in table {
            let key_span = key.span();
            let span = key_span.start..key_span.end.max(value.span().end);
            let value =
                |name: &str| ConfigValue { context, path: path.key(name), span, content: value };
            match keys.find(&name, key.get_ref()) {
                Some(known) => values.push((known.name, value(known.name))),
                None => unknown.push((key.get_ref(), value(key.get_ref()))),
            }
        }
        for (found, value) in unknown.into_iter().filter(|_| is_whole) {
            value.context.report(
                unknown_key(keys, &name, found).at(Some(value.span.clone()), value.path.clone()),
            );
            let meant = match keys.find_in_any_table(found) {
                Some(_) => None,
                None => keys.nearest(&name, found).map(|key| key.name),
            };
            if let Some(meant) = meant.filter(|meant| values.iter().all(|(name, _)| name != meant))
            {
                values.push((meant, ConfigValue { path: path.key(meant), ..value }));
            }
        }
        Self { context, path, span, values }
    }

    /// The value of a key, if it has one.
    pub fn get(&self, name: &str) -> Option<ConfigValue<'a>> {
        debug_assert!(
            self.context.keys.find(&self.path.dotted(), name).is_some(),
            "{}: {name} is not among the keys",
            self.path
        );
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    /// The value of a required key. Reports a missing one.
    pub fn require(&self, name: &str) -> Option<ConfigValue<'a>> {
        let value = self.get(name);
        if value.is_none() && !self.context.is_malformed(name) {
            let key = self.context.keys.find(&self.path.dotted(), name);
            let fix = key.map(|key| format!("add {}", key.example_setting())).unwrap_or_default();
            let problem = ConfigProblem::new(format!("`{name}` is missing"), fix);
            self.report(problem.summarized(format!("missing field `{name}`")));
        }
        value
    }

    /// Whether a key has a value, or is in a line that is not TOML.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some() || self.context.is_malformed(name)
    }

    /// The number of values in a list; 0 if there is none.
    pub fn count(&self, name: &str) -> usize {
        self.get(name).and_then(|list| list.count()).unwrap_or_default()
    }

    /// The tables of a list that may be missing: `[[name]]`.
    pub fn tables(&self, name: &str) -> Vec<Self> {
        let values = self.get(name).and_then(|list| list.list()).unwrap_or_default();
        values.iter().filter_map(ConfigValue::table).collect()
    }

    /// The meaning of a key's value among these choices; the default if it has none of them. See
    /// [`ConfigValue::choice`].
    pub fn choice<T: Copy + Default>(&self, name: &str, choices: &[(&str, T)]) -> T {
        self.get(name).and_then(|value| value.choice(choices)).unwrap_or_default()
    }

    /// Reports an error of the table and its fix.
    pub fn refuse(&self, what: impl Into<String>, fix: impl Into<String>) {
        self.report(ConfigProblem::new(what, fix));
    }

    /// Reports a problem of the table.
    pub fn report(&self, problem: ConfigProblem) {
        self.context.report(problem.at(self.span.clone(), self.path.clone()));
    }

    /// Reports a problem of one of its keys, which may be missing.
    pub fn report_key(&self, name: &str, problem: ConfigProblem) {
        match self.get(name) {
            Some(value) => value.report(problem),
            None => self.context.report(problem.at(self.span.clone(), self.path.key(name))),
        }
    }
}

fn unknown_key(keys: ConfigKeys, table: &str, name: &str) -> ConfigProblem {
    let names: Vec<String> = keys.names(table).iter().map(|name| format!("`{name}`")).collect();
    let expected = match &names[..] {
        [] => "there are no fields".to_owned(),
        [one] => format!("expected {one}"),
        [one, other] => format!("expected {one} or {other}"),
        _ => format!("expected one of {}", names.join(", ")),
    };
    let mut summary = format!("unknown field `{name}`, {expected}");
    if !table.is_empty() && keys.find("", name).is_some() {
        summary += "; settings of the whole stand above the first ";
        summary += &keys.table_header(table);
    }
    let problem =
        ConfigProblem::new(format!("unknown key `{name}`"), keys.unknown_key_fix(table, name));
    ConfigProblem { is_unknown_key: true, ..problem.summarized(summary) }
}

/// A value: of a key, or in a list.
#[derive(Clone)]
pub struct ConfigValue<'a> {
    context: &'a ConfigReadContext,
    path: KeyPath,
    span: Range<usize>,
    content: &'a Spanned<DeValue<'a>>,
}

impl<'a> ConfigValue<'a> {
    /// Its path.
    pub fn path(&self) -> &KeyPath {
        &self.path
    }

    /// A text.
    pub fn text(&self) -> Option<&'a str> {
        match self.content.get_ref() {
            DeValue::String(text) => Some(text),
            _ => self.mistyped("a string"),
        }
    }

    /// A text, parsed. If that fails, reports the parser's error.
    pub fn parsed<T: FromStr<Err: Display>>(&self) -> Option<T> {
        let parsed = self.text()?.parse::<T>();
        parsed.map_err(|error| self.report(self.like_example(error.to_string()))).ok()
    }

    /// A text, parsed. If that fails, reports it with this fix.
    pub fn parsed_or<T: FromStr>(&self, fix: &str) -> Option<T> {
        let text = self.text()?;
        text.parse().map_err(|_| self.refuse(format!("\"{text}\""), fix)).ok()
    }

    /// True or false.
    pub fn flag(&self) -> Option<bool> {
        match self.content.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.mistyped("a boolean"),
        }
    }

    /// One of these texts, each with its meaning.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        if chosen.is_none() {
            let names = |quote: char| -> Vec<String> {
                choices.iter().map(|(name, _)| format!("{quote}{name}{quote}")).collect()
            };
            let fix = format!("write one of {}", any_of(&names('"')));
            let problem = ConfigProblem::new(format!("unknown value `{text}`"), fix);
            let expected = any_of(&names('`'));
            self.report(
                problem.summarized(format!("unknown variant `{text}`, expected {expected}")),
            );
        }
        chosen
    }

    /// A whole number in this range.
    pub fn integer_in<T: TryFrom<i64>>(&self, range: RangeInclusive<i64>) -> Option<T> {
        let range_text = format!("{} to {}", range.start(), range.end());
        self.integer_in_explained(range, &range_text)
    }

    /// A whole number in this range, which is explained to the user like this.
    pub fn integer_in_explained<T: TryFrom<i64>>(
        &self,
        range: RangeInclusive<i64>,
        explained: &str,
    ) -> Option<T> {
        let DeValue::Integer(found) = self.content.get_ref() else {
            return self.mistyped("a whole number");
        };
        let number = i64::from_str_radix(found.as_str(), found.radix()).ok();
        let number = number.filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            self.out_of_range(found, explained);
        }
        number
    }

    /// A number, whole or not.
    pub fn number(&self) -> Option<f64> {
        match self.content.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Integer(number) => {
                #[expect(clippy::cast_precision_loss, reason = "as serde reads it")]
                let float = |number| number as f64;
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(float)
            }
            _ => self.mistyped("a number"),
        }
    }

    /// The values of a list.
    pub fn list(&self) -> Option<Vec<Self>> {
        let DeValue::Array(list) = self.content.get_ref() else {
            if self.content.get_ref().is_table() {
                let name = self.path.name();
                let problem = self.like_example("invalid type: map, expected a list".into());
                let summary = format!("write [[{name}]], with two brackets");
                self.report(problem.summarized(summary));
                return None;
            }
            let key = self.context.keys.find(&self.path.table(), self.path.name());
            let example = key.map_or("[...]", |key| key.example);
            let summary = format!("give a list, as in {example}");
            self.report(self.of_type("a list").summarized(summary));
            return None;
        };
        let element = |(index, value): (usize, &'a Spanned<DeValue<'a>>)| Self {
            context: self.context,
            path: self.path.index(index),
            span: value.span(),
            content: value,
        };
        Some(list.iter().enumerate().map(element).collect())
    }

    /// The number of values in a list. `None` if it is not a list, which [`ConfigValue::list`]
    /// reports.
    pub fn count(&self) -> Option<usize> {
        self.content.get_ref().as_array().map(|list| list.len())
    }

    /// A table.
    pub fn table(&self) -> Option<ConfigTable<'a>> {
        let DeValue::Table(table) = self.content.get_ref() else {
            return self.mistyped("a table");
        };
        let span = Some(self.span.clone());
        Some(ConfigTable::new(self.context, self.path.clone(), span, table, true))
    }

    /// Reports a number that is out of its range, with the range as the user reads it.
    pub fn out_of_range(&self, found: impl Display, range: &str) {
        self.refuse(format!("{} = {found}", self.path.name()), format!("give {range}"));
    }

    /// Reports an error of the value and its fix.
    pub fn refuse(&self, what: impl Into<String>, fix: impl Into<String>) {
        self.report(ConfigProblem::new(what, fix));
    }

    /// Reports a problem of it.
    pub fn report(&self, problem: ConfigProblem) {
        self.context.report(problem.at(Some(self.span.clone()), self.path.clone()));
    }

    /// A problem whose fix is the key's example.
    fn like_example(&self, what: String) -> ConfigProblem {
        let key = self.context.keys.find(&self.path.table(), self.path.name());
        let example = key.map(|key| format!("write it as in: {}", key.example_setting()));
        let fix = example.unwrap_or_else(|| "write what the command's example has".into());
        ConfigProblem::new(what, fix)
    }

    /// Reports that the value has another type than required.
    fn mistyped<T>(&self, expected: &str) -> Option<T> {
        self.report(self.of_type(expected));
        None
    }

    /// The problem of a value that has another type than required.
    fn of_type(&self, expected: &str) -> ConfigProblem {
        let found = match self.content.get_ref() {
            DeValue::String(text) => Unexpected::Str(text),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Unexpected::Signed(number),
                    Err(_) => Unexpected::Other("a large integer"),
                }
            }
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Unexpected::Float(number),
                Err(_) => Unexpected::Other("a floating point number"),
            },
            DeValue::Boolean(flag) => Unexpected::Bool(*flag),
            DeValue::Datetime(_) => Unexpected::Other("a date"),
            DeValue::Array(_) => Unexpected::Seq,
            DeValue::Table(_) => Unexpected::Map,
        };
        self.like_example(format!("invalid type: {found}, expected {expected}"))
    }
}

/// `a`, or `a or b`, or `one of a, b, c`, without the first words.
fn any_of(names: &[String]) -> String {
    match names {
        [one, other] => format!("{one} or {other}"),
        _ => names.join(", "),
    }
}

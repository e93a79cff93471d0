//! The swept keys, and every combination of their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::{Table, Value};

use super::range::SweepRange;
use crate::experiment::error::ExperimentProblem;
use crate::experiment::value::{display, is_same, number, text};

/// The swept keys.
#[derive(Debug)]
pub(crate) struct SweptKeys(Vec<SweptKey>);

/// A swept key and its values.
#[derive(Debug)]
struct SweptKey {
    name: String,
    values: SweptKeyValues,
}

/// The values of a key: a list or a range.
#[derive(Debug)]
enum SweptKeyValues {
    Each(Vec<SweptKeyChoice>),
    Range(SweepRange),
}

/// A value of a key, and other keys that it sets.
#[derive(Clone, Debug)]
struct SweptKeyChoice {
    value: Value,
    sets: Arc<Table>,
}

/// A value for each swept key.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepCombination {
    /// The values of the swept keys, in their order.
    pub(crate) swept: Table,
    /// The keys that those values set. Each table comes with its own key in the file.
    pub(crate) sets: Vec<(String, Arc<Table>)>,
}

/// Names of other placeholders.
const RESERVED_NAMES: [&str; 2] = ["files", "sunder"];

impl SweptKeys {
    /// Parses the table under `[sweep]`.
    pub(crate) fn new(table: &Table) -> Result<Self, ExperimentProblem> {
        let keys = table.iter().map(|(name, values)| SweptKey::new(name, values));
        let sweep = Self(keys.collect::<Result<_, _>>()?);
        sweep.check_names()?;
        Ok(sweep)
    }

    /// The names of the keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.iter().map(|key| key.name.clone()).collect()
    }

    /// All combinations, with the last key varying fastest. More than `most` are an error.
    pub(crate) fn combinations(
        &self,
        most: usize,
    ) -> Result<Vec<SweepCombination>, ExperimentProblem> {
        let mut combinations = vec![SweepCombination::default()];
        for key in &self.0 {
            let mut longer = Vec::new();
            for combination in combinations {
                let choices = key.choices(&combination)?;
                longer.extend(
                    choices.iter().map(|choice| combination.clone().with(&key.name, choice)),
                );
                if longer.len() > most {
                    let what = format!(
                        "has more combinations than the {most} for which there is time at so many \
                         repetitions; leave some out"
                    );
                    return Err(ExperimentProblem::new("sweep", what));
                }
            }
            combinations = longer;
        }
        if combinations.is_empty() {
            return Err(ExperimentProblem::new(
                "sweep",
                "has no combination; let a range begin before its end",
            ));
        }
        Ok(combinations)
    }

    /// Checks that the keys of `only` are swept and have the values; `at` is the key for errors.
    pub(crate) fn check(
        &self,
        at: &str,
        only: &BTreeMap<String, Vec<Value>>,
    ) -> Result<(), ExperimentProblem> {
        for (name, values) in only {
            let at = format!("{at}.{name}");
            let key = self.check_key(&at, name)?;
            values.iter().try_for_each(|value| key.check(&at, value))?;
        }
        Ok(())
    }

    /// Checks that `name` is swept; `at` is the key for errors.
    pub(crate) fn check_swept(&self, at: &str, name: &str) -> Result<(), ExperimentProblem> {
        self.check_key(at, name).map(|_| ())
    }

    fn check_key(&self, at: &str, name: &str) -> Result<&SweptKey, ExperimentProblem> {
        let key = self.0.iter().find(|key| key.name == name);
        key.ok_or_else(|| {
            let keys = if self.0.is_empty() { "none".into() } else { self.keys().join(", ") };
            ExperimentProblem::new(at, format!("there is no swept key {name}; there is {keys}"))
        })
    }

    /// Checks that no name has two meanings.
    fn check_names(&self) -> Result<(), ExperimentProblem> {
        let mut set_by: BTreeMap<&str, &str> = BTreeMap::new();
        for key in &self.0 {
            let at = format!("sweep.{}", key.name);
            check_name(&at, &key.name)?;
            for name in key.sets() {
                check_name(&at, name)?;
                let setter = *set_by.entry(name).or_insert(&key.name);
                if setter != key.name || self.0.iter().any(|key| key.name == *name) {
                    let what =
                        format!("sets {name}, which is swept or set already; give it another name");
                    return Err(ExperimentProblem::new(at, what));
                }
            }
        }
        Ok(())
    }
}

impl SweptKey {
    fn new(name: &str, values: &Value) -> Result<Self, ExperimentProblem> {
        let at = format!("sweep.{name}");
        if let Value::Table(table) = values
            && let Some(range) = SweepRange::read(&at, table)
        {
            return Ok(Self { name: name.to_owned(), values: SweptKeyValues::Range(range?) });
        }
        let values = match values {
            Value::Array(values) => {
                values.iter().map(|value| SweptKeyChoice::plain(&at, value)).collect()
            }
            Value::Table(values) => {
                values.iter().map(|(value, sets)| SweptKeyChoice::named(&at, value, sets)).collect()
            }
            _ => Err(ExperimentProblem::new(
                &at,
                "must be a list of values or a table of named ones; write [..]",
            )),
        };
        let values: Vec<SweptKeyChoice> = values?;
        if values.is_empty() {
            return Err(ExperimentProblem::new(at, "has no values; give one at least"));
        }
        for (i, choice) in values.iter().enumerate() {
            if values[..i].iter().any(|other| is_same(&other.value, &choice.value)) {
                let what = format!("has {} twice; leave one out", display(&choice.value));
                return Err(ExperimentProblem::new(at, what));
            }
        }
        Ok(Self { name: name.to_owned(), values: SweptKeyValues::Each(values) })
    }

    /// Its values for the given values of earlier keys.
    fn choices(
        &self,
        combination: &SweepCombination,
    ) -> Result<Vec<SweptKeyChoice>, ExperimentProblem> {
        match &self.values {
            SweptKeyValues::Each(choices) => Ok(choices.clone()),
            SweptKeyValues::Range(range) => {
                let values = range.values(&format!("sweep.{}", self.name), &combination.swept)?;
                let choice = |value| SweptKeyChoice { value, sets: Arc::default() };
                Ok(values.into_iter().map(choice).collect())
            }
        }
    }

    /// The names of the keys that its values set.
    fn sets(&self) -> impl Iterator<Item = &String> {
        let choices = match &self.values {
            SweptKeyValues::Each(choices) => &choices[..],
            SweptKeyValues::Range(_) => &[],
        };
        choices.iter().flat_map(|choice| choice.sets.keys())
    }

    /// Checks that the value is one of its values.
    fn check(&self, at: &str, value: &Value) -> Result<(), ExperimentProblem> {
        let SweptKeyValues::Each(choices) = &self.values else {
            let what =
                format!("{} goes in steps; name a key whose values are written down", self.name);
            return Err(ExperimentProblem::new(at, what));
        };
        if choices.iter().any(|choice| is_same(&choice.value, value)) {
            return Ok(());
        }
        let values: Vec<String> = choices.iter().map(|choice| display(&choice.value)).collect();
        let what =
            format!("{} is not swept; {} is {}", display(value), self.name, values.join(", "));
        Err(ExperimentProblem::new(at, what))
    }
}

impl SweptKeyChoice {
    fn plain(at: &str, value: &Value) -> Result<Self, ExperimentProblem> {
        if text(value).is_none() {
            let what = format!(
                "{value} is neither text, nor a finite number, nor true or false; write a table of named \
                 values for more"
            );
            return Err(ExperimentProblem::new(at, what));
        }
        Ok(Self { value: value.clone(), sets: Arc::default() })
    }

    fn named(at: &str, name: &str, sets: &Value) -> Result<Self, ExperimentProblem> {
        let Value::Table(sets) = sets else {
            let what = format!("must be a table of what it sets; write {name} = {{ KEY = VALUE }}");
            return Err(ExperimentProblem::new(format!("{at}.{name}"), what));
        };
        Ok(Self { value: Value::String(name.to_owned()), sets: Arc::new(sets.clone()) })
    }
}

impl SweepCombination {
    fn with(mut self, name: &str, choice: &SweptKeyChoice) -> Self {
        self.swept.insert(name.to_owned(), choice.value.clone());
        self.sets.push((format!("sweep.{name}.{}", display(&choice.value)), choice.sets.clone()));
        self
    }

    /// The value of a swept or set key.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.swept.get(key).or_else(|| self.sets.iter().find_map(|(_, sets)| sets.get(key)))
    }

    /// The value of a swept or set key, if it is a number.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.value(key).and_then(number)
    }

    /// Whether each key in `only` has one of its listed values.
    pub(crate) fn is_among(&self, only: &BTreeMap<String, Vec<Value>>) -> bool {
        only.iter().all(|(key, values)| {
            let value = self.swept.get(key);
            value.is_some_and(|value| values.iter().any(|one| is_same(one, value)))
        })
    }

    /// The swept keys and their values, for messages.
    pub(crate) fn describe(&self) -> String {
        let each = self.swept.iter().map(|(key, value)| format!("{key} = {}", display(value)));
        each.collect::<Vec<String>>().join(", ")
    }
}

/// Checks that the name can be a placeholder.
fn check_name(at: &str, name: &str) -> Result<(), ExperimentProblem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        let what = format!("\"{name}\" cannot be a placeholder; use only letters, digits, - and _");
        return Err(ExperimentProblem::new(at, what));
    }
    if RESERVED_NAMES.contains(&name) {
        let what = format!("{{{name}}} stands for something else; give it another name");
        return Err(ExperimentProblem::new(at, what));
    }
    Ok(())
}

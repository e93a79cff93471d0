//! Creates a trial from an experiment's file by replacing the placeholders.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;
use std::sync::Arc;

use toml::{Table, Value};

use super::check;
use super::sites;
use super::sweep::{SweepCombination, SweptKeys};
use super::{ExperimentFile, read};
use crate::experiment::error::ExperimentProblem;
use crate::experiment::value::text;
use crate::sandbox;
use crate::site::ExperimentSites;
use crate::trial::{ProgramPlan, Trial, address};

/// A trial created from the file.
pub(crate) struct FilledTemplate {
    pub(crate) trial: Trial,
    /// The combination of the trial, with the placeholders in the set keys replaced.
    pub(crate) combination: SweepCombination,
    /// The indices of the file's programs that the trial starts.
    pub(crate) programs: Vec<usize>,
}

/// Creates and checks the trial for a combination.
pub(crate) fn trial(
    file: &ExperimentFile,
    sweep: &SweptKeys,
    mut combination: SweepCombination,
    sites: Option<&ExperimentSites>,
) -> Result<FilledTemplate, ExperimentProblem> {
    let mut scope = PlaceholderValues::new(&combination.swept, file, sites)?;
    for (key, sets) in &mut combination.sets {
        let filled = scope.fill_table(key, sets)?;
        scope.values.extend(filled.clone());
        *sets = Arc::new(filled);
    }

    let sections = [
        ("hosts", &file.hosts),
        ("links", &file.links),
        ("files", &file.files),
        ("zeros", &file.zeros),
        ("measure", &file.measure),
    ];
    let template = sections.map(|(key, section)| (key.to_owned(), Value::Table(section.clone())));
    let filled = scope.fill_table("", &Table::from_iter(template))?;
    let mut trial: Trial = read("", Value::Table(filled))?;
    check::trial(&trial)?;
    if let Some(sites) = sites {
        sites::check(&trial, sites)?;
    }
    let mut programs = Vec::new();
    for (i, template) in file.programs.iter().enumerate() {
        let key = format!("programs[{i}]");
        if is_for(&key, template, sweep, &combination)? {
            let plan: ProgramPlan = read(&key, scope.fill(&key, template)?)?;
            check::program(&key, &plan, &trial.hosts)?;
            trial.programs.push(plan);
            programs.push(i);
        }
    }
    Ok(FilledTemplate { trial, combination, programs })
}

/// Whether a program runs for this combination.
fn is_for(
    key: &str,
    program: &Value,
    sweep: &SweptKeys,
    combination: &SweepCombination,
) -> Result<bool, ExperimentProblem> {
    let Some(only) = program.get("only") else { return Ok(true) };
    let key = format!("{key}.only");
    let only: BTreeMap<String, Vec<Value>> = read(&key, only.clone())?;
    sweep.check(&key, &only)?;
    Ok(combination.is_among(&only))
}

/// The values of placeholders.
struct PlaceholderValues {
    /// The values by name.
    values: BTreeMap<String, Value>,
}

/// A part of a text with placeholders.
enum TemplatePiece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl PlaceholderValues {
    /// The values that are known before any placeholder is replaced.
    fn new(
        swept: &Table,
        file: &ExperimentFile,
        sites: Option<&ExperimentSites>,
    ) -> Result<Self, ExperimentProblem> {
        let mut values: BTreeMap<String, Value> = swept.clone().into_iter().collect();
        values.extend(addresses(file, sites)?);
        values.insert("files".into(), path(&sandbox::trial_files()));
        let sunder = match sites {
            Some(_) => sandbox::program_link(),
            None => env::current_exe().unwrap_or_else(|_| "sunder".into()),
        };
        values.insert("sunder".into(), path(&sunder));
        Ok(Self { values })
    }

    fn fill_table(&self, key: &str, table: &Table) -> Result<Table, ExperimentProblem> {
        let filled = table.iter().map(|(name, value)| {
            let at = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            let value = self.fill(&at, value)?;
            let value = if is_text(&at) { numbers_as_text(value) } else { value };
            Ok((name.clone(), value))
        });
        filled.collect()
    }

    /// The value with all placeholders replaced.
    fn fill(&self, key: &str, value: &Value) -> Result<Value, ExperimentProblem> {
        match value {
            Value::String(text) => {
                self.fill_text(text).map_err(|what| ExperimentProblem::new(key, what))
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let items = items.map(|(i, item)| self.fill(&format!("{key}[{i}]"), item));
                Ok(Value::Array(items.collect::<Result<_, _>>()?))
            }
            Value::Table(table) => self.fill_table(key, table).map(Value::Table),
            other => Ok(other.clone()),
        }
    }

    fn fill_text(&self, text: &str) -> Result<Value, String> {
        let pieces = pieces(text)?;
        if let [TemplatePiece::Placeholder(name)] = pieces[..] {
            return self.value(name).cloned();
        }
        let mut filled = String::new();
        for piece in pieces {
            match piece {
                TemplatePiece::Text(text) => filled.push_str(text),
                TemplatePiece::Placeholder(name) => filled.push_str(&self.text(name)?),
            }
        }
        Ok(Value::String(filled))
    }

    fn value(&self, name: &str) -> Result<&Value, String> {
        self.values.get(name).ok_or_else(|| {
            let names: Vec<String> = self.values.keys().map(|name| format!("{{{name}}}")).collect();
            format!(
                "nothing is called {{{name}}} here; there are {}, and a brace by itself is written twice",
                names.join(", ")
            )
        })
    }

    fn text(&self, name: &str) -> Result<String, String> {
        let value = self.value(name)?;
        text(value).ok_or_else(|| format!("{{{name}}} is a list or table; leave no text beside it"))
    }
}

fn path(path: &Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

/// The address of each host on each of its links, named `HOST.LINK`; at sites without emulated
/// links, it is that of the host's site. The hosts of links and their sites contain no
/// placeholders.
fn addresses(
    file: &ExperimentFile,
    sites: Option<&ExperimentSites>,
) -> Result<Vec<(String, Value)>, ExperimentProblem> {
    let mut addresses = Vec::new();
    // In the order of the trial's links.
    let names: BTreeSet<&String> = file.links.keys().collect();
    for (i, link) in names.into_iter().enumerate() {
        let hosts = file.links[link].get("hosts").and_then(Value::as_array);
        let hosts = hosts.map(Vec::as_slice).unwrap_or_default();
        if ![0, 2].contains(&hosts.len()) {
            let what = format!("names {} hosts; a link joins two", hosts.len());
            return Err(ExperimentProblem::new(format!("links.{link}.hosts"), what));
        }
        for (end, host) in hosts.iter().filter_map(Value::as_str).enumerate() {
            if !file.hosts.contains_key(host) {
                return Err(check::no_host(&format!("links.{link}.hosts"), host));
            }
            let address = match sites {
                Some(sites) if !sites.emulates_links() => {
                    sites::address(sites, host, &file.hosts[host])?.to_string()
                }
                _ => address(i, end).to_string(),
            };
            addresses.push((format!("{host}.{link}"), Value::String(address)));
        }
    }
    Ok(addresses)
}

/// Splits a text at its placeholders.
fn pieces(text: &str) -> Result<Vec<TemplatePiece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, braces) = rest.split_at(at);
        if !before.is_empty() {
            pieces.push(TemplatePiece::Text(before));
        }
        if braces.starts_with("{{") || braces.starts_with("}}") {
            pieces.push(TemplatePiece::Text(&braces[..1]));
            rest = &braces[2..];
            continue;
        }
        let inner = braces.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let Some((name, after)) = inner.filter(|(name, _)| !name.contains('{')) else {
            return Err("has a single brace; write {{ or }} for a brace that is text".into());
        };
        pieces.push(TemplatePiece::Placeholder(name));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(TemplatePiece::Text(rest));
    }
    Ok(pieces)
}

/// Whether all values below a key are text, even if they look like numbers.
fn is_text(key: &str) -> bool {
    match key.split('.').collect::<Vec<&str>>()[..] {
        ["files"] | ["measure", "run"] | ["hosts", _, "sysctl"] => true,
        [program, "run"] => program.starts_with("programs["),
        _ => false,
    }
}

/// The value with its numbers as text, and with nested lists flattened.
fn numbers_as_text(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let items = items.into_iter().flat_map(|item| match numbers_as_text(item) {
                Value::Array(items) => items,
                item => vec![item],
            });
            Value::Array(items.collect())
        }
        Value::Table(table) => Value::Table(
            table.into_iter().map(|(key, value)| (key, numbers_as_text(value))).collect(),
        ),
        value => text(&value).map_or(value, Value::String),
    }
}

//! What the page can run: experiments whose swept keys are the knobs of the page. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::Table;

use crate::chosen_file::{self, ARCHIVE_FILE};
use crate::refusal::RefusedRequest;

/// The templates that come with this crate, by name, in the order in which they are offered.
const TEMPLATES: [(&str, &str); 10] = [
    ("compute", include_str!("../templates/compute.toml")),
    ("sets", include_str!("../templates/sets.toml")),
    ("circuit", include_str!("../templates/circuit.toml")),
    ("file", include_str!("../templates/file.toml")),
    ("stream", include_str!("../templates/stream.toml")),
    ("tunnel", include_str!("../templates/tunnel.toml")),
    ("signature", include_str!("../templates/signature.toml")),
    ("refresh", include_str!("../templates/refresh.toml")),
    ("chat", include_str!("../templates/chat.toml")),
    ("scripts", include_str!("../templates/scripts.toml")),
];

/// Networks whose values fill the knobs.
const NETWORKS: &str = include_str!("../templates/networks.toml");

/// The maximum number of values of one knob.
const MAX_VALUES: usize = 64;

/// The maximum length of all files times the number of points: each point has a copy in memory.
const MAX_COPIED_BYTES: usize = 64 << 20;

/// The maximum number of trials of a run. Each takes seconds.
const MAX_TRIALS: usize = 5_000;

/// An experiment with knobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTemplate {
    /// Its name in requests.
    #[serde(skip)]
    name: String,
    title: String,
    about: String,
    #[serde(rename = "knob")]
    knobs: Vec<TemplateKnob>,
    /// The experiment without its swept keys.
    experiment: Table,
}

/// A swept key or a file, as a person sets it.
#[derive(Clone, Debug, Deserialize)]
struct TemplateKnob {
    name: String,
    label: String,
    /// What a newcomer needs to know about it, in one line.
    help: Option<String>,
    group: KnobGroup,
    /// Whether one run compares several of its values.
    #[serde(default)]
    several: bool,
    #[serde(flatten)]
    kind: KnobKind,
}

/// Of which part of a run a knob is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum KnobGroup {
    What,
    How,
    Where,
}

/// The values of a knob.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum KnobKind {
    /// One of some names.
    Choice { options: Table, default: Vec<String> },
    /// A number.
    Number {
        unit: String,
        /// The minimum and the maximum.
        range: [f64; 2],
        /// Whether it is without a fraction.
        #[serde(default)]
        whole: bool,
        default: Vec<f64>,
        /// Values for a sweep.
        suggested: Vec<f64>,
    },
    /// A text file.
    File {
        /// The endings of the names of such files, for the page.
        accept: String,
        /// The maximum length of the text.
        max_bytes: usize,
        /// The name of the trial's file that has this text.
        file: String,
        /// The text if none is chosen.
        example: Option<String>,
    },
    /// An archive, or a folder that the page makes one of. It need not be chosen.
    Archive {
        /// The endings of the names of such files, for the page.
        accept: String,
        /// The maximum length of the archive.
        max_bytes: usize,
        /// The setting of the measurement that gets the archive's path.
        option: String,
        /// The files whose place it takes.
        replaces: Vec<String>,
    },
}

/// By what the scripts of people are contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptIsolation {
    /// Each by a sandbox.
    #[default]
    Sandbox,
    /// Each by a virtual machine in a sandbox.
    VirtualMachine,
}

/// A template with values.
pub(crate) struct TemplateExperiment {
    pub(crate) experiment: Table,
    /// The archive that the experiment refers to as [`ARCHIVE_FILE`].
    pub(crate) archive: Option<Vec<u8>>,
}

/// A network with values of knobs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct NetworkPreset {
    name: String,
    about: String,
    values: BTreeMap<String, f64>,
}

/// All templates.
///
/// # Panics
/// If a template that comes with this crate is wrong, which a test excludes.
pub(crate) fn templates() -> Vec<RunTemplate> {
    let read = |(name, text): (&str, &str)| {
        let template: RunTemplate = toml::from_str(text).expect("a template is valid");
        RunTemplate { name: name.to_owned(), ..template }
    };
    TEMPLATES.into_iter().map(read).collect()
}

/// All networks.
///
/// # Panics
/// If the list that comes with this crate is wrong, which a test excludes.
pub(crate) fn networks() -> Vec<NetworkPreset> {
    #[derive(Deserialize)]
    struct NetworkList {
        network: Vec<NetworkPreset>,
    }
    toml::from_str::<NetworkList>(NETWORKS).expect("the list of networks is valid").network
}

impl RunTemplate {
    /// What the page shows of it.
    pub(crate) fn document(&self) -> Value {
        json!({
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "knobs": self.knobs.iter().map(TemplateKnob::document).collect::<Vec<_>>(),
        })
    }

    /// The template with a name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        templates().into_iter().find(|template| template.name == name)
    }

    /// What is run, in a few words.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// The experiment with these values of the knobs, which are all given, except for archives, and
    /// for files that have an example.
    ///
    /// # Errors
    /// If a knob lacks values or has a wrong one, or a value is of no knob.
    pub(crate) fn experiment(
        &self,
        values: &BTreeMap<String, Vec<Value>>,
        repetitions: u32,
        isolation: ScriptIsolation,
    ) -> Result<TemplateExperiment, RefusedRequest> {
        if let Some(unknown) =
            values.keys().find(|name| self.knobs.iter().all(|it| it.name != **name))
        {
            return Err(RefusedRequest::new(unknown, "there is no such knob"));
        }
        let mut experiment = self.experiment.clone();
        let (archive, replaced) = self.archive(values, &mut experiment)?;
        let (mut sweep, mut files) = (Table::new(), Table::new());
        for knob in &self.knobs {
            let values = values_of(values, knob);
            let refused = |why| RefusedRequest::new(&knob.name, why);
            match &knob.kind {
                KnobKind::Archive { .. } => {}
                KnobKind::File { .. } if replaced.contains(&knob.name) => {
                    if !values.is_empty() {
                        let why = "a folder or an archive takes its place: choose one of both";
                        return Err(refused(why.to_owned()));
                    }
                }
                KnobKind::File { max_bytes, file, example, .. } => {
                    let text = chosen_file::text(values, *max_bytes, example.as_deref());
                    // Braces are placeholders, unless they are written twice.
                    let text = text.map_err(refused)?.replace('{', "{{").replace('}', "}}");
                    files.insert(file.clone(), text.into());
                }
                KnobKind::Choice { .. } | KnobKind::Number { .. } => {
                    sweep.insert(knob.name.clone(), knob.swept(values).map_err(refused)?);
                }
            }
        }
        // Before anything is made for each of them.
        check_trials(points(&sweep).saturating_mul(repetitions as usize))?;
        let copied_bytes = points(&sweep).saturating_mul(length(&files));
        if copied_bytes > MAX_COPIED_BYTES {
            let why = "these are too many points for files of this length; \
                       choose fewer values or shorter files";
            return Err(RefusedRequest::new("values", why));
        }
        experiment.insert("repetitions".into(), toml::Value::Integer(repetitions.into()));
        keep_chosen_programs(&mut experiment, &sweep);
        if isolation == ScriptIsolation::VirtualMachine {
            contain_in_machines(&mut experiment);
        }
        experiment.insert("sweep".into(), sweep.into());
        if !files.is_empty() {
            let all = experiment.entry("files").or_insert_with(|| Table::new().into());
            if let Some(all) = all.as_table_mut() {
                all.extend(files);
            }
        }
        Ok(TemplateExperiment { experiment, archive })
    }

    /// The archive that was chosen, if one was, and the names of the knobs whose place it takes.
    /// The experiment then refers to it.
    fn archive(
        &self,
        values: &BTreeMap<String, Vec<Value>>,
        experiment: &mut Table,
    ) -> Result<(Option<Vec<u8>>, &[String]), RefusedRequest> {
        for knob in &self.knobs {
            let KnobKind::Archive { max_bytes, option, replaces, .. } = &knob.kind else {
                continue;
            };
            let refused = |why: String| RefusedRequest::new(&knob.name, why);
            let archive = chosen_file::archive(values_of(values, knob), *max_bytes);
            let Some(archive) = archive.map_err(refused)? else { continue };
            lab::check_script_archive(&archive).map_err(refused)?;
            if let Some(options) = measure_options(experiment) {
                options.insert(option.clone(), ARCHIVE_FILE.into());
            }
            return Ok((Some(archive), replaces));
        }
        Ok((None, &[]))
    }
}

/// Checks the number of trials of a run.
///
/// # Errors
/// If there are too many.
pub(crate) fn check_trials(trials: usize) -> Result<(), RefusedRequest> {
    if trials <= MAX_TRIALS {
        return Ok(());
    }
    let why = format!("these are {trials} trials; choose values that make at most {MAX_TRIALS}");
    Err(RefusedRequest::new("values", why))
}

/// The number of points of a sweep.
fn points(sweep: &Table) -> usize {
    let number = |values: &toml::Value| match values {
        toml::Value::Array(values) => values.len(),
        toml::Value::Table(values) => values.len(),
        _ => 1,
    };
    sweep.iter().map(|(_, values)| number(values)).fold(1, usize::saturating_mul)
}

/// The bytes of all files.
fn length(files: &Table) -> usize {
    files.iter().filter_map(|(_, text)| text.as_str()).map(str::len).sum()
}

/// The values of a knob.
fn values_of<'a>(values: &'a BTreeMap<String, Vec<Value>>, knob: &TemplateKnob) -> &'a [Value] {
    values.get(&knob.name).map(Vec::as_slice).unwrap_or_default()
}

/// The settings of the measurement of an experiment.
fn measure_options(experiment: &mut Table) -> Option<&mut Table> {
    experiment.get_mut("measure")?.get_mut("options")?.as_table_mut()
}

/// Lets scripts that a sandbox contains run in virtual machines.
fn contain_in_machines(experiment: &mut Table) {
    let contain = measure_options(experiment).and_then(|options| options.get_mut("contain"));
    if let Some(contain @ toml::Value::Boolean(true)) = contain {
        *contain = "vm".into();
    }
}

/// Leaves out the values that are not chosen of what programs are only for, and programs that are
/// for none.
fn keep_chosen_programs(experiment: &mut Table, sweep: &Table) {
    let programs = experiment.get_mut("programs").and_then(toml::Value::as_array_mut);
    let Some(programs) = programs else { return };
    programs.retain_mut(|program| {
        let only = program.get_mut("only").and_then(toml::Value::as_table_mut);
        only.into_iter().flatten().all(|(name, values)| {
            let Some(values) = values.as_array_mut() else { return true };
            values.retain(|value| sweep.get(name).is_some_and(|swept| is_among(value, swept)));
            !values.is_empty()
        })
    });
}

/// Whether a swept key has a value.
fn is_among(value: &toml::Value, swept: &toml::Value) -> bool {
    match swept {
        toml::Value::Table(named) => value.as_str().is_some_and(|name| named.contains_key(name)),
        toml::Value::Array(values) => values.contains(value),
        _ => false,
    }
}

impl TemplateKnob {
    /// What the page shows of it.
    fn document(&self) -> Value {
        let Self { name, label, help, group, several, kind } = self;
        let mut document = json!({ "name": name, "label": label, "group": group });
        if let Some(help) = help {
            document["help"] = json!(help);
        }
        match kind {
            KnobKind::Choice { options, default } => {
                let option = |(name, option): (&String, &toml::Value)| json!({ "name": name, "label": option.get("label") });
                document["kind"] = "choice".into();
                document["options"] = options.iter().map(option).collect();
                document["default"] = json!(default);
                document["multiple"] = json!(several);
            }
            KnobKind::Number { unit, range: [least, most], whole, default, suggested } => {
                document["kind"] = "number".into();
                document["unit"] = json!(unit);
                document["min"] = json!(least);
                document["max"] = json!(most);
                document["default"] = json!(default);
                document["suggested"] = json!(suggested);
                if *whole {
                    document["whole"] = json!(true);
                }
            }
            KnobKind::File { accept, max_bytes, example, .. } => {
                document["kind"] = "file".into();
                document["accept"] = json!(accept);
                document["max_bytes"] = json!(max_bytes);
                document["has_example"] = json!(example.is_some());
            }
            KnobKind::Archive { accept, max_bytes, replaces, .. } => {
                document["kind"] = "archive".into();
                document["accept"] = json!(accept);
                document["max_bytes"] = json!(max_bytes);
                document["replaces"] = json!(replaces);
            }
        }
        document
    }

    /// The values as a swept key.
    fn swept(&self, values: &[Value]) -> Result<toml::Value, String> {
        if values.is_empty() || values.len() > MAX_VALUES {
            return Err(format!("give 1 to {MAX_VALUES} values"));
        }
        if values.iter().enumerate().any(|(i, value)| values[..i].contains(value)) {
            return Err("the same value is given twice".into());
        }
        match &self.kind {
            KnobKind::Choice { options, .. } => chosen(options, values),
            KnobKind::Number { range, unit, whole, .. } => {
                let numbers = values.iter().map(|value| in_range(value, *range, unit, *whole));
                Ok(toml::Value::Array(numbers.collect::<Result<_, String>>()?))
            }
            KnobKind::File { .. } | KnobKind::Archive { .. } => Err("a file is not swept".into()),
        }
    }
}

/// The chosen options as named values of a swept key, or as a list if they set nothing.
fn chosen(options: &Table, values: &[Value]) -> Result<toml::Value, String> {
    let mut named = Table::new();
    for value in values {
        let name = value.as_str().filter(|name| options.contains_key(*name));
        let name = name.ok_or_else(|| {
            let names: Vec<&str> = options.keys().map(String::as_str).collect();
            format!("{value} is none of {}", names.join(", "))
        })?;
        let sets = options[name].get("sets").cloned();
        named.insert(name.to_owned(), sets.unwrap_or_else(|| Table::new().into()));
    }
    let sets_nothing = named.values().all(|sets| sets.as_table().is_some_and(Table::is_empty));
    let names = || named.keys().cloned().map(toml::Value::String).collect();
    Ok(if sets_nothing { toml::Value::Array(names()) } else { named.into() })
}

fn in_range(
    value: &Value,
    [least, most]: [f64; 2],
    unit: &str,
    whole: bool,
) -> Result<toml::Value, String> {
    let number = value.as_f64().filter(|number| (least..=most).contains(number));
    let number = number.ok_or_else(|| {
        format!("{value} is no number from {least} to {most} {unit}").trim_end().to_owned()
    })?;
    // Whole numbers look better in the file.
    let is_whole = number.fract() == 0.0 && number.abs() < 1e15;
    if whole && !is_whole {
        return Err(format!("{value} is no whole number"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
    Ok(if is_whole { toml::Value::Integer(number as i64) } else { toml::Value::Float(number) })
}

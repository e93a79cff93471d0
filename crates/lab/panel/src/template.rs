//! What the page can run: experiments whose swept keys are the knobs of the page. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::Table;

use crate::refusal::RefusedRequest;

/// The templates that come with this crate, by name.
const TEMPLATES: [(&str, &str); 1] = [("compute", include_str!("../templates/compute.toml"))];

/// Networks whose values fill the knobs.
const NETWORKS: &str = include_str!("../templates/networks.toml");

/// The maximum number of values of one knob.
const MAX_VALUES: usize = 64;

/// An experiment with knobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTemplate {
    /// Its name in requests.
    #[serde(skip)]
    name: String,
    title: String,
    about: String,
    /// The measured value that is shown first.
    curve: String,
    #[serde(rename = "knob")]
    knobs: Vec<TemplateKnob>,
    /// The experiment without its swept keys.
    experiment: Table,
}

/// A swept key, as a person sets it.
#[derive(Clone, Debug, Deserialize)]
struct TemplateKnob {
    name: String,
    label: String,
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
        default: Vec<f64>,
        /// Values for a sweep.
        suggested: Vec<f64>,
    },
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
        let values = self.experiment.get("measure").and_then(|measure| measure.get("values"));
        let values = values.and_then(toml::Value::as_table).into_iter().flatten();
        let unit = |value: &toml::Value| value.get("unit").cloned().unwrap_or_else(|| "".into());
        let values: Vec<Value> =
            values.map(|(name, value)| json!({ "name": name, "unit": unit(value) })).collect();
        json!({
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "curve": self.curve,
            "knobs": self.knobs.iter().map(TemplateKnob::document).collect::<Vec<_>>(),
            "values": values,
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

    /// The experiment with these values of the knobs, which are all given.
    ///
    /// # Errors
    /// If a knob lacks values or has a wrong one, or a value is of no knob.
    pub(crate) fn experiment(
        &self,
        values: &BTreeMap<String, Vec<Value>>,
        repetitions: u32,
    ) -> Result<Table, RefusedRequest> {
        if let Some(unknown) =
            values.keys().find(|name| self.knobs.iter().all(|it| it.name != **name))
        {
            return Err(RefusedRequest::new(unknown, "there is no such knob"));
        }
        let mut sweep = Table::new();
        for knob in &self.knobs {
            let values = values.get(&knob.name).map(Vec::as_slice).unwrap_or_default();
            let swept = knob.swept(values).map_err(|why| RefusedRequest::new(&knob.name, why))?;
            sweep.insert(knob.name.clone(), swept);
        }
        let mut experiment = self.experiment.clone();
        experiment.insert("repetitions".into(), toml::Value::Integer(repetitions.into()));
        experiment.insert("sweep".into(), sweep.into());
        Ok(experiment)
    }
}

impl TemplateKnob {
    /// What the page shows of it.
    fn document(&self) -> Value {
        let Self { name, label, group, several, kind } = self;
        let mut document = json!({ "name": name, "label": label, "group": group });
        match kind {
            KnobKind::Choice { options, default } => {
                let option = |(name, option): (&String, &toml::Value)| json!({ "name": name, "label": option.get("label") });
                document["kind"] = "choice".into();
                document["options"] = options.iter().map(option).collect();
                document["default"] = json!(default);
                document["multiple"] = json!(several);
            }
            KnobKind::Number { unit, range: [least, most], default, suggested } => {
                document["kind"] = "number".into();
                document["unit"] = json!(unit);
                document["min"] = json!(least);
                document["max"] = json!(most);
                document["default"] = json!(default);
                document["suggested"] = json!(suggested);
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
            KnobKind::Number { range, unit, .. } => {
                let numbers = values.iter().map(|value| in_range(value, *range, unit));
                Ok(toml::Value::Array(numbers.collect::<Result<_, String>>()?))
            }
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

fn in_range(value: &Value, [least, most]: [f64; 2], unit: &str) -> Result<toml::Value, String> {
    let number = value.as_f64().filter(|number| (least..=most).contains(number));
    let number = number.ok_or_else(|| {
        format!("{value} is no number from {least} to {most} {unit}").trim_end().to_owned()
    })?;
    // Whole numbers look better in the file.
    let is_whole = number.fract() == 0.0 && number.abs() < 1e15;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
    Ok(if is_whole { toml::Value::Integer(number as i64) } else { toml::Value::Float(number) })
}

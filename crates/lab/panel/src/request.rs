//! What a person asks for: one experiment to run. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use lab::Experiment;
use lab::experiment::built_in;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::refusal::RefusedRequest;
use crate::template::RunTemplate;

/// The maximum number of trials of a run. Each takes seconds.
const MAX_TRIALS: usize = 5_000;

/// The maximum number of measurements of each point.
const MAX_REPETITIONS: u32 = 50;

/// A template with values of its knobs, or a built-in experiment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunRequest {
    /// The template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    /// The values of its knobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, Vec<Value>>,
    /// How often each point is measured.
    #[serde(default = "once")]
    repetitions: u32,
    /// The built-in experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) experiment: Option<String>,
}

/// What a request becomes.
pub(crate) struct RequestedExperiment {
    /// A few words for lists.
    pub(crate) title: String,
    /// The name of its file, without the extension.
    pub(crate) name: String,
    /// The experiment file.
    pub(crate) text: String,
    /// The same, parsed.
    pub(crate) experiment: Experiment,
}

impl RunRequest {
    /// The experiment.
    ///
    /// # Errors
    /// If there is none of that name, or a value is wrong.
    pub(crate) fn experiment(&self) -> Result<RequestedExperiment, RefusedRequest> {
        let (title, name, text) = match (&self.template, &self.experiment) {
            (Some(template), None) => self.of_template(template)?,
            (None, Some(name)) => self.built_in(name)?,
            _ => {
                let why = "name either a template or an experiment";
                return Err(RefusedRequest::new("template", why));
            }
        };
        let file = format!("{name}.toml");
        let experiment = Experiment::parse(Path::new(&file), &text)
            .map_err(|error| RefusedRequest::new("values", error.to_string()))?;
        let trials = experiment.trials();
        if trials > MAX_TRIALS {
            let why =
                format!("these are {trials} trials; choose values that make at most {MAX_TRIALS}");
            return Err(RefusedRequest::new("values", why));
        }
        Ok(RequestedExperiment { title, name, text, experiment })
    }

    fn of_template(&self, name: &str) -> Result<(String, String, String), RefusedRequest> {
        let template = RunTemplate::find(name)
            .ok_or_else(|| RefusedRequest::new("template", "there is no such template"))?;
        if !(1..=MAX_REPETITIONS).contains(&self.repetitions) {
            let why = format!("give a whole number from 1 to {MAX_REPETITIONS}");
            return Err(RefusedRequest::new("repetitions", why));
        }
        let text = toml::to_string(&template.experiment(&self.values, self.repetitions)?)
            .map_err(|error| RefusedRequest::new("values", error.to_string()))?;
        Ok((template.title().to_owned(), name.to_owned(), text))
    }

    fn built_in(&self, name: &str) -> Result<(String, String, String), RefusedRequest> {
        if !self.values.is_empty() || self.repetitions != once() {
            let why = "a built-in experiment has values of its own; leave them out";
            return Err(RefusedRequest::new("values", why));
        }
        let found = built_in().find(|(known, _)| *known == name);
        let (name, text) = found
            .ok_or_else(|| RefusedRequest::new("experiment", "there is no such experiment"))?;
        Ok((name.to_owned(), name.to_owned(), text.to_owned()))
    }
}

fn once() -> u32 {
    1
}

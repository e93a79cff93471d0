//! What an experiment varies, measures and draws.

use serde::Serialize;
use toml::Value;

use super::value::is_same;
use super::{Experiment, ExperimentMetric, PlotDefinition};

/// The document of `sunder lab describe --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExperimentDescription<'a> {
    /// The name of the experiment.
    pub name: &'a str,
    /// Its description, in one line.
    pub about: &'a str,
    /// The part of the papers that it reproduces.
    pub paper: Option<&'a str>,
    /// The number of trials: points times repetitions.
    pub trials: usize,
    /// The number of measurements of each point.
    pub repetitions: usize,
    /// The swept keys, in their order.
    pub keys: Vec<KeyDescription<'a>>,
    /// The measured quantities.
    pub values: &'a [ExperimentMetric],
    /// The graphs.
    pub plots: &'a [PlotDefinition],
}

/// A swept key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyDescription<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its values, each once.
    pub values: Vec<&'a Value>,
}

impl Experiment {
    /// Describes the experiment.
    pub fn describe(&self) -> ExperimentDescription<'_> {
        ExperimentDescription {
            name: &self.name,
            about: &self.about,
            paper: self.paper.as_deref(),
            trials: self.trials(),
            repetitions: self.repetitions,
            keys: self.keys.iter().map(|key| self.describe_key(key)).collect(),
            values: &self.metrics,
            plots: &self.plots,
        }
    }

    fn describe_key<'a>(&'a self, name: &'a str) -> KeyDescription<'a> {
        let mut values: Vec<&Value> = Vec::new();
        for value in self.points.iter().filter_map(|point| point.swept().get(name)) {
            if !values.iter().any(|other| is_same(other, value)) {
                values.push(value);
            }
        }
        KeyDescription { name, values }
    }
}

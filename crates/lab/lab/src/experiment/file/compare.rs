//! The definition of a comparison of one value of a swept key with the others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Value;

use super::sweep::SweptKeys;
use crate::experiment::ExperimentMetric;
use crate::experiment::error::ExperimentProblem;

/// A comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparisonDefinition {
    /// The swept key.
    pub key: String,
    /// The value of this key that is compared with the others.
    pub of: String,
    /// The measured value; less is better.
    pub value: String,
    /// The fraction by which it may exceed the least of the others.
    pub best: f64,
    /// The fractions by which it may exceed certain others, by their values of the key.
    #[serde(default)]
    pub limits: BTreeMap<String, f64>,
}

impl ComparisonDefinition {
    pub(crate) fn check(
        &self,
        sweep: &SweptKeys,
        metrics: &[ExperimentMetric],
    ) -> Result<(), ExperimentProblem> {
        let named = |name: &String| Value::String(name.clone());
        let values = self.limits.keys().chain([&self.of]).map(named).collect();
        sweep.check("compare", &BTreeMap::from([(self.key.clone(), values)]))?;
        if metrics.iter().any(|metric| metric.name == self.value) {
            return Ok(());
        }
        let what = format!("there is no value {}; name one of measure.values", self.value);
        Err(ExperimentProblem::new("compare.value", what))
    }
}

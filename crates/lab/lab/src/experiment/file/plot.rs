//! The graphs that an experiment's file defines.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::Value;

use super::sweep::{SweepCombination, SweptKeys};
use crate::experiment::error::ExperimentProblem;
use crate::experiment::value::display;
use crate::experiment::{ExperimentMetric, SweepPoint};

/// A graph, as the file defines it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotDefinition {
    /// Its title.
    pub title: String,
    /// The key of the horizontal axis, swept or set; with numbered values, what the numbers are.
    pub x: String,
    /// The value of the vertical axis. `new_*` stands for the values `new_1`, `new_2` and so on,
    /// each at its number.
    pub y: String,
    /// The swept key with one line for each of its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<String>,
    /// The swept key with one panel for each of its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// The values of swept keys to draw. Of other keys, all are drawn.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    only: BTreeMap<String, Vec<Value>>,
}

/// The maximum length of a graph's file name. The temporary file's name is longer.
const MAX_FILE_NAME_LEN: usize = 200;

/// Checks that the named keys and values exist, and that no two points have the same position.
pub(crate) fn check(
    plots: Vec<PlotDefinition>,
    sweep: &SweptKeys,
    metrics: &[ExperimentMetric],
    points: &[SweepPoint],
) -> Result<Vec<PlotDefinition>, ExperimentProblem> {
    for (i, plot) in plots.iter().enumerate() {
        let key = format!("plots[{i}]");
        plot.check_names(&key, sweep, metrics)?;
        plot.check_points(&key, points)?;
        plot.check_once(&key)?;
        let name = plot.file_name();
        if name.len() > MAX_FILE_NAME_LEN {
            let what = format!(
                "makes a file's name of more than {MAX_FILE_NAME_LEN} letters; give a shorter title"
            );
            return Err(ExperimentProblem::new(format!("{key}.title"), what));
        }
        if name == ".svg" || plots[..i].iter().any(|other| other.file_name() == name) {
            let what = format!(
                "makes {name} the file's name, which is taken or empty; give another title"
            );
            return Err(ExperimentProblem::new(format!("{key}.title"), what));
        }
    }
    Ok(plots)
}

impl PlotDefinition {
    /// The name of the graph's file: the letters and digits of its title.
    pub(crate) fn file_name(&self) -> String {
        let words = self.title.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<String> =
            words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
        format!("{}.svg", words.join("-"))
    }

    fn check_names(
        &self,
        key: &str,
        sweep: &SweptKeys,
        metrics: &[ExperimentMetric],
    ) -> Result<(), ExperimentProblem> {
        if self.metrics(metrics).is_empty() {
            let what = format!("there is no value {}; name one of [measure.values]", self.y);
            return Err(ExperimentProblem::new(format!("{key}.y"), what));
        }
        for (name, swept) in [("lines", &self.lines), ("each", &self.each)] {
            let key = format!("{key}.{name}");
            swept.iter().try_for_each(|swept| sweep.check_swept(&key, swept))?;
        }
        sweep.check(&format!("{key}.where"), &self.only)
    }

    /// Checks that every point has a position, and no two the same.
    fn check_points(&self, key: &str, points: &[SweepPoint]) -> Result<(), ExperimentProblem> {
        let mut taken = BTreeSet::new();
        for SweepPoint { combination, .. } in points.iter().filter(|point| self.shows(point)) {
            let Some(x) = self.x(combination) else {
                let what = format!("{} is not always a number from 0 on; name another key", self.x);
                return Err(ExperimentProblem::new(format!("{key}.x"), what)
                    .with_sweep_values(&combination.describe()));
            };
            let [panel, line] = self.panel_and_line(combination).map(|value| value.map(display));
            if !taken.insert((panel, line, x.to_bits())) {
                let what = "has several points in one place; name what else differs in lines or each, \
                            or choose one with where";
                return Err(
                    ExperimentProblem::new(key, what).with_sweep_values(&combination.describe())
                );
            }
        }
        if taken.is_empty() {
            return Err(ExperimentProblem::new(
                format!("{key}.where"),
                "leaves nothing to draw; name more",
            ));
        }
        Ok(())
    }

    /// Checks that no key is used twice in the graph.
    fn check_once(&self, key: &str) -> Result<(), ExperimentProblem> {
        let [x, lines, each] = [Some(&self.x), self.lines.as_ref(), self.each.as_ref()];
        let shown = [("lines", lines, lines == x), ("each", each, each == x || each == lines)];
        for (name, swept, twice) in shown {
            if let Some(swept) = swept.filter(|_| twice) {
                let what = format!("{swept} is shown in another way already; name another key");
                return Err(ExperimentProblem::new(format!("{key}.{name}"), what));
            }
        }
        Ok(())
    }

    pub(crate) fn shows(&self, point: &SweepPoint) -> bool {
        point.combination.is_among(&self.only)
    }

    /// The indices of the values that it shows. Numbered values have their numbers with them.
    pub(crate) fn metrics(&self, metrics: &[ExperimentMetric]) -> Vec<(usize, Option<f64>)> {
        let number = |name: &str| {
            let number = name.strip_prefix(self.y.strip_suffix('*')?)?;
            number.parse::<u32>().ok().map(f64::from)
        };
        let shown = |(index, metric): (usize, &ExperimentMetric)| {
            let number = number(&metric.name);
            (number.is_some() || metric.name == self.y).then_some((index, number))
        };
        metrics.iter().enumerate().filter_map(shown).collect()
    }

    /// The position of a point. With numbered values, it is the same for all points.
    pub(crate) fn x(&self, combination: &SweepCombination) -> Option<f64> {
        if self.y.ends_with('*') {
            return Some(0.0);
        }
        let x = combination.number(&self.x);
        x.filter(|x| x.is_finite() && *x >= 0.0)
    }

    pub(crate) fn panel_and_line<'a>(
        &self,
        combination: &'a SweepCombination,
    ) -> [Option<&'a Value>; 2] {
        [&self.each, &self.lines].map(|key| combination.swept.get(key.as_ref()?))
    }
}

//! The columns of the table of trials, `results.csv`.

use super::ExperimentMetric;
use super::error::ExperimentProblem;

/// The last column of a run at sites.
pub(crate) const PATH_CHANGED: &str = "path_changed";

/// The columns of the table of trials.
pub(crate) fn all(keys: &[String], metrics: &[ExperimentMetric]) -> Vec<String> {
    let mut columns = vec![String::from("repetition")];
    columns.extend_from_slice(keys);
    columns.extend(metrics.iter().flat_map(|metric| [metric.name.clone(), predicted(metric)]));
    columns.extend(["late_ms", "missed", "attempts", "invalid"].map(String::from));
    columns
}

/// The column for the prediction of a value.
fn predicted(metric: &ExperimentMetric) -> String {
    format!("{}_{}", metric.name, metric.prediction())
}

/// Checks that no two columns have the same name.
pub(crate) fn check(
    keys: &[String],
    metrics: &[ExperimentMetric],
) -> Result<(), ExperimentProblem> {
    let mut columns = all(keys, metrics);
    columns.push(PATH_CHANGED.into());
    for (i, name) in columns.iter().enumerate() {
        if columns[..i].contains(name) {
            let what = format!("{name} would be two columns of the results; give another name");
            let key = if keys.contains(name) { "sweep" } else { "measure.values" };
            return Err(ExperimentProblem::new(format!("{key}.{name}"), what));
        }
    }
    Ok(())
}

//! Prints experiments and results.

use std::path::Path;

use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use lab::experiment::{
    ComparedGroup, ComparisonDefinition, ExperimentDescription, ExperimentMetric,
    ExperimentResults, KeyDescription, PointSummary, ResultsComparison, SampleSpread,
    SummaryStatistic,
};

use super::ExperimentListEntry;
use super::eavesdrop::EavesdropFinding;
use crate::numbers::{percent, short};

/// Prints a list of experiments.
///
/// # Errors
/// If standard output cannot be written to.
pub(super) fn list(entries: &[ExperimentListEntry]) -> Result<(), CommandFailure> {
    let head = ["name", "trials", "time", "about", "paper"].map(String::from).to_vec();
    let row = |entry: &ExperimentListEntry| {
        let paper = entry.paper.clone().unwrap_or_default();
        let time = entry.minutes.map(about_minutes).unwrap_or_default();
        vec![entry.name.clone(), entry.trials.to_string(), time, entry.about.clone(), paper]
    };
    let rows: Vec<Vec<String>> = [head].into_iter().chain(entries.iter().map(row)).collect();
    print(&aligned(
        &[
            ColumnAlignment::Left,
            ColumnAlignment::Right,
            ColumnAlignment::Right,
            ColumnAlignment::Left,
            ColumnAlignment::Left,
        ],
        &rows,
    ))
}

/// About how long an experiment takes, such as "40 min" or "7 h".
fn about_minutes(minutes: u64) -> String {
    if minutes < 100 { format!("{minutes} min") } else { format!("{} h", (minutes + 30) / 60) }
}

/// Prints what an experiment varies, measures and draws.
///
/// # Errors
/// If standard output cannot be written to.
pub(super) fn describe(description: &ExperimentDescription<'_>) -> Result<(), CommandFailure> {
    let ExperimentDescription { about, paper, trials, repetitions, .. } = description;
    let mut lines = vec![(*about).to_owned()];
    lines.extend(paper.map(|paper| format!("Reproduces: {paper}")));
    lines.push(format!("{trials} trials: each point {repetitions} times"));
    let mut list = |heading: &str, rows: Vec<String>| {
        if !rows.is_empty() {
            lines.extend([String::new(), heading.to_owned()]);
            lines.extend(rows.into_iter().map(|row| format!("  {row}")));
        }
    };
    let key = |key: &KeyDescription<'_>| {
        let values: Vec<String> = key.values.iter().map(ToString::to_string).collect();
        format!("{}: {}", key.name, values.join(", "))
    };
    list("Varied:", description.keys.iter().map(key).collect());
    list("Measured:", description.values.iter().map(ExperimentMetric::label).collect());
    list("Graphs:", description.plots.iter().map(|plot| plot.title.clone()).collect());
    print(&lines.join("\n"))
}

/// Prints the results of each point, and where all results are.
///
/// # Errors
/// If standard output cannot be written to.
pub(super) fn results(results: &ExperimentResults, out: &Path) -> Result<(), CommandFailure> {
    let summaries = results.summaries();
    let predicted =
        |value: usize| summaries.iter().any(|summary| summary.predictions[value].is_some());
    let predicted: Vec<bool> = (0..results.values.len()).map(predicted).collect();
    let mut head = results.keys.clone();
    for (value, predicted) in results.values.iter().zip(&predicted) {
        head.push(value.label());
        head.extend(predicted.then(|| value.prediction().to_owned()));
    }
    // The swept keys, then numbers.
    let sides = (0..head.len()).map(|i| {
        if i < results.keys.len() { ColumnAlignment::Left } else { ColumnAlignment::Right }
    });
    let sides: Vec<ColumnAlignment> = sides.collect();
    let rows = summaries.iter().map(|summary| row(summary, &predicted));
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    let table = aligned(&sides, &rows);
    let mut lines = vec![results.about.clone(), String::new(), table];
    lines.extend(notes(results));
    lines.extend(results.comparison().iter().flat_map(compared));
    lines.push(format!("All results are in {}", out.display()));
    print(&lines.join("\n"))
}

/// Notes on how to read the table.
fn notes(results: &ExperimentResults) -> Vec<String> {
    let mut notes = Vec::new();
    if results.statistic == SummaryStatistic::Interval && results.repetitions > 1 {
        let seeds = results.repetitions;
        notes.push(format!("Means over {seeds} seeds, with 95% intervals (Student's t)"));
    }
    if let Some(shard) = results.shard {
        notes.push(format!(
            "These are the trials of shard {shard}; sunder lab merge joins them with the {} others",
            results.elsewhere
        ));
    }
    if results.left > 0 {
        let (left, all) = (results.left, results.left + results.trials.len());
        notes.push(format!("{left} of {all} trials have not run yet; the same command continues"));
    }
    let changed = results.trials.iter().filter(|trial| trial.path_changed).count();
    if changed > 0 {
        notes.push(format!(
            "During {changed} of {} trials a path between sites changed (path_changed in results.csv)",
            results.trials.len()
        ));
    }
    if results.invalid > 0 {
        notes.push(format!(
            "{} of {} trials are invalid and left out: the emulator was late by more than 1 ms for one \
             packet of 100, or missed packets",
            results.invalid,
            results.trials.len()
        ));
    }
    notes
}

/// The most groups that are shown for being beyond a limit.
const MAX_BEYOND: usize = 20;

/// One value of a key beside the others: how many groups are within each limit, and which are not.
fn compared(comparison: &ResultsComparison<'_>) -> Vec<String> {
    let ComparisonDefinition { key, of, value, best, limits } = comparison.compare;
    let groups = comparison.groups.len();
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    let share = |count: usize| percent(count as f64 / groups.max(1) as f64);
    let mut lines = vec![format!(
        "{value} of {of} in {groups} groups of points that differ in {key} only ({} more are not complete):",
        comparison.incomplete
    )];
    let near = comparison.near_best();
    lines.push(format!(
        "  at most {} above the least of the others: {near}, {}",
        percent(*best),
        share(near)
    ));
    for (i, (name, limit)) in limits.iter().enumerate() {
        let within = comparison.within(i);
        lines.push(format!(
            "  at most {} above {name}: {within}, {}",
            percent(*limit),
            share(within)
        ));
    }
    let mut beyond: Vec<(f64, &ComparedGroup)> =
        comparison.groups.iter().map(|group| (comparison.excess(group), group)).collect();
    beyond.retain(|(excess, _)| *excess > 1.0);
    beyond.sort_by(|a, b| b.0.total_cmp(&a.0));
    if beyond.is_empty() {
        return lines;
    }
    let mut head: Vec<String> = comparison.keys.iter().map(ToString::to_string).collect();
    let mut sides = vec![ColumnAlignment::Left; head.len() + 1];
    head.extend(["best".into(), value.clone(), format!("{of} / best")]);
    head.extend(limits.keys().map(|name| format!("{of} / {name}")));
    sides.resize(head.len(), ColumnAlignment::Right);
    let row = |(_, group): &(f64, &ComparedGroup)| {
        let mut row = group.settings.clone();
        row.extend([group.best.clone(), short(group.least_of_others), short(group.over_best())]);
        row.extend(group.ratios.iter().map(|ratio| short(*ratio)));
        row
    };
    let rows: Vec<Vec<String>> =
        [head].into_iter().chain(beyond.iter().take(MAX_BEYOND).map(row)).collect();
    lines.push(String::from("Beyond a limit, the farthest first:"));
    lines.push(aligned(&sides, &rows));
    lines
}

/// Prints what each set of channels reveals.
///
/// # Errors
/// If standard output cannot be written to.
pub(super) fn eavesdropped(findings: &[EavesdropFinding]) -> Result<(), CommandFailure> {
    let head = ["k", "channels", "packets", "read", "deviations"].map(String::from).to_vec();
    let row = |finding: &EavesdropFinding| {
        let channels = finding.channels.iter().map(|channel| (channel + 1).to_string());
        let channels = channels.collect::<Vec<_>>().join(" + ");
        let deviations = finding.correlation.map_or_else(|| "–".into(), |by| format!("{by:.1}"));
        vec![
            finding.threshold.to_string(),
            if channels.is_empty() { "none".into() } else { channels },
            finding.symbols.to_string(),
            finding.read.to_string(),
            deviations,
        ]
    };
    let rows: Vec<Vec<String>> = [head].into_iter().chain(findings.iter().map(row)).collect();
    print(&aligned(
        &[
            ColumnAlignment::Left,
            ColumnAlignment::Left,
            ColumnAlignment::Right,
            ColumnAlignment::Right,
            ColumnAlignment::Right,
        ],
        &rows,
    ))
}

/// Prints that the results are from an earlier run.
///
/// # Errors
/// If standard output cannot be written to.
pub(super) fn measured_before(
    results: &ExperimentResults,
    out: &Path,
) -> Result<(), CommandFailure> {
    let journal = out.join(super::JOURNAL);
    let (date, _) = results.started.split_once('T').unwrap_or((&results.started, ""));
    print(&format!("Measured on {date}; remove {} to measure again", journal.display()))
}

/// The swept values, the measurements and the predictions of a point.
fn row(summary: &PointSummary<'_>, predicted: &[bool]) -> Vec<String> {
    let mut row: Vec<String> = summary.settings().collect();
    for (value, predicted) in predicted.iter().enumerate() {
        let nothing = if summary.invalid > 0 { "invalid" } else { "" };
        row.push(summary.values[value].map_or_else(|| nothing.into(), format_spread));
        row.extend(predicted.then(|| summary.predictions[value].map(short).unwrap_or_default()));
    }
    row
}

/// The centre and, if there is a spread, both ends.
fn format_spread(spread: SampleSpread) -> String {
    let SampleSpread { middle, low, high } = spread;
    if low < high {
        format!("{} ({}\u{2013}{})", short(middle), short(low), short(high))
    } else {
        short(middle)
    }
}

/// Prints lines without control characters.
fn print(text: &str) -> Result<(), CommandFailure> {
    let lines: Vec<String> = text.lines().map(console::printable).collect();
    console::print(lines.join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_shown_if_there_is_one() {
        let spread = |low, high| SampleSpread { middle: 12.345_67, low, high };
        assert_eq!(format_spread(spread(12.345_67, 12.345_67)), "12.35");
        assert_eq!(format_spread(spread(1e-9, 1234.56)), "12.35 (1e-9\u{2013}1235)");
    }
}

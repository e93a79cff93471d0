//! Draws the graphs of an experiment.

use chart::{Chart, ChartAxis, ChartColor, ChartCurve, ChartError, ChartPanel, CurveMarks};
use toml::Value;

use super::results::ExperimentResults;
use super::summary::PointSummary;
use crate::experiment::file::plot::PlotDefinition;
use crate::experiment::statistic::SampleSpread;
use crate::experiment::value::display;
use crate::experiment::{Experiment, ExperimentMetric, SweepPoint};

/// A point in a graph: its panel, its line, its position, the measurement and the prediction.
struct PlotPoint<'a> {
    panel: Option<&'a Value>,
    line: Option<&'a Value>,
    x: f64,
    measured: Option<SampleSpread>,
    predicted: Option<f64>,
}

/// An axis with whole numbers up to this has a tick for each, or nearly so.
const MAX_WHOLE: f64 = 10.0;

impl PlotDefinition {
    /// Draws the graph as SVG.
    pub(crate) fn draw(
        &self,
        experiment: &Experiment,
        results: &ExperimentResults,
    ) -> Result<String, ChartError> {
        let dots = self.dots(experiment, results);
        let lines = distinct(dots.iter().map(|dot| dot.line));
        let x = x_axis(&self.x, &dots);
        let panels = distinct(dots.iter().map(|dot| dot.panel)).into_iter().map(|panel| {
            let dots: Vec<&PlotPoint<'_>> = dots.iter().filter(|dot| dot.panel == panel).collect();
            let curves = curves(&lines, &dots, self.prediction(results));
            let y = ChartAxis::from_zero(
                &self.y_label(results),
                curves.iter().flat_map(ChartCurve::values),
            );
            let each = self.each.as_ref().zip(panel);
            let title = each.map(|(key, value)| format!("{key} = {}", display(value)));
            ChartPanel { title: title.unwrap_or_default(), x: x.clone(), y, curves }
        });
        let legend = self.lines.as_ref().map(|key| format!("{key}:")).unwrap_or_default();
        let note = self.note(experiment, results);
        Chart { title: self.title.clone(), note, legend, panels: panels.collect() }.svg()
    }

    /// The points, from left to right.
    fn dots<'a>(
        &self,
        experiment: &'a Experiment,
        results: &'a ExperimentResults,
    ) -> Vec<PlotPoint<'a>> {
        let metrics = self.metrics(&results.values);
        let mut dots: Vec<PlotPoint<'_>> = Vec::new();
        for (point, summary) in summarized(experiment, results) {
            let x = self.x(&point.combination).filter(|_| self.shows(point));
            let [panel, line] = self.panel_and_line(&point.combination);
            let Some(x) = x else { continue };
            dots.extend(metrics.iter().map(|&(metric, number)| {
                let (measured, predicted) = (summary.values[metric], summary.predictions[metric]);
                PlotPoint { panel, line, x: number.unwrap_or(x), measured, predicted }
            }));
        }
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        dots
    }

    /// A note on the invalid trials of the graph's points.
    fn note(&self, experiment: &Experiment, results: &ExperimentResults) -> String {
        let points = summarized(experiment, results);
        let shown = points.into_iter().filter(|(point, _)| self.shows(point));
        let (trials, invalid) = shown.fold((0, 0), |(trials, invalid), (_, summary)| {
            (trials + results.repetitions, invalid + summary.invalid)
        });
        if invalid == 0 {
            return String::new();
        }
        format!("{invalid} of {trials} trials are invalid, as the emulator was late, and left out")
    }

    fn y_label(&self, results: &ExperimentResults) -> String {
        let Some(metric) = self.metric(results) else { return String::new() };
        let name = self.y.trim_end_matches("_*").to_owned();
        ExperimentMetric { name, ..metric.clone() }.label()
    }

    /// The word for the predictions: "predicted" or "published".
    fn prediction(&self, results: &ExperimentResults) -> &'static str {
        self.metric(results).map(ExperimentMetric::prediction).unwrap_or_default()
    }

    fn metric<'a>(&self, results: &'a ExperimentResults) -> Option<&'a ExperimentMetric> {
        let (first, _) = *self.metrics(&results.values).first()?;
        results.values.get(first)
    }
}

/// The points of which a trial has run, with their summaries.
fn summarized<'a>(
    experiment: &'a Experiment,
    results: &'a ExperimentResults,
) -> Vec<(&'a SweepPoint, PointSummary<'a>)> {
    let mut points = experiment.points.iter();
    let summaries = results.summaries().into_iter();
    summaries
        .filter_map(|summary| Some((points.find(|point| point.swept() == summary.point)?, summary)))
        .collect()
}

/// The curves of a panel: the measurements, and the predictions on top of them.
fn curves(lines: &[Option<&Value>], dots: &[&PlotPoint<'_>], prediction: &str) -> Vec<ChartCurve> {
    let of = |line| dots.iter().copied().filter(move |dot| dot.line == line);
    let each = || lines.iter().copied().enumerate();
    let measured = each().flat_map(|(colour, line)| measured(line, colour, of(line)));
    let predicted = each().map(|(colour, line)| predicted(line, colour, of(line), prediction));
    let mut predicted: Vec<ChartCurve> = predicted.collect();
    // A prediction that is the same for all lines is drawn once.
    if predicted.len() > 1 && predicted.iter().all(|curve| curve.points == predicted[0].points) {
        predicted.truncate(1);
        prediction.clone_into(&mut predicted[0].name);
        predicted[0].colour = ChartColor::Neutral;
    }
    measured.chain(predicted).filter(|curve| !curve.points.is_empty()).collect()
}

/// The curves of the measurements of a line. A point without a valid trial interrupts the curve.
fn measured<'a>(
    line: Option<&Value>,
    colour: usize,
    dots: impl Iterator<Item = &'a PlotPoint<'a>>,
) -> Vec<ChartCurve> {
    let dots: Vec<&PlotPoint<'_>> = dots.collect();
    let parts = dots.split(|dot| dot.measured.is_none()).filter(|part| !part.is_empty());
    let curve = |part: &[&PlotPoint<'_>]| {
        let spreads = part.iter().filter_map(|dot| Some((dot.x, dot.measured?)));
        let (points, spread) =
            spreads.map(|(x, spread)| ((x, spread.middle), (spread.low, spread.high))).unzip();
        let name = line.map_or_else(|| String::from("measured"), display);
        ChartCurve {
            name,
            colour: ChartColor::Nth(colour),
            points,
            spread,
            marks: CurveMarks::All,
            dashed: false,
        }
    };
    parts.map(curve).collect()
}

fn predicted<'a>(
    line: Option<&Value>,
    colour: usize,
    dots: impl Iterator<Item = &'a PlotPoint<'a>>,
    prediction: &str,
) -> ChartCurve {
    let points = dots.filter_map(|dot| Some((dot.x, dot.predicted?))).collect();
    let name = line.map(|line| format!("{}, ", display(line))).unwrap_or_default() + prediction;
    let (colour, marks) = (ChartColor::Nth(colour), CurveMarks::None);
    ChartCurve { name, colour, points, spread: Vec::new(), marks, dashed: true }
}

/// An axis of whole numbers if there are few, otherwise one that suits the span.
fn x_axis(label: &str, dots: &[PlotPoint<'_>]) -> ChartAxis {
    let values = || dots.iter().map(|dot| dot.x);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if most <= MAX_WHOLE && values().all(|x| x.fract() == 0.0) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "few and whole"
        )]
        return ChartAxis::for_integers(label, least as u32..=most as u32);
    }
    ChartAxis::auto_scaled(label, values())
}

/// The distinct values, in the order of their first occurrence.
fn distinct<'a>(values: impl Iterator<Item = Option<&'a Value>>) -> Vec<Option<&'a Value>> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

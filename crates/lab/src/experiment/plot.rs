//! The graphs of an experiment.

use std::collections::{BTreeMap, BTreeSet};

use chart::{Axis, Chart, ChartError, Colour, Curve, Marks, Panel};
use serde::Deserialize;
use toml::Value;

use super::sweep::{Combination, Sweep};
use super::value::said;
use super::{Experiment, Metric, Point, Problem, Results, Spread};

/// A graph, as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plot {
    title: String,
    /// The key along the bottom, swept or set.
    x: String,
    /// The value along the side.
    y: String,
    /// The swept key that has a line for each value.
    lines: Option<String>,
    /// The swept key that has a panel for each value.
    each: Option<String>,
    /// The values of swept keys that are drawn; of others, all.
    #[serde(default, rename = "where")]
    only: BTreeMap<String, Vec<Value>>,
}

/// A point on a graph: its panel, its line, its place, what was measured and what the model says.
struct Dot<'a> {
    panel: Option<&'a Value>,
    line: Option<&'a Value>,
    x: f64,
    measured: Option<Spread>,
    predicted: Option<f64>,
}

/// Whole numbers up to this have a tick each, or nearly so.
const MOST_WHOLE: f64 = 10.0;

/// The longest name of a graph's file, which is written under a longer one first.
const LONGEST_NAME: usize = 200;

/// Checks that there are such keys and values, and that each place of a graph is one point's.
pub(super) fn check(
    plots: Vec<Plot>,
    sweep: &Sweep,
    metrics: &[Metric],
    points: &[Point],
) -> Result<Vec<Plot>, Problem> {
    for (i, plot) in plots.iter().enumerate() {
        let key = format!("plots[{i}]");
        plot.check_names(&key, sweep, metrics)?;
        plot.check_points(&key, points)?;
        plot.check_once(&key)?;
        let name = plot.file_name();
        if name.len() > LONGEST_NAME {
            let what = format!(
                "makes a file's name of more than {LONGEST_NAME} letters; give a shorter title"
            );
            return Err(Problem::new(format!("{key}.title"), what));
        }
        if name == ".svg" || plots[..i].iter().any(|other| other.file_name() == name) {
            let what = format!(
                "makes {name} the file's name, which is taken or empty; give another title"
            );
            return Err(Problem::new(format!("{key}.title"), what));
        }
    }
    Ok(plots)
}

impl Plot {
    /// The name of the file that it is drawn to: the letters and digits of its title.
    pub(super) fn file_name(&self) -> String {
        let words = self.title.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<String> =
            words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
        format!("{}.svg", words.join("-"))
    }

    fn check_names(&self, key: &str, sweep: &Sweep, metrics: &[Metric]) -> Result<(), Problem> {
        if !metrics.iter().any(|metric| metric.name == self.y) {
            let what = format!("there is no value {}; name one of [measure.values]", self.y);
            return Err(Problem::new(format!("{key}.y"), what));
        }
        for (name, swept) in [("lines", &self.lines), ("each", &self.each)] {
            let key = format!("{key}.{name}");
            swept.iter().try_for_each(|swept| sweep.check_swept(&key, swept))?;
        }
        sweep.check(&format!("{key}.where"), &self.only)
    }

    /// Checks that every point has a place, and one of its own.
    fn check_points(&self, key: &str, points: &[Point]) -> Result<(), Problem> {
        let mut taken = BTreeSet::new();
        for Point { combination, .. } in points.iter().filter(|point| self.shows(point)) {
            let Some(x) = self.x(combination) else {
                let what = format!("{} is not always a number from 0 on; name another key", self.x);
                return Err(Problem::new(format!("{key}.x"), what).with(&combination.said()));
            };
            let [panel, line] = self.panel_and_line(combination).map(|value| value.map(said));
            if !taken.insert((panel, line, x.to_bits())) {
                let what = "has several points in one place; name what else differs in lines or each, \
                            or choose one with where";
                return Err(Problem::new(key, what).with(&combination.said()));
            }
        }
        if taken.is_empty() {
            return Err(Problem::new(format!("{key}.where"), "leaves nothing to draw; name more"));
        }
        Ok(())
    }

    /// Checks that no key is shown in two ways.
    fn check_once(&self, key: &str) -> Result<(), Problem> {
        let [x, lines, each] = [Some(&self.x), self.lines.as_ref(), self.each.as_ref()];
        let shown = [("lines", lines, lines == x), ("each", each, each == x || each == lines)];
        for (name, swept, twice) in shown {
            if let Some(swept) = swept.filter(|_| twice) {
                let what = format!("{swept} is shown in another way already; name another key");
                return Err(Problem::new(format!("{key}.{name}"), what));
            }
        }
        Ok(())
    }

    fn shows(&self, point: &Point) -> bool {
        point.combination.is_among(&self.only)
    }

    fn x(&self, combination: &Combination) -> Option<f64> {
        let x = combination.number(&self.x);
        x.filter(|x| x.is_finite() && *x >= 0.0)
    }

    fn panel_and_line<'a>(&self, combination: &'a Combination) -> [Option<&'a Value>; 2] {
        [&self.each, &self.lines].map(|key| combination.swept.get(key.as_ref()?))
    }

    /// Draws it, as SVG.
    pub(super) fn draw(
        &self,
        experiment: &Experiment,
        results: &Results,
    ) -> Result<String, ChartError> {
        let dots = self.dots(experiment, results);
        let lines = distinct(dots.iter().map(|dot| dot.line));
        let x = x_axis(&self.x, &dots);
        let panels = distinct(dots.iter().map(|dot| dot.panel)).into_iter().map(|panel| {
            let dots: Vec<&Dot<'_>> = dots.iter().filter(|dot| dot.panel == panel).collect();
            let curves = curves(&lines, &dots);
            let y = Axis::from_zero(&self.y_label(results), curves.iter().flat_map(Curve::values));
            let each = self.each.as_ref().zip(panel);
            let title = each.map(|(key, value)| format!("{key} = {}", said(value)));
            Panel { title: title.unwrap_or_default(), x: x.clone(), y, curves }
        });
        let legend = self.lines.as_ref().map(|key| format!("{key}:")).unwrap_or_default();
        let note = self.note(experiment, results);
        Chart { title: self.title.clone(), note, legend, panels: panels.collect() }.svg()
    }

    /// The points, from left to right.
    fn dots<'a>(&self, experiment: &'a Experiment, results: &Results) -> Vec<Dot<'a>> {
        let metric = results.values.iter().position(|metric| metric.name == self.y);
        let points = experiment.points.iter().zip(results.summaries());
        let dots = points.filter(|(point, _)| self.shows(point)).filter_map(|(point, summary)| {
            let [panel, line] = self.panel_and_line(&point.combination);
            let x = self.x(&point.combination)?;
            let metric = metric?;
            let (measured, predicted) = (summary.values[metric], summary.predictions[metric]);
            Some(Dot { panel, line, x, measured, predicted })
        });
        let mut dots: Vec<Dot<'_>> = dots.collect();
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        dots
    }

    /// How many trials of the graph's points are left out.
    fn note(&self, experiment: &Experiment, results: &Results) -> String {
        let points = experiment.points.iter().zip(results.summaries());
        let shown = points.filter(|(point, _)| self.shows(point));
        let (trials, invalid) = shown.fold((0, 0), |(trials, invalid), (_, summary)| {
            (trials + results.repetitions, invalid + summary.invalid)
        });
        if invalid == 0 {
            return String::new();
        }
        format!("{invalid} of {trials} trials are invalid, as the emulator was late, and left out")
    }

    fn y_label(&self, results: &Results) -> String {
        let metric = results.values.iter().find(|metric| metric.name == self.y);
        metric.map(Metric::label).unwrap_or_default()
    }
}

/// The curves of a panel: what was measured, and over it what the model says.
fn curves(lines: &[Option<&Value>], dots: &[&Dot<'_>]) -> Vec<Curve> {
    let of = |line| dots.iter().copied().filter(move |dot| dot.line == line);
    let each = || lines.iter().copied().enumerate();
    let measured = each().flat_map(|(colour, line)| measured(line, colour, of(line)));
    let predicted = each().map(|(colour, line)| predicted(line, colour, of(line)));
    let mut predicted: Vec<Curve> = predicted.collect();
    // What is the same for all lines is said once.
    if predicted.len() > 1 && predicted.iter().all(|curve| curve.points == predicted[0].points) {
        predicted.truncate(1);
        predicted[0].name = String::from("predicted");
        predicted[0].colour = Colour::Neutral;
    }
    measured.chain(predicted).filter(|curve| !curve.points.is_empty()).collect()
}

/// What was measured on a line: several curves where there are points without a valid trial, so that
/// nothing is drawn through those.
fn measured<'a>(
    line: Option<&Value>,
    colour: usize,
    dots: impl Iterator<Item = &'a Dot<'a>>,
) -> Vec<Curve> {
    let dots: Vec<&Dot<'_>> = dots.collect();
    let parts = dots.split(|dot| dot.measured.is_none()).filter(|part| !part.is_empty());
    let curve = |part: &[&Dot<'_>]| {
        let spreads = part.iter().filter_map(|dot| Some((dot.x, dot.measured?)));
        let (points, spread) =
            spreads.map(|(x, spread)| ((x, spread.middle), (spread.low, spread.high))).unzip();
        let name = line.map_or_else(|| String::from("measured"), said);
        Curve {
            name,
            colour: Colour::Nth(colour),
            points,
            spread,
            marks: Marks::All,
            dashed: false,
        }
    };
    parts.map(curve).collect()
}

fn predicted<'a>(
    line: Option<&Value>,
    colour: usize,
    dots: impl Iterator<Item = &'a Dot<'a>>,
) -> Curve {
    let points = dots.filter_map(|dot| Some((dot.x, dot.predicted?))).collect();
    let name = line.map(|line| format!("{}, ", said(line))).unwrap_or_default() + "predicted";
    let (colour, marks) = (Colour::Nth(colour), Marks::None);
    Curve { name, colour, points, spread: Vec::new(), marks, dashed: true }
}

/// Few whole numbers as they are, anything else as its span asks for.
fn x_axis(label: &str, dots: &[Dot<'_>]) -> Axis {
    let values = || dots.iter().map(|dot| dot.x);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if most <= MOST_WHOLE && values().all(|x| x.fract() == 0.0) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "few and whole"
        )]
        return Axis::whole(label, least as u32..=most as u32);
    }
    Axis::by_span(label, values())
}

/// The values without repetitions, in their first order.
fn distinct<'a>(values: impl Iterator<Item = Option<&'a Value>>) -> Vec<Option<&'a Value>> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

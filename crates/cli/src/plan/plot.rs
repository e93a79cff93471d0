//! Graphs of what channels give, as SVG: their properties over kappa and mu, and Pareto fronts.

use std::error::Error;
use std::ops::Range;

use model::{ChannelSet, Need, Objective};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::refusal::refuse;
use crate::failure::Failure;
use crate::progress::Progress;

/// What the panels over mu are best in, one panel each.
const OBJECTIVES: [Objective; 3] = [Objective::Risk, Objective::Loss, Objective::Delay];

/// The size of a graph of properties.
const PANELS: (u32, u32) = (1000, 880);

/// The size of a graph of a front.
const FRONT: (u32, u32) = (1000, 620);

/// The points of a front.
const FRONT_POINTS: usize = 25;

/// Colours that the colour-blind tell apart on white: those of Okabe and Ito, with a grey for their
/// yellow, which is too pale for a line.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x99, 0x99, 0x99),
];

/// The colour of the rate, which is that of every kappa.
const ALL: RGBColor = RGBColor(0x33, 0x33, 0x33);

const GRID: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);

const FONT: &str = "sans-serif";

// Sizes of text in units of plotters, of which 1.24 make a pixel.
const TITLE: u32 = 26;
const HEADING: u32 = 20;
const LABEL: u32 = 18;

const CENTRE: Pos = Pos { h_pos: HPos::Center, v_pos: VPos::Center };
const LEFT: Pos = Pos { h_pos: HPos::Left, v_pos: VPos::Center };

/// The longest text that fits below a title, in characters.
const LONGEST_LINE: usize = 110;

const KAPPA: &str = "\u{3ba}, shares needed for a symbol:";
const MU: &str = "\u{3bc}, shares sent for a symbol on average";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawingError = Box<dyn Error + Send + Sync>;

/// The rate over mu, and the least risk, loss and delay at full rate over mu, one curve for each
/// kappa: one SVG document. The channels' names stand below the title.
pub(super) fn properties(set: &ChannelSet, names: &[String]) -> Result<String, Failure> {
    let curves = curves(set)?;
    draw(PANELS, |area| draw_properties(area, set, names, &curves))
}

/// The Pareto front of two properties under a need: one SVG document.
pub(super) fn front(
    set: &ChannelSet,
    need: &Need,
    first: Objective,
    second: Objective,
) -> Result<String, Failure> {
    let front = set.front(need, first, second, FRONT_POINTS).map_err(refuse)?;
    let progress = Progress::steps(front.len() as u64);
    let mut points = Vec::new();
    for plan in front {
        let averages = plan.map_err(refuse)?.averages;
        points.push((averages.of(first), averages.of(second)));
        progress.advance(1);
    }
    drop(progress);
    draw(FRONT, |area| {
        let best = if second == Objective::Rate { "highest" } else { "least" };
        let title = format!("The {best} {} for each {}", name(second), name(first));
        let x = Axis::around(points.iter().map(|point| point.0));
        let values = points.iter().map(|point| point.1);
        let y = match second {
            Objective::Risk | Objective::Loss => Axis::probability(values),
            _ => Axis::around(values),
        };
        let curve = Curve { colour: COLOURS[0], points, dots: true };
        panel(area, &title, [unit(first), unit(second)], [&x, &y], &[curve])
    })
}

/// The three least properties at full rate, for one kappa.
struct Least {
    kappa: u32,
    /// mu, and risk, loss and delay.
    points: Vec<(f64, [f64; 3])>,
}

/// The least properties at full rate for each kappa that is drawn.
fn curves(set: &ChannelSet) -> Result<Vec<Least>, Failure> {
    let n = count(set);
    let grid: Vec<(u32, Vec<f64>)> =
        kappas(n).into_iter().map(|k| (k, multiplicities(k, n))).collect();
    let progress = Progress::steps(grid.iter().map(|(_, mus)| mus.len() as u64).sum());
    let mut curves = Vec::new();
    for (kappa, mus) in grid {
        let mut points = Vec::new();
        for mu in mus {
            let mut least = [0.0; 3];
            for (value, objective) in least.iter_mut().zip(OBJECTIVES) {
                let need = Need {
                    kappa: Some(f64::from(kappa)),
                    mu: Some(mu),
                    full_rate: true,
                    objectives: vec![objective],
                    ..Need::default()
                };
                *value = set.plan(&need).map_err(refuse)?.averages.of(objective);
            }
            points.push((mu, least));
            progress.advance(1);
        }
        curves.push(Least { kappa, points });
    }
    Ok(curves)
}

/// The values of kappa that are drawn: all, unless there are so many channels that each program
/// takes long.
fn kappas(n: u32) -> Vec<u32> {
    match n {
        0..=8 => (1..=n).collect(),
        9..=12 => (0..5).map(|i| 1 + i * (n - 1) / 4).collect(),
        _ => (0..3).map(|i| 1 + i * (n - 1) / 2).collect(),
    }
}

/// The values of mu that are drawn for a kappa, evenly from kappa to n: in steps of 0.1, unless
/// there are many channels.
fn multiplicities(kappa: u32, n: u32) -> Vec<f64> {
    let whole = n - kappa;
    let steps = match n {
        0..=8 => 10 * whole,
        9..=12 => 2 * whole,
        13..=16 => whole,
        _ => whole.div_ceil(5),
    };
    let mu = |i| f64::from(kappa) + f64::from(whole * i) / f64::from(steps.max(1));
    (0..=steps).map(mu).collect()
}

fn count(set: &ChannelSet) -> u32 {
    u32::try_from(set.len()).unwrap_or(u32::MAX)
}

fn draw_properties(
    area: &Area<'_>,
    set: &ChannelSet,
    names: &[String],
    curves: &[Least],
) -> Result<(), DrawingError> {
    let (heading, panels) = area.split_vertically(108);
    let middle = i32::try_from(PANELS.0 / 2)?;
    for (size, y, said) in [(TITLE, 26, "What these channels give"), (LABEL, 54, &listed(names))] {
        let style = (FONT, size).into_text_style(&heading).pos(CENTRE);
        heading.draw(&Text::new(said, (middle, y), style))?;
    }
    draw_legend(&heading, curves)?;

    let panels = panels.split_evenly((2, 2));
    let mu = Axis::multiplicities(count(set));
    let rate = rates(set);
    let y = Axis::from_zero(rate.points.iter().map(|point| point.1));
    panel(&panels[0], "Full rate", [MU, unit(Objective::Rate)], [&mu, &y], &[rate])?;
    for (i, (objective, area)) in OBJECTIVES.into_iter().zip(&panels[1..]).enumerate() {
        let lines = curves.iter().zip(COLOURS).map(|(least, colour)| {
            let points = least.points.iter().map(|(mu, values)| (*mu, values[i])).collect();
            Curve { colour, points, dots: false }
        });
        let lines: Vec<Curve> = lines.collect();
        let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let y = match objective {
            Objective::Risk | Objective::Loss => Axis::probability(values),
            _ => Axis::from_zero(values),
        };
        let title = format!("Least {} at full rate", name(objective));
        panel(area, &title, [MU, unit(objective)], [&mu, &y], &lines)?;
    }
    Ok(())
}

/// The full rate over mu.
fn rates(set: &ChannelSet) -> Curve {
    let n = count(set);
    let steps = 10 * (n - 1);
    let mu = |i| 1.0 + f64::from(i) / 10.0;
    let points = (0..=steps).filter_map(|i| Some((mu(i), set.best_rate(mu(i))?))).collect();
    Curve { colour: ALL, points, dots: false }
}

/// Which colour is which kappa, in one line.
fn draw_legend(area: &Area<'_>, curves: &[Least]) -> Result<(), DrawingError> {
    let (y, caption, entry) = (86, 265, 72);
    let width = caption + entry * i32::try_from(curves.len())?;
    let mut x = (i32::try_from(PANELS.0)? - width) / 2;
    let style = (FONT, LABEL).into_text_style(area).pos(LEFT);
    area.draw(&Text::new(KAPPA, (x, y), style.clone()))?;
    x += caption;
    for (least, colour) in curves.iter().zip(COLOURS) {
        area.draw(&Rectangle::new([(x, y - 1), (x + 26, y + 2)], colour.filled()))?;
        area.draw(&Circle::new((x, y), 4, colour.filled()))?;
        area.draw(&Text::new(least.kappa.to_string(), (x + 33, y), style.clone()))?;
        x += entry;
    }
    Ok(())
}

/// A line through points, with a dot on the first one or on all.
struct Curve {
    colour: RGBColor,
    points: Vec<(f64, f64)>,
    dots: bool,
}

/// Draws a graph with its axes; of `units` and `axes` that of x is the first.
fn panel(
    area: &Area<'_>,
    title: &str,
    units: [&str; 2],
    [x, y]: [&Axis; 2],
    curves: &[Curve],
) -> Result<(), DrawingError> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, HEADING))
        .margin(10)
        .margin_right(28)
        .x_label_area_size(52)
        .y_label_area_size(84)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(ALL)
        .label_style((FONT, LABEL))
        .axis_desc_style((FONT, LABEL))
        .x_desc(units[0])
        .y_desc(units[1])
        .draw()?;
    for curve in curves {
        let places: Vec<(f64, f64)> =
            curve.points.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
        let dots = if curve.dots { places.len() } else { 1 };
        let filled = curve.colour.filled();
        chart.draw_series(LineSeries::new(places.iter().copied(), curve.colour.stroke_width(2)))?;
        chart.draw_series(places.iter().take(dots).map(|place| Circle::new(*place, 4, filled)))?;
    }
    Ok(())
}

/// An axis: which places it shows, and where its ticks are.
#[derive(Clone, Debug)]
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
    scale: Scale,
}

/// How a value becomes a place on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// It is the place; ticks are labelled with so many digits after the point.
    Linear { digits: usize },
    /// Its decimal logarithm is. Nothing is lower than `floor`; 0 is there if `zero`.
    Logarithmic { floor: f64, zero: bool },
}

impl Axis {
    /// The axis of mu, from 1 to n.
    fn multiplicities(n: u32) -> Self {
        let step = n.div_ceil(10);
        let ticks = (0..n).filter(|i| i % step == 0).map(|i| f64::from(i + 1)).collect();
        // One channel leaves one place, which is in the middle.
        let range = if n == 1 { 0.5..1.5 } else { 1.0..f64::from(n) };
        Self { range, ticks, scale: Scale::Linear { digits: 0 } }
    }

    /// From 0 to the highest value.
    fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        Self::linear(0.0, values.fold(0.0, f64::max))
    }

    /// For probabilities: logarithmic if they span two decades, or else from 0.
    fn probability(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().filter(|value| *value > 0.0).fold(most, f64::min);
        if most > 0.0 && most >= 100.0 * least {
            Self::logarithmic(least, most, values.contains(&0.0))
        } else {
            Self::linear(0.0, most)
        }
    }

    /// From about the least value to the highest. A front's points are evenly spaced along it.
    fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        Self::linear(least, values.fold(0.0, f64::max))
    }

    fn linear(least: f64, most: f64) -> Self {
        // Of equal values, the place is shown between 0 and twice that.
        let (least, most) = if most - least > 1e-6 * most {
            (least, most)
        } else if most > 0.0 {
            (0.0, 2.0 * most)
        } else {
            (0.0, 1.0)
        };
        let rough = (most - least) / 6.0;
        let decade = rough.log10().floor();
        let unit = 10_f64.powf(decade);
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * unit >= rough);
        let step = step.unwrap_or(10.0) * unit;
        let start = (least / step).floor();
        let ticks = (0..=8).map(|i| (start + f64::from(i)) * step);
        let mut ticks: Vec<f64> = ticks.collect();
        let enough = ticks.iter().position(|tick| *tick >= most * (1.0 - 1e-9));
        ticks.truncate(enough.map_or(ticks.len(), |last| last + 1));
        let end = ticks.last().copied().unwrap_or(most);
        let digits = (0..12).find(|digits| step * 10_f64.powi(*digits) > 0.999).unwrap_or(12);
        let digits = usize::try_from(digits).unwrap_or(0);
        Self { range: start * step..end.max(most), ticks, scale: Scale::Linear { digits } }
    }

    fn logarithmic(least: f64, most: f64, zero: bool) -> Self {
        // What is lower than this is no curve on a page but the rounding of a sum.
        let lowest = least.log10().floor().max(most.log10().floor() - 40.0);
        let highest = most.log10().ceil();
        let step = ((highest - lowest) / 7.0).ceil().max(1.0);
        let downwards = (0..=8).map(|i| highest - f64::from(i) * step);
        let mut ticks: Vec<f64> = downwards.take_while(|tick| *tick >= lowest).collect();
        let floor = if zero { lowest - step } else { lowest };
        if zero {
            ticks.push(floor);
        }
        Self { range: floor..highest, ticks, scale: Scale::Logarithmic { floor, zero } }
    }

    /// Where a value is.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear { .. } => value,
            Scale::Logarithmic { floor, .. } => value.log10().max(floor),
        }
    }

    /// What a tick says.
    fn label(&self, place: f64) -> String {
        match self.scale {
            Scale::Linear { .. } if place.abs() >= 1e7 => format!("{place:.3e}"),
            Scale::Linear { digits } if digits > 5 && place != 0.0 => format!("{place:.1e}"),
            Scale::Linear { digits } => format!("{place:.digits$}"),
            Scale::Logarithmic { floor, zero: true } if place <= floor => String::from("0"),
            Scale::Logarithmic { .. } => power_of_ten(place),
        }
    }
}

/// To plotters, an axis is one of places and not of values.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (start, end): (i32, i32)) -> i32 {
        let part = (place - self.range.start) / (self.range.end - self.range.start);
        #[expect(clippy::cast_possible_truncation, reason = "a page has few pixels")]
        let offset = (part * f64::from(end - start)).round() as i32;
        start + offset
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, place: &f64) -> String {
        self.label(*place)
    }
}

/// A power of ten, as it is written.
fn power_of_ten(exponent: f64) -> String {
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}',
        '\u{2078}', '\u{2079}',
    ];
    if (-3.0..=0.0).contains(&exponent) {
        return 10_f64.powf(exponent).to_string();
    }
    let exponent = format!("{exponent:.0}");
    let raised = exponent.chars().map(|c| match c.to_digit(10) {
        Some(digit) => DIGITS[digit as usize],
        None => '\u{207b}',
    });
    format!("10{}", raised.collect::<String>())
}

/// What an objective is about.
fn name(objective: Objective) -> &'static str {
    match objective {
        Objective::Risk => "risk",
        Objective::Loss => "loss",
        Objective::Delay => "delay",
        Objective::DeliveredDelay => "delay of what arrives",
        Objective::Rate => "rate",
    }
}

/// The same, and what it is measured in.
fn unit(objective: Objective) -> &'static str {
    match objective {
        Objective::Risk => "risk, probability for a symbol",
        Objective::Loss => "loss, probability for a symbol",
        Objective::Delay => "delay, ms",
        Objective::DeliveredDelay => "delay of what arrives, ms",
        Objective::Rate => "rate, Mbit/s",
    }
}

/// The channels' names in one line, cut if it is too long.
fn listed(names: &[String]) -> String {
    let listed = names.join(", ");
    // What XML cannot hold, no name needs.
    let mut letters = listed.chars().map(|c| match c {
        '\u{fffe}' | '\u{ffff}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    });
    let mut line: String = letters.by_ref().take(LONGEST_LINE).collect();
    if letters.next().is_some() {
        line.push('\u{2026}');
    }
    line
}

/// An SVG document of a size, on white.
fn draw(
    size: (u32, u32),
    content: impl FnOnce(&Area<'_>) -> Result<(), DrawingError>,
) -> Result<String, Failure> {
    let mut document = String::new();
    let area = SVGBackend::with_string(&mut document, size).into_drawing_area();
    let drawn = area.fill(&WHITE).map_err(DrawingError::from).and_then(|()| content(&area));
    drawn
        .and_then(|()| Ok(area.present()?))
        .map_err(|error| Failure::Failed(format!("cannot draw the graph: {error}")))?;
    drop(area);
    Ok(document)
}

#[cfg(test)]
mod tests {
    use model::Channel;

    use super::*;

    fn set(channels: &[[f64; 4]]) -> ChannelSet {
        let channels = channels.iter().map(|[z, l, d, r]| Channel::new(*z, *l, *d, *r).unwrap());
        ChannelSet::new(channels.collect()).unwrap()
    }

    fn paper() -> ChannelSet {
        set(&[
            [0.1, 0.01, 2.5, 5.0],
            [0.2, 0.005, 0.25, 20.0],
            [0.05, 0.01, 12.5, 60.0],
            [0.3, 0.02, 5.0, 65.0],
            [0.15, 0.03, 0.5, 100.0],
        ])
    }

    fn names(n: usize) -> Vec<String> {
        (1..=n).map(|i| format!("channel {i}")).collect()
    }

    /// The lines in a colour, each of which has two coordinates at least.
    fn lines(svg: &str, colour: RGBColor) -> usize {
        let stroke = format!("stroke=\"#{:02X}{:02X}{:02X}\"", colour.0, colour.1, colour.2);
        svg.lines().filter(|line| line.starts_with("<polyline") && line.contains(&stroke)).count()
    }

    fn assert_well_formed(svg: &str) {
        assert!(svg.starts_with("<svg "), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let opened = svg.lines().filter(|line| line.starts_with("<text ")).count();
        assert_eq!(opened, svg.lines().filter(|line| *line == "</text>").count());
    }

    #[test]
    fn four_panels_have_a_curve_for_each_kappa() {
        let svg = properties(&paper(), &names(5)).unwrap();
        assert_well_formed(&svg);
        let titles = ["Full rate", "Least risk at", "Least loss at", "Least delay at", "channel 5"];
        for said in titles.into_iter().chain(OBJECTIVES.map(unit)).chain([MU, KAPPA]) {
            assert!(svg.contains(said), "{said}");
        }
        for colour in &COLOURS[..4] {
            assert_eq!(lines(&svg, *colour), 3, "risk, loss and delay in {colour:?}");
        }
        // kappa = 5 leaves one mu, which is a dot in each panel and in the legend.
        let dots =
            svg.lines().filter(|line| line.starts_with("<circle") && line.contains("#E69F00"));
        assert_eq!(dots.count(), 4);
        assert_eq!(lines(&svg, COLOURS[5]), 0);
    }

    #[test]
    fn names_are_text_and_not_markup() {
        let name = "<a & \"b\">\u{1}".to_owned();
        let svg = properties(&set(&[[0.1, 0.01, 1.0, 1.0]]), &[name]).unwrap();
        assert_well_formed(&svg);
        assert!(svg.contains("&lt;a &amp; &quot;b&quot;&gt;\u{fffd}"), "{svg}");
        let long = listed(&names(20));
        assert_eq!(long.chars().count(), LONGEST_LINE + 1);
    }

    #[test]
    fn extreme_channels_can_be_drawn() {
        for channel in [[0.0; 3], [1.0, 0.999, 8.64e7]] {
            for rate in [1e-6, 1.0, 1e9] {
                let [z, l, d] = channel;
                for n in 1..=3 {
                    let svg = properties(&set(&vec![[z, l, d, rate]; n]), &names(n)).unwrap();
                    assert_well_formed(&svg);
                }
            }
        }
    }

    #[test]
    fn many_channels_have_few_curves() {
        assert_eq!(kappas(5), [1, 2, 3, 4, 5]);
        assert_eq!(kappas(10), [1, 3, 5, 7, 10]);
        assert_eq!(kappas(20), [1, 10, 20]);
        for n in 1..=20 {
            for kappa in kappas(n) {
                let mus = multiplicities(kappa, n);
                let ends = (mus[0], mus[mus.len() - 1]);
                assert_eq!(ends, (f64::from(kappa), f64::from(n)));
            }
        }
        assert!(multiplicities(1, 5).contains(&1.1));
    }

    #[test]
    fn a_front_has_its_points_and_units() {
        let need = Need { kappa: Some(2.0), ..Need::default() };
        let svg = front(&paper(), &need, Objective::Risk, Objective::Rate).unwrap();
        assert_well_formed(&svg);
        assert_eq!(lines(&svg, COLOURS[0]), 1);
        assert_eq!(svg.lines().filter(|line| line.starts_with("<circle")).count(), FRONT_POINTS);
        for said in [unit(Objective::Risk), unit(Objective::Rate), "The highest rate for each risk"]
        {
            assert!(svg.contains(said), "{said}");
        }
        // One channel leaves one point.
        let one = set(&[[0.0, 0.0, 0.0, 1.0]]);
        let svg = front(&one, &Need::default(), Objective::Loss, Objective::Delay).unwrap();
        assert_well_formed(&svg);
        assert_eq!(svg.lines().filter(|line| line.starts_with("<circle")).count(), 1);
    }

    #[test]
    fn a_front_that_cannot_be_is_refused() {
        let need = Need { min_rate: Some(1e3), ..Need::default() };
        let refused = front(&paper(), &need, Objective::Risk, Objective::Delay);
        assert_eq!(refused.unwrap_err().code(), 2);
    }

    #[test]
    fn probabilities_are_logarithmic_where_they_span_decades() {
        let axis = Axis::probability([1e-4, 0.5, 0.0].into_iter());
        let labels: Vec<String> = axis.ticks.iter().map(|tick| axis.label(*tick)).collect();
        assert_eq!(labels, ["1", "0.1", "0.01", "0.001", "10\u{207b}\u{2074}", "0"]);
        assert_eq!(axis.place(0.0)..0.0, axis.range);
        assert!(axis.place(1e-4) > axis.range.start);
        let zero = Axis::probability([0.0, 0.0].into_iter());
        assert_eq!(zero.range, 0.0..1.0);
        let near = Axis::probability([0.02, 0.3].into_iter());
        assert_eq!(near.scale, Scale::Linear { digits: 2 });
    }
}

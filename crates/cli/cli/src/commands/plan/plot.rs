//! Graphs of the properties of channels as SVG: over kappa and mu, and Pareto fronts.

use chart::{Chart, ChartAxis, ChartColor, ChartCurve, ChartPanel, CurveMarks};
use console::CommandFailure;
use console::CommandProgress;
use model::{ChannelSet, PlanRequest, ScheduleObjective, ScheduleRequirements};

use super::refusal::refuse;

/// The objectives of the panels over mu, one panel each.
const OBJECTIVES: [ScheduleObjective; 3] =
    [ScheduleObjective::Risk, ScheduleObjective::Loss, ScheduleObjective::Delay];

/// The number of points of a front.
const FRONT_POINTS: usize = 25;

const KAPPA: &str = "\u{3ba}, shares needed for a symbol:";
const MU: &str = "\u{3bc}, shares sent for a symbol on average";

/// An SVG document with the rate over mu, and with the minimum risk, loss and delay at full rate
/// over mu, one curve for each kappa. The channels' names are below the title.
pub(super) fn properties(set: &ChannelSet, names: &[String]) -> Result<String, CommandFailure> {
    let least = least(set)?;
    let mut panels = vec![rates(set)];
    for (i, objective) in OBJECTIVES.into_iter().enumerate() {
        let curves = least.iter().enumerate().map(|(colour, least)| ChartCurve {
            name: least.kappa.to_string(),
            colour: ChartColor::Nth(colour),
            points: least.points.iter().map(|(mu, values)| (*mu, values[i])).collect(),
            ..ChartCurve::default()
        });
        let curves: Vec<ChartCurve> = curves.collect();
        let values = curves.iter().flat_map(ChartCurve::values);
        let y = match objective {
            ScheduleObjective::Risk | ScheduleObjective::Loss => {
                ChartAxis::auto_scaled(unit(objective), values)
            }
            _ => ChartAxis::from_zero(unit(objective), values),
        };
        let title = format!("Least {} at full rate", name(objective));
        panels.push(ChartPanel { title, x: multiplicity(set), y, curves });
    }
    draw(&Chart {
        title: String::from("Properties of these channels"),
        note: names.join(", "),
        legend: KAPPA.to_owned(),
        panels,
    })
}

/// An SVG document with the Pareto front of two properties under a request.
pub(super) fn front(
    set: &ChannelSet,
    request: &PlanRequest,
    first: ScheduleObjective,
    second: ScheduleObjective,
) -> Result<String, CommandFailure> {
    let front = set.pareto_front(request, first, second, FRONT_POINTS).map_err(refuse)?;
    let progress = CommandProgress::steps(front.len() as u64);
    let mut points = Vec::new();
    for plan in front {
        let averages = plan.map_err(refuse)?.averages;
        points.push((averages.value_of(first), averages.value_of(second)));
        progress.advance(1);
    }
    let best = if second == ScheduleObjective::Rate { "highest" } else { "least" };
    let values = points.iter().map(|point| point.1);
    let panel = ChartPanel {
        title: format!("The {best} {} for each {}", name(second), name(first)),
        x: ChartAxis::from_minimum(unit(first), points.iter().map(|point| point.0)),
        y: match second {
            ScheduleObjective::Risk | ScheduleObjective::Loss => {
                ChartAxis::auto_scaled(unit(second), values)
            }
            _ => ChartAxis::from_minimum(unit(second), values),
        },
        curves: vec![ChartCurve {
            colour: ChartColor::Nth(0),
            points,
            marks: CurveMarks::All,
            ..ChartCurve::default()
        }],
    };
    draw(&Chart { panels: vec![panel], ..Chart::default() })
}

/// The minimum of three properties at full rate, for one kappa.
struct FullRateMinima {
    kappa: u32,
    /// mu, and risk, loss and delay.
    points: Vec<(f64, [f64; 3])>,
}

/// The minima at full rate for each kappa that is drawn.
fn least(set: &ChannelSet) -> Result<Vec<FullRateMinima>, CommandFailure> {
    let n = count(set);
    let grid: Vec<(u32, Vec<f64>)> =
        kappas(n).into_iter().map(|k| (k, multiplicities(k, n))).collect();
    let progress = CommandProgress::steps(grid.iter().map(|(_, mus)| mus.len() as u64).sum());
    let mut curves = Vec::new();
    for (kappa, mus) in grid {
        let mut points = Vec::new();
        for mu in mus {
            let mut least = [0.0; 3];
            for (value, objective) in least.iter_mut().zip(OBJECTIVES) {
                let requirements = ScheduleRequirements {
                    kappa: Some(f64::from(kappa)),
                    mu: Some(mu),
                    full_rate: true,
                    objectives: vec![objective],
                    ..ScheduleRequirements::default()
                };
                let request =
                    PlanRequest::new(requirements).map_err(|error| refuse(error.into()))?;
                *value = set.plan(&request).map_err(refuse)?.averages.value_of(objective);
            }
            points.push((mu, least));
            progress.advance(1);
        }
        curves.push(FullRateMinima { kappa, points });
    }
    Ok(curves)
}

/// The values of kappa that are drawn: all, unless so many channels make each linear program slow.
fn kappas(n: u32) -> Vec<u32> {
    match n {
        0..=8 => (1..=n).collect(),
        9..=12 => (0..5).map(|i| 1 + i * (n - 1) / 4).collect(),
        _ => (0..3).map(|i| 1 + i * (n - 1) / 2).collect(),
    }
}

/// The values of mu that are drawn for a kappa, evenly spaced from kappa to n: in steps of 0.1,
/// unless there are many channels.
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

/// The full rate over mu.
fn rates(set: &ChannelSet) -> ChartPanel {
    let steps = 10 * (count(set) - 1);
    let mu = |i| 1.0 + f64::from(i) / 10.0;
    let points = (0..=steps).filter_map(|i| Some((mu(i), set.best_rate(mu(i))?))).collect();
    let curve = ChartCurve { points, ..ChartCurve::default() };
    let y = ChartAxis::from_zero(unit(ScheduleObjective::Rate), curve.values());
    ChartPanel { title: String::from("Full rate"), x: multiplicity(set), y, curves: vec![curve] }
}

/// The axis of mu.
fn multiplicity(set: &ChannelSet) -> ChartAxis {
    ChartAxis::for_integers(MU, 1..=count(set))
}

fn draw(chart: &Chart) -> Result<String, CommandFailure> {
    chart.svg().map_err(|error| CommandFailure::Failed(error.to_string()))
}

/// The property of an objective.
fn name(objective: ScheduleObjective) -> &'static str {
    match objective {
        ScheduleObjective::Risk => "risk",
        ScheduleObjective::Loss => "loss",
        ScheduleObjective::Delay => "delay",
        ScheduleObjective::DeliveredDelay => "delay of the symbols that arrive",
        ScheduleObjective::Rate => "rate",
        ScheduleObjective::Cost => "price of a GB",
    }
}

/// The property and its unit.
fn unit(objective: ScheduleObjective) -> &'static str {
    match objective {
        ScheduleObjective::Risk => "risk, probability for a symbol",
        ScheduleObjective::Loss => "loss, probability for a symbol",
        ScheduleObjective::Delay => "delay, ms",
        ScheduleObjective::DeliveredDelay => "delay of the symbols that arrive, ms",
        ScheduleObjective::Rate => "rate, Mbit/s",
        ScheduleObjective::Cost => "price of a GB",
    }
}

#[cfg(test)]
mod tests {
    use model::{ChannelModel, LossProbability, RiskProbability};

    use super::*;

    fn set(channels: &[[f64; 4]]) -> ChannelSet {
        let channels = channels.iter().map(|[z, l, d, r]| {
            ChannelModel::new(RiskProbability(*z), LossProbability(*l), *d, *r).unwrap()
        });
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

    /// The number of elements of a kind with a colour.
    fn elements(svg: &str, kind: &str, colour: &str) -> usize {
        svg.lines().filter(|line| line.starts_with(kind) && line.contains(colour)).count()
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
        for text in titles.into_iter().chain(OBJECTIVES.map(unit)).chain([MU, KAPPA]) {
            assert!(svg.contains(text), "{text}");
        }
        for colour in ["#0072B2", "#D55E00", "#009E73", "#CC79A7"] {
            let lines = elements(&svg, "<polyline", colour);
            assert_eq!(lines, 4, "risk, loss, delay and the legend in {colour}");
        }
        // kappa = 5 has one mu, which is a dot in each panel and in the legend.
        assert_eq!(elements(&svg, "<circle", "#E69F00"), 4);
        assert_eq!(elements(&svg, "<circle", "#56B4E9"), 0, "there is no kappa = 6");
    }

    #[test]
    fn names_are_text_and_not_markup() {
        let name = "<a & \"b\">\u{1}".to_owned();
        let svg = properties(&set(&[[0.1, 0.01, 1.0, 1.0]]), &[name]).unwrap();
        assert_well_formed(&svg);
        assert!(svg.contains("&lt;a &amp; &quot;b&quot;&gt;\u{fffd}"), "{svg}");
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
        let requirements =
            ScheduleRequirements { kappa: Some(2.0), ..ScheduleRequirements::default() };
        let request = PlanRequest::new(requirements).unwrap();
        let svg =
            front(&paper(), &request, ScheduleObjective::Risk, ScheduleObjective::Rate).unwrap();
        assert_well_formed(&svg);
        assert_eq!(elements(&svg, "<polyline", "#0072B2"), 1);
        assert_eq!(elements(&svg, "<circle", "#0072B2"), FRONT_POINTS);
        for text in [
            unit(ScheduleObjective::Risk),
            unit(ScheduleObjective::Rate),
            "The highest rate for each risk",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        // A single channel has one point.
        let one = set(&[[0.0, 0.0, 0.0, 1.0]]);
        let svg = front(
            &one,
            &PlanRequest::new(ScheduleRequirements::default()).unwrap(),
            ScheduleObjective::Loss,
            ScheduleObjective::Delay,
        )
        .unwrap();
        assert_well_formed(&svg);
        assert_eq!(elements(&svg, "<circle", "#0072B2"), 1);
    }

    #[test]
    fn a_front_that_cannot_be_is_refused() {
        let requirements =
            ScheduleRequirements { min_rate: Some(1e3), ..ScheduleRequirements::default() };
        let request = PlanRequest::new(requirements).unwrap();
        let refused = front(&paper(), &request, ScheduleObjective::Risk, ScheduleObjective::Delay);
        assert_eq!(refused.unwrap_err().code(), 2);
    }
}

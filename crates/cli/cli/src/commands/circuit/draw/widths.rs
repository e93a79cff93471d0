//! The number of gates at each AND-depth.

use chart::{Chart, ChartAxis, ChartColor, ChartCurve, ChartPanel, CurveMarks};
use circuit::{Circuit, GateKind};
use console::CommandFailure;

/// The most points of a curve; of more depths, neighbours are one point.
const MAX_POINTS: usize = 500;

/// Draws it.
///
/// # Errors
/// If the graphics library fails.
pub(super) fn svg(name: &str, circuit: &Circuit) -> Result<String, CommandFailure> {
    let widths = widths(circuit);
    let group = widths.len().div_ceil(MAX_POINTS).max(1);
    let curve = |name: &str, nth, of: fn(&[u32; 2]) -> u32| {
        let mean = |group: &[[u32; 2]]| {
            let sum: f64 = group.iter().map(|width| f64::from(of(width))).sum();
            sum / f64::from(u32::try_from(group.len()).unwrap_or(1))
        };
        let depths = (0..).step_by(group).map(|depth: u32| f64::from(depth));
        ChartCurve {
            name: name.to_owned(),
            colour: ChartColor::Nth(nth),
            points: depths.zip(widths.chunks(group).map(mean)).collect(),
            marks: CurveMarks::None,
            ..ChartCurve::default()
        }
    };
    let curves =
        vec![curve("AND", 1, |[ands, _]| *ands), curve("XOR and INV", 0, |[_, linear]| *linear)];
    let panel = ChartPanel {
        title: String::new(),
        x: ChartAxis::for_integers(
            "AND-depth",
            0..=u32::try_from(widths.len()).unwrap_or(u32::MAX),
        ),
        y: ChartAxis::auto_scaled("gates", curves.iter().flat_map(ChartCurve::values)),
        curves,
    };
    let counts = circuit.counts();
    let note = format!("{} AND, {} XOR, {} INV", counts.ands, counts.xors, counts.nots);
    let chart = Chart { title: name.to_owned(), note, panels: vec![panel], ..Chart::default() };
    chart.svg().map_err(|error| CommandFailure::Failed(format!("cannot draw the circuit: {error}")))
}

/// The ANDs and the linear gates of each depth: the number of ANDs on the longest path from the
/// inputs to the gate.
fn widths(circuit: &Circuit) -> Vec<[u32; 2]> {
    let mut widths = vec![[0; 2]];
    let mut depths = vec![0; circuit.first_gate() as usize];
    for gate in circuit.gates() {
        let depth: usize = depths[gate.a as usize].max(depths[gate.b as usize]);
        let is_and = gate.kind == GateKind::And;
        if depth == widths.len() {
            widths.push([0; 2]);
        }
        widths[depth][usize::from(!is_and)] += 1;
        depths.push(depth + usize::from(is_and));
    }
    widths
}

//! The gates and wires of a circuit, from left to right.

use std::fmt::Write;

use circuit::{Circuit, FIRST_INPUT, GateKind, ONE, ZERO};

/// The distances of columns and rows, in pixels.
const COLUMN: f64 = 90.0;
const ROW: f64 = 34.0;

/// A gate, an input or an output.
struct DiagramNode {
    label: String,
    class: &'static str,
    column: u32,
    row: f64,
    /// The nodes that it reads.
    from: Vec<usize>,
}

/// Draws it.
pub(super) fn svg(circuit: &Circuit) -> String {
    let nodes = nodes(circuit);
    let place =
        |node: &DiagramNode| (60.0 + COLUMN * f64::from(node.column), 30.0 + ROW * node.row);
    let extent = |of: fn((f64, f64)) -> f64| nodes.iter().map(|n| of(place(n))).fold(0.0, f64::max);
    let (width, height) = (extent(|at| at.0) + 60.0, extent(|at| at.1) + 30.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>\n\
         text {{ font: 11px sans-serif; text-anchor: middle; dominant-baseline: central }}\n\
         path {{ stroke: #999; fill: none }}\nrect {{ stroke: #333; fill: #fff }}\n\
         .and {{ fill: #f3c9a8 }}\n.input {{ fill: #cfe3f3 }}\n.output {{ fill: #c9e9df }}\n\
         </style>\n<rect width=\"100%\" height=\"100%\" style=\"stroke: none\"/>\n"
    );
    // Writing to a string does not fail.
    for node in &nodes {
        let (x, y) = place(node);
        for &from in &node.from {
            let start = place(&nodes[from]);
            let middle = f64::midpoint(start.0, x);
            let _ = writeln!(
                svg,
                "<path d=\"M{:.0} {:.1} C{middle:.0} {:.1} {middle:.0} {y:.1} {:.0} {y:.1}\"/>",
                start.0 + 22.0,
                start.1,
                start.1,
                x - 22.0
            );
        }
    }
    for node in &nodes {
        let (x, y) = place(node);
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{:.0}\" y=\"{:.1}\" width=\"44\" height=\"20\" rx=\"4\"/>\
             <text x=\"{x:.0}\" y=\"{y:.1}\">{}</text>",
            node.class,
            x - 22.0,
            y - 10.0,
            node.label
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The constants that are read, the inputs, the gates and the outputs, with their places.
fn nodes(circuit: &Circuit) -> Vec<DiagramNode> {
    let mut nodes: Vec<DiagramNode> = Vec::new();
    // The node of each wire.
    let mut node_of = vec![usize::MAX; circuit.wires() as usize];
    let is_read = |wire| {
        let reads =
            |gate: circuit::Gate| gate.a == wire || (gate.b == wire && gate.kind == GateKind::And);
        circuit.outputs().contains(&wire) || circuit.gates().any(reads)
    };
    let source =
        |label: String| DiagramNode { label, class: "input", column: 0, row: 0.0, from: vec![] };
    for constant in [ZERO, ONE].into_iter().filter(|&constant| is_read(constant)) {
        node_of[constant as usize] = nodes.len();
        nodes.push(source(constant.to_string()));
    }
    for wire in FIRST_INPUT..circuit.first_gate() {
        let i = wire - FIRST_INPUT;
        let evaluator = i.checked_sub(circuit.garbler_inputs());
        node_of[wire as usize] = nodes.len();
        nodes.push(source(evaluator.map_or_else(|| format!("g{i}"), |i| format!("e{i}"))));
    }
    for (wire, gate) in (circuit.first_gate()..).zip(circuit.gates()) {
        let (label, class, inputs) = match (gate.kind, gate.b) {
            (GateKind::And, _) => ("AND", "and", vec![gate.a, gate.b]),
            (GateKind::Xor, ONE) => ("INV", "linear", vec![gate.a]),
            (GateKind::Xor, ZERO) => ("copy", "linear", vec![gate.a]),
            (GateKind::Xor, _) => ("XOR", "linear", vec![gate.a, gate.b]),
        };
        let from: Vec<usize> = inputs.into_iter().map(|wire| node_of[wire as usize]).collect();
        let column = from.iter().map(|&from| nodes[from].column + 1).max().unwrap_or(1);
        node_of[wire as usize] = nodes.len();
        nodes.push(DiagramNode { label: label.to_owned(), class, column, row: 0.0, from });
    }
    let last = nodes.iter().map(|node| node.column + 1).max().unwrap_or(1);
    for (i, &wire) in circuit.outputs().iter().enumerate() {
        let from = vec![node_of[wire as usize]];
        nodes.push(DiagramNode {
            label: format!("o{i}"),
            class: "output",
            column: last,
            row: 0.0,
            from,
        });
    }
    set_rows(&mut nodes, last);
    nodes
}

/// Puts the nodes of each column one below the other, in the order of what they read, the columns
/// centred.
fn set_rows(nodes: &mut [DiagramNode], last: u32) {
    let mut columns = vec![Vec::new(); last as usize + 1];
    for (i, node) in nodes.iter().enumerate() {
        columns[node.column as usize].push(i);
    }
    let rows = |length: usize| f64::from(u32::try_from(length).unwrap_or(u32::MAX));
    let tallest = columns.iter().map(Vec::len).max().unwrap_or(0);
    for mut column in columns {
        let mean = |i: &usize| {
            let from = &nodes[*i].from;
            from.iter().map(|&from| nodes[from].row).sum::<f64>() / rows(from.len().max(1))
        };
        // Outputs keep their order.
        let is_output = column.first().is_some_and(|&i| nodes[i].class == "output");
        if !is_output {
            column.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        }
        let above = rows(tallest - column.len()) / 2.0;
        for (row, i) in column.into_iter().enumerate() {
            nodes[i].row = above + rows(row);
        }
    }
}

//! Netlists that yosys writes (`write_json`), as from Verilog. docs/formats/circuit.md describes
//! what is read.

mod cells;
mod document;
mod order;

use std::collections::HashMap;

use thiserror::Error;

use crate::batch::{FIRST_INPUT, Wire, ZERO};
use crate::bristol::MAX_INPUTS;
use crate::builder::CircuitBuilder;
use crate::circuit::Circuit;
use cells::{CellOutput, CellReader};
use document::{YosysBit, YosysDocument, YosysModule, YosysPort};
use order::needed_cells;

/// The maximum number of gates of a netlist's circuit, before those that no output needs are
/// dropped.
pub const MAX_NETLIST_GATES: u32 = 1 << 26;

/// Why a netlist is not a circuit. Names are those of the netlist, shortened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetlistError {
    /// The text is not JSON, or not that of a netlist.
    #[error("this is not a netlist that yosys has written: {0}")]
    NotNetlist(String),
    /// There is no module, or there are several and none is the top.
    #[error(
        "there are {0} modules, and none is marked as the top one: give yosys `prep -flatten -top \
         MODULE`"
    )]
    NoTop(usize),
    /// A port is of neither direction.
    #[error("port {port} is {direction}: a circuit has inputs and outputs only")]
    Direction {
        /// The port.
        port: String,
        /// The direction.
        direction: String,
    },
    /// More inputs than [`MAX_INPUTS`].
    #[error("there are more than {MAX_INPUTS} input bits")]
    TooManyInputs,
    /// An instance of another module.
    #[error(
        "{cell} is an instance of module {module}, which is not part of the top module: give \
         yosys `prep -flatten`"
    )]
    NotFlattened {
        /// The cell, and its place in the source.
        cell: String,
        /// The module.
        module: String,
    },
    /// A cell that keeps a state.
    #[error(
        "{cell} ({kind}) keeps a state from one clock cycle to the next: a circuit is computed \
         once, and its outputs depend on its inputs alone"
    )]
    Sequential {
        /// The cell, and its place in the source.
        cell: String,
        /// Its type.
        kind: String,
    },
    /// A cell of a type that is not read.
    #[error(
        "{cell} has the type {kind}, which is not read here: add `techmap` before `write_json`"
    )]
    UnknownCell {
        /// The cell, and its place in the source.
        cell: String,
        /// Its type.
        kind: String,
    },
    /// A cell without a port that its type needs, or with a wrong number of bits.
    #[error("{cell} ({kind}) has no port {port}, or not as many bits there as it needs")]
    Port {
        /// The cell, and its place in the source.
        cell: String,
        /// Its type.
        kind: String,
        /// The port.
        port: &'static str,
    },
    /// The output of a cell depends on itself.
    #[error("the output of {0} depends on itself, without a clock")]
    Loop(String),
    /// A bit that two cells or inputs define.
    #[error("net {0} is defined twice")]
    DefinedTwice(u64),
    /// A bit that nothing defines.
    #[error("nothing defines net {net}, which {reader} reads")]
    NotDefined {
        /// The net.
        net: u64,
        /// The cell or port that reads it.
        reader: String,
    },
    /// The circuit is too large.
    #[error("the circuit has more than {MAX_NETLIST_GATES} gates")]
    TooManyGates,
}

/// Reads a netlist in yosys' JSON: the top module's inputs become the input values, in the order of
/// its ports, and its outputs the output values. The first input value is the garbler's.
///
/// Undefined bits (`x`) are 0. Memory is bounded by a multiple of the text's length, [`MAX_INPUTS`]
/// and [`MAX_NETLIST_GATES`].
///
/// # Errors
/// If the text is not a netlist, or its outputs depend on anything but its inputs.
pub fn read(text: &[u8]) -> Result<Circuit, NetlistError> {
    let document: YosysDocument = serde_json::from_slice(text)
        .map_err(|error| NetlistError::NotNetlist(printable(&error.to_string())))?;
    let module = top(document.modules.0)?;
    let (mut builder, mut wires) = inputs(&module)?;
    for cell in needed_cells(&module, &wires)? {
        let cell = &module.cells.0[cell];
        let CellOutput { nets, values } = CellReader::new(&mut builder, &wires, cell).read()?;
        for (bit, value) in nets.iter().zip(values) {
            if let &YosysBit::Net(net) = bit {
                wires.insert(net, value);
            }
        }
    }
    let outputs: Vec<Vec<Wire>> =
        module.ports("output").map(|(_, bits)| wires_of(bits, &wires)).collect();
    let outputs: Vec<&[Wire]> = outputs.iter().map(Vec::as_slice).collect();
    Ok(builder.finish(&outputs))
}

/// The only module, or the one that is marked as the top.
fn top(mut modules: Vec<(String, YosysModule)>) -> Result<YosysModule, NetlistError> {
    let count = modules.len();
    modules.retain(|(_, module)| count == 1 || module.is_top());
    match (modules.pop(), modules.is_empty()) {
        (Some((_, module)), true) => Ok(module),
        _ => Err(NetlistError::NoTop(count)),
    }
}

/// A circuit with the inputs of a module, and their wires by net.
fn inputs(module: &YosysModule) -> Result<(CircuitBuilder, HashMap<u64, Wire>), NetlistError> {
    for (name, YosysPort { direction, .. }) in &module.ports.0 {
        if direction != "input" && direction != "output" {
            let (port, direction) = (printable(name), printable(direction));
            return Err(NetlistError::Direction { port, direction });
        }
    }
    let bits = module.ports("input").map(|(_, bits)| u32::try_from(bits.len()));
    let bits: Vec<u32> = bits.collect::<Result<_, _>>().map_err(|_| NetlistError::TooManyInputs)?;
    if bits.iter().map(|&bits| u64::from(bits)).sum::<u64>() > MAX_INPUTS.into() {
        return Err(NetlistError::TooManyInputs);
    }
    let mut wires = HashMap::new();
    let all = module.ports("input").flat_map(|(_, bits)| bits);
    for (bit, wire) in all.zip(FIRST_INPUT..) {
        if let &YosysBit::Net(net) = bit
            && wires.insert(net, wire).is_some()
        {
            return Err(NetlistError::DefinedTwice(net));
        }
    }
    Ok((CircuitBuilder::new(&bits), wires))
}

/// The wires of bits, all of which are defined.
fn wires_of(bits: &[YosysBit], wires: &HashMap<u64, Wire>) -> Vec<Wire> {
    let wire = |bit: &YosysBit| match bit {
        YosysBit::Net(net) => wires.get(net).copied().unwrap_or(ZERO),
        YosysBit::Constant(value) => Wire::from(*value),
    };
    bits.iter().map(wire).collect()
}

/// A text of the netlist for an error of one line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(200).map(|it| if it.is_control() { '?' } else { it }).collect()
}

//! Netlists in the Berkeley Logic Interchange Format (BLIF), as yosys (`write_blif`) and other
//! tools write them. docs/formats/circuit.md describes what is read.

mod cover;
mod model;
mod order;

use thiserror::Error;

use crate::batch::{FIRST_INPUT, Wire, ZERO};
use crate::bristol::MAX_INPUTS;
use crate::builder::CircuitBuilder;
use crate::circuit::Circuit;
use crate::netlist::MAX_NETLIST_GATES;
use model::BlifModel;

/// Why a text is not a circuit, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct BlifError {
    /// The number of the line, from 1, in which the command or the row begins. If something is
    /// missing at the end, it is the last one.
    pub line: usize,
    /// What is wrong.
    pub reason: BlifReason,
}

/// What is wrong in a line of a netlist. Names are those of the netlist, shortened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlifReason {
    /// A command that is not read.
    #[error("{0} is not a command of BLIF that is read here")]
    UnknownCommand(String),
    /// A line that is no command, where no row of a `.names` can be.
    #[error("this is neither a command of BLIF nor a row of a .names")]
    NoCommand,
    /// A command without the names that it needs.
    #[error("{0} needs {1}")]
    MissingName(&'static str, &'static str),
    /// A row that does not fit the inputs.
    #[error(
        "a row of a .names with {0} inputs has {0} characters, each of them 0, 1 or -, and then 0 \
         or 1"
    )]
    WrongRow(usize),
    /// Rows of one function with both values.
    #[error("the rows of one .names must all end with 1, or all with 0")]
    BothValues,
    /// An instance of another model or of a cell.
    #[error(
        "an instance of {0}: only .names are read here; give yosys `synth -flatten` before \
         `write_blif`, or use `write_json`"
    )]
    Instance(String),
    /// A latch, or a clock.
    #[error(
        "{0} keeps a state from one clock cycle to the next: a circuit is computed once, and its \
         outputs depend on its inputs alone"
    )]
    Sequential(&'static str),
    /// There are no outputs.
    #[error("there are no .outputs")]
    NoOutputs,
    /// A net that two functions or inputs define.
    #[error("net {0} is defined already")]
    DefinedTwice(String),
    /// A net that nothing defines.
    #[error("nothing defines net {0}")]
    NotDefined(String),
    /// A net that depends on itself.
    #[error("net {0} depends on itself, without a clock")]
    Loop(String),
    /// More inputs than [`MAX_INPUTS`].
    #[error("there are more than {MAX_INPUTS} input bits")]
    TooManyInputs,
    /// The circuit is too large.
    #[error("the circuit has more than {MAX_NETLIST_GATES} gates")]
    TooManyGates,
}

/// Whether a text begins as a netlist in BLIF, and not as a circuit in another format: its first
/// word outside comments begins with a point.
pub(crate) fn is_blif(text: &[u8]) -> bool {
    model::BlifLines::new(text).next().is_some_and(|(_, words)| words[0].starts_with(b"."))
}

/// Reads the first model of a netlist. Inputs `NAME[0]`, `NAME[1]` and so on are the bits of one
/// input value, in the order of the text, the lowest first; so are outputs. The values are in the
/// order of their first bits. The first input value is the garbler's.
///
/// Memory is bounded by a multiple of the text's length, and [`MAX_NETLIST_GATES`].
///
/// # Errors
/// If the text is not BLIF, or its outputs depend on anything but its inputs.
pub fn read(text: &[u8]) -> Result<Circuit, BlifError> {
    let model = BlifModel::read(text)?;
    let inputs = model.values(&model.inputs);
    let bits = inputs.iter().map(|nets| u32::try_from(nets.len()));
    let bits: Vec<u32> = bits.collect::<Result<_, _>>().map_err(|_| model.too_many_inputs())?;
    if model.inputs.len() > MAX_INPUTS as usize {
        return Err(model.too_many_inputs());
    }
    let mut builder = CircuitBuilder::new(&bits);
    let mut wires = vec![ZERO; model.names.len()];
    // `builder.input` takes longer for each further value, and each bit may be one.
    for (&net, wire) in inputs.iter().flatten().zip(FIRST_INPUT..) {
        wires[net as usize] = wire;
    }
    for index in order::needed_functions(&model)? {
        let function = &model.functions[index];
        let inputs: Vec<Wire> = function.inputs.iter().map(|&net| wires[net as usize]).collect();
        let wire = function.cover.wire(&mut builder, &inputs);
        let wire = wire.map_err(|reason| BlifError { line: function.line, reason })?;
        wires[function.output as usize] = wire;
    }
    let outputs = model.values(&model.outputs).into_iter();
    let outputs: Vec<Vec<Wire>> =
        outputs.map(|nets| nets.into_iter().map(|net| wires[net as usize]).collect()).collect();
    let outputs: Vec<&[Wire]> = outputs.iter().map(Vec::as_slice).collect();
    Ok(builder.finish(&outputs))
}

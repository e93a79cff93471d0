//! The first model of a text in BLIF: its nets, and the functions that define them.

use std::collections::HashMap;

use super::cover::BlifCover;
use super::{BlifError, BlifReason};
use crate::netlist::printable;

/// The mark that some editors write at the start of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Commands that do not change what a circuit computes: notes of yosys, and times and loads.
const WITHOUT_EFFECT: [&[u8]; 17] = [
    b".attr",
    b".param",
    b".cname",
    b".area",
    b".delay",
    b".wire",
    b".wire_load_slope",
    b".input_arrival",
    b".default_input_arrival",
    b".output_required",
    b".default_output_required",
    b".input_drive",
    b".default_input_drive",
    b".output_load",
    b".default_output_load",
    b".max_input_load",
    b".default_max_input_load",
];

/// The lines of a text without comments, each with the lines that continue it.
pub(super) struct BlifLines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> BlifLines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text), number: 0 }
    }
}

impl<'a> Iterator for BlifLines<'a> {
    /// The number of the line in which the first word is, from 1, and the words, at least one.
    type Item = (usize, Vec<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut first, mut words) = (0, Vec::new());
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|&byte| byte == b'\n').unwrap_or(self.rest.len());
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            self.number += 1;
            let comment = line.iter().position(|&byte| byte == b'#').unwrap_or(line.len());
            let line = line[..comment].trim_ascii_end();
            let continued = line.strip_suffix(b"\\");
            if words.is_empty() {
                first = self.number;
            }
            let of_line = continued.unwrap_or(line).split(u8::is_ascii_whitespace);
            words.extend(of_line.filter(|word| !word.is_empty()));
            if continued.is_none() && !words.is_empty() {
                break;
            }
        }
        (!words.is_empty()).then_some((first, words))
    }
}

/// What defines a net.
#[derive(Clone, Copy)]
pub(super) enum BlifDriver {
    Nothing,
    Input,
    /// The function of this index.
    Function(usize),
}

/// A net as a function of others.
pub(super) struct BlifFunction<'a> {
    pub(super) line: usize,
    pub(super) inputs: Vec<u32>,
    pub(super) output: u32,
    pub(super) cover: BlifCover<'a>,
}

/// A model. Nets are numbers.
#[derive(Default)]
pub(super) struct BlifModel<'a> {
    /// The name of each net, and what defines it.
    pub(super) names: Vec<&'a [u8]>,
    pub(super) drivers: Vec<BlifDriver>,
    pub(super) inputs: Vec<u32>,
    pub(super) outputs: Vec<u32>,
    pub(super) functions: Vec<BlifFunction<'a>>,
    /// The lines of the last inputs and outputs.
    inputs_line: usize,
    pub(super) outputs_line: usize,
    nets: HashMap<&'a [u8], u32>,
}

impl<'a> BlifModel<'a> {
    /// Reads the first model. What follows it, such as other models, has no meaning for it.
    pub(super) fn read(text: &'a [u8]) -> Result<Self, BlifError> {
        let mut model = Self::default();
        let (mut has_begun, mut last) = (false, 1);
        // Whether rows may follow for the last function.
        let mut has_rows = false;
        for (line, words) in BlifLines::new(text) {
            last = line;
            let failed = |reason| BlifError { line, reason };
            let (command, arguments) = (words[0], &words[1..]);
            if !command.starts_with(b".") {
                let function = model.functions.last_mut().filter(|_| has_rows);
                let function = function.ok_or(failed(BlifReason::NoCommand))?;
                function.cover.add_row(function.inputs.len(), &words).map_err(failed)?;
                continue;
            }
            if WITHOUT_EFFECT.contains(&command) {
                continue;
            }
            has_rows = command == b".names";
            // The first model may lack its `.model`.
            let is_first = !std::mem::replace(&mut has_begun, true);
            match command {
                b".model" if is_first => {}
                // A network of what does not matter follows `.exdc`.
                b".model" | b".end" | b".exdc" => break,
                b".inputs" => {
                    model.inputs_line = line;
                    model.add_inputs(arguments).map_err(failed)?;
                }
                b".outputs" => {
                    model.outputs_line = line;
                    for &name in arguments {
                        let net = model.net(name);
                        model.outputs.push(net);
                    }
                }
                b".names" => {
                    let cover = BlifCover::default();
                    model.add_function(line, arguments, cover, ".names").map_err(failed)?;
                }
                b".conn" | b".barbuf" => {
                    if arguments.len() != 2 {
                        let reason = BlifReason::MissingName(".conn", "the names of two nets");
                        return Err(failed(reason));
                    }
                    let cover = BlifCover::copy();
                    model.add_function(line, arguments, cover, ".conn").map_err(failed)?;
                }
                b".latch" | b".mlatch" => return Err(failed(BlifReason::Sequential(".latch"))),
                b".clock" => return Err(failed(BlifReason::Sequential(".clock"))),
                b".subckt" | b".gate" => {
                    let name = arguments.first().copied().unwrap_or_default();
                    return Err(failed(BlifReason::Instance(text_of(name))));
                }
                _ => return Err(failed(BlifReason::UnknownCommand(text_of(command)))),
            }
        }
        if model.outputs.is_empty() {
            return Err(BlifError { line: last, reason: BlifReason::NoOutputs });
        }
        Ok(model)
    }

    /// The number of a net.
    fn net(&mut self, name: &'a [u8]) -> u32 {
        let new = u32::try_from(self.names.len()).expect("a text of less than 8 GB");
        let net = *self.nets.entry(name).or_insert(new);
        if net == new {
            self.names.push(name);
            self.drivers.push(BlifDriver::Nothing);
        }
        net
    }

    fn define(&mut self, net: u32, driver: BlifDriver) -> Result<(), BlifReason> {
        match std::mem::replace(&mut self.drivers[net as usize], driver) {
            BlifDriver::Nothing => Ok(()),
            _ => Err(BlifReason::DefinedTwice(self.name(net))),
        }
    }

    fn add_inputs(&mut self, names: &[&'a [u8]]) -> Result<(), BlifReason> {
        for &name in names {
            let net = self.net(name);
            self.define(net, BlifDriver::Input)?;
            self.inputs.push(net);
        }
        Ok(())
    }

    /// Adds a function of all nets but the last, which it defines.
    fn add_function(
        &mut self,
        line: usize,
        names: &[&'a [u8]],
        cover: BlifCover<'a>,
        command: &'static str,
    ) -> Result<(), BlifReason> {
        let Some((&output, inputs)) = names.split_last() else {
            return Err(BlifReason::MissingName(command, "the name of a net"));
        };
        let inputs = inputs.iter().map(|&name| self.net(name)).collect();
        let output = self.net(output);
        self.define(output, BlifDriver::Function(self.functions.len()))?;
        self.functions.push(BlifFunction { line, inputs, output, cover });
        Ok(())
    }

    /// The name of a net, for an error.
    pub(super) fn name(&self, net: u32) -> String {
        text_of(self.names[net as usize])
    }

    pub(super) fn too_many_inputs(&self) -> BlifError {
        BlifError { line: self.inputs_line, reason: BlifReason::TooManyInputs }
    }

    /// The nets of values: bits with the same name before an index are one value.
    pub(super) fn values(&self, nets: &[u32]) -> Vec<Vec<u32>> {
        let mut values: Vec<Vec<u32>> = Vec::new();
        let mut vectors = HashMap::new();
        for &net in nets {
            let place = match vector_name(self.names[net as usize]) {
                Some(name) => *vectors.entry(name).or_insert(values.len()),
                None => values.len(),
            };
            if place == values.len() {
                values.push(Vec::new());
            }
            values[place].push(net);
        }
        values
    }
}

/// The name of the vector of which a net is a bit: `NAME` of `NAME[0]`.
fn vector_name(net: &[u8]) -> Option<&[u8]> {
    let net = net.strip_suffix(b"]")?;
    let open = net.iter().rposition(|&byte| byte == b'[')?;
    let (vector, index) = (&net[..open], &net[open + 1..]);
    let is_index = !index.is_empty() && index.iter().all(u8::is_ascii_digit);
    (is_index && !vector.is_empty()).then_some(vector)
}

/// A word of the text for an error of one line.
fn text_of(word: &[u8]) -> String {
    printable(&String::from_utf8_lossy(word))
}

//! The cells that the outputs of a module need, each after those whose outputs it reads.

use std::collections::HashMap;
use std::vec::IntoIter;

use super::document::{YosysBit, YosysCell, YosysModule};
use super::{NetlistError, printable};
use crate::batch::Wire;

/// The indices of the needed cells, in order. `inputs` are the nets of the module's inputs.
///
/// # Errors
/// If an output depends on a state, on itself, or on something that is not defined.
pub(super) fn needed_cells(
    module: &YosysModule,
    inputs: &HashMap<u64, Wire>,
) -> Result<Vec<usize>, NetlistError> {
    let cells = &module.cells.0;
    let walk = CellWalk {
        cells,
        inputs,
        drivers: drivers(cells, inputs)?,
        states: vec![CellState::New; cells.len()],
        open: Vec::new(),
        order: Vec::new(),
    };
    walk.order_for(module)
}

/// The label of a cell in errors.
pub(super) fn label((name, cell): &(String, YosysCell)) -> String {
    match cell.source() {
        Some(source) => format!("{}: cell {}", printable(source), printable(name)),
        None => format!("cell {}", printable(name)),
    }
}

/// The cells by the nets that they define.
fn drivers(
    cells: &[(String, YosysCell)],
    inputs: &HashMap<u64, Wire>,
) -> Result<HashMap<u64, usize>, NetlistError> {
    let mut drivers = HashMap::new();
    for (index, cell) in cells.iter().enumerate() {
        if !cell.1.kind.starts_with('$') {
            let (cell, module) = (label(cell), printable(&cell.1.kind));
            return Err(NetlistError::NotFlattened { cell, module });
        }
        let outputs = cell.1.connections.0.iter().filter(|(port, _)| cell.1.is_output(port));
        for bit in outputs.flat_map(|(_, bits)| bits) {
            if let &YosysBit::Net(net) = bit
                && (inputs.contains_key(&net) || drivers.insert(net, index).is_some())
            {
                return Err(NetlistError::DefinedTwice(net));
            }
        }
    }
    Ok(drivers)
}

#[derive(Clone, Copy)]
enum CellState {
    New,
    /// Cells that it reads are being visited.
    Open,
    Done,
}

/// A search from the outputs, depth first.
struct CellWalk<'a> {
    cells: &'a [(String, YosysCell)],
    inputs: &'a HashMap<u64, Wire>,
    drivers: HashMap<u64, usize>,
    states: Vec<CellState>,
    /// The open cells, and which cells they read that are still to be visited.
    open: Vec<(usize, IntoIter<usize>)>,
    order: Vec<usize>,
}

impl CellWalk<'_> {
    fn order_for(mut self, module: &YosysModule) -> Result<Vec<usize>, NetlistError> {
        for (name, bits) in module.ports("output") {
            for cell in self.drivers_of(bits, || format!("output {}", printable(name)))? {
                self.visit(cell)?;
            }
        }
        Ok(self.order)
    }

    fn visit(&mut self, cell: usize) -> Result<(), NetlistError> {
        self.enter(cell)?;
        while let Some((cell, reads)) = self.open.last_mut() {
            if let Some(next) = reads.next() {
                self.enter(next)?;
            } else {
                self.states[*cell] = CellState::Done;
                self.order.push(*cell);
                self.open.pop();
            }
        }
        Ok(())
    }

    fn enter(&mut self, index: usize) -> Result<(), NetlistError> {
        let named = &self.cells[index];
        match self.states[index] {
            CellState::Done => return Ok(()),
            CellState::Open => return Err(NetlistError::Loop(label(named))),
            CellState::New => self.states[index] = CellState::Open,
        }
        let cell = &named.1;
        if is_sequential(cell) {
            let (kind, cell) = (printable(&cell.kind), label(named));
            return Err(NetlistError::Sequential { cell, kind });
        }
        let mut reads = Vec::new();
        for (port, bits) in &cell.connections.0 {
            if !cell.is_output(port) {
                reads.extend(self.drivers_of(bits, || label(named))?);
            }
        }
        self.open.push((index, reads.into_iter()));
        Ok(())
    }

    /// The cells that define bits.
    fn drivers_of(
        &self,
        bits: &[YosysBit],
        reader: impl Fn() -> String,
    ) -> Result<Vec<usize>, NetlistError> {
        let mut found: Vec<usize> = Vec::new();
        for bit in bits {
            let &YosysBit::Net(net) = bit else { continue };
            match self.drivers.get(&net) {
                Some(&cell) if found.last() == Some(&cell) => {}
                Some(&cell) => found.push(cell),
                None if self.inputs.contains_key(&net) => {}
                None => return Err(NetlistError::NotDefined { net, reader: reader() }),
            }
        }
        Ok(found)
    }
}

/// Whether a cell keeps a state: a flip-flop, a latch, or a memory that is written or has a clock.
fn is_sequential(cell: &YosysCell) -> bool {
    let kind = cell.kind.to_ascii_lowercase();
    match kind.strip_prefix("$mem") {
        Some("_v2") => cell.is_set("WR_PORTS") || cell.is_set("RD_CLK_ENABLE"),
        Some(_) => true,
        None => {
            ["dff", "latch", "fsm"].iter().any(|it| kind.contains(it))
                || ["$ff", "$_ff_", "$sr", "$_sr_"].iter().any(|it| kind.starts_with(it))
        }
    }
}

//! The functions that the outputs of a model need, each after those whose nets it reads.

use super::model::{BlifDriver, BlifModel};
use super::{BlifError, BlifReason};

/// The indices of the needed functions, in order.
///
/// # Errors
/// If an output depends on itself, or on a net that nothing defines.
pub(super) fn needed_functions(model: &BlifModel<'_>) -> Result<Vec<usize>, BlifError> {
    let states = vec![FunctionState::New; model.functions.len()];
    let mut walk = FunctionWalk { model, states, open: Vec::new(), order: Vec::new() };
    for &net in &model.outputs {
        walk.visit(net)?;
    }
    Ok(walk.order)
}

#[derive(Clone, Copy)]
enum FunctionState {
    New,
    /// Functions that it reads are being visited.
    Open,
    Done,
}

/// A search from the outputs, depth first.
struct FunctionWalk<'m> {
    model: &'m BlifModel<'m>,
    states: Vec<FunctionState>,
    /// The open functions, and which input of each is visited next.
    open: Vec<(usize, usize)>,
    order: Vec<usize>,
}

impl FunctionWalk<'_> {
    fn visit(&mut self, output: u32) -> Result<(), BlifError> {
        let model = self.model;
        self.enter(output, model.outputs_line)?;
        while let Some((index, next)) = self.open.last_mut() {
            let function = &model.functions[*index];
            if let Some(&net) = function.inputs.get(*next) {
                *next += 1;
                self.enter(net, function.line)?;
            } else {
                self.states[*index] = FunctionState::Done;
                self.order.push(*index);
                self.open.pop();
            }
        }
        Ok(())
    }

    /// Opens the function that defines a net, which is read in a line.
    fn enter(&mut self, net: u32, line: usize) -> Result<(), BlifError> {
        let index = match self.model.drivers[net as usize] {
            BlifDriver::Input => return Ok(()),
            BlifDriver::Nothing => {
                return Err(BlifError {
                    line,
                    reason: BlifReason::NotDefined(self.model.name(net)),
                });
            }
            BlifDriver::Function(index) => index,
        };
        match self.states[index] {
            FunctionState::Done => Ok(()),
            FunctionState::Open => {
                let line = self.model.functions[index].line;
                Err(BlifError { line, reason: BlifReason::Loop(self.model.name(net)) })
            }
            FunctionState::New => {
                self.states[index] = FunctionState::Open;
                self.open.push((index, 0));
                Ok(())
            }
        }
    }
}

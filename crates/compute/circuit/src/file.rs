//! Circuits in files: whichever of the formats that are read here a text has.

use thiserror::Error;

use crate::blif::{self, BlifError};
use crate::bristol::{self, BristolReadError};
use crate::circuit::Circuit;
use crate::netlist::{self, NetlistError};

/// Why a text is not a circuit, by the format that it begins with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CircuitFileError {
    /// Of one of Bristol's formats, or of none that is read here.
    #[error(transparent)]
    Bristol(#[from] BristolReadError),
    /// A netlist of yosys.
    #[error(transparent)]
    Netlist(#[from] NetlistError),
    /// A netlist in BLIF.
    #[error(transparent)]
    Blif(#[from] BlifError),
}

/// Reads a circuit in one of Bristol's formats, a netlist of yosys in JSON, or one in BLIF.
///
/// # Errors
/// If the text is not a circuit.
pub fn read(text: &[u8]) -> Result<Circuit, CircuitFileError> {
    if text.trim_ascii_start().starts_with(b"{") {
        return Ok(netlist::read(text)?);
    }
    if blif::is_blif(text) {
        return Ok(blif::read(text)?);
    }
    Ok(bristol::read(text)?)
}

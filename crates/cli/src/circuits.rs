//! Circuits by name or file, and their inputs and outputs as hexadecimal numbers.

use std::fs;
use std::path::Path;

use circuit::{Circuit, bits, bristol, generate};

use crate::failure::Failure;

/// A generated circuit by its name, or that of a file.
///
/// # Errors
/// If there is neither, or the file is not a circuit.
pub(crate) fn load(name: &str) -> Result<Circuit, Failure> {
    if let Some(circuit) = generate::named(name) {
        return Ok(circuit);
    }
    let text = fs::read(name).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Usage(format!(
            "{name} is neither a file nor one of {}",
            generate::NAMES.join(", ")
        )),
        _ => Failure::reading(Path::new(name), &error),
    })?;
    bristol::read(&text).map_err(|error| Failure::Usage(format!("{name}: {error}")))
}

/// The bits of a party's input: bit i is bit `i mod 8` of byte `i div 8`.
///
/// # Errors
/// If it is not hexadecimal, or does not have as many bytes as the circuit needs.
pub(crate) fn input(party: &str, hex: &str, bits: u32) -> Result<Vec<bool>, Failure> {
    let bits = bits as usize;
    let bytes = parse_hex(hex).ok_or_else(|| {
        Failure::Usage(format!("the {party}'s input is not hexadecimal: give two digits a byte"))
    })?;
    if bytes.len() != bits.div_ceil(8) {
        return Err(Failure::Usage(format!(
            "the {party}'s input has {} bytes, but the circuit needs {} ({bits} bits)",
            bytes.len(),
            bits.div_ceil(8)
        )));
    }
    let mut input = bits::of_bytes(&bytes);
    if input.split_off(bits).contains(&true) {
        return Err(Failure::Usage(format!(
            "the {party}'s input has {bits} bits, but a higher bit of its last byte is not 0"
        )));
    }
    Ok(input)
}

/// Bits as a hexadecimal number.
pub(crate) fn to_hex(output: &[bool]) -> String {
    hex_of(&bits::to_bytes(output))
}

/// Bytes as a hexadecimal number.
pub(crate) fn hex_of(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of a hexadecimal number; `None` if it is not one of whole bytes.
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

//! Circuits by name or file, and their inputs and outputs as hexadecimal numbers.

mod values;

use std::fs;
use std::path::Path;

use circuit::bristol::{BristolReadError, BristolReadReason};
use circuit::file::{self, CircuitFileError};
use circuit::{Circuit, CircuitSchedule, generate};
use console::CommandFailure;
use zeroize::Zeroizing;

pub(crate) use values::{InputNumbers, ValueOrderOptions};

/// A generated circuit by its name, or that of a file.
///
/// # Errors
/// If there is neither, or the file is not a circuit.
pub(crate) fn load(name: &str) -> Result<Circuit, CommandFailure> {
    if let Some(circuit) = generate::named(name) {
        return Ok(circuit);
    }
    let text = fs::read(name).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CommandFailure::Usage(format!(
            "{name} is neither a file nor one of {}",
            generate::NAMES.join(", ")
        )),
        _ => CommandFailure::reading(Path::new(name), &error),
    })?;
    file::read(&text).map_err(|error| {
        let failure = CommandFailure::Usage(format!("{name}: {error}"));
        match error {
            CircuitFileError::Bristol(BristolReadError {
                reason: BristolReadReason::NoCounts,
                ..
            }) => failure.and(
                "a file in Verilog has to be converted with yosys first, see `sunder circuit \
                 convert --help`",
            ),
            _ => failure,
        }
    })
}

/// A circuit of [`load`] to which the garbler gives these input values.
///
/// # Errors
/// As [`load`], and if there is no such value.
pub(crate) fn load_assigned(
    name: &str,
    of_garbler: Option<&InputNumbers>,
) -> Result<Circuit, CommandFailure> {
    let circuit = load(name)?;
    match of_garbler {
        Some(numbers) => numbers.of_garbler(circuit),
        None => Ok(circuit),
    }
}

/// A circuit of [`load_assigned`], or a generated one and how often it is repeated: NAME:N is the
/// circuit N times, each time on its last output as the evaluator's input.
///
/// # Errors
/// As [`load_assigned`], and if there is no number.
pub(crate) fn load_repeated(
    name: &str,
    of_garbler: Option<&InputNumbers>,
) -> Result<(Circuit, Option<u64>), CommandFailure> {
    let repeated = name.split_once(':').filter(|(circuit, _)| generate::NAMES.contains(circuit));
    let Some((circuit, times)) = repeated else {
        return Ok((load_assigned(name, of_garbler)?, None));
    };
    let times = times.parse().map_err(|_| {
        CommandFailure::Usage(format!(
            "{name}: give the number of repetitions after the colon, as in aes128:1000"
        ))
    })?;
    Ok((load_assigned(circuit, of_garbler)?, Some(times)))
}

/// The schedule of a circuit of [`load_repeated`]; `schedule` makes that of one which is not
/// repeated.
///
/// # Errors
/// As [`load_repeated`], and if the circuit cannot be repeated.
pub(crate) fn schedule(
    name: &str,
    of_garbler: Option<&InputNumbers>,
    schedule: impl FnOnce(&Circuit) -> CircuitSchedule,
) -> Result<CircuitSchedule, CommandFailure> {
    let (circuit, rounds) = load_repeated(name, of_garbler)?;
    let Some(times) = rounds else { return Ok(schedule(&circuit)) };
    CircuitSchedule::repeated(&circuit, times).ok_or_else(|| {
        CommandFailure::Usage(format!(
            "{name}: only a circuit whose output is as long as the evaluator's input can be \
             repeated, at least once"
        ))
    })
}

/// The bytes of a hexadecimal number, which may have white space in it.
///
/// # Errors
/// If it is not one of whole bytes. The message has none of its digits, which may be secret.
pub(crate) fn parse_hex(text: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len().div_ceil(2)));
    let mut digits = 0_usize;
    for (at, character) in text.chars().enumerate().filter(|(_, it)| !it.is_ascii_whitespace()) {
        let value = character.to_digit(16).and_then(|value| u8::try_from(value).ok());
        let value = value.ok_or_else(|| match text.get(..2) {
            Some("0x" | "0X") => "leave out 0x at its start".to_owned(),
            _ => format!("character {} is not a hexadecimal digit", at + 1),
        })?;
        match bytes.last_mut() {
            Some(last) if digits % 2 == 1 => *last = *last << 4 | value,
            _ => bytes.push(value),
        }
        digits += 1;
    }
    if digits % 2 == 1 {
        return Err(format!("it has {digits} digits; give two for each byte"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_parsed_and_errors_are_named() {
        assert!(parse_hex("").unwrap().is_empty());
        assert_eq!(*parse_hex("0aF0\n 7f\n").unwrap(), [0x0a, 0xf0, 0x7f]);
        assert_eq!(parse_hex("0af").unwrap_err(), "it has 3 digits; give two for each byte");
        assert_eq!(parse_hex("0a g0").unwrap_err(), "character 4 is not a hexadecimal digit");
        assert_eq!(parse_hex("0x0a").unwrap_err(), "leave out 0x at its start");
        assert!(parse_hex("+1").is_err() && parse_hex("\u{ff11}0").is_err());
    }
}

//! Circuits by name or file, and their inputs and outputs as hexadecimal numbers.

use std::fs;
use std::path::Path;

use circuit::{Circuit, CircuitSchedule, bits, bristol, generate};
use console::CommandFailure;
use zeroize::Zeroizing;

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
    bristol::read(&text).map_err(|error| CommandFailure::Usage(format!("{name}: {error}")))
}

/// A circuit of [`load`], or a generated one and how often it is repeated: NAME:N is the circuit N
/// times, each time on its last output as the evaluator's input.
///
/// # Errors
/// As [`load`], and if there is no number.
pub(crate) fn load_repeated(name: &str) -> Result<(Circuit, Option<u64>), CommandFailure> {
    let repeated =
        name.split_once(':').and_then(|(circuit, times)| Some((generate::named(circuit)?, times)));
    let Some((circuit, times)) = repeated else { return Ok((load(name)?, None)) };
    let times = times.parse().map_err(|_| {
        CommandFailure::Usage(format!(
            "{name}: give the number of repetitions after the colon, as in aes128:1000"
        ))
    })?;
    Ok((circuit, Some(times)))
}

/// The schedule of a circuit of [`load_repeated`]; `schedule` makes that of one which is not
/// repeated.
///
/// # Errors
/// As [`load_repeated`], and if the circuit cannot be repeated.
pub(crate) fn schedule(
    name: &str,
    schedule: impl FnOnce(&Circuit) -> CircuitSchedule,
) -> Result<CircuitSchedule, CommandFailure> {
    let (circuit, rounds) = load_repeated(name)?;
    let Some(times) = rounds else { return Ok(schedule(&circuit)) };
    CircuitSchedule::repeated(&circuit, times).ok_or_else(|| {
        CommandFailure::Usage(format!(
            "{name}: only a circuit whose output is as long as the evaluator's input can be \
             repeated, at least once"
        ))
    })
}

/// The bits of a party's input: bit i is bit `i mod 8` of byte `i div 8`.
///
/// # Errors
/// If it is not hexadecimal, or does not have as many bytes as the circuit needs.
pub(crate) fn input(party: &str, hex: &str, bits: u32) -> Result<Vec<bool>, CommandFailure> {
    let bits = bits as usize;
    let bytes = parse_hex(hex).map_err(|error| {
        CommandFailure::Usage(format!("the {party}'s input is not hexadecimal: {error}"))
    })?;
    if bytes.len() != bits.div_ceil(8) {
        return Err(CommandFailure::Usage(format!(
            "the {party}'s input has {} bytes, but the circuit needs {} ({bits} bits)",
            bytes.len(),
            bits.div_ceil(8)
        )));
    }
    let mut input = bits::of_bytes(&bytes);
    if input.split_off(bits).contains(&true) {
        return Err(CommandFailure::Usage(format!(
            "the {party}'s input has {bits} bits, but a higher bit of its last byte is not 0"
        )));
    }
    Ok(input)
}

/// Bits as a hexadecimal number.
pub(crate) fn to_hex(output: &[bool]) -> String {
    base16ct::lower::encode_string(&bits::to_bytes(output))
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

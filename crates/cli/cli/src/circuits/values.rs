//! Input and output values as bytes, and which party gives which input value.

use std::fmt;
use std::str::FromStr;

use circuit::Circuit;
use clap::ValueEnum;
use console::CommandFailure;
use zeroize::Zeroizing;

/// How the bits of each value stand in its bytes.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct ValueOrderOptions {
    /// The bit of a byte with which a value begins: the least or the most significant one. This
    /// party's input and output have this order; the other party may choose another one
    #[arg(long, value_enum, value_name = "ORDER", default_value = "lsb")]
    bit_order: BitOrder,
    /// The byte with which a value begins: the first (little) or the last (big)
    #[arg(long, value_enum, value_name = "ORDER", default_value = "little")]
    byte_order: ByteOrder,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BitOrder {
    /// The least significant bit
    Lsb,
    /// The most significant bit, as in Bristol's older AES and SHA circuits
    Msb,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ByteOrder {
    /// The first byte
    Little,
    /// The last byte, as in Bristol Fashion's AES and SHA circuits
    Big,
}

impl ValueOrderOptions {
    /// The bits of values of these lengths. Each value begins with a byte.
    ///
    /// # Errors
    /// If there are not as many bytes as the values need, or an unused bit is not 0. The message
    /// says "the `whose` has ...".
    pub(crate) fn bits(
        self,
        whose: &str,
        values: &[u32],
        bytes: &[u8],
    ) -> Result<Zeroizing<Vec<bool>>, CommandFailure> {
        let expected = byte_len(values);
        if bytes.len() != expected {
            return Err(CommandFailure::Usage(format!(
                "the {whose} has {} bytes, but the circuit needs {} ({expected} bytes)",
                bytes.len(),
                lengths(values)
            )));
        }
        let mut bits = Zeroizing::new(Vec::with_capacity(8 * bytes.len()));
        let mut rest = bytes;
        for &value in values {
            let (of_value, others) = rest.split_at(value.div_ceil(8) as usize);
            let is_set = |at: (usize, usize)| of_value[at.0] >> at.1 & 1 == 1;
            let all = 8 * of_value.len();
            if (value as usize..all).any(|i| is_set(self.place(i, of_value.len()))) {
                return Err(CommandFailure::Usage(format!(
                    "the {whose} has more than the {value} bits of a value: a higher bit is not 0"
                )));
            }
            bits.extend((0..value as usize).map(|i| is_set(self.place(i, of_value.len()))));
            rest = others;
        }
        Ok(bits)
    }

    /// The bytes of values of these lengths. Each value begins with a byte, and unused bits are 0.
    pub(crate) fn bytes(self, values: &[u32], bits: &[bool]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(byte_len(values));
        let mut rest = bits;
        for &value in values {
            let (of_value, others) = rest.split_at(value as usize);
            let start = bytes.len();
            bytes.resize(start + of_value.len().div_ceil(8), 0);
            let written = &mut bytes[start..];
            for (i, &bit) in of_value.iter().enumerate() {
                let (byte, at) = self.place(i, written.len());
                written[byte] |= u8::from(bit) << at;
            }
            rest = others;
        }
        bytes
    }

    /// The byte of bit `i` of a value, and the bit's place there.
    fn place(self, i: usize, bytes: usize) -> (usize, usize) {
        let byte = if self.byte_order == ByteOrder::Little { i / 8 } else { bytes - 1 - i / 8 };
        let bit = if self.bit_order == BitOrder::Lsb { i % 8 } else { 7 - i % 8 };
        (byte, bit)
    }
}

/// How many bytes values of these lengths take.
fn byte_len(values: &[u32]) -> usize {
    values.iter().map(|bits| bits.div_ceil(8) as usize).sum()
}

/// The lengths of values, for a message.
fn lengths(values: &[u32]) -> String {
    match values {
        [] => "0 bits".to_owned(),
        [bits] => format!("{bits} bits"),
        _ => format!("{} values, each of them in whole bytes", values.len()),
    }
}

/// Input values of a circuit by their numbers, from 1; `none` is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputNumbers(Vec<usize>);

impl InputNumbers {
    /// Checks that these are values of a circuit.
    ///
    /// # Errors
    /// If it has fewer.
    pub(crate) fn check(&self, circuit: &Circuit) -> Result<(), CommandFailure> {
        let count = circuit.input_values().len();
        match self.0.iter().find(|&&number| number > count) {
            None => Ok(()),
            Some(number) => Err(CommandFailure::Usage(format!(
                "there is no input {number}: the circuit has {count} input values"
            ))),
        }
    }

    /// The circuit to which the garbler gives these values, and the evaluator all others.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn of_garbler(&self, circuit: Circuit) -> Result<Circuit, CommandFailure> {
        self.check(&circuit)?;
        let indices: Vec<usize> = self.0.iter().map(|number| number - 1).collect();
        Ok(circuit.with_garbler_values(&indices))
    }

    /// Whether a value is among them.
    pub(crate) fn contains(&self, number: usize) -> bool {
        self.0.contains(&number)
    }

    /// All other values of a circuit with `count` values.
    pub(crate) fn others(&self, count: usize) -> Self {
        Self((1..=count).filter(|&number| !self.contains(number)).collect())
    }
}

impl FromStr for InputNumbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let mut numbers = Vec::new();
        for word in text.split(',') {
            match word.trim().parse() {
                Ok(number @ 1_usize..) if !numbers.contains(&number) => numbers.push(number),
                Ok(1..) => return Err(format!("{word} is there twice")),
                _ => return Err("give numbers from 1, as in 1,3, or none".to_owned()),
            }
        }
        numbers.sort_unstable();
        Ok(Self(numbers))
    }
}

impl fmt::Display for InputNumbers {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("none");
        }
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        formatter.write_str(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ValueOrderOptions; 4] = [
        ValueOrderOptions { bit_order: BitOrder::Lsb, byte_order: ByteOrder::Little },
        ValueOrderOptions { bit_order: BitOrder::Lsb, byte_order: ByteOrder::Big },
        ValueOrderOptions { bit_order: BitOrder::Msb, byte_order: ByteOrder::Little },
        ValueOrderOptions { bit_order: BitOrder::Msb, byte_order: ByteOrder::Big },
    ];

    /// The bits of a value, as text.
    fn text(order: ValueOrderOptions, values: &[u32], bytes: &[u8]) -> String {
        let bits = order.bits("input", values, bytes).unwrap();
        assert_eq!(order.bytes(values, &bits), bytes);
        bits.iter().map(|&bit| if bit { '1' } else { '0' }).collect()
    }

    #[test]
    fn bits_stand_in_bytes_in_each_order() {
        let bytes = [0x01, 0xc8];
        let expected =
            ["1000000000010011", "0001001110000000", "0000000111001000", "1100100000000001"];
        for (order, expected) in ALL.into_iter().zip(expected) {
            assert_eq!(text(order, &[16], &bytes), expected);
        }
        // The unused bits are the last ones of the value.
        for (order, bytes) in ALL.into_iter().zip([[1, 2], [2, 1], [0x80, 0x40], [0x40, 0x80]]) {
            assert_eq!(text(order, &[10], &bytes), "1000000001");
        }
    }

    #[test]
    fn each_value_begins_with_a_byte() {
        for order in &ALL[..2] {
            assert_eq!(text(*order, &[1, 0, 3, 8], &[1, 5, 3]), "110111000000");
        }
        for order in ALL {
            let wrong = |values: &[u32], bytes: &[u8]| {
                let error = order.bits("input", values, bytes).unwrap_err();
                format!("{error:?}")
            };
            assert!(wrong(&[1, 3], &[0x18, 0x18]).contains("more than the 1 bits"));
            assert!(wrong(&[1, 3], &[1]).contains("has 1 bytes, but the circuit needs 2 values"));
        }
    }

    #[test]
    fn numbers_of_inputs_are_parsed_and_completed() {
        let numbers = |text: &str| text.parse::<InputNumbers>();
        assert_eq!(numbers("3,1").unwrap().to_string(), "1,3");
        assert_eq!(numbers("1,3").unwrap().others(4).to_string(), "2,4");
        assert_eq!(numbers("none").unwrap().others(2).to_string(), "1,2");
        assert_eq!(numbers("1,2").unwrap().others(2).to_string(), "none");
        for text in ["", "0", "1,", "1,1", "-1", "a", "1-3"] {
            assert!(numbers(text).is_err(), "{text}");
        }
    }
}

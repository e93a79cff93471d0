//! Inputs of the functions that two parties compute, and their outputs.

use circuit::{bits, bristol};
use sha2::{Digest, Sha256};

/// A function that `sunder compute` has by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComputedFunction {
    Aes128,
    Sha256,
    MinCut,
}

/// The inputs of both parties, and the output, in hexadecimal.
pub(super) struct FunctionExample {
    pub(super) garbler: String,
    pub(super) evaluator: String,
    pub(super) output: String,
}

/// The numbers of `MinCut`, of both parties, and the bits of each.
const NUMBERS: usize = 25_000;
const BITS: u32 = 20;

impl ComputedFunction {
    /// All functions.
    pub(super) const ALL: [Self; 3] = [Self::Aes128, Self::Sha256, Self::MinCut];

    /// Its name at the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aes128 => "aes128",
            Self::Sha256 => "sha256",
            Self::MinCut => "mincut",
        }
    }

    pub(super) fn example(self) -> FunctionExample {
        match self {
            Self::Aes128 => aes128(),
            Self::Sha256 => sha256(b"Half of this message is the garbler's input."),
            Self::MinCut => min_cut(),
        }
    }
}

impl FunctionExample {
    /// Zeros as the inputs of a circuit in one of Bristol's formats.
    ///
    /// # Errors
    /// If it is not a circuit, in one line.
    pub(super) fn zeros(circuit: &[u8]) -> Result<Self, String> {
        let circuit = bristol::read(circuit).map_err(|error| error.to_string())?;
        let inputs = [circuit.garbler_inputs(), circuit.evaluator_inputs()];
        let all: usize = inputs.iter().map(|bits| *bits as usize).sum();
        let output = circuit.evaluate(&vec![false; all]);
        let zeros = |bits: u32| "00".repeat(bits.div_ceil(8) as usize);
        Ok(Self {
            garbler: zeros(inputs[0]),
            evaluator: zeros(inputs[1]),
            output: base16ct::lower::encode_string(&bits::to_bytes(&output)),
        })
    }
}

/// FIPS 197, appendix B: a key and a block.
fn aes128() -> FunctionExample {
    FunctionExample {
        garbler: "2b7e151628aed2a6abf7158809cf4f3c".into(),
        evaluator: "3243f6a8885a308d313198a2e0370734".into(),
        output: "3925841d02dc09fbdc118597196a0b32".into(),
    }
}

/// A message of at most 55 bytes, padded to one block, of which each party has a half.
fn sha256(message: &[u8]) -> FunctionExample {
    let mut block = message.to_vec();
    block.push(0x80);
    block.resize(56, 0);
    block.extend((8 * message.len() as u64).to_be_bytes());
    let (garbler, evaluator) = block.split_at(32);
    FunctionExample {
        garbler: base16ct::lower::encode_string(garbler),
        evaluator: base16ct::lower::encode_string(evaluator),
        output: base16ct::lower::encode_string(&Sha256::digest(message)),
    }
}

/// Random numbers and their minimum.
fn min_cut() -> FunctionExample {
    let mut dice = fastrand::Rng::with_seed(1);
    let numbers: Vec<u32> = (0..NUMBERS).map(|_| dice.u32(1..1 << BITS)).collect();
    let (garbler, evaluator) = numbers.split_at(NUMBERS / 2);
    let least: Vec<u32> = numbers.iter().copied().min().into_iter().collect();
    FunctionExample {
        garbler: packed(garbler),
        evaluator: packed(evaluator),
        output: packed(&least),
    }
}

/// Packs numbers one after the other, the lowest bits first.
fn packed(numbers: &[u32]) -> String {
    let bits =
        numbers.iter().flat_map(|number| (0..BITS).map(move |bit| (number >> bit & 1) as u8));
    let bits: Vec<u8> = bits.collect();
    let byte = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit);
    base16ct::lower::encode_string(&bits.chunks(8).map(byte).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_lengths_that_the_circuits_take() {
        for (function, bytes) in [
            (ComputedFunction::Aes128, 16),
            (ComputedFunction::Sha256, 32),
            (ComputedFunction::MinCut, 31_250),
        ] {
            let FunctionExample { garbler, evaluator, .. } = function.example();
            assert_eq!((garbler.len(), evaluator.len()), (2 * bytes, 2 * bytes), "{function:?}");
        }
    }

    #[test]
    fn a_circuit_file_has_zeros_as_inputs() {
        // NOT x, for a bit x of the garbler, and the evaluator's nine bits.
        let text = "10 20\n2 1 9\n1 10\n\n1 1 0 10 INV\n\
                    1 1 1 11 EQW\n1 1 2 12 EQW\n1 1 3 13 EQW\n1 1 4 14 EQW\n1 1 5 15 EQW\n\
                    1 1 6 16 EQW\n1 1 7 17 EQW\n1 1 8 18 EQW\n1 1 9 19 EQW\n";
        let example = FunctionExample::zeros(text.as_bytes()).unwrap();
        assert_eq!((&*example.garbler, &*example.evaluator), ("00", "0000"));
        assert_eq!(example.output, "0100");
        assert!(FunctionExample::zeros(b"1 2 3").is_err());
    }

    #[test]
    fn numbers_are_packed_from_their_lowest_bits() {
        assert_eq!(packed(&[0x12345]), "452301");
        assert_eq!(packed(&[0x12345, 0xabcde]), "4523e1cdab");
    }

    #[test]
    fn a_block_is_padded_as_the_standard_says() {
        let FunctionExample { garbler, evaluator, output } = sha256(b"abc");
        assert_eq!(garbler, format!("61626380{}", "0".repeat(56)));
        assert_eq!(evaluator, format!("{}18", "0".repeat(62)));
        assert!(output.starts_with("ba7816bf8f01cfea"));
    }
}

//! The garbling schemes and the lengths of their tables.

use std::fmt;
use std::str::FromStr;

use circuit::{CircuitPart, GateBatch};

use crate::three_halves;

/// A garbling scheme. Both parties must use the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GarblingScheme {
    /// Half gates (Zahur, Rosulek, Evans 2015) with a hash that uses a new AES key for each gate
    /// (Guo, Katz, Wang, Weng, Yu 2020). Assumes that AES is an ideal cipher. Its security does not
    /// degrade with the number of gates or circuits. AND: 32 bytes, XOR: none.
    #[default]
    HalfGates,
    /// Half gates with the labels as AES keys: four key schedules per AND. Assumes that AES is
    /// circular correlation robust under related keys. AND: 32 bytes, XOR: none.
    HalfGatesKeyed,
    /// Half gates with AES under one fixed key (Bellare, Hoang, Keelveedhi, Rogaway 2013), for
    /// comparison. Assumes that AES under this key is an ideal permutation. Its security degrades
    /// with the number of gates. AND: 32 bytes, XOR: none.
    FixedKey,
    /// Gueron, Lindell, Nof, Pinkas 2015: assumes only that AES is a pseudorandom function. AND: 32
    /// bytes and a bit, XOR: 16 bytes.
    Glnp15,
    /// Three halves (Rosulek, Roy 2021), with a hash that uses a new AES key for each 128 gates:
    /// the same assumption as half gates, with less to send. AND: 24 bytes and five bits, XOR:
    /// none.
    ThreeHalves,
}

/// The names are in the order of [`GarblingScheme::ALL`].
const NAMES: [&str; 5] = ["half-gates", "half-gates-keyed", "fixed-key", "glnp15", "three-halves"];

impl GarblingScheme {
    /// All schemes, the default first.
    pub const ALL: [Self; 5] =
        [Self::HalfGates, Self::HalfGatesKeyed, Self::FixedKey, Self::Glnp15, Self::ThreeHalves];

    /// Returns the name of the scheme, as [`GarblingScheme::from_str`] reads it.
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns whether the labels of each wire differ by one secret offset, so that an XOR needs no
    /// table.
    pub const fn has_offset(self) -> bool {
        !matches!(self, Self::Glnp15)
    }

    /// Returns the exact length of a part's tables, in bytes.
    pub fn part_len(self, part: &CircuitPart<'_>) -> usize {
        let ands = part.batches().map(|batch| batch.ands.len());
        match self {
            Self::HalfGates | Self::HalfGatesKeyed | Self::FixedKey => ands.map(|it| 32 * it).sum(),
            Self::Glnp15 => {
                let xors = usize::try_from(part.gates.xors).unwrap_or(usize::MAX);
                16 * xors + ands.map(|it| 32 * it + it.div_ceil(8)).sum::<usize>()
            }
            Self::ThreeHalves => ands.map(three_halves::table_len).sum(),
        }
    }

    /// Returns the exact length of a batch's tables, in bytes.
    pub fn table_len(self, batch: GateBatch<'_>) -> usize {
        let ands = batch.ands.len();
        match self {
            Self::HalfGates | Self::HalfGatesKeyed | Self::FixedKey => 32 * ands,
            Self::Glnp15 => {
                let xors = batch.linear.iter().filter(|gate| gate.is_xor()).count();
                16 * xors + 32 * ands + ands.div_ceil(8)
            }
            Self::ThreeHalves => three_halves::table_len(ands),
        }
    }
}

impl fmt::Display for GarblingScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A string is not the name of a scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no garbling scheme '{0}': there are {list}", list = NAMES.join(", "))]
pub struct UnknownGarblingScheme(String);

impl FromStr for GarblingScheme {
    type Err = UnknownGarblingScheme;

    fn from_str(name: &str) -> Result<Self, UnknownGarblingScheme> {
        let found = Self::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| UnknownGarblingScheme(name.to_owned()))
    }
}

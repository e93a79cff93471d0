//! A function of `.names` as gates: the rows for which it is 1, or 0. Functions of few inputs
//! become polynomials over GF(2), of which few ANDs are needed: none for XOR, one for a choice or a
//! carry.

use super::BlifReason;
use crate::batch::{ONE, Wire, ZERO};
use crate::builder::CircuitBuilder;
use crate::netlist::MAX_NETLIST_GATES;

/// The maximum number of inputs of a function that becomes a polynomial: its table has 64 bits.
const MAX_VARIABLES: usize = 6;

/// More gates than a polynomial can have: 64 products, each with an AND and an XOR.
const MAX_POLYNOMIAL_GATES: usize = 128;

/// The rows of a function.
#[derive(Default)]
pub(super) struct BlifCover<'a> {
    /// Each has a character for each input: 0, 1, or - for both.
    patterns: Vec<&'a [u8]>,
    /// Whether the function is 0 for these patterns and else 1, and not the reverse.
    is_off_set: bool,
}

impl<'a> BlifCover<'a> {
    /// The function of one input that is this input.
    pub(super) fn copy() -> Self {
        Self { patterns: vec![&b"1"[..]], is_off_set: false }
    }

    /// Adds a row for so many inputs: a pattern, unless there are no inputs, and a value.
    pub(super) fn add_row(&mut self, inputs: usize, words: &[&'a [u8]]) -> Result<(), BlifReason> {
        let (pattern, value) = match *words {
            [value] if inputs == 0 => (&b""[..], value),
            [pattern, value] if inputs > 0 && pattern.len() == inputs => (pattern, value),
            _ => return Err(BlifReason::WrongRow(inputs)),
        };
        if !matches!(value, b"0" | b"1") || !pattern.iter().all(|it| b"01-".contains(it)) {
            return Err(BlifReason::WrongRow(inputs));
        }
        let is_off_set = value == b"0";
        if !self.patterns.is_empty() && is_off_set != self.is_off_set {
            return Err(BlifReason::BothValues);
        }
        self.is_off_set = is_off_set;
        self.patterns.push(pattern);
        Ok(())
    }

    /// Adds the gates of the function of these inputs. Returns its wire.
    ///
    /// # Errors
    /// If there are too many gates.
    pub(super) fn wire(
        &self,
        builder: &mut CircuitBuilder,
        inputs: &[Wire],
    ) -> Result<Wire, BlifReason> {
        if inputs.len() <= MAX_VARIABLES {
            check_gates(builder, MAX_POLYNOMIAL_GATES)?;
            let polynomial = Polynomial::of_table(self.table(inputs.len()), inputs.len());
            return Ok(polynomial.wire(builder, inputs));
        }
        let mut products = Vec::with_capacity(self.patterns.len());
        for pattern in &self.patterns {
            // A NOT and an AND for each input, and what adds the product to the others.
            check_gates(builder, 2 * inputs.len() + 3)?;
            let mut factors = Vec::with_capacity(inputs.len());
            for (bit, &input) in pattern.iter().zip(inputs) {
                match bit {
                    b'0' => factors.push(builder.not(input)),
                    b'1' => factors.push(input),
                    _ => {}
                }
            }
            products.push(builder.all(&factors));
        }
        check_gates(builder, 3 * products.len())?;
        let any = builder.any(&products);
        Ok(if self.is_off_set { builder.not(any) } else { any })
    }

    /// The function of so many inputs, at most six: bit i is its value where input j is bit j of i.
    fn table(&self, inputs: usize) -> u64 {
        let matches = |pattern: &[u8], point: u32| {
            (0_u32..).zip(pattern).all(|(input, bit)| match bit {
                b'0' => point >> input & 1 == 0,
                b'1' => point >> input & 1 == 1,
                _ => true,
            })
        };
        (0..1_u32 << inputs).fold(0, |table, point| {
            let is_in_set = self.patterns.iter().any(|&pattern| matches(pattern, point));
            table | u64::from(is_in_set != self.is_off_set) << point
        })
    }
}

fn check_gates(builder: &CircuitBuilder, added: usize) -> Result<(), BlifReason> {
    if builder.gates() + added > MAX_NETLIST_GATES as usize {
        return Err(BlifReason::TooManyGates);
    }
    Ok(())
}

/// A polynomial over GF(2) in at most six variables: bit m is the coefficient of the product of the
/// variables that are bits of m.
#[derive(Clone, Copy)]
struct Polynomial(u64);

/// For each variable, the products without it.
const WITHOUT: [u64; MAX_VARIABLES] = [
    0x5555_5555_5555_5555,
    0x3333_3333_3333_3333,
    0x0f0f_0f0f_0f0f_0f0f,
    0x00ff_00ff_00ff_00ff,
    0x0000_ffff_0000_ffff,
    0x0000_0000_ffff_ffff,
];

/// 1 and the variables: what needs no AND.
const AFFINE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8 | 1 << 16 | 1 << 32;

impl Polynomial {
    /// That of a function of so many variables, which is given as a table.
    fn of_table(table: u64, variables: usize) -> Self {
        let without = WITHOUT.iter().take(variables).enumerate();
        Self(without.fold(table, |it, (variable, without)| it ^ (it & without) << (1 << variable)))
    }

    fn plus(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    fn times(self, other: Self) -> Self {
        let products = |it: Self| (0..64_u32).filter(move |product| it.0 >> product & 1 == 1);
        let mut sum = 0_u64;
        for a in products(self) {
            for b in products(other) {
                sum ^= 1_u64 << (a | b);
            }
        }
        Self(sum)
    }

    fn variable(variable: usize) -> Self {
        Self(1_u64 << (1_u32 << variable))
    }

    /// Whether a variable alone is one of the products.
    fn has(self, variable: usize) -> bool {
        self.0 & Self::variable(variable).0 != 0
    }

    fn is_affine(self) -> bool {
        self.0 & !AFFINE == 0
    }

    /// The factor of a variable, and the products without it.
    fn split(self, variable: usize) -> (Self, Self) {
        let rest = self.0 & WITHOUT[variable];
        (Self((self.0 ^ rest) >> (1 << variable)), Self(rest))
    }

    /// Adds its gates for these variables. Returns its wire.
    fn wire(self, builder: &mut CircuitBuilder, variables: &[Wire]) -> Wire {
        if self.is_affine() {
            let of = (0..).zip(variables).filter(|(variable, _)| self.has(*variable));
            let constant = if self.0 & 1 == 1 { ONE } else { ZERO };
            return of.fold(constant, |sum, (_, &wire)| builder.xor(sum, wire));
        }
        let (a, b, rest) = self.product(variables.len());
        let [a, b] = [a, b].map(|factor| factor.wire(builder, variables));
        let product = builder.and(a, b);
        let rest = rest.wire(builder, variables);
        builder.xor(product, rest)
    }

    /// A polynomial that is not affine as a product and the rest, all in fewer variables.
    fn product(self, variables: usize) -> (Self, Self, Self) {
        // x f + y c + d = (x + c) f + c (f + y) + d, if y is in f. If f and c are affine, the rest
        // has neither x nor y: so half as many ANDs as variables are enough if all products have
        // two variables.
        for x in 0..variables {
            let (f, rest) = self.split(x);
            let Some(y) = (0..variables).find(|&y| f.has(y)) else { continue };
            let (c, d) = rest.split(y);
            if f.is_affine() && c.is_affine() {
                let rest = c.times(f.plus(Self::variable(y))).plus(d);
                return (Self::variable(x).plus(c), f, rest);
            }
        }
        // x f + r = (x + 1) f + (r + f). The variable is the most frequent one.
        let count = |x: &usize| self.split(*x).0.0.count_ones();
        let x = (0..variables).max_by_key(count).unwrap_or(0);
        let (f, rest) = self.split(x);
        let products = |it: Self| (it.0 & !AFFINE).count_ones();
        if products(rest.plus(f)) < products(rest) {
            return (Self::variable(x).plus(Self(1)), f, rest.plus(f));
        }
        (Self::variable(x), f, rest)
    }
}

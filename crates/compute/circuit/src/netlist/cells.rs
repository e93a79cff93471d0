//! Cells of a netlist as gates of a circuit. What a cell computes is as in yosys' library of cells:
//! `$_AND_` and others are gates of single bits, `$add` and others operations on numbers.

use std::collections::HashMap;

use super::document::{YosysBit, YosysCell};
use super::order::label;
use super::{MAX_NETLIST_GATES, NetlistError, printable, wires_of};
use crate::batch::{Wire, ZERO};
use crate::builder::{CircuitBuilder, sign_extended};

/// The maximum number of bits of an index of a memory.
const MAX_INDEX_BITS: usize = 16;

/// The maximum number of gates for a pair of bits of two numbers that are multiplied or divided,
/// and for a bit in other operations.
const GATES_PER_PAIR: u64 = 10;

/// Reads one cell.
pub(super) struct CellReader<'a, 'n> {
    builder: &'a mut CircuitBuilder,
    /// The wires of the nets that the cell reads.
    wires: &'a HashMap<u64, Wire>,
    named: &'n (String, YosysCell),
}

/// The nets that a cell defines, and as many wires.
pub(super) struct CellOutput<'n> {
    pub(super) nets: &'n [YosysBit],
    pub(super) values: Vec<Wire>,
}

impl<'a, 'n> CellReader<'a, 'n> {
    pub(super) fn new(
        builder: &'a mut CircuitBuilder,
        wires: &'a HashMap<u64, Wire>,
        named: &'n (String, YosysCell),
    ) -> Self {
        Self { builder, wires, named }
    }

    /// Adds the cell to the circuit.
    ///
    /// # Errors
    /// If it is of another type, its ports do not fit, or it has too many gates.
    pub(super) fn read(mut self) -> Result<CellOutput<'n>, NetlistError> {
        self.check_size()?;
        let kind = self.cell().kind.as_str();
        if kind == "$mem_v2" {
            let nets = self.bits("RD_DATA")?;
            return Ok(CellOutput { nets, values: self.read_only_memory(nets.len())? });
        }
        let nets = self.bits("Y")?;
        let mut values = match kind {
            "$_MUX_" | "$_NMUX_" | "$mux" | "$pmux" | "$bmux" => self.choice(kind)?,
            _ if kind.starts_with("$_") => self.gate(kind)?,
            "$not" | "$pos" | "$buf" | "$neg" | "$reduce_and" | "$reduce_or" | "$reduce_bool"
            | "$reduce_xor" | "$reduce_xnor" | "$logic_not" => self.unary(kind, nets.len())?,
            _ => self.binary(kind, nets.len())?,
        };
        values.resize(nets.len(), ZERO);
        Ok(CellOutput { nets, values })
    }

    fn cell(&self) -> &'n YosysCell {
        &self.named.1
    }

    fn bits(&self, port: &'static str) -> Result<&'n [YosysBit], NetlistError> {
        let bits = self.cell().connections.get(port).map(Vec::as_slice);
        bits.ok_or_else(|| self.wrong_port(port))
    }

    fn port(&self, port: &'static str) -> Result<Vec<Wire>, NetlistError> {
        Ok(wires_of(self.bits(port)?, self.wires))
    }

    fn bit(&self, port: &'static str) -> Result<Wire, NetlistError> {
        self.port(port)?.first().copied().ok_or_else(|| self.wrong_port(port))
    }

    fn wrong_port(&self, port: &'static str) -> NetlistError {
        NetlistError::Port { cell: label(self.named), kind: printable(&self.cell().kind), port }
    }

    fn unknown(&self) -> NetlistError {
        let kind = printable(&self.cell().kind);
        NetlistError::UnknownCell { cell: label(self.named), kind }
    }

    /// Checks that the gates of the cell fit, before they take memory.
    fn check_size(&self) -> Result<(), NetlistError> {
        let cell = self.cell();
        let bits = |port: &str| cell.connections.get(port).map_or(0, Vec::len) as u64;
        let longest = bits("A").max(bits("B")).max(bits("Y")) + 2;
        let size = match cell.kind.as_str() {
            "$mul" | "$div" | "$mod" => longest * (bits("A").max(bits("B")) + 2),
            // A shift has a step for each bit of a distance within the value.
            "$shl" | "$shr" | "$sshl" | "$sshr" | "$shift" | "$shiftx" => 2 * longest * 64,
            _ => cell.connections.0.iter().map(|(_, bits)| bits.len() as u64).sum(),
        };
        self.check_gates(size.saturating_mul(GATES_PER_PAIR))
    }

    fn check_gates(&self, added: u64) -> Result<(), NetlistError> {
        let gates = (self.builder.gates() as u64).saturating_add(added);
        if gates > MAX_NETLIST_GATES.into() {
            return Err(NetlistError::TooManyGates);
        }
        Ok(())
    }

    /// A gate of single bits.
    fn gate(&mut self, kind: &str) -> Result<Vec<Wire>, NetlistError> {
        let a = self.bit("A")?;
        let b = if matches!(kind, "$_BUF_" | "$_NOT_") { ZERO } else { self.bit("B")? };
        let value = match kind {
            "$_BUF_" => a,
            "$_NOT_" => self.builder.not(a),
            "$_AND_" | "$_NAND_" => self.builder.and(a, b),
            "$_OR_" | "$_NOR_" => self.builder.or(a, b),
            "$_XOR_" | "$_XNOR_" => self.builder.xor(a, b),
            "$_ANDNOT_" => {
                let not_b = self.builder.not(b);
                self.builder.and(a, not_b)
            }
            "$_ORNOT_" => {
                let not_b = self.builder.not(b);
                self.builder.or(a, not_b)
            }
            "$_AOI3_" | "$_AOI4_" => {
                let both = self.builder.and(a, b);
                let c = self.bit("C")?;
                let other = if kind == "$_AOI3_" { c } else { self.builder.and(c, self.bit("D")?) };
                self.builder.or(both, other)
            }
            "$_OAI3_" | "$_OAI4_" => {
                let any = self.builder.or(a, b);
                let c = self.bit("C")?;
                let other = if kind == "$_OAI3_" { c } else { self.builder.or(c, self.bit("D")?) };
                self.builder.and(any, other)
            }
            _ => return Err(self.unknown()),
        };
        let is_inverted = matches!(
            kind,
            "$_NAND_" | "$_NOR_" | "$_XNOR_" | "$_AOI3_" | "$_AOI4_" | "$_OAI3_" | "$_OAI4_"
        );
        Ok(vec![if is_inverted { self.builder.not(value) } else { value }])
    }

    /// One of several values.
    fn choice(&mut self, kind: &str) -> Result<Vec<Wire>, NetlistError> {
        let (a, select) = (self.port("A")?, self.port("S")?);
        if kind == "$bmux" {
            let count = u32::try_from(select.len()).ok().and_then(|bits| 1_usize.checked_shl(bits));
            let width = count.map_or(0, |count| a.len() / count);
            if width == 0 || Some(a.len() / width) != count || a.len() % width != 0 {
                return Err(self.wrong_port("A"));
            }
            let values: Vec<Vec<Wire>> = a.chunks(width).map(<[Wire]>::to_vec).collect();
            return Ok(self.builder.choose(&values, &select));
        }
        let b = self.port("B")?;
        if b.len() != a.len() * select.len() || (kind != "$pmux" && select.len() != 1) {
            return Err(self.wrong_port("B"));
        }
        let mut chosen = a;
        let width = chosen.len().max(1);
        for (value, &bit) in b.chunks(width).zip(&select) {
            chosen = self.builder.select(bit, value, &chosen);
        }
        if kind == "$_NMUX_" {
            chosen = chosen.iter().map(|&bit| self.builder.not(bit)).collect();
        }
        Ok(chosen)
    }

    /// An operation on one number.
    fn unary(&mut self, kind: &str, width: usize) -> Result<Vec<Wire>, NetlistError> {
        let a = self.port("A")?;
        let extended = extend(&a, width, self.cell().is_set("A_SIGNED"));
        let builder = &mut *self.builder;
        let bit = match kind {
            "$not" => return Ok(extended.iter().map(|&bit| builder.not(bit)).collect()),
            "$neg" => return Ok(builder.negate(&extended)),
            "$reduce_and" => builder.all(&a),
            "$reduce_or" | "$reduce_bool" => builder.any(&a),
            "$logic_not" => {
                let any = builder.any(&a);
                builder.not(any)
            }
            "$reduce_xor" | "$reduce_xnor" => {
                let start = Wire::from(kind == "$reduce_xnor");
                a.iter().fold(start, |sum, &bit| builder.xor(sum, bit))
            }
            _ => return Ok(extended),
        };
        Ok(vec![bit])
    }

    /// An operation on two numbers.
    fn binary(&mut self, kind: &str, width: usize) -> Result<Vec<Wire>, NetlistError> {
        if kind.starts_with("$sh") || kind.starts_with("$ssh") {
            return self.shift(kind, width);
        }
        let (a, b) = (self.port("A")?, self.port("B")?);
        let is_signed = self.cell().is_set("A_SIGNED") && self.cell().is_set("B_SIGNED");
        let to = |bits: usize| [extend(&a, bits, is_signed), extend(&b, bits, is_signed)];
        let ([x, y], [long_a, long_b]) = (to(width), to(a.len().max(b.len())));
        let unknown = self.unknown();
        let builder = &mut *self.builder;
        let mut each = |gate: fn(&mut CircuitBuilder, Wire, Wire) -> Wire| {
            x.iter().zip(&y).map(|(&x, &y)| gate(builder, x, y)).collect()
        };
        match kind {
            "$and" => return Ok(each(CircuitBuilder::and)),
            "$or" => return Ok(each(CircuitBuilder::or)),
            "$xor" => return Ok(each(CircuitBuilder::xor)),
            "$xnor" => {
                return Ok(each(|builder, x, y| {
                    let differ = builder.xor(x, y);
                    builder.not(differ)
                }));
            }
            "$add" => return Ok(builder.add(&x, &y)),
            "$sub" => return Ok(builder.subtract(&x, &y)),
            "$mul" if is_signed => {
                return Ok(sign_extended(&builder.multiply_signed(&a, &b), width));
            }
            "$mul" => return Ok(builder.multiply(&a, &b)),
            "$div" | "$mod" => {
                let (quotient, remainder) = if is_signed {
                    // With one bit more, the quotient of the least number and -1 fits.
                    let [a, b] = to(long_a.len() + 1);
                    builder.divide_signed(&a, &b)
                } else {
                    builder.divide(&a, &b)
                };
                let value = if kind == "$div" { quotient } else { remainder };
                return Ok(extend(&value, width, is_signed));
            }
            _ => {}
        }
        let less = if is_signed { CircuitBuilder::less_signed } else { CircuitBuilder::less };
        let (bit, is_inverted) = match kind {
            "$lt" => (less(builder, &long_a, &long_b), false),
            "$ge" => (less(builder, &long_a, &long_b), true),
            "$gt" => (less(builder, &long_b, &long_a), false),
            "$le" => (less(builder, &long_b, &long_a), true),
            "$eq" | "$eqx" => (builder.equal(&long_a, &long_b), false),
            "$ne" | "$nex" => (builder.equal(&long_a, &long_b), true),
            "$logic_and" | "$logic_or" => {
                let [a, b] = [&a, &b].map(|value| builder.any(value));
                let is_and = kind == "$logic_and";
                (if is_and { builder.and(a, b) } else { builder.or(a, b) }, false)
            }
            _ => return Err(unknown),
        };
        Ok(vec![if is_inverted { builder.not(bit) } else { bit }])
    }

    fn shift(&mut self, kind: &str, width: usize) -> Result<Vec<Wire>, NetlistError> {
        let (a, by) = (self.port("A")?, self.port("B")?);
        let is_signed = self.cell().is_set("A_SIGNED");
        let long = extend(&a, width.max(a.len()), is_signed);
        let builder = &mut *self.builder;
        match (kind, by.split_last()) {
            ("$shl" | "$sshl", _) => Ok(builder.shift_left(&extend(&a, width, is_signed), &by)),
            ("$sshr", _) if is_signed => Ok(builder.shift_right_signed(&long, &by)),
            ("$shift" | "$shiftx", Some((&sign, low))) if self.named.1.is_set("B_SIGNED") => {
                let right = builder.shift_right(&long, low);
                let distance = builder.negate(&by);
                let left = builder.shift_left(&long, &distance);
                Ok(builder.select(sign, &left, &right))
            }
            ("$shr" | "$sshr" | "$shift" | "$shiftx", _) => Ok(builder.shift_right(&long, &by)),
            _ => Err(self.unknown()),
        }
    }

    /// A memory that nothing writes: a table of constants.
    fn read_only_memory(&mut self, data_bits: usize) -> Result<Vec<Wire>, NetlistError> {
        let cell = self.cell();
        let number = |name: &str| cell.number(name).and_then(|it| usize::try_from(it).ok());
        let (Some(width @ 1..), Some(size @ 1..), Some(address_bits @ 1..), Some(0)) =
            (number("WIDTH"), number("SIZE"), number("ABITS"), number("OFFSET"))
        else {
            return Err(self.unknown());
        };
        let content: Vec<bool> = cell.digits("INIT").collect();
        let addresses = self.port("RD_ADDR")?;
        let is_wide = cell.is_set("RD_WIDE_CONTINUATION");
        if is_wide || width.checked_mul(size) != Some(content.len()) {
            return Err(self.unknown());
        }
        if addresses.len() % address_bits != 0
            || addresses.len() / address_bits * width != data_bits
        {
            return Err(self.wrong_port("RD_DATA"));
        }
        // Beyond the last entry, any value is right.
        let index_bits = (usize::BITS - (size - 1).leading_zeros()) as usize;
        if index_bits > MAX_INDEX_BITS {
            return Err(self.unknown());
        }
        self.check_gates(((data_bits as u64) << index_bits).saturating_mul(2))?;
        let mut data = Vec::with_capacity(data_bits);
        for address in addresses.chunks(address_bits) {
            let index = extend(address, index_bits, false);
            for from in (0..width).step_by(64) {
                let bits = (width - from).min(64);
                let entry = |entry: &[bool]| {
                    let bits = entry[from..from + bits].iter().rev();
                    bits.fold(0, |value, &bit| value << 1 | u64::from(bit))
                };
                let mut table: Vec<u64> = content.chunks(width).map(entry).collect();
                table.resize(1 << index_bits, 0);
                data.extend(self.builder.look_up(&table, bits, &index));
            }
        }
        Ok(data)
    }
}

/// A number with `bits` bits.
fn extend(value: &[Wire], bits: usize, is_signed: bool) -> Vec<Wire> {
    if is_signed {
        return sign_extended(value, bits);
    }
    let mut extended = value.to_vec();
    extended.resize(bits, ZERO);
    extended
}

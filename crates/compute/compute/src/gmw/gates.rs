//! Evaluates gates on shares: linear gates locally, ANDs in levels with one exchange each.

use blocks::Block;
use blocks::prg::Prg;
use circuit::{AndGate, CircuitPart, CircuitShape, FIRST_INPUT, GateBatch, ONE, Wire};
use zeroize::Zeroizing;

use super::triples::AndTriples;
use super::words;
use crate::settings::ComputeRole;

/// The maximum number of ANDs of an exchange. Their opened bits fit into a frame. A larger level
/// takes several exchanges.
pub(super) const MAX_LEVEL: usize = 1 << 20;

/// The ANDs whose inputs are known. Their outputs need the next exchange.
pub(crate) struct GmwAndLevel {
    /// The places of their outputs.
    outs: Vec<Wire>,
    /// For each place, whether it is one of these outputs.
    is_out: Vec<bool>,
}

impl GmwAndLevel {
    pub(crate) fn new(shape: &CircuitShape) -> Self {
        let outs = Vec::with_capacity(max_len(shape));
        Self { outs, is_out: vec![false; shape.part_places as usize] }
    }

    pub(crate) fn len(&self) -> usize {
        self.outs.len()
    }

    /// Whether the exchange must come before this batch: the batch may need its results, or there
    /// is no room. A batch without linear gates is often the rest of the same level.
    pub(crate) fn ends_before(&self, batch: GateBatch<'_>) -> bool {
        let is_read = |and: &AndGate| self.is_out[and.a as usize] || self.is_out[and.b as usize];
        !self.outs.is_empty()
            && (!batch.linear.is_empty()
                || self.outs.len() + batch.ands.len() > MAX_LEVEL
                || batch.ands.iter().any(is_read))
    }

    pub(crate) fn add(&mut self, ands: &[AndGate]) {
        for and in ands {
            self.outs.push(and.out);
            self.is_out[and.out as usize] = true;
        }
    }

    pub(crate) fn clear(&mut self) {
        for out in self.outs.drain(..) {
            self.is_out[out as usize] = false;
        }
    }
}

/// The maximum number of ANDs of an exchange of this circuit.
pub(super) fn max_len(shape: &CircuitShape) -> usize {
    usize::try_from(shape.ands).unwrap_or(MAX_LEVEL).min(MAX_LEVEL)
}

/// A party's shares of all wires.
pub(crate) struct GmwWireShares {
    /// A byte of 0 or 1 for each place of the circuit's arena.
    circuit: Zeroizing<Vec<u8>>,
    /// The shares of a part's arena. They are bytes, because gates access places in random order.
    /// Values of many ANDs that are computed together are packed.
    places: Zeroizing<Vec<u8>>,
    level: GmwAndLevel,
    /// The inputs of the level's ANDs.
    x: Zeroizing<Vec<u8>>,
    y: Zeroizing<Vec<u8>>,
    /// The bits that this party opens: packed x + a and y + b.
    d: Vec<u64>,
    e: Vec<u64>,
    /// All ones at the party that adds the publicly known terms.
    public_share_mask: u64,
}

impl GmwWireShares {
    /// The initial shares: the garbler holds the constants, and inputs are not set yet.
    pub(crate) fn new(shape: &CircuitShape, role: ComputeRole) -> Self {
        let has_public = role == ComputeRole::Garbler;
        let arena = |places: u32| {
            let mut bits = Zeroizing::new(vec![0; places as usize]);
            bits[ONE as usize] = u8::from(has_public);
            bits
        };
        let most = max_len(shape).next_multiple_of(64);
        let bits = || Zeroizing::new(Vec::with_capacity(most));
        Self {
            circuit: arena(shape.places),
            places: arena(shape.part_places),
            level: GmwAndLevel::new(shape),
            x: bits(),
            y: bits(),
            d: Vec::with_capacity(most / 64),
            e: Vec::with_capacity(most / 64),
            public_share_mask: u64::from(has_public).wrapping_neg(),
        }
    }

    /// Sets the shares of both parties' inputs. `seeds` are those of the other party's shares of
    /// this party's input, and of this party's shares of the other's input.
    pub(crate) fn set_inputs(
        &mut self,
        shape: &CircuitShape,
        role: ComputeRole,
        input: &[u8],
        seeds: [Block; 2],
    ) {
        let first = FIRST_INPUT as usize;
        let middle = first + shape.garbler_inputs as usize;
        let end = first + shape.inputs() as usize;
        let (own, other) = match role {
            ComputeRole::Garbler => (first..middle, middle..end),
            ComputeRole::Evaluator => (middle..end, first..middle),
        };
        let [of_own, of_other] = seeds;
        let mut bytes = Zeroizing::new(vec![0; input.len()]);
        Prg::new(of_own).fill_bytes(&mut bytes);
        bytes.iter_mut().zip(input).for_each(|(mask, byte)| *mask ^= byte);
        set(&mut self.circuit[own], &bytes);
        let mut bytes = Zeroizing::new(vec![0; other.len().div_ceil(8)]);
        Prg::new(of_other).fill_bytes(&mut bytes);
        set(&mut self.circuit[other], &bytes);
    }

    /// Begins a part of the circuit.
    pub(crate) fn begin(&mut self, part: &CircuitPart<'_>) {
        for import in part.imports {
            self.places[import.to as usize] = self.circuit[import.from as usize];
        }
    }

    /// Ends a part after all of its ANDs were exchanged.
    pub(crate) fn end(&mut self, part: &CircuitPart<'_>) {
        for export in part.exports {
            self.circuit[export.to as usize] = self.places[export.from as usize];
        }
    }

    /// Whether the exchange of [`open`](Self::open) and [`apply_opened`](Self::apply_opened) must
    /// come before this batch.
    pub(crate) fn must_open_before(&self, batch: GateBatch<'_>) -> bool {
        self.level.ends_before(batch)
    }

    /// The ANDs of the next exchange.
    pub(crate) fn waiting(&self) -> usize {
        self.level.len()
    }

    /// Evaluates the linear gates of a batch, and adds its ANDs to the level.
    pub(crate) fn add(&mut self, batch: GateBatch<'_>) {
        let Self { places, level, x, y, .. } = self;
        let places = &mut places[..];
        for gate in batch.linear {
            places[gate.out as usize] = places[gate.a as usize] ^ places[gate.b as usize];
        }
        x.extend(batch.ands.iter().map(|and| places[and.a as usize]));
        y.extend(batch.ands.iter().map(|and| places[and.b as usize]));
        level.add(batch.ands);
    }

    /// Appends the bits that this party opens of the level: x + a for each AND, then y + b for
    /// each, in whole bytes. They are uniform, because each triple is used once.
    pub(crate) fn open(&mut self, triples: &AndTriples, content: &mut Vec<u8>) {
        let bytes = self.level.len().div_ceil(8);
        let Self { x, y, d, e, .. } = self;
        for (bits, masks, opened) in [(x, &triples.a, d), (y, &triples.b, e)] {
            let len = bits.len().next_multiple_of(64);
            bits.resize(len, 0);
            let (groups, _) = bits.as_chunks();
            opened.clear();
            opened.extend(groups.iter().zip(masks).map(|(group, mask)| words::pack(group) ^ mask));
            words::append(opened, bytes, content);
        }
    }

    /// Computes the outputs of the level's ANDs, from the same triples and the bits that the other
    /// party has opened.
    pub(crate) fn apply_opened(&mut self, triples: &AndTriples, theirs: &[u8]) {
        let Self { places, level, x, y, d, e, public_share_mask: public, .. } = self;
        let (their_d, their_e) = theirs.split_at(theirs.len() / 2);
        for (at, outs) in level.outs.chunks(64).enumerate() {
            let d = d[at] ^ words::word(their_d, at);
            let e = e[at] ^ words::word(their_e, at);
            let (a, b, c) = (triples.a[at], triples.b[at], triples.c[at]);
            // xy = (d + a)(e + b) = de + db + ea + ab
            let products = c ^ (d & b) ^ (e & a) ^ (d & e & *public);
            for (&out, bit) in outs.iter().zip(words::unpack(products)) {
                places[out as usize] = bit;
            }
        }
        level.clear();
        x.clear();
        y.clear();
    }

    /// The packed shares of these places of the circuit's arena, in whole bytes.
    pub(crate) fn packed(&self, outputs: &[Wire]) -> Vec<u8> {
        let bits = outputs.iter().map(|&place| self.circuit[place as usize]);
        let mut bits: Zeroizing<Vec<u8>> = Zeroizing::new(bits.collect());
        let len = bits.len().next_multiple_of(64);
        bits.resize(len, 0);
        let (groups, _) = bits.as_chunks();
        let packed: Vec<u64> = groups.iter().map(words::pack).collect();
        let mut bytes = Vec::with_capacity(8 * packed.len());
        words::append(&packed, outputs.len().div_ceil(8), &mut bytes);
        bytes
    }
}

/// Sets places to packed bits.
fn set(places: &mut [u8], bytes: &[u8]) {
    for (places, byte) in places.chunks_mut(8).zip(bytes) {
        places.copy_from_slice(&words::unpack_byte(*byte)[..places.len()]);
    }
}

//! The garbler.

use std::ops::Range;

use blocks::Block;
use blocks::aes::AesKernel;
use blocks::prg::Prg;
use circuit::{CircuitPart, CircuitShape, FIRST_INPUT, GateBatch, ONE, Wire, ZERO};
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use crate::arena::{LabelArena, PartLabelBuffer};
use crate::half_gates::{self, FixedKeyLabelHash, LabelHash, LabelKeyedHash, RekeyedLabelHash};
use crate::{GarblingScheme, glnp15, three_halves};

/// Garbles a circuit part by part. Its state is secret, and wiped on drop.
pub struct Garbler {
    scheme: GarblingScheme,
    kernel: AesKernel,
    public: Block,
    offset: Block,
    /// The seed of the random bits of three halves, and its universal hash: empty in other schemes.
    coins: Block,
    universal: Vec<Block>,
    /// In schemes with an offset, the labels of 0, from which those of 1 differ by the offset.
    /// Otherwise the labels of 0 and 1, whose least significant bits differ.
    labels: LabelArena,
    outputs: Vec<Wire>,
    inputs: u32,
    part_places: u32,
}

impl Drop for Garbler {
    fn drop(&mut self) {
        self.offset.zeroize();
        self.coins.zeroize();
    }
}

/// The number of labels that are drawn at a time.
const LABELS_PER_DRAW: usize = 1 << 12;

impl Garbler {
    /// Starts a garbled circuit. All labels are derived from the seed, which must be secret, random
    /// and used for this circuit only. The offset must be secret and random, and can be shared with
    /// other circuits; its least significant bit is set to 1. Schemes without an offset ignore it.
    pub fn new(scheme: GarblingScheme, seed: Block, offset: Block, shape: &CircuitShape) -> Self {
        Self::with_kernel(scheme, seed, offset, shape, AesKernel::best())
    }

    /// Like [`Self::new`], with the given kernel. All kernels give the same tables.
    pub fn with_kernel(
        scheme: GarblingScheme,
        seed: Block,
        offset: Block,
        shape: &CircuitShape,
        kernel: AesKernel,
    ) -> Self {
        let mut prg = Prg::with_kernel(seed, kernel);
        let public = prg.block();
        let offset = offset.with_lsb(true);
        let each = if scheme.has_offset() { 1 } else { 2 };
        let labels = LabelArena::new(shape.places, each);
        let end = (FIRST_INPUT + shape.inputs()) as usize * each;
        if scheme.has_offset() {
            draw(&mut prg, &labels, FIRST_INPUT as usize..end);
            labels.set(ONE as usize, offset);
        } else {
            draw(&mut prg, &labels, 0..end);
            for place in (0..end).step_by(2) {
                let zero = labels.get(place);
                labels.set(place + 1, labels.get(place + 1).with_lsb(!zero.lsb()));
            }
            // The evaluator's label of both constants is zero.
            let (zero, one) = (2 * ZERO as usize, 2 * ONE as usize);
            labels.set(zero, Block::ZERO);
            labels.set(zero + 1, labels.get(zero + 1).with_lsb(true));
            labels.set(one, labels.get(one).with_lsb(true));
            labels.set(one + 1, Block::ZERO);
        }
        let coins = prg.block();
        let universal = match scheme {
            GarblingScheme::ThreeHalves => three_halves::universal(public, kernel),
            _ => Vec::new(),
        };
        let (outputs, inputs) = (shape.outputs.clone(), shape.inputs());
        let part_places = shape.part_places;
        Self {
            scheme,
            kernel,
            public,
            offset,
            coins,
            universal,
            labels,
            outputs,
            inputs,
            part_places,
        }
    }

    /// Returns the garbling's public value, which the evaluator needs before the first table.
    pub fn public(&self) -> Block {
        self.public
    }

    /// Returns the offset between the labels of 0 and 1 of every wire, for schemes that have one.
    pub fn offset(&self) -> Block {
        self.offset
    }

    /// Returns the labels of 0 and 1 of input bits. Input bits are counted from 0, those of the
    /// garbler first. Must be called before the first part, which can reuse their places.
    ///
    /// # Panics
    /// When there are no such inputs.
    pub fn input_pairs(&self, inputs: Range<u32>) -> Vec<[Block; 2]> {
        inputs.map(|input| self.pair(self.input(input))).collect()
    }

    /// Returns the labels of [`Self::input_pairs`] as blocks: two for each input, or only the label
    /// of 0 in schemes with an offset.
    ///
    /// # Panics
    /// When there are no such inputs.
    pub fn input_labels(&self, inputs: Range<u32>) -> Vec<Block> {
        assert!(inputs.end <= self.inputs, "there are {} inputs", self.inputs);
        let each = if self.scheme.has_offset() { 1 } else { 2 };
        let place = |input: u32| (FIRST_INPUT + input) as usize * each;
        (place(inputs.start)..place(inputs.end)).map(|place| self.labels.get(place)).collect()
    }

    /// Sets the label of the value `bit` of an input, for example one that both parties derive.
    /// Must be called before the first part. The label must be random to the evaluator, unless it
    /// is the one that the evaluator gets.
    ///
    /// # Panics
    /// When there is no such input.
    pub fn set_input(&mut self, input: u32, bit: bool, label: Block) {
        let place = self.input(input);
        if self.scheme.has_offset() {
            self.labels.set(place as usize, label ^ (self.offset & Block::mask(bit)));
            return;
        }
        let choice = Choice::from(u8::from(bit));
        let [zero, one] = self.pair(place);
        let other = Block::conditional_select(&one, &zero, choice).with_lsb(!label.lsb());
        let [zero, one] = [
            Block::conditional_select(&label, &other, choice),
            Block::conditional_select(&other, &label, choice),
        ];
        self.labels.set(2 * place as usize, zero);
        self.labels.set(2 * place as usize + 1, one);
    }

    /// Garbles a part, and appends its tables, [`GarblingScheme::part_len`] bytes. Several threads
    /// can garble parts concurrently, each with its own `memory`, in an order that
    /// [`CircuitPart::dependencies`] allows. The order does not change the tables.
    ///
    /// # Panics
    /// When a gate's place is not in the arena: the part is of another circuit.
    pub fn garble(
        &self,
        memory: &mut PartLabelBuffer,
        part: &CircuitPart<'_>,
        tables: &mut Vec<u8>,
    ) {
        let start = tables.len();
        tables.resize(start + self.scheme.part_len(part), 0);
        let each = if self.scheme.has_offset() { 1 } else { 2 };
        memory.reserve(self.part_places as usize * each);
        let labels = self.labels.import(part, memory);
        for (place, label) in labels.iter_mut().enumerate().take(FIRST_INPUT as usize * each) {
            *label = self.labels.get(place);
        }
        let tables = GarbledTableWriter { rest: &mut tables[start..], scheme: self.scheme };
        match self.scheme {
            GarblingScheme::HalfGates => {
                self.half_gates(RekeyedLabelHash { start: self.public }, memory, part, tables);
            }
            GarblingScheme::HalfGatesKeyed => self.half_gates(LabelKeyedHash, memory, part, tables),
            GarblingScheme::FixedKey => {
                self.half_gates(FixedKeyLabelHash { key: self.public }, memory, part, tables);
            }
            GarblingScheme::ThreeHalves => self.three_halves(memory, part, tables),
            GarblingScheme::Glnp15 => self.glnp15(memory, part, tables),
        }
        self.labels.export(part, memory);
    }

    fn half_gates<H: LabelHash>(
        &self,
        hash: H,
        memory: &mut PartLabelBuffer,
        part: &CircuitPart<'_>,
        mut tables: GarbledTableWriter<'_>,
    ) {
        let (mut first, offset) = (part.before.ands, self.offset);
        for batch in part.batches() {
            let (labels, tables) = (&mut memory.labels[..], tables.next(batch));
            self.kernel.run(half_gates::HalfGatesGarbleJob {
                hash,
                first,
                offset,
                batch,
                labels,
                tables,
            });
            first += batch.ands.len() as u64;
        }
    }

    fn three_halves(
        &self,
        memory: &mut PartLabelBuffer,
        part: &CircuitPart<'_>,
        mut tables: GarbledTableWriter<'_>,
    ) {
        let (start, offset, universal) = (self.public, self.offset, &self.universal[..]);
        let mut before = three_halves::all_keys(part.before);
        // For the whole part at once, because batches can be short.
        memory.reserve_coins(usize::try_from(three_halves::all_coins(part.gates)).expect("few"));
        let PartLabelBuffer { labels, coins } = memory;
        let mut random = Prg::with_kernel(self.coins, self.kernel);
        random.skip(three_halves::all_coins(part.before));
        random.fill(coins);
        let mut rest = &coins[..];
        for batch in part.batches() {
            let (coins, after) = rest.split_at(three_halves::coins(batch.ands.len()));
            rest = after;
            let (labels, tables) = (&mut labels[..], tables.next(batch));
            let hash = three_halves::ThreeHalvesHash { start, keys_before: before, universal };
            let job =
                three_halves::ThreeHalvesGarbleJob { hash, offset, batch, labels, coins, tables };
            self.kernel.run(job);
            before += three_halves::keys(batch.ands.len());
        }
    }

    fn glnp15(
        &self,
        memory: &mut PartLabelBuffer,
        part: &CircuitPart<'_>,
        mut tables: GarbledTableWriter<'_>,
    ) {
        let mut first = part.before.ands + part.before.xors;
        for batch in part.batches() {
            let (pairs, _) = memory.labels.as_chunks_mut();
            let tables = tables.next(batch);
            first = self.kernel.run(glnp15::Glnp15GarbleJob { first, batch, pairs, tables });
        }
    }

    /// Returns the decoding bits of the outputs, after the last part: each is the exclusive or of
    /// an output bit and the least significant bit of its label. With them, the evaluator decodes
    /// its labels, and the garbler decodes bits that the evaluator sends.
    pub fn decoding(&self) -> Vec<bool> {
        self.outputs.iter().map(|place| self.pair(*place)[0].lsb()).collect()
    }

    /// Returns the labels of 0 and 1 of the outputs, after the last part.
    pub fn output_pairs(&self) -> Vec<[Block; 2]> {
        self.outputs.iter().map(|place| self.pair(*place)).collect()
    }

    fn pair(&self, place: Wire) -> [Block; 2] {
        let place = place as usize;
        if self.scheme.has_offset() {
            let zero = self.labels.get(place);
            [zero, zero ^ self.offset]
        } else {
            [self.labels.get(2 * place), self.labels.get(2 * place + 1)]
        }
    }

    /// The place of an input.
    fn input(&self, input: u32) -> Wire {
        assert!(input < self.inputs, "there are {} inputs", self.inputs);
        FIRST_INPUT + input
    }
}

/// Draws labels.
fn draw(prg: &mut Prg, labels: &LabelArena, places: Range<usize>) {
    let mut drawn = Zeroizing::new(vec![Block::ZERO; LABELS_PER_DRAW.min(places.len())]);
    for start in places.clone().step_by(LABELS_PER_DRAW) {
        let count = LABELS_PER_DRAW.min(places.end - start);
        prg.fill(&mut drawn[..count]);
        for (place, label) in (start..).zip(&drawn[..count]) {
            labels.set(place, *label);
        }
    }
}

/// The tables of the batches to come.
struct GarbledTableWriter<'a> {
    rest: &'a mut [u8],
    scheme: GarblingScheme,
}

impl<'a> GarbledTableWriter<'a> {
    fn next(&mut self, batch: GateBatch<'_>) -> &'a mut [u8] {
        let rest = std::mem::take(&mut self.rest);
        let (tables, rest) = rest.split_at_mut(self.scheme.table_len(batch));
        self.rest = rest;
        tables
    }
}

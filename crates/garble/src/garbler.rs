//! The garbler.

use std::ops::Range;

use blocks::Block;
use blocks::aes::Kernel;
use blocks::prg::Prg;
use circuit::{Batch, FIRST_INPUT, ONE, Shape, Wire, ZERO};
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use crate::half_gates::{self, FixedKey, Hash, Keyed, Rekeyed};
use crate::{Scheme, glnp15, three_halves};

/// Garbles a circuit, batch by batch. What it holds is secret, and wiped on drop.
pub struct Garbler {
    scheme: Scheme,
    kernel: Kernel,
    public: Block,
    offset: Block,
    /// The random bits of three halves, and its universal hash: empty in other schemes.
    coins: Prg,
    universal: Vec<Block>,
    labels: Labels,
    outputs: Vec<Wire>,
    /// The number of the next gate, or key in three halves.
    next: u64,
    inputs: u32,
}

/// The labels of the values that are still needed, by place.
enum Labels {
    /// Those of 0; those of 1 differ by the offset.
    Zero(Vec<Block>),
    /// Those of 0 and of 1, for schemes without an offset. Their least significant bits differ.
    Pairs(Vec<[Block; 2]>),
}

impl Drop for Garbler {
    fn drop(&mut self) {
        self.offset.zeroize();
        match &mut self.labels {
            Labels::Zero(labels) => labels.zeroize(),
            Labels::Pairs(pairs) => pairs.zeroize(),
        }
    }
}

impl Garbler {
    /// Starts a garbled circuit. All labels come from the seed, which is secret, random and of this
    /// circuit only. The offset is secret and random, and can be that of other circuits; its least
    /// significant bit is set. Schemes without an offset ignore it.
    pub fn new(scheme: Scheme, seed: Block, offset: Block, shape: &Shape) -> Self {
        Self::with_kernel(scheme, seed, offset, shape, Kernel::best())
    }

    /// Is [`Self::new`], with one kernel. All give the same tables.
    pub fn with_kernel(
        scheme: Scheme,
        seed: Block,
        offset: Block,
        shape: &Shape,
        kernel: Kernel,
    ) -> Self {
        let mut prg = Prg::with_kernel(seed, kernel);
        let public = prg.block();
        let offset = offset.with_lsb(true);
        let random = FIRST_INPUT as usize..(FIRST_INPUT + shape.inputs()) as usize;
        let places = shape.places as usize;
        let labels = if scheme.has_offset() {
            let mut labels = vec![Block::ZERO; places];
            prg.fill(&mut labels[random]);
            labels[ONE as usize] = offset;
            Labels::Zero(labels)
        } else {
            let mut pairs = vec![[Block::ZERO; 2]; places];
            prg.fill(pairs[..random.end].as_flattened_mut());
            for pair in &mut pairs[..random.end] {
                pair[1] = pair[1].with_lsb(!pair[0].lsb());
            }
            // The evaluator's label of both constants is zero.
            pairs[ZERO as usize] = [Block::ZERO, pairs[ZERO as usize][1].with_lsb(true)];
            pairs[ONE as usize] = [pairs[ONE as usize][0].with_lsb(true), Block::ZERO];
            Labels::Pairs(pairs)
        };
        let coins = Prg::with_kernel(prg.block(), kernel);
        let universal = match scheme {
            Scheme::ThreeHalves => three_halves::universal(public, kernel),
            _ => Vec::new(),
        };
        let (outputs, inputs) = (shape.outputs.clone(), shape.inputs());
        Self { scheme, kernel, public, offset, coins, universal, labels, outputs, next: 0, inputs }
    }

    /// Returns the garbling's public value, which the evaluator needs before the first table.
    pub fn public(&self) -> Block {
        self.public
    }

    /// Returns the offset between the labels of 0 and 1 of every wire, for schemes that have one.
    pub fn offset(&self) -> Block {
        self.offset
    }

    /// Returns the labels of 0 and 1 of input bits, which are counted from 0, the garbler's first.
    /// To be called before the first batch, which can use their places again.
    ///
    /// # Panics
    /// When there are no such inputs.
    pub fn input_pairs(&self, inputs: Range<u32>) -> Vec<[Block; 2]> {
        inputs.map(|input| self.pair(self.input(input))).collect()
    }

    /// Returns what [`Self::input_pairs`] does as blocks: two for each input, or only the label of
    /// 0 where that of 1 differs by the offset.
    ///
    /// # Panics
    /// When there are no such inputs.
    pub fn input_labels(&self, inputs: Range<u32>) -> Vec<Block> {
        assert!(inputs.end <= self.inputs, "there are {} inputs", self.inputs);
        let places = (FIRST_INPUT + inputs.start) as usize..(FIRST_INPUT + inputs.end) as usize;
        match &self.labels {
            Labels::Zero(labels) => labels[places].to_vec(),
            Labels::Pairs(pairs) => pairs[places].as_flattened().to_vec(),
        }
    }

    /// Makes `label` that of the value `bit` of an input, as when both parties derive it. To be
    /// called before the first batch, and with a label that is random to the evaluator unless it is
    /// the one that the evaluator gets.
    ///
    /// # Panics
    /// When there is no such input.
    pub fn set_input(&mut self, input: u32, bit: bool, label: Block) {
        let place = self.input(input) as usize;
        match &mut self.labels {
            Labels::Zero(labels) => labels[place] = label ^ (self.offset & Block::mask(bit)),
            Labels::Pairs(pairs) => {
                let choice = Choice::from(u8::from(bit));
                let [zero, one] = pairs[place];
                let other = Block::conditional_select(&one, &zero, choice).with_lsb(!label.lsb());
                pairs[place] = [
                    Block::conditional_select(&label, &other, choice),
                    Block::conditional_select(&other, &label, choice),
                ];
            }
        }
    }

    /// Garbles the next batch, and appends its tables, [`Scheme::table_len`] bytes.
    ///
    /// # Panics
    /// When a gate's place is not in the arena: the batch is of another circuit.
    pub fn garble(&mut self, batch: Batch<'_>, tables: &mut Vec<u8>) {
        let start = tables.len();
        tables.resize(start + self.scheme.table_len(batch), 0);
        let tables = &mut tables[start..];
        match self.scheme {
            Scheme::HalfGates => self.half_gates(Rekeyed { start: self.public }, batch, tables),
            Scheme::HalfGatesKeyed => self.half_gates(Keyed, batch, tables),
            Scheme::FixedKey => self.half_gates(FixedKey { key: self.public }, batch, tables),
            Scheme::ThreeHalves => self.three_halves(batch, tables),
            Scheme::Glnp15 => {
                let Labels::Pairs(pairs) = &mut self.labels else { unreachable!("no offset") };
                let first = self.next;
                self.next = self.kernel.run(glnp15::Garble { first, batch, pairs, tables });
            }
        }
    }

    fn three_halves(&mut self, batch: Batch<'_>, tables: &mut [u8]) {
        let Labels::Zero(labels) = &mut self.labels else { unreachable!("an offset") };
        let mut coins = Zeroizing::new(vec![0; three_halves::coins_len(batch.ands.len())]);
        self.coins.fill_bytes(&mut coins);
        let (start, before, universal) = (self.public, self.next, &self.universal[..]);
        let hash = three_halves::Hash { start, before, universal };
        let (offset, coins) = (self.offset, &coins[..]);
        self.kernel.run(three_halves::Garble { hash, offset, batch, labels, coins, tables });
        self.next += three_halves::keys(batch.ands.len());
    }

    fn half_gates<H: Hash>(&mut self, hash: H, batch: Batch<'_>, tables: &mut [u8]) {
        let Labels::Zero(labels) = &mut self.labels else { unreachable!("an offset") };
        let (first, offset) = (self.next, self.offset);
        self.kernel.run(half_gates::Garble { hash, first, offset, batch, labels, tables });
        self.next += batch.ands.len() as u64;
    }

    /// Returns what decodes the outputs, after the last batch: the exclusive or of an output bit
    /// and the least significant bit of its label. The evaluator learns the outputs from it, and
    /// the garbler from the evaluator's bits.
    pub fn decoding(&self) -> Vec<bool> {
        self.outputs.iter().map(|place| self.pair(*place)[0].lsb()).collect()
    }

    /// Returns the labels of 0 and 1 of the outputs, after the last batch.
    pub fn output_pairs(&self) -> Vec<[Block; 2]> {
        self.outputs.iter().map(|place| self.pair(*place)).collect()
    }

    fn pair(&self, place: Wire) -> [Block; 2] {
        match &self.labels {
            Labels::Zero(labels) => {
                let zero = labels[place as usize];
                [zero, zero ^ self.offset]
            }
            Labels::Pairs(pairs) => pairs[place as usize],
        }
    }

    /// The place of an input.
    fn input(&self, input: u32) -> Wire {
        assert!(input < self.inputs, "there are {} inputs", self.inputs);
        FIRST_INPUT + input
    }
}

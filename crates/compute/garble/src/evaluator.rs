//! The evaluator.

use blocks::Block;
use blocks::aes::AesKernel;
use circuit::{CircuitPart, CircuitShape, FIRST_INPUT, GateBatch, Wire};

use crate::arena::{LabelArena, PartLabelBuffer};
use crate::half_gates::{self, FixedKeyLabelHash, LabelHash, LabelKeyedHash, RekeyedLabelHash};
use crate::{Error, GarblingScheme, glnp15, three_halves};

/// Evaluates a garbled circuit part by part. Its labels are wiped on drop.
pub struct Evaluator {
    scheme: GarblingScheme,
    kernel: AesKernel,
    public: Block,
    /// The universal hash of three halves: empty in other schemes.
    universal: Vec<Block>,
    labels: LabelArena,
    outputs: Vec<Wire>,
    inputs: u32,
    part_places: u32,
}

impl Evaluator {
    /// Starts the evaluation. `public` is the value of [`crate::Garbler::public`].
    pub fn new(scheme: GarblingScheme, public: Block, shape: &CircuitShape) -> Self {
        Self::with_kernel(scheme, public, shape, AesKernel::best())
    }

    /// Like [`Self::new`], with the given kernel.
    pub fn with_kernel(
        scheme: GarblingScheme,
        public: Block,
        shape: &CircuitShape,
        kernel: AesKernel,
    ) -> Self {
        let labels = LabelArena::new(shape.places, 1);
        let universal = match scheme {
            GarblingScheme::ThreeHalves => three_halves::universal(public, kernel),
            _ => Vec::new(),
        };
        let (outputs, inputs) = (shape.outputs.clone(), shape.inputs());
        let part_places = shape.part_places;
        Self { scheme, kernel, public, universal, labels, outputs, inputs, part_places }
    }

    /// Sets the label of an input bit. Input bits are counted from 0, those of the garbler first.
    /// All labels must be set before the first part.
    ///
    /// # Panics
    /// When there is no such input.
    pub fn set_input(&mut self, input: u32, label: Block) {
        assert!(input < self.inputs, "there are {} inputs", self.inputs);
        self.labels.set((FIRST_INPUT + input) as usize, label);
    }

    /// Evaluates a part with its tables, [`GarblingScheme::part_len`] bytes. Several threads can
    /// evaluate parts concurrently, each with its own `memory`, in an order that
    /// [`CircuitPart::dependencies`] allows. Wrong tables of the right length give wrong outputs,
    /// which are not detected.
    ///
    /// # Errors
    /// When the tables have the wrong length. The evaluator is then unchanged.
    ///
    /// # Panics
    /// When a gate's place is not in the arena: the part is of another circuit.
    pub fn evaluate(
        &self,
        memory: &mut PartLabelBuffer,
        part: &CircuitPart<'_>,
        tables: &[u8],
    ) -> Result<(), Error> {
        let (needed, available) = (self.scheme.part_len(part), tables.len());
        if needed != available {
            return Err(Error::TablesLen { needed, available });
        }
        memory.reserve(self.part_places as usize);
        let labels = self.labels.import(part, memory);
        labels[..FIRST_INPUT as usize].fill(Block::ZERO);
        let tables = GarbledTableReader { rest: tables, scheme: self.scheme };
        match self.scheme {
            GarblingScheme::HalfGates => {
                self.half_gates(RekeyedLabelHash { start: self.public }, labels, part, tables);
            }
            GarblingScheme::HalfGatesKeyed => self.half_gates(LabelKeyedHash, labels, part, tables),
            GarblingScheme::FixedKey => {
                self.half_gates(FixedKeyLabelHash { key: self.public }, labels, part, tables);
            }
            GarblingScheme::ThreeHalves => self.three_halves(labels, part, tables),
            GarblingScheme::Glnp15 => self.glnp15(labels, part, tables),
        }
        self.labels.export(part, memory);
        Ok(())
    }

    fn half_gates<H: LabelHash>(
        &self,
        hash: H,
        labels: &mut [Block],
        part: &CircuitPart<'_>,
        mut tables: GarbledTableReader<'_>,
    ) {
        let mut first = part.before.ands;
        for batch in part.batches() {
            let (labels, tables) = (&mut *labels, tables.next(batch));
            self.kernel.run(half_gates::HalfGatesEvaluateJob {
                hash,
                first,
                batch,
                labels,
                tables,
            });
            first += batch.ands.len() as u64;
        }
    }

    fn three_halves(
        &self,
        labels: &mut [Block],
        part: &CircuitPart<'_>,
        mut tables: GarbledTableReader<'_>,
    ) {
        let (start, universal) = (self.public, &self.universal[..]);
        let mut before = three_halves::all_keys(part.before);
        for batch in part.batches() {
            let (labels, tables) = (&mut *labels, tables.next(batch));
            let hash = three_halves::ThreeHalvesHash { start, keys_before: before, universal };
            self.kernel.run(three_halves::ThreeHalvesEvaluateJob { hash, batch, labels, tables });
            before += three_halves::keys(batch.ands.len());
        }
    }

    fn glnp15(
        &self,
        labels: &mut [Block],
        part: &CircuitPart<'_>,
        mut tables: GarbledTableReader<'_>,
    ) {
        let mut first = part.before.ands + part.before.xors;
        for batch in part.batches() {
            let (labels, tables) = (&mut *labels, tables.next(batch));
            first = self.kernel.run(glnp15::Glnp15EvaluateJob { first, batch, labels, tables });
        }
    }

    /// Returns the labels of the outputs, after the last part.
    pub fn output_labels(&self) -> Vec<Block> {
        self.outputs.iter().map(|place| self.labels.get(*place as usize)).collect()
    }

    /// Returns the output bits, after the last part, with [`crate::Garbler::decoding`].
    ///
    /// # Errors
    /// When there is not one bit for each output.
    pub fn decode(&self, decoding: &[bool]) -> Result<Vec<bool>, Error> {
        let (needed, available) = (self.outputs.len(), decoding.len());
        if needed != available {
            return Err(Error::Decoding { needed, available });
        }
        let labels = self.output_labels();
        Ok(labels.iter().zip(decoding).map(|(label, bit)| label.lsb() ^ bit).collect())
    }
}

/// The tables of the batches to come.
struct GarbledTableReader<'a> {
    rest: &'a [u8],
    scheme: GarblingScheme,
}

impl<'a> GarbledTableReader<'a> {
    fn next(&mut self, batch: GateBatch<'_>) -> &'a [u8] {
        let (tables, rest) = self.rest.split_at(self.scheme.table_len(batch));
        self.rest = rest;
        tables
    }
}

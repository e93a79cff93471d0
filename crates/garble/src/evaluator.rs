//! The evaluator.

use blocks::Block;
use blocks::aes::Kernel;
use circuit::{Batch, FIRST_INPUT, Shape, Wire};
use zeroize::Zeroize;

use crate::half_gates::{self, FixedKey, Hash, Keyed, Rekeyed};
use crate::{Error, Scheme, glnp15, three_halves};

/// Evaluates a garbled circuit, batch by batch. The labels that it holds are wiped on drop.
pub struct Evaluator {
    scheme: Scheme,
    kernel: Kernel,
    public: Block,
    /// The universal hash of three halves: empty in other schemes.
    universal: Vec<Block>,
    /// The label of each value that is still needed, by place.
    labels: Vec<Block>,
    outputs: Vec<Wire>,
    /// The number of the next gate, or key in three halves.
    next: u64,
    inputs: u32,
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        self.labels.zeroize();
    }
}

impl Evaluator {
    /// Starts the evaluation, with the public value that is [`crate::Garbler::public`].
    pub fn new(scheme: Scheme, public: Block, shape: &Shape) -> Self {
        Self::with_kernel(scheme, public, shape, Kernel::best())
    }

    /// Is [`Self::new`], with one kernel.
    pub fn with_kernel(scheme: Scheme, public: Block, shape: &Shape, kernel: Kernel) -> Self {
        let labels = vec![Block::ZERO; shape.places as usize];
        let universal = match scheme {
            Scheme::ThreeHalves => three_halves::universal(public, kernel),
            _ => Vec::new(),
        };
        let (outputs, inputs) = (shape.outputs.clone(), shape.inputs());
        Self { scheme, kernel, public, universal, labels, outputs, next: 0, inputs }
    }

    /// Takes the label of an input bit, counted from 0, the garbler's first. Each input needs one
    /// before the first batch.
    ///
    /// # Panics
    /// When there is no such input.
    pub fn set_input(&mut self, input: u32, label: Block) {
        assert!(input < self.inputs, "there are {} inputs", self.inputs);
        self.labels[(FIRST_INPUT + input) as usize] = label;
    }

    /// Evaluates the next batch with the tables at the start of `tables`, and returns how many
    /// bytes that were, [`Scheme::table_len`]. Wrong tables of that length give wrong outputs,
    /// which nothing detects.
    ///
    /// # Errors
    /// When the tables are too short; then nothing has changed.
    ///
    /// # Panics
    /// When a gate's place is not in the arena: the batch is of another circuit.
    pub fn evaluate(&mut self, batch: Batch<'_>, tables: &[u8]) -> Result<usize, Error> {
        let needed = self.scheme.table_len(batch);
        let available = tables.len();
        let tables = tables.get(..needed).ok_or(Error::TablesTooShort { needed, available })?;
        match self.scheme {
            Scheme::HalfGates => self.half_gates(Rekeyed { start: self.public }, batch, tables),
            Scheme::HalfGatesKeyed => self.half_gates(Keyed, batch, tables),
            Scheme::FixedKey => self.half_gates(FixedKey { key: self.public }, batch, tables),
            Scheme::ThreeHalves => {
                let (start, before, universal) = (self.public, self.next, &self.universal[..]);
                let hash = three_halves::Hash { start, before, universal };
                let labels = &mut self.labels[..];
                self.kernel.run(three_halves::Evaluate { hash, batch, labels, tables });
                self.next += three_halves::keys(batch.ands.len());
            }
            Scheme::Glnp15 => {
                let (first, labels) = (self.next, &mut self.labels[..]);
                self.next = self.kernel.run(glnp15::Evaluate { first, batch, labels, tables });
            }
        }
        Ok(needed)
    }

    fn half_gates<H: Hash>(&mut self, hash: H, batch: Batch<'_>, tables: &[u8]) {
        let (first, labels) = (self.next, &mut self.labels[..]);
        self.kernel.run(half_gates::Evaluate { hash, first, batch, labels, tables });
        self.next += batch.ands.len() as u64;
    }

    /// Returns the labels of the outputs, after the last batch.
    pub fn output_labels(&self) -> Vec<Block> {
        self.outputs.iter().map(|place| self.labels[*place as usize]).collect()
    }

    /// Returns the output bits, after the last batch, with [`crate::Garbler::decoding`].
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

//! Batches of gates, and the interface of what supplies them.

/// The index of a wire: in a [`Circuit`](crate::Circuit) its number, in a [`Batch`] its place in
/// the arena.
pub type Wire = u32;

/// The wire, and the place, of the constant 0.
pub const ZERO: Wire = 0;

/// The wire, and the place, of the constant 1. No gate writes it or [`ZERO`].
pub const ONE: Wire = 1;

/// The wire, and the place, of the first input bit. The inputs of the garbler come first, those of
/// the evaluator follow.
pub const FIRST_INPUT: Wire = 2;

/// The number of linear gates of a batch at most.
pub const MAX_LINEAR: usize = 1 << 15;

/// The number of ANDs of a batch at most.
pub const MAX_ANDS: usize = 1 << 13;

/// A linear gate: `out = a XOR b`.
///
/// With `b` = [`ONE`] it is a NOT, with `b` = [`ZERO`] a copy. Only with `b` constant can `a` be
/// constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Linear {
    /// The place of the first input.
    pub a: Wire,
    /// The place of the second input.
    pub b: Wire,
    /// The place of the output.
    pub out: Wire,
}

impl Linear {
    /// Whether both inputs vary: neither a NOT nor a copy.
    #[inline]
    pub fn is_xor(self) -> bool {
        self.b > ONE
    }

    /// Whether it is a NOT of `a`.
    #[inline]
    pub fn is_not(self) -> bool {
        self.b == ONE
    }
}

/// A gate `out = a AND b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct And {
    /// The place of the first input.
    pub a: Wire,
    /// The place of the second input.
    pub b: Wire,
    /// The place of the output.
    pub out: Wire,
}

/// Gates that are processed in one go: the linear ones first, then the ANDs.
///
/// A place is used again when no later gate reads its value. But in one run of `linear`, and in
/// `ands`, no gate writes a place that a gate of the same run, or of `ands`, reads or writes: its
/// gates can be processed in any order, or at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The linear gates, each after those whose outputs it reads.
    pub linear: &'a [Linear],
    /// The ends, as indices of `linear`, of its runs of gates that do not depend on each other. The
    /// last is the length of `linear`.
    pub runs: &'a [u32],
    /// The ANDs, which do not depend on each other.
    pub ands: &'a [And],
}

/// What is known of a circuit before its first batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of input bits of the garbler, at the places from [`FIRST_INPUT`] on.
    pub garbler_inputs: u32,
    /// The number of input bits of the evaluator, at the places that follow.
    pub evaluator_inputs: u32,
    /// The places of the output bits after the last batch. A place can occur more than once, and
    /// can be that of an input or of a constant.
    pub outputs: Vec<Wire>,
    /// The number of places of the arena, with those of the constants and of the inputs.
    pub places: u32,
    /// The number of ANDs.
    pub ands: u64,
    /// The number of linear gates of two inputs that are not constant.
    pub xors: u64,
    /// The number of NOTs.
    pub nots: u64,
    /// The SHA-256 digest of the circuit: two parties whose digests are equal have the same one.
    pub digest: [u8; 32],
}

impl Shape {
    /// The number of input bits of both parties.
    pub fn inputs(&self) -> u32 {
        self.garbler_inputs + self.evaluator_inputs
    }
}

/// Supplies the gates of a circuit in batches.
///
/// The batches are the same after each [`rewind`](Self::rewind), and at both parties.
pub trait Source: Send {
    /// What is known of the circuit.
    fn shape(&self) -> &Shape;

    /// The next batch, or `None` after the last one. A batch has at most [`MAX_LINEAR`] linear
    /// gates and [`MAX_ANDS`] ANDs.
    fn next_batch(&mut self) -> Option<Batch<'_>>;

    /// Starts again with the first batch.
    fn rewind(&mut self);
}

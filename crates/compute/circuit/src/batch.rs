//! Batches of gates, and the interface of what supplies them.

/// The index of a wire: in a [`Circuit`](crate::Circuit) its number, elsewhere its place in an
/// arena.
pub type Wire = u32;

/// The wire, and the place in both arenas, of the constant 0.
pub const ZERO: Wire = 0;

/// The wire, and the place in both arenas, of the constant 1. No gate writes it or [`ZERO`].
pub const ONE: Wire = 1;

/// The wire, and the place in the circuit's arena, of the first input bit. The inputs of the
/// garbler come first, those of the evaluator follow.
pub const FIRST_INPUT: Wire = 2;

/// The maximum number of parts in progress. A part may begin when all parts at least this far
/// before it, and those that [`CircuitPart::dependencies`] names, are complete.
pub const MAX_UNDER_WAY: usize = 32;

/// The maximum number of linear gates of a batch.
pub const MAX_LINEAR: usize = 1 << 15;

/// The maximum number of ANDs of a batch.
pub const MAX_ANDS: usize = 1 << 13;

/// A linear gate: `out = a XOR b`.
///
/// With `b` = [`ONE`] it is a NOT, with `b` = [`ZERO`] a copy. Only with `b` constant can `a` be
/// constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LinearGate {
    /// The place of the first input.
    pub a: Wire,
    /// The place of the second input.
    pub b: Wire,
    /// The place of the output.
    pub out: Wire,
}

impl LinearGate {
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
pub struct AndGate {
    /// The place of the first input.
    pub a: Wire,
    /// The place of the second input.
    pub b: Wire,
    /// The place of the output.
    pub out: Wire,
}

/// Gates that are processed in one go: the linear ones first, then the ANDs. Places are those of
/// the part's arena.
///
/// A place is reused when no later gate reads its value. But within one run of `linear`, and within
/// `ands`, no gate writes a place that another gate of that run, or of `ands`, reads or writes.
/// Such gates can be processed in any order or concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateBatch<'a> {
    /// The linear gates, each after those whose outputs it reads.
    pub linear: &'a [LinearGate],
    /// The ends, as indices of `linear`, of its runs of gates that do not depend on each other. The
    /// last is the length of `linear`.
    pub runs: &'a [u32],
    /// The ANDs, which do not depend on each other.
    pub ands: &'a [AndGate],
}

/// A value that is copied from a place of one arena to one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ArenaCopy {
    /// Its place in the source arena.
    pub from: Wire,
    /// Its place in the target arena.
    pub to: Wire,
}

/// A part of a circuit: batches that are processed one after another, in an arena of their own.
///
/// The circuit's arena has the inputs, the outputs, and values that one part makes and another one
/// reads. A part's arena has the constants and at first nothing else.
#[derive(Clone, Copy, Debug)]
pub struct CircuitPart<'a> {
    /// The values to copy from the circuit's arena to the part's before the first batch.
    pub imports: &'a [ArenaCopy],
    /// The values to copy from the part's arena to the circuit's after the last batch.
    pub exports: &'a [ArenaCopy],
    /// Bit k is set if the part that is k + 1 before this one has to be complete first.
    pub dependencies: u32,
    /// The gates of this part.
    pub gates: GarblingGateCounts,
    /// The gates of all parts before it.
    pub before: GarblingGateCounts,
    pub(crate) batches: PartBatches<'a>,
}

/// Numbers of gates, by their cost in garbling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GarblingGateCounts {
    /// ANDs.
    pub ands: u64,
    /// Linear gates of two inputs that are not constant.
    pub xors: u64,
    /// Batches.
    pub batches: u64,
}

impl GarblingGateCounts {
    pub(crate) fn plus(self, other: Self) -> Self {
        let Self { ands, xors, batches } = self;
        Self { ands: ands + other.ands, xors: xors + other.xors, batches: batches + other.batches }
    }

    /// Multiplies each number.
    pub(crate) fn times(self, times: u64) -> Self {
        let Self { ands, xors, batches } = self;
        Self {
            ands: ands.saturating_mul(times),
            xors: xors.saturating_mul(times),
            batches: batches.saturating_mul(times),
        }
    }
}

/// The ends of a batch in [`PartBatches`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GateBatchEnds {
    pub(crate) linear: u32,
    pub(crate) runs: u32,
    pub(crate) ands: u32,
}

/// The batches of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartBatches<'a> {
    pub(crate) linear: &'a [LinearGate],
    pub(crate) runs: &'a [u32],
    pub(crate) ands: &'a [AndGate],
    /// The end of the previous batch.
    pub(crate) start: GateBatchEnds,
    pub(crate) ends: &'a [GateBatchEnds],
}

impl<'a> CircuitPart<'a> {
    /// The batches in order.
    pub fn batches(&self) -> impl Iterator<Item = GateBatch<'a>> + use<'a> {
        let PartBatches { linear, runs, ands, start, ends } = self.batches;
        let range = |start: u32, end: u32| start as usize..end as usize;
        let starts = std::iter::once(start).chain(ends.iter().copied());
        starts.zip(ends).map(move |(start, end)| GateBatch {
            linear: &linear[range(start.linear, end.linear)],
            runs: &runs[range(start.runs, end.runs)],
            ands: &ands[range(start.ands, end.ands)],
        })
    }
}

/// The properties of a circuit that are known before its first part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitShape {
    /// The number of input bits of the garbler, at the places from [`FIRST_INPUT`] on.
    pub garbler_inputs: u32,
    /// The number of input bits of the evaluator, at the places that follow.
    pub evaluator_inputs: u32,
    /// The number of bits of each input value of the garbler.
    pub garbler_values: Vec<u32>,
    /// The number of bits of each input value of the evaluator.
    pub evaluator_values: Vec<u32>,
    /// The number of bits of each output value.
    pub output_values: Vec<u32>,
    /// The places of the output bits after the last part. A place can occur more than once, and
    /// can be that of an input or of a constant.
    pub outputs: Vec<Wire>,
    /// The number of places of the circuit's arena, with those of the constants and of the inputs.
    pub places: u32,
    /// The maximum number of places of a part's arena.
    pub part_places: u32,
    /// The number of ANDs.
    pub ands: u64,
    /// The number of linear gates of two inputs that are not constant.
    pub xors: u64,
    /// The number of NOTs.
    pub nots: u64,
    /// The SHA-256 digest of the circuit: two parties whose digests are equal have the same one.
    pub digest: [u8; 32],
}

impl CircuitShape {
    /// The number of input bits of both parties.
    pub fn inputs(&self) -> u32 {
        self.garbler_inputs + self.evaluator_inputs
    }
}

/// Supplies the gates of a circuit in parts, of which several can be processed at the same time
/// ([`CircuitPart::dependencies`], [`MAX_UNDER_WAY`]).
///
/// The parts are the same at both parties.
pub trait CircuitSource: Sync {
    /// The shape of the circuit.
    fn shape(&self) -> &CircuitShape;

    /// The number of parts.
    fn parts(&self) -> u64;

    /// Part `index`, counted from 0. A batch has at most [`MAX_LINEAR`] linear gates and
    /// [`MAX_ANDS`] ANDs.
    ///
    /// # Panics
    /// If there are no more than `index` parts.
    fn part(&self, index: u64) -> CircuitPart<'_>;
}

//! Curves, and the colours there are for them.

/// A line through points, with what is known of how far each could be off.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// What the legend calls it; left out of the legend if empty.
    pub name: String,
    /// The colour of all of it.
    pub colour: Colour,
    /// Its points, x and y, in the order in which the line goes. What is not finite is left out.
    pub points: Vec<(f64, f64)>,
    /// For each point the lowest and the highest y, drawn as a thin bar. Empty if there is none.
    pub spread: Vec<(f64, f64)>,
    /// Which points have a dot.
    pub marks: Marks,
    /// Whether the line is dashed, as what is predicted and not measured.
    pub dashed: bool,
}

impl Curve {
    /// Every y that the curve and its bars reach, as an [`Axis`](crate::Axis) wants them.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.points.iter().map(|point| point.1);
        points.chain(self.spread.iter().flat_map(|(low, high)| [*low, *high]))
    }
}

/// Which points of a curve have a dot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// The first, so that a curve of one point is seen.
    #[default]
    First,
    /// All.
    All,
    /// None.
    None,
}

/// A colour of the palette.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// That of the axes, for a curve that stands for no one thing.
    #[default]
    Neutral,
    /// The nth of eight, from 0; after the last comes the first again.
    Nth(usize),
}

/// Colours that the colour-blind tell apart on white: those of Okabe and Ito, with a grey for their
/// yellow, which is too pale for a line.
const PALETTE: [(u8, u8, u8); 8] = [
    (0x00, 0x72, 0xb2),
    (0xd5, 0x5e, 0x00),
    (0x00, 0x9e, 0x73),
    (0xcc, 0x79, 0xa7),
    (0xe6, 0x9f, 0x00),
    (0x56, 0xb4, 0xe9),
    (0x00, 0x00, 0x00),
    (0x99, 0x99, 0x99),
];

impl Colour {
    /// Red, green and blue.
    pub(crate) fn rgb(self) -> (u8, u8, u8) {
        match self {
            Self::Neutral => (0x33, 0x33, 0x33),
            Self::Nth(n) => PALETTE[n % PALETTE.len()],
        }
    }
}

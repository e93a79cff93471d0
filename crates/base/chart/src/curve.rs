//! Curves and their colours.

/// A line through points, with the spread of each point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartCurve {
    /// The name in the legend. A curve without a name is not in the legend.
    pub name: String,
    /// The colour.
    pub colour: ChartColor,
    /// The points (x, y) in the order of the line. Points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// The minimum and maximum y of each point, drawn as a thin bar. Empty: no bars.
    pub spread: Vec<(f64, f64)>,
    /// Which points have a dot.
    pub marks: CurveMarks,
    /// Whether the line is dashed, as for predictions.
    pub dashed: bool,
}

impl ChartCurve {
    /// All y values of the points and bars, for the range of an [`Axis`](crate::ChartAxis).
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.points.iter().map(|point| point.1);
        points.chain(self.spread.iter().flat_map(|(low, high)| [*low, *high]))
    }
}

/// Which points of a curve have a dot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CurveMarks {
    /// The first, so that a curve of one point is visible.
    #[default]
    First,
    /// All.
    All,
    /// None.
    None,
}

/// A colour of the palette.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChartColor {
    /// The colour of the axes.
    #[default]
    Neutral,
    /// The nth of eight colours, from 0. Higher numbers repeat them.
    Nth(usize),
}

/// Colours that remain distinguishable with colour blindness: those of Okabe and Ito, except for
/// their yellow, which is too pale for a line and replaced by grey.
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

impl ChartColor {
    /// Red, green and blue.
    pub(crate) fn rgb(self) -> (u8, u8, u8) {
        match self {
            Self::Neutral => (0x33, 0x33, 0x33),
            Self::Nth(n) => PALETTE[n % PALETTE.len()],
        }
    }
}

//! The legend of a page, in as many rows as it needs.

use plotters::coord::Shift;
use plotters::style::text_anchor::HPos;

use crate::canvas::{ChartCanvas, ChartError, LineStyle, position};
use crate::panel::LINE;
use crate::text::{LABEL, width};
use crate::{ChartCurve, CurveMarks};

/// The height of a row.
pub(crate) const ROW_HEIGHT: i32 = 26;

/// The maximum width of a row.
const MAX_WIDTH: i32 = 930;

// The length of a line's sample, the gap after it, and the space after an entry.
const SAMPLE: i32 = 26;
const GAP: i32 = 7;
const SPACE: i32 = 30;

/// A name and one of its curves. The caption has no curve.
#[derive(Clone, Copy)]
pub(crate) struct LegendEntry<'a> {
    name: &'a str,
    curve: Option<&'a ChartCurve>,
}

/// The rows of a legend: its caption, then each combination of name and style once, in the order of
/// the curves.
pub(crate) fn rows<'a>(
    caption: &'a str,
    curves: impl Iterator<Item = &'a ChartCurve>,
) -> Vec<Vec<LegendEntry<'a>>> {
    let mut entries = vec![LegendEntry { name: caption, curve: None }];
    for curve in curves {
        let entry = LegendEntry { name: &curve.name, curve: Some(curve) };
        if !entries.iter().any(|other| other.is_like(entry)) {
            entries.push(entry);
        }
    }
    entries.retain(|entry| !entry.name.is_empty());
    let mut rows: Vec<Vec<LegendEntry<'_>>> = Vec::new();
    for entry in entries {
        match rows.last_mut() {
            Some(row) if row_width(row) + SPACE + entry.width() <= MAX_WIDTH => row.push(entry),
            _ => rows.push(vec![entry]),
        }
    }
    rows
}

/// Draws a centred row at a height.
pub(crate) fn draw_row(
    row: &[LegendEntry<'_>],
    y: i32,
    canvas: &ChartCanvas<'_, Shift>,
) -> Result<(), ChartError> {
    let mut x = (canvas.width() - row_width(row)) / 2;
    for entry in row {
        entry.draw(x, y, canvas)?;
        x += entry.width() + SPACE;
    }
    Ok(())
}

fn row_width(row: &[LegendEntry<'_>]) -> i32 {
    row.iter().map(|entry| entry.width() + SPACE).sum::<i32>() - SPACE
}

impl LegendEntry<'_> {
    fn is_like(self, other: Self) -> bool {
        let style = |curve: &ChartCurve| (curve.colour, curve.dashed, curve.marks);
        self.name == other.name && self.curve.map(style) == other.curve.map(style)
    }

    fn width(self) -> i32 {
        self.sample_width() + width(self.name, LABEL)
    }

    fn sample_width(self) -> i32 {
        if self.curve.is_some() { SAMPLE + GAP } else { 0 }
    }

    fn draw(self, x: i32, y: i32, canvas: &ChartCanvas<'_, Shift>) -> Result<(), ChartError> {
        if let Some(curve) = self.curve {
            let ChartCurve { colour, dashed, .. } = *curve;
            let ends = vec![position(x, y), position(x + SAMPLE, y)];
            canvas.line(ends, LineStyle { colour, width: LINE, dashed })?;
            let dot = match curve.marks {
                CurveMarks::First => Some(position(x, y)),
                CurveMarks::All => Some(position(x + SAMPLE / 2, y)),
                CurveMarks::None => None,
            };
            canvas.dots(&dot, colour)?;
        }
        canvas.text(self.name, LABEL, position(x + self.sample_width(), y), HPos::Left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChartColor;

    fn curve(name: &str, dashed: bool) -> ChartCurve {
        ChartCurve {
            name: name.to_owned(),
            colour: ChartColor::Nth(2),
            dashed,
            ..ChartCurve::default()
        }
    }

    fn name<'a>(rows: &[Vec<LegendEntry<'a>>]) -> Vec<Vec<&'a str>> {
        rows.iter().map(|row| row.iter().map(|entry| entry.name).collect()).collect()
    }

    #[test]
    fn a_name_appears_once_for_each_style() {
        let curves = [
            curve("one", false),
            curve("", false),
            curve("one", true),
            curve("two", true),
            curve("one", false),
        ];
        assert_eq!(name(&rows("", curves.iter())), [["one", "one", "two"]]);
        assert_eq!(name(&rows("who", curves[..1].iter())), [["who", "one"]]);
        assert!(rows("", [].into_iter()).is_empty());
    }

    #[test]
    fn many_names_take_many_rows() {
        let curves: Vec<ChartCurve> =
            (0..20).map(|i| curve(&format!("channel {i}"), false)).collect();
        let rows = rows("Channels:", curves.iter());
        assert!((2..5).contains(&rows.len()), "{:?}", name(&rows));
        assert!(rows.iter().all(|row| row_width(row) <= MAX_WIDTH));
        assert_eq!(rows.iter().map(Vec::len).sum::<usize>(), 21);
    }
}

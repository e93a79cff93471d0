//! Text in columns.

use std::fmt::Write;

/// Which side of its column a cell is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// The rows as lines, indented by two, each column as wide as its widest cell. There are as many
/// sides as cells in a row.
pub(crate) fn aligned<R: AsRef<[String]>>(sides: &[Side], rows: &[R]) -> String {
    let mut text = String::new();
    let width = |column: usize| {
        rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..sides.len()).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, side)) in row.as_ref().iter().zip(sides).enumerate() {
            let width = widths[column];
            // Writing to a text does not fail.
            let _ = match side {
                Side::Left => write!(line, "  {cell:width$}"),
                Side::Right => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

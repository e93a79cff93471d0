//! Text in columns.

use std::fmt::Write;

/// Which side of its column a cell is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// The rows as lines, indented by two, each column as wide as its widest cell. There are as many
/// sides as cells in a row.
pub(super) fn aligned<const N: usize>(sides: [Side; N], rows: &[[String; N]]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, side)) in row.iter().zip(sides).enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
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

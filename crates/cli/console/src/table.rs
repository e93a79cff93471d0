//! Aligned text columns.

use std::fmt::Write;

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ColumnAlignment {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Formats rows as lines, indented by two spaces. Each column is as wide as its widest cell. Each
/// row has as many cells as there are sides.
pub fn aligned<R: AsRef<[String]>>(sides: &[ColumnAlignment], rows: &[R]) -> String {
    let mut text = String::new();
    let width = |column: usize| {
        rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..sides.len()).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, side)) in row.as_ref().iter().zip(sides).enumerate() {
            let width = widths[column];
            // Writing to a string does not fail.
            let _ = match side {
                ColumnAlignment::Left => write!(line, "  {cell:width$}"),
                ColumnAlignment::Right => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

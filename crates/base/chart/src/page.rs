//! A page: a title, a legend, and graphs in a grid.

use plotters::coord::Shift;
use plotters::style::text_anchor::HPos;

use crate::canvas::{self, ChartCanvas, ChartError, position};
use crate::legend::{self, LegendEntry, ROW_HEIGHT};
use crate::text::{LABEL, TITLE};
use crate::{ChartPanel, panel};

/// A page of graphs. Empty parts are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// The title of the page.
    pub title: String,
    /// A line of text below the title.
    pub note: String,
    /// The caption of the legend. The legend has each combination of name and style once, in as
    /// many rows as it needs.
    pub legend: String,
    /// The graphs. A single one fills the page; several are in two columns, row by row.
    pub panels: Vec<ChartPanel>,
}

/// The width of a page in pixels.
const WIDTH: i32 = 1000;

impl Chart {
    /// Draws the page as an SVG document, 1000 pixels wide. Truncates a title or note that does not
    /// fit.
    ///
    /// # Errors
    /// If the graphics library fails.
    pub fn svg(&self) -> Result<String, ChartError> {
        let columns = self.panels.len().clamp(1, 2);
        let rows = self.panels.len().div_ceil(columns);
        let legend = legend::rows(&self.legend, self.panels.iter().flat_map(|panel| &panel.curves));
        let heading: i32 = self.heights(&legend).iter().sum();
        let size = (WIDTH, heading + count(rows) * panel_height(columns));
        canvas::document(size, |page| {
            let (above, below) = page.split_at(heading);
            self.draw_heading(&legend, &above)?;
            let mut panels = self.panels.iter().zip(below.grid(rows, columns));
            panels.try_for_each(|(panel, canvas)| panel::draw(panel, &canvas))
        })
    }

    /// The heights of title, note and legend.
    fn heights(&self, legend: &[Vec<LegendEntry<'_>>]) -> [i32; 3] {
        let title = if self.title.is_empty() { 0 } else { 40 };
        let note = if self.note.is_empty() { 0 } else { 28 };
        let legend = if legend.is_empty() { 0 } else { 14 + ROW_HEIGHT * count(legend.len()) };
        [title, note, legend]
    }

    fn draw_heading(
        &self,
        legend: &[Vec<LegendEntry<'_>>],
        canvas: &ChartCanvas<'_, Shift>,
    ) -> Result<(), ChartError> {
        let [title, note, _] = self.heights(legend);
        canvas.text(&self.title, TITLE, position(WIDTH / 2, 26), HPos::Center)?;
        canvas.text(&self.note, LABEL, position(WIDTH / 2, title + 14), HPos::Center)?;
        let mut rows = (0..).map(|row| title + note + 18 + ROW_HEIGHT * row).zip(legend);
        rows.try_for_each(|(y, row)| legend::draw_row(row, y, canvas))
    }
}

/// The height of each graph in a grid with `columns` columns. A wider graph is higher, but not in
/// proportion, because its text has the same size.
fn panel_height(columns: usize) -> i32 {
    152 + 468 / count(columns)
}

fn count(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}

//! Draws text, lines and dots as SVG.
//!
//! Plotters uses whole pixels, which makes curves uneven. So it draws a page [`PLOTTER_PIXELS`]
//! times as large, and the document sets the size at which it is shown.

use std::error::Error;

use plotters::coord::{CoordTranslate, Shift};
use plotters::element::{Circle, DashedPathElement, PathElement, Text};
use plotters::prelude::{DrawingArea, IntoDrawingArea, RGBColor, SVGBackend, WHITE};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, TextStyle};

use crate::ChartColor;
use crate::text::truncated;

/// The graphics library failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the graph: {0}")]
pub struct ChartError(#[source] Box<dyn Error + Send + Sync>);

impl ChartError {
    pub(crate) fn new(cause: impl Error + Send + Sync + 'static) -> Self {
        Self(cause.into())
    }
}

/// The number of plotters' pixels in a pixel of the page. Lengths are in the latter.
pub(crate) const PLOTTER_PIXELS: i32 = 10;

/// The number of plotters' text units in a pixel.
const TEXT_UNITS: f64 = 1.24;

/// A part of a page. Positions on it have the coordinates C.
pub(crate) struct ChartCanvas<'a, C: CoordTranslate>(pub(crate) DrawingArea<SVGBackend<'a>, C>);

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LineStyle {
    pub(crate) colour: ChartColor,
    pub(crate) width: f64,
    pub(crate) dashed: bool,
}

/// An SVG document with a width, a height and a white background.
pub(crate) fn document(
    (width, height): (i32, i32),
    content: impl FnOnce(&ChartCanvas<'_, Shift>) -> Result<(), ChartError>,
) -> Result<String, ChartError> {
    let (drawn_width, drawn_height) = position(width, height);
    let drawn = (drawn_width.unsigned_abs(), drawn_height.unsigned_abs());
    let mut document = String::new();
    let page = ChartCanvas(SVGBackend::with_string(&mut document, drawn).into_drawing_area());
    page.0.fill(&WHITE).map_err(ChartError::new)?;
    content(&page)?;
    page.0.present().map_err(ChartError::new)?;
    drop(page);
    let size = |width, height| format!("width=\"{width}\" height=\"{height}\"");
    Ok(document.replacen(&size(drawn_width, drawn_height), &size(width, height), 1))
}

/// A position on a part of a page, relative to its upper left corner.
pub(crate) fn position(x: i32, y: i32) -> (i32, i32) {
    (x * PLOTTER_PIXELS, y * PLOTTER_PIXELS)
}

/// A length in plotters' pixels.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a page is small")]
pub(crate) fn to_plotter_pixels(length: f64) -> u32 {
    (length * f64::from(PLOTTER_PIXELS)).round() as u32
}

/// A font of a size in pixels.
pub(crate) fn font(size: f64) -> TextStyle<'static> {
    TextStyle::from((FontFamily::SansSerif, to_plotter_pixels(size * TEXT_UNITS)))
}

/// A colour as plotters represents it.
pub(crate) fn rgb(colour: ChartColor) -> RGBColor {
    let (red, green, blue) = colour.rgb();
    RGBColor(red, green, blue)
}

impl ChartCanvas<'_, Shift> {
    /// Splits the canvas at a height.
    pub(crate) fn split_at(&self, height: i32) -> (Self, Self) {
        let (above, below) = self.0.split_vertically(height * PLOTTER_PIXELS);
        (Self(above), Self(below))
    }

    /// Splits the canvas into equal parts, row by row.
    pub(crate) fn grid(&self, rows: usize, columns: usize) -> impl Iterator<Item = Self> {
        self.0.split_evenly((rows, columns)).into_iter().map(ChartCanvas)
    }

    /// The width in pixels.
    pub(crate) fn width(&self) -> i32 {
        let (across, _) = self.0.get_pixel_range();
        (across.end - across.start) / PLOTTER_PIXELS
    }

    /// Draws a line of text beside or around a position. Text that is wider than the canvas is
    /// truncated.
    pub(crate) fn text(
        &self,
        text: &str,
        size: f64,
        position: (i32, i32),
        side: HPos,
    ) -> Result<(), ChartError> {
        if text.is_empty() {
            return Ok(());
        }
        let style = font(size).pos(Pos { h_pos: side, v_pos: VPos::Center });
        self.0
            .draw(&Text::new(truncated(text, size, self.width()), position, style))
            .map_err(ChartError::new)
    }
}

impl<C: CoordTranslate> ChartCanvas<'_, C>
where
    C::From: Clone + 'static,
{
    /// Draws a line through positions.
    pub(crate) fn line(&self, positions: Vec<C::From>, pen: LineStyle) -> Result<(), ChartError> {
        let style = rgb(pen.colour).stroke_width(to_plotter_pixels(pen.width));
        let drawn = if pen.dashed {
            let (dash, gap) = (7 * PLOTTER_PIXELS, 4 * PLOTTER_PIXELS);
            self.0.draw(&DashedPathElement::new(positions, dash, gap, style))
        } else {
            self.0.draw(&PathElement::new(positions, style))
        };
        drawn.map_err(ChartError::new)
    }

    /// Draws a dot at each position.
    pub(crate) fn dots<'p>(
        &self,
        positions: impl IntoIterator<Item = &'p C::From>,
        colour: ChartColor,
    ) -> Result<(), ChartError> {
        for position in positions {
            let dot = Circle::new(position.clone(), to_plotter_pixels(4.0), rgb(colour).filled());
            self.0.draw(&dot).map_err(ChartError::new)?;
        }
        Ok(())
    }
}

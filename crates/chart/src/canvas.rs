//! What a page is drawn on: text, lines and dots, as SVG.
//!
//! Plotters knows whole pixels only, and a line that goes from one to the next is not smooth. So it
//! draws a page that is [`FINE`] times too large, and the document says at which size to show it.

use std::error::Error;

use plotters::coord::{CoordTranslate, Shift};
use plotters::element::{Circle, DashedPathElement, PathElement, Text};
use plotters::prelude::{DrawingArea, IntoDrawingArea, RGBColor, SVGBackend, WHITE};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, TextStyle};

use crate::Colour;
use crate::text::truncated;

/// Why there is no document: the graphics library failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the graph: {0}")]
pub struct ChartError(String);

impl ChartError {
    pub(crate) fn new(cause: impl Error) -> Self {
        Self(cause.to_string())
    }
}

/// How many of plotters' pixels are one of the page as it is shown. Lengths are in the latter.
pub(crate) const FINE: i32 = 10;

/// Plotters' unit of text, of which so many are a pixel.
const TEXT_UNITS: f64 = 1.24;

/// A part of a page. Places on it are in the coordinates C.
pub(crate) struct Canvas<'a, C: CoordTranslate>(pub(crate) DrawingArea<SVGBackend<'a>, C>);

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pen {
    pub(crate) colour: Colour,
    pub(crate) width: f64,
    pub(crate) dashed: bool,
}

/// An SVG document of a width and a height, on white.
pub(crate) fn document(
    (width, height): (i32, i32),
    content: impl FnOnce(&Canvas<'_, Shift>) -> Result<(), ChartError>,
) -> Result<String, ChartError> {
    let (drawn_width, drawn_height) = place(width, height);
    let drawn = (drawn_width.unsigned_abs(), drawn_height.unsigned_abs());
    let mut document = String::new();
    let page = Canvas(SVGBackend::with_string(&mut document, drawn).into_drawing_area());
    page.0.fill(&WHITE).map_err(ChartError::new)?;
    content(&page)?;
    page.0.present().map_err(ChartError::new)?;
    drop(page);
    let size = |width, height| format!("width=\"{width}\" height=\"{height}\"");
    Ok(document.replacen(&size(drawn_width, drawn_height), &size(width, height), 1))
}

/// A place on a part of a page, from its upper left corner.
pub(crate) fn place(x: i32, y: i32) -> (i32, i32) {
    (x * FINE, y * FINE)
}

/// A length as plotters measures it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a page is small")]
pub(crate) fn fine(length: f64) -> u32 {
    (length * f64::from(FINE)).round() as u32
}

/// Text of a size in pixels.
pub(crate) fn font(size: f64) -> TextStyle<'static> {
    TextStyle::from((FontFamily::SansSerif, fine(size * TEXT_UNITS)))
}

/// A colour as plotters has it.
pub(crate) fn rgb(colour: Colour) -> RGBColor {
    let (red, green, blue) = colour.rgb();
    RGBColor(red, green, blue)
}

impl Canvas<'_, Shift> {
    /// The part down to a height, and the rest.
    pub(crate) fn split_at(&self, height: i32) -> (Self, Self) {
        let (above, below) = self.0.split_vertically(height * FINE);
        (Self(above), Self(below))
    }

    /// Equal parts, row by row.
    pub(crate) fn grid(&self, rows: usize, columns: usize) -> impl Iterator<Item = Self> {
        self.0.split_evenly((rows, columns)).into_iter().map(Canvas)
    }

    /// Its width.
    pub(crate) fn width(&self) -> i32 {
        let (across, _) = self.0.get_pixel_range();
        (across.end - across.start) / FINE
    }

    /// One line of text, truncated if it is wider than this canvas, on one side of a place or
    /// around it.
    pub(crate) fn text(
        &self,
        said: &str,
        size: f64,
        place: (i32, i32),
        side: HPos,
    ) -> Result<(), ChartError> {
        if said.is_empty() {
            return Ok(());
        }
        let style = font(size).pos(Pos { h_pos: side, v_pos: VPos::Center });
        self.0
            .draw(&Text::new(truncated(said, size, self.width()), place, style))
            .map_err(ChartError::new)
    }
}

impl<C: CoordTranslate> Canvas<'_, C>
where
    C::From: Clone + 'static,
{
    /// A line through places.
    pub(crate) fn line(&self, places: Vec<C::From>, pen: Pen) -> Result<(), ChartError> {
        let style = rgb(pen.colour).stroke_width(fine(pen.width));
        let drawn = if pen.dashed {
            let (dash, gap) = (7 * FINE, 4 * FINE);
            self.0.draw(&DashedPathElement::new(places, dash, gap, style))
        } else {
            self.0.draw(&PathElement::new(places, style))
        };
        drawn.map_err(ChartError::new)
    }

    /// A dot at each of the places.
    pub(crate) fn dots<'p>(
        &self,
        places: impl IntoIterator<Item = &'p C::From>,
        colour: Colour,
    ) -> Result<(), ChartError> {
        for place in places {
            let dot = Circle::new(place.clone(), fine(4.0), rgb(colour).filled());
            self.0.draw(&dot).map_err(ChartError::new)?;
        }
        Ok(())
    }
}

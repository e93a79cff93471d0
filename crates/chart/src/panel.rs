//! One graph: its title, axes and curves.

use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor};

use crate::canvas::{Canvas, ChartError, FINE, Pen, fine, font, position, rgb};
use crate::text::{HEADING, LABEL, printable, width};
use crate::{Axis, Colour, Curve, Marks};

/// One graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The title. Empty: none.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis. The axes must contain the curves: nothing is clipped.
    pub y: Axis,
    /// The curves. The last one is on top.
    pub curves: Vec<Curve>,
}

/// The colour of the grid.
const GRID: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);

// Margins for text around the plot, in pixels.
const ABOVE: i32 = 35;
const BELOW: i32 = 62;
// With short labels.
const LEFT: i32 = 94;
const RIGHT: i32 = 28;

/// The left margin besides the ticks' labels, in pixels: the axis's label, and gaps.
const BESIDE: i32 = 52;

/// The width of a bar that shows a spread.
const BAR: f64 = 1.6;

/// The width of a curve.
pub(crate) const LINE: f64 = 2.0;

/// Draws a panel that fills a canvas.
pub(crate) fn draw(panel: &Panel, canvas: &Canvas<'_, Shift>) -> Result<(), ChartError> {
    let middle = (left(panel) + canvas.width() - right(panel)) / 2;
    canvas.text(&panel.title, HEADING, position(middle, 21), HPos::Center)?;
    let plot = draw_axes(panel, canvas)?;
    panel.curves.iter().try_for_each(|curve| draw_curve(panel, curve, &plot))
}

/// The left margin, for the axis's label and those of its ticks.
fn left(Panel { y, .. }: &Panel) -> i32 {
    let labels = y.ticks().iter().map(|tick| width(&y.tick_label(*tick), LABEL));
    LEFT.max(BESIDE + labels.max().unwrap_or(0))
}

/// The right margin, into which half of the last label extends.
fn right(Panel { x, .. }: &Panel) -> i32 {
    let labels = x.ticks().iter().map(|tick| width(&x.tick_label(*tick), LABEL));
    RIGHT.max(6 + labels.max().unwrap_or(0) / 2)
}

/// Draws the axes and the grid. Returns the area for the curves.
fn draw_axes<'a>(
    panel: &Panel,
    canvas: &Canvas<'a, Shift>,
) -> Result<Canvas<'a, Cartesian2d<Ruler, Ruler>>, ChartError> {
    let mut chart = ChartBuilder::on(&canvas.0)
        .margin_top(ABOVE * FINE)
        .margin_right(right(panel) * FINE)
        .margin_bottom(10 * FINE)
        .margin_left(10 * FINE)
        .x_label_area_size((BELOW - 10) * FINE)
        .y_label_area_size((left(panel) - 10) * FINE)
        .build_cartesian_2d(Ruler(panel.x.clone()), Ruler(panel.y.clone()))
        .map_err(ChartError::new)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .bold_line_style(GRID.stroke_width(fine(1.0)))
        .axis_style(rgb(Colour::Neutral).stroke_width(fine(1.0)))
        .set_all_tick_mark_size(5 * FINE)
        .label_style(font(LABEL))
        .axis_desc_style(font(LABEL))
        .x_desc(printable(panel.x.label()))
        .y_desc(printable(panel.y.label()))
        .draw()
        .map_err(ChartError::new)?;
    Ok(Canvas(chart.plotting_area().clone()))
}

fn draw_curve(
    Panel { x, y, .. }: &Panel,
    curve: &Curve,
    plot: &Canvas<'_, Cartesian2d<Ruler, Ruler>>,
) -> Result<(), ChartError> {
    let Curve { colour, dashed, .. } = *curve;
    for ((at, _), (low, high)) in curve.points.iter().zip(&curve.spread) {
        if let (Some(at), Some(low), Some(high)) =
            (x.position(*at), y.position(*low), y.position(*high))
        {
            let bar = Pen { colour, width: BAR, dashed: false };
            plot.line(vec![(at, low), (at, high)], bar)?;
        }
    }
    let positions =
        curve.points.iter().filter_map(|point| Some((x.position(point.0)?, y.position(point.1)?)));
    let positions: Vec<(f64, f64)> = positions.collect();
    let dots = match curve.marks {
        Marks::First => 1,
        Marks::All => positions.len(),
        Marks::None => 0,
    };
    plot.dots(positions.iter().take(dots), colour)?;
    plot.line(positions, Pen { colour, width: LINE, dashed })
}

/// An axis for plotters: one of positions, not of values.
#[derive(Clone)]
struct Ruler(Axis);

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (start, end): (i32, i32)) -> i32 {
        let range = self.0.range();
        let part = (position - range.start) / (range.end - range.start);
        #[expect(clippy::cast_possible_truncation, reason = "a page has few pixels")]
        let offset = (part * f64::from(end - start)).round() as i32;
        start + offset
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.0.ticks().to_vec() }
    }

    fn range(&self) -> Range<f64> {
        self.0.range()
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, position: &f64) -> String {
        self.0.tick_label(*position)
    }
}

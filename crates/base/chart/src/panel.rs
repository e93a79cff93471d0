//! One graph: its title, axes and curves.

use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor};

use crate::canvas::{
    ChartCanvas, ChartError, LineStyle, PLOTTER_PIXELS, font, position, rgb, to_plotter_pixels,
};
use crate::text::{HEADING, LABEL, printable, width};
use crate::{ChartAxis, ChartColor, ChartCurve, CurveMarks};

/// One graph.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartPanel {
    /// The title. Empty: none.
    pub title: String,
    /// The horizontal axis.
    pub x: ChartAxis,
    /// The vertical axis. The axes must contain the curves: nothing is clipped.
    pub y: ChartAxis,
    /// The curves. The last one is on top.
    pub curves: Vec<ChartCurve>,
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
pub(crate) fn draw(panel: &ChartPanel, canvas: &ChartCanvas<'_, Shift>) -> Result<(), ChartError> {
    let middle = (left(panel) + canvas.width() - right(panel)) / 2;
    canvas.text(&panel.title, HEADING, position(middle, 21), HPos::Center)?;
    let plot = draw_axes(panel, canvas)?;
    panel.curves.iter().try_for_each(|curve| draw_curve(panel, curve, &plot))
}

/// The left margin, for the axis's label and those of its ticks.
fn left(ChartPanel { y, .. }: &ChartPanel) -> i32 {
    let labels = y.ticks().iter().map(|tick| width(&y.tick_label(*tick), LABEL));
    LEFT.max(BESIDE + labels.max().unwrap_or(0))
}

/// The right margin, into which half of the last label extends.
fn right(ChartPanel { x, .. }: &ChartPanel) -> i32 {
    let labels = x.ticks().iter().map(|tick| width(&x.tick_label(*tick), LABEL));
    RIGHT.max(6 + labels.max().unwrap_or(0) / 2)
}

/// Draws the axes and the grid. Returns the area for the curves.
fn draw_axes<'a>(
    panel: &ChartPanel,
    canvas: &ChartCanvas<'a, Shift>,
) -> Result<ChartCanvas<'a, Cartesian2d<PlotterAxis, PlotterAxis>>, ChartError> {
    let mut chart = ChartBuilder::on(&canvas.0)
        .margin_top(ABOVE * PLOTTER_PIXELS)
        .margin_right(right(panel) * PLOTTER_PIXELS)
        .margin_bottom(10 * PLOTTER_PIXELS)
        .margin_left(10 * PLOTTER_PIXELS)
        .x_label_area_size((BELOW - 10) * PLOTTER_PIXELS)
        .y_label_area_size((left(panel) - 10) * PLOTTER_PIXELS)
        .build_cartesian_2d(PlotterAxis(panel.x.clone()), PlotterAxis(panel.y.clone()))
        .map_err(ChartError::new)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .bold_line_style(GRID.stroke_width(to_plotter_pixels(1.0)))
        .axis_style(rgb(ChartColor::Neutral).stroke_width(to_plotter_pixels(1.0)))
        .set_all_tick_mark_size(5 * PLOTTER_PIXELS)
        .label_style(font(LABEL))
        .axis_desc_style(font(LABEL))
        .x_desc(printable(panel.x.label()))
        .y_desc(printable(panel.y.label()))
        .draw()
        .map_err(ChartError::new)?;
    Ok(ChartCanvas(chart.plotting_area().clone()))
}

fn draw_curve(
    ChartPanel { x, y, .. }: &ChartPanel,
    curve: &ChartCurve,
    plot: &ChartCanvas<'_, Cartesian2d<PlotterAxis, PlotterAxis>>,
) -> Result<(), ChartError> {
    let ChartCurve { colour, dashed, .. } = *curve;
    for ((at, _), (low, high)) in curve.points.iter().zip(&curve.spread) {
        if let (Some(at), Some(low), Some(high)) =
            (x.position(*at), y.position(*low), y.position(*high))
        {
            let bar = LineStyle { colour, width: BAR, dashed: false };
            plot.line(vec![(at, low), (at, high)], bar)?;
        }
    }
    let positions =
        curve.points.iter().filter_map(|point| Some((x.position(point.0)?, y.position(point.1)?)));
    let positions: Vec<(f64, f64)> = positions.collect();
    let dots = match curve.marks {
        CurveMarks::First => 1,
        CurveMarks::All => positions.len(),
        CurveMarks::None => 0,
    };
    plot.dots(positions.iter().take(dots), colour)?;
    plot.line(positions, LineStyle { colour, width: LINE, dashed })
}

/// An axis for plotters: one of positions, not of values.
#[derive(Clone)]
struct PlotterAxis(ChartAxis);

impl Ranged for PlotterAxis {
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

impl ValueFormatter<f64> for PlotterAxis {
    fn format_ext(&self, position: &f64) -> String {
        self.0.tick_label(*position)
    }
}

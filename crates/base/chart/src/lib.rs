//! Graphs as SVG in one style: thin grey axes, text as text, and colours that remain
//! distinguishable with colour blindness.
//!
//! A [`Chart`] is plain data. [`Chart::svg`] draws it.
//!
//! ```
//! use sunder_chart::{Chart, ChartAxis, ChartColor, ChartCurve, ChartPanel};
//!
//! let rate = ChartCurve {
//!     name: String::from("measured"),
//!     colour: ChartColor::Nth(0),
//!     points: vec![(1.0, 250.0), (2.0, 125.0), (3.0, 75.0)],
//!     spread: vec![(240.0, 252.0), (120.0, 126.0), (70.0, 75.0)],
//!     ..ChartCurve::default()
//! };
//! let panel = ChartPanel {
//!     title: String::from("Rate"),
//!     x: ChartAxis::for_integers("shares sent for a symbol", 1..=3),
//!     y: ChartAxis::from_zero("rate, Mbit/s", rate.values()),
//!     curves: vec![rate],
//! };
//! let svg = Chart { panels: vec![panel], ..Chart::default() }.svg()?;
//! assert!(svg.contains("measured"));
//! # Ok::<(), sunder_chart::ChartError>(())
//! ```
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `page`: a page of graphs. `panel`: one graph, with its `axis` and `curve`. `legend`: the
//!   legend of a page.
//! - `canvas`: draws text, lines and dots as SVG. `text`: the width of text, and its characters.

mod axis;
mod canvas;
mod curve;
mod legend;
mod page;
mod panel;
mod text;

pub use axis::ChartAxis;
pub use canvas::ChartError;
pub use curve::{ChartColor, ChartCurve, CurveMarks};
pub use page::Chart;
pub use panel::ChartPanel;

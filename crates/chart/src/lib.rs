//! Graphs as SVG in one style: thin grey axes, text as text, and colours that remain
//! distinguishable with colour blindness.
//!
//! A [`Chart`] is plain data. [`Chart::svg`] draws it.
//!
//! ```
//! use sunder_chart::{Axis, Chart, Colour, Curve, Panel};
//!
//! let rate = Curve {
//!     name: String::from("measured"),
//!     colour: Colour::Nth(0),
//!     points: vec![(1.0, 250.0), (2.0, 125.0), (3.0, 75.0)],
//!     spread: vec![(240.0, 252.0), (120.0, 126.0), (70.0, 75.0)],
//!     ..Curve::default()
//! };
//! let panel = Panel {
//!     title: String::from("Rate"),
//!     x: Axis::whole("shares sent for a symbol", 1..=3),
//!     y: Axis::from_zero("rate, Mbit/s", rate.values()),
//!     curves: vec![rate],
//! };
//! let svg = Chart { panels: vec![panel], ..Chart::default() }.svg()?;
//! assert!(svg.contains("measured"));
//! # Ok::<(), sunder_chart::ChartError>(())
//! ```

mod axis;
mod canvas;
mod curve;
mod legend;
mod page;
mod panel;
mod text;

pub use axis::Axis;
pub use canvas::ChartError;
pub use curve::{Colour, Curve, Marks};
pub use page::Chart;
pub use panel::Panel;

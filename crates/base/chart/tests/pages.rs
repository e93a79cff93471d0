//! Pages as a viewer sees them: their content, and that they are well-formed SVG.

use sunder_chart::{Chart, ChartAxis, ChartColor, ChartCurve, ChartPanel, CurveMarks};

const BLUE: &str = "#0072B2";
const ORANGE: &str = "#D55E00";

fn curve(name: &str, colour: usize) -> ChartCurve {
    let points = (1..=4).map(|x| (f64::from(x), 10.0 / f64::from(x))).collect();
    ChartCurve {
        name: name.to_owned(),
        colour: ChartColor::Nth(colour),
        points,
        ..ChartCurve::default()
    }
}

fn panel(title: &str, curves: Vec<ChartCurve>) -> ChartPanel {
    let y = ChartAxis::from_zero("rate, Mbit/s", curves.iter().flat_map(ChartCurve::values));
    ChartPanel { title: title.to_owned(), x: ChartAxis::for_integers("shares", 1..=4), y, curves }
}

/// Draws the page and checks that it is well-formed.
fn svg(chart: &Chart) -> String {
    let svg = chart.svg().unwrap();
    assert!(svg.starts_with("<svg width=\"1000\" "), "{svg}");
    assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let opened = svg.lines().filter(|line| line.starts_with("<text ")).count();
    assert_eq!(opened, svg.lines().filter(|line| *line == "</text>").count());
    svg
}

/// The number of elements of a kind with a colour.
fn elements(svg: &str, kind: &str, colour: &str) -> usize {
    let kind = format!("<{kind} ");
    svg.lines().filter(|line| line.starts_with(&kind) && line.contains(colour)).count()
}

#[test]
fn a_page_has_all_text_and_curves() {
    let chart = Chart {
        title: String::from("Four graphs"),
        note: String::from("of nothing <much>"),
        legend: String::from("Curves:"),
        panels: (0..4).map(|i| panel(&format!("Graph {i}"), vec![curve("first", 0)])).collect(),
    };
    let svg = svg(&chart);
    let titles =
        ["Four graphs", "of nothing &lt;much&gt;", "Curves:", "first", "shares", "Graph 3"];
    for text in titles {
        assert!(svg.contains(text), "{text}");
    }
    assert_eq!(svg.matches("\nfirst\n").count(), 1, "the legend has a name once");
    // One for each panel, and one in the legend.
    assert_eq!(elements(&svg, "polyline", BLUE), 5);
    assert_eq!(elements(&svg, "circle", BLUE), 5);
}

#[test]
fn dashes_bars_and_dots_are_drawn() {
    let measured = ChartCurve {
        spread: (1..=4).map(|x| (9.0 / f64::from(x), 11.0 / f64::from(x))).collect(),
        marks: CurveMarks::All,
        ..curve("", 0)
    };
    let predicted = ChartCurve { dashed: true, marks: CurveMarks::None, ..curve("", 1) };
    let chart = Chart { panels: vec![panel("", vec![measured, predicted])], ..Chart::default() };
    let svg = svg(&chart);
    assert_eq!(elements(&svg, "circle", BLUE), 4);
    assert_eq!(elements(&svg, "circle", ORANGE), 0);
    assert_eq!(elements(&svg, "polyline", BLUE), 1 + 4, "a line and four bars");
    assert!(elements(&svg, "polyline", ORANGE) > 10, "many dashes");
}

#[test]
fn pages_grow_with_their_content() {
    let heights = [0, 1, 2, 3].map(|panels| {
        let chart =
            Chart { panels: vec![panel("", vec![curve("", 0)]); panels], ..Chart::default() };
        let svg = svg(&chart);
        let height = svg.split_once("height=\"").unwrap().1.split('"').next().unwrap();
        height.parse::<u32>().unwrap()
    });
    assert_eq!(heights, [0, 620, 386, 772]);
}

#[test]
fn points_that_are_not_finite_are_left_out() {
    let points = vec![(1.0, 3.0), (f64::NAN, 1.0), (2.0, f64::INFINITY), (3.0, 1.0)];
    let spread = vec![(2.0, f64::NAN); 4];
    let odd = ChartCurve { points, spread, marks: CurveMarks::All, ..curve("", 0) };
    let none = ChartCurve { points: Vec::new(), ..curve("only in the legend", 1) };
    let chart = Chart { panels: vec![panel("", vec![odd, none])], ..Chart::default() };
    let svg = svg(&chart);
    assert_eq!(elements(&svg, "circle", BLUE), 2);
    assert_eq!(elements(&svg, "polyline", BLUE), 1);
    assert!(svg.contains("only in the legend"));
}

#[test]
fn wide_tick_labels_do_not_overlap_the_axis_label() {
    let left = |most: f64| {
        let points = vec![(1.0, 0.0), (2.0, most)];
        let curve = ChartCurve { points, ..curve("", 0) };
        let svg = svg(&Chart { panels: vec![panel("", vec![curve])], ..Chart::default() });
        let places = svg.lines().filter(|line| line.starts_with("<polyline "));
        let places = places.filter(|line| line.contains(BLUE));
        let first = places.map(|line| line.split_once("points=\"").unwrap().1).next().unwrap();
        first.split(',').next().unwrap().parse::<i32>().unwrap()
    };
    assert_eq!(left(5.0), left(50_000.0));
    assert!(left(5.0) < left(2.5e9));
}

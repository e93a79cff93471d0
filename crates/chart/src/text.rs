//! Text on a page: its approximate width, and the characters of it that SVG can hold.

// Sizes in pixels.
pub(crate) const TITLE: f64 = 21.0;
pub(crate) const HEADING: f64 = 16.0;
pub(crate) const LABEL: f64 = 14.5;

/// The width of a letter relative to the size of its text: above the average, as the viewer's font
/// is not known.
const LETTER: f64 = 0.54;

/// The margins to both sides of a line of text as wide as a page, in pixels.
const MARGINS: i32 = 70;

/// About how wide a text is.
#[expect(clippy::cast_possible_truncation, reason = "a page is small")]
pub(crate) fn width(said: &str, size: f64) -> i32 {
    let letters = u32::try_from(said.chars().count()).unwrap_or(u32::MAX);
    (f64::from(letters) * LETTER * size) as i32
}

/// The text as XML can hold it, truncated if it is wider than that on a page can be.
pub(crate) fn truncated(said: &str, size: f64, page: i32) -> String {
    let mut line = printable(said);
    if width(&line, size) > page - MARGINS {
        while width(&line, size) > page - MARGINS && line.pop().is_some() {}
        line.push('\u{2026}');
    }
    line
}

/// The text with a replacement for what XML cannot hold.
pub(crate) fn printable(said: &str) -> String {
    let letters = said.chars().map(|c| match c {
        '\u{fffe}' | '\u{ffff}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_not_cut() {
        let names = "a long name, ".repeat(8);
        assert_eq!(truncated(&names, LABEL, 1000), names);
        let line = truncated(&names.repeat(2), LABEL, 1000);
        assert!(line.ends_with('\u{2026}') && width(&line, LABEL) < 950, "{line}");
        assert_eq!(truncated("all", LABEL, 0), "\u{2026}");
    }

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(printable("\u{3ba} \u{0}\n\u{ffff}"), "\u{3ba} \u{fffd}\u{fffd}\u{fffd}");
    }
}

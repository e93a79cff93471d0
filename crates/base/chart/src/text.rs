//! Text on a page: its approximate width, and the characters that SVG allows.

// Sizes in pixels.
pub(crate) const TITLE: f64 = 21.0;
pub(crate) const HEADING: f64 = 16.0;
pub(crate) const LABEL: f64 = 14.5;

/// The width of a character relative to the size of its text. It is above the average, because the
/// viewer's font is unknown.
const LETTER: f64 = 0.54;

/// The sum of the margins of a line of text as wide as a page, in pixels.
const MARGINS: i32 = 70;

/// The approximate width of a text in pixels.
#[expect(clippy::cast_possible_truncation, reason = "a page is small")]
pub(crate) fn width(text: &str, size: f64) -> i32 {
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    (f64::from(letters) * LETTER * size) as i32
}

/// The text with characters that XML allows, truncated to the width of a page.
pub(crate) fn truncated(text: &str, size: f64, page: i32) -> String {
    let mut line = printable(text);
    if width(&line, size) > page - MARGINS {
        while width(&line, size) > page - MARGINS && line.pop().is_some() {}
        line.push('\u{2026}');
    }
    line
}

/// Replaces characters that XML does not allow.
pub(crate) fn printable(text: &str) -> String {
    let letters = text.chars().map(|c| match c {
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
    fn text_that_fits_is_not_truncated() {
        let names = "a long name, ".repeat(8);
        assert_eq!(truncated(&names, LABEL, 1000), names);
        let line = truncated(&names.repeat(2), LABEL, 1000);
        assert!(line.ends_with('\u{2026}') && width(&line, LABEL) < 950, "{line}");
        assert_eq!(truncated("all", LABEL, 0), "\u{2026}");
    }

    #[test]
    fn characters_that_xml_does_not_allow_are_replaced() {
        assert_eq!(printable("\u{3ba} \u{0}\n\u{ffff}"), "\u{3ba} \u{fffd}\u{fffd}\u{fffd}");
    }
}

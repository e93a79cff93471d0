//! Finds values and texts in the output of a program.

use serde_json::Value;

use super::{TextPlan, ValuePlan};

/// The maximum length of a text, in characters. The rest is not kept.
const MAX_TEXT_LEN: usize = 1000;

/// Characters that may separate the digits of a number.
const WITHIN: [char; 11] =
    [',', '.', ':', '\'', '_', '-', '+', '\u{2019}', '\u{a0}', '\u{202f}', '\u{2009}'];

/// Letters that multiply a number if they follow it alone: `1.2k`.
const MULTIPLES: [&str; 5] = ["k", "K", "M", "G", "T"];

impl ValuePlan {
    /// Finds the number in a program's output; `None` if there is none, or if the number is
    /// ambiguous.
    pub(crate) fn read(&self, output: &str) -> Option<f64> {
        if let Some(pointer) = &self.json {
            return document(output)?.pointer(pointer)?.as_f64();
        }
        let (_, rest) = output.split_once(self.after.as_deref()?)?;
        number(rest.split('\n').next()?)
    }
}

impl TextPlan {
    /// Finds the text in a document; `None` if there is none.
    pub(crate) fn read(&self, document: &Value) -> Option<String> {
        let text = document.pointer(&self.json)?.as_str()?;
        Some(text.chars().take(MAX_TEXT_LEN).collect())
    }
}

/// The JSON document in a program's output. Some programs print warnings before it.
pub(crate) fn document(output: &str) -> Option<Value> {
    serde_json::from_str(&output[output.find(['{', '['])?..]).ok()
}

/// The first number of a line.
fn number(line: &str) -> Option<f64> {
    let (before, rest) = line.split_at(line.find(|c: char| c.is_ascii_digit())?);
    let (before, point) = without(before, &['.']);
    let (before, minus) = without(before, &['-', '\u{2212}']);
    // `p99` and `x-5` are names.
    if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let end = end_of_number(rest, point);
    let (digits, after) = rest.split_at(end);
    if continues_number(after) {
        return None;
    }
    let value: f64 = if point { format!("0.{digits}") } else { digits.to_owned() }.parse().ok()?;
    Some(if minus { -value } else { value })
}

/// The text without one of the marks at its end, and whether there was one.
fn without<'a>(text: &'a str, marks: &[char]) -> (&'a str, bool) {
    text.strip_suffix(marks).map_or((text, false), |text| (text, true))
}

/// The end of the number at the start of a text: digits, a fraction unless a point came `before`,
/// and an exponent.
fn end_of_number(text: &str, before: bool) -> usize {
    let digits = |from: usize| {
        let rest = &text[from..];
        let count = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        (count > 0).then_some(from + count)
    };
    let mut end = digits(0).unwrap_or(0);
    if !before && text[end..].starts_with('.') {
        end = digits(end + 1).unwrap_or(end);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        end = digits(end + 1 + sign).unwrap_or(end);
    }
    end
}

/// Whether the text after the digits makes it another number, or none: `1,234`, `1.2.3`, `12:30`,
/// `0x1f`, `1.2k`. A unit such as `ms`, `%` or `MB/s` does not.
fn continues_number(after: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    if after.strip_prefix(WITHIN).is_some_and(|rest| rest.starts_with(is_digit)) {
        return true;
    }
    let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
    let (unit, rest) = after.split_at(end);
    rest.starts_with(is_digit) || MULTIPLES.contains(&unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(json: Option<&str>, after: Option<&str>) -> ValuePlan {
        let text = |text: &str| text.to_owned();
        ValuePlan { json: json.map(text), after: after.map(text), scale: 1.0, unit: String::new() }
    }

    #[test]
    fn numbers_are_found_in_the_output_of_programs() {
        let wrk =
            "  12 requests in 5.00s, 4MB read\nRequests/sec:   1234.50\nTransfer/sec: 1.00MB\n";
        assert_eq!(value(None, Some("Requests/sec:")).read(wrk), Some(1234.5));
        assert_eq!(value(None, Some("Transfer/sec:")).read(wrk), Some(1.0));
        assert_eq!(value(None, Some("read")).read(wrk), None, "the number is on the same line");
        assert_eq!(value(None, Some("Latency")).read(wrk), None);
        let iperf = "warning\n{\"end\": {\"streams\": [{\"bits_per_second\": 1.5e7}]}}";
        assert_eq!(value(Some("/end/streams/0/bits_per_second"), None).read(iperf), Some(1.5e7));
        assert_eq!(value(Some("/end/other"), None).read(iperf), None);
        assert_eq!(value(Some("/a"), None).read("no document"), None);
    }

    #[test]
    fn texts_are_found_in_a_document_and_others_are_missing() {
        let document = document("warning\n{\"a\": {\"why\": \"fast\"}, \"b\": 5}").unwrap();
        let text = |json: &str| TextPlan { json: json.into() }.read(&document);
        assert_eq!(text("/a/why"), Some("fast".into()));
        assert_eq!((text("/a/who"), text("/b"), text("/a")), (None, None, None));
        let long = serde_json::json!({ "a": "\u{e9}".repeat(5000) });
        let text = TextPlan { json: "/a".into() }.read(&long).unwrap();
        assert_eq!(text.chars().count(), MAX_TEXT_LEN);
    }

    #[test]
    fn a_number_may_have_a_sign_an_exponent_and_a_unit() {
        let numbers = [
            ("5", 5.0),
            (" = 5.25 Mbit/s", 5.25),
            ("5ms, 7ms", 5.0),
            ("10%", 10.0),
            ("12.5MB/s", 12.5),
            ("(3/10)", 3.0),
            (" - 5", 5.0),
            (": -5", -5.0),
            ("\u{2212}5", -5.0),
            ("+5", 5.0),
            (" .5", 0.5),
            ("-.5s", -0.5),
            ("1e3", 1000.0),
            ("1.5E-3s", 0.0015),
            ("2e", 2.0),
            ("2em", 2.0),
            ("It is 7.", 7.0),
            ("7, and 8", 7.0),
            ("\u{b5} 7\u{b5}s", 7.0),
        ];
        for (line, expected) in numbers {
            assert_eq!(number(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn ambiguous_numbers_are_rejected() {
        let lines = [
            " 1,234.5",
            "1,5",
            "1.2.3",
            "10.0.0.1",
            "12:30",
            "2024-01-02",
            "1'000",
            "1_000",
            "1\u{202f}000",
            "0x1f",
            "2m30s",
            "1e5e5",
            "1e5.5",
            "1.2k",
            "3M",
            "3G/s",
            "p99 = 5",
            "x-5",
            "a.5",
            "none",
            "",
            "-",
            ".",
        ];
        for line in lines {
            assert_eq!(number(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_can_be_parsed(line in "[-+.,:eE0-9kM\u{e4}\u{2212} ]{0,12}") {
            let _ = number(&line);
        }

        #[test]
        fn numbers_are_read_as_they_are_written(written in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
            prop_assert_eq!(number(&format!(" {written:?} ms")), Some(written));
            prop_assert_eq!(number(&format!("={written:e}")), Some(written));
        }
    }
}

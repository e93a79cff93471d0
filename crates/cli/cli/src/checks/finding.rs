//! Findings, and how they are shown.

use console::printable;
use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FindingSeverity {
    /// Correct.
    Ok,
    /// Worth knowing; correct for some uses.
    Note,
    /// Works, but is rarely intended.
    Warning,
    /// Does not work.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CheckFinding {
    pub(crate) level: FindingSeverity,
    /// The setting or the part of the host that it is about.
    pub(crate) subject: String,
    /// What was found.
    pub(crate) message: String,
    /// The fix, if one is needed.
    pub(crate) fix: Option<String>,
}

impl CheckFinding {
    /// A finding that needs no fix.
    pub(crate) fn ok(subject: impl Into<String>, message: impl Into<String>) -> Self {
        let (subject, message) = (subject.into(), message.into());
        Self { level: FindingSeverity::Ok, subject, message, fix: None }
    }

    /// A finding with its fix.
    pub(crate) fn new(
        level: FindingSeverity,
        subject: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (subject, message) = (subject.into(), message.into());
        Self { level, subject, message, fix: Some(fix.into()) }
    }

    /// For the user: one line with the finding, and one with the fix.
    pub(crate) fn lines(&self, coloured: bool) -> String {
        let (word, colour) = match self.level {
            FindingSeverity::Ok => ("ok", "32"),
            FindingSeverity::Note => ("note", "36"),
            FindingSeverity::Warning => ("warning", "33"),
            FindingSeverity::Error => ("error", "31"),
        };
        let (start, end) =
            if coloured { (format!("\x1b[1;{colour}m"), "\x1b[0m") } else { (String::new(), "") };
        let what = printable(&format!("{}: {}", self.subject, self.message));
        let fix = self.fix.iter().map(|fix| format!("\n         fix: {}", printable(fix)));
        format!("{start}{word:7}{end}  {what}{}", fix.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_with_control_characters_has_at_most_two_lines() {
        let fine = CheckFinding::ok("random source", "works");
        assert_eq!(fine.lines(false), "ok       random source: works");
        let wrong = CheckFinding::new(FindingSeverity::Error, "line 3", "a\nb\x1b[2J", "write c");
        let expected = "error    line 3: a\u{FFFD}b\u{FFFD}[2J\n         fix: write c";
        assert_eq!(wrong.lines(false), expected);
        assert!(wrong.lines(true).starts_with("\x1b[1;31merror  \x1b[0m  line 3"));
    }

    #[test]
    fn a_finding_is_serialized_as_json() {
        let json = serde_json::to_string(&CheckFinding::new(FindingSeverity::Note, "a", "b", "c"))
            .unwrap();
        assert_eq!(json, r#"{"level":"note","subject":"a","message":"b","fix":"c"}"#);
        let json = serde_json::to_string(&CheckFinding::ok("a", "b")).unwrap();
        assert!(json.ends_with(r#""fix":null}"#), "{json}");
    }
}

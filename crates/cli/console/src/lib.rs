//! What commands print, and how they fail: messages on standard error, results on standard output,
//! progress on a terminal, exit codes.
//!
//! # Map
//!
//! - This file: messages, results and JSON; which characters are printable.
//! - `failure`: failures and their exit codes, pure. [`table`]: aligned columns, pure.
//! - `progress`: a progress bar. [`signals`]: signals that end the command.

mod failure;
mod progress;
pub mod signals;
pub mod table;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

pub use failure::CommandFailure;
pub use progress::CommandProgress;

/// Whether a JSON document was printed.
static HAS_PRINTED_JSON: AtomicBool = AtomicBool::new(false);

/// Whether notes are not printed.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// What `--json` prints if the command fails before it has printed anything else.
#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: &'a str,
    exit_code: u8,
}

/// Prints why the command failed as one JSON document on standard output, unless another one is
/// there already.
pub fn json_error(message: &str, exit_code: u8) {
    if !HAS_PRINTED_JSON.load(Ordering::Relaxed) {
        // The message is on standard error as well.
        let _ = print_json(&ErrorDocument { error: message, exit_code });
    }
}

/// Prints why the command failed, in one line.
pub fn error(message: &str) {
    say("error", "31", message);
}

/// Prints a note besides the result, in one line, unless there are [none](hide_notes).
pub fn note(message: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        say("note", "36", message);
    }
}

/// Prints no notes from now on.
pub fn hide_notes() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Prints a warning of a command that continues, in one line.
pub fn warning(message: &str) {
    say("warning", "33", message);
}

/// Prints a result as one line on standard output.
///
/// # Errors
/// If standard output cannot be written to.
pub fn print_line(line: &str) -> Result<(), CommandFailure> {
    print(printable(line).as_bytes())
}

/// Prints a result as one JSON document on standard output.
///
/// # Errors
/// If standard output cannot be written to.
pub fn print_json(document: &impl Serialize) -> Result<(), CommandFailure> {
    let json = serde_json::to_vec(document).map_err(|error| {
        CommandFailure::Failed(format!("cannot write the JSON document: {error}"))
    })?;
    HAS_PRINTED_JSON.store(true, Ordering::Relaxed);
    print(&json)
}

/// Writes a line to standard output unchanged.
///
/// # Errors
/// If standard output cannot be written to.
pub fn print(line: &[u8]) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CommandFailure::Unread,
        _ => CommandFailure::Failed(format!("cannot write standard output: {error}")),
    })
}

fn say(kind: &str, colour: &str, message: &str) {
    let mut err = io::stderr().lock();
    let kind = if wants_colour(&err) {
        format!("\x1b[1;{colour}m{kind}:\x1b[0m")
    } else {
        format!("{kind}:")
    };
    // If standard error is closed, the exit code still reports the failure.
    // One write, so that lines of several processes do not mix.
    let line = format!("{kind} {}\n", printable(message));
    let _ = err.write_all(line.as_bytes());
}

/// Whether to use colour on a stream: it is a terminal, and `NO_COLOR` is not set.
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// The text on one line, without what is [deceptive](is_deceptive). File names may contain it, and
/// terminals interpret it.
pub fn printable(text: &str) -> String {
    let visible = |c: char| if is_deceptive(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(visible).collect()
}

/// Whether by this character a text could look like a line of its own, or like another text:
/// control characters, those that separate lines, and those that change the direction of what
/// follows.
pub fn is_deceptive(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_direction
}

//! What a command says: messages for a person on standard error, results on standard output.

use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Says in one line why the command failed.
pub(crate) fn error(message: &str) {
    say("error", "31", message);
}

/// Says in one line what the person should know although the command succeeded.
pub(crate) fn warning(message: &str) {
    say("warning", "33", message);
}

/// Prints a result for a person: one line on standard output.
///
/// # Errors
/// When standard output cannot be written to.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    print(printable(line).as_bytes())
}

/// Prints a result for a program: one JSON document on standard output.
///
/// # Errors
/// When standard output cannot be written to.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_vec(document)
        .map_err(|error| Failure::Failed(format!("cannot write the JSON document: {error}")))?;
    print(&json)
}

/// Writes a line on standard output as it is.
///
/// # Errors
/// When standard output cannot be written to.
pub(crate) fn print(line: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Failed(format!("cannot write standard output: {error}")),
    })
}

fn say(kind: &str, colour: &str, message: &str) {
    let mut err = io::stderr().lock();
    let kind = if wants_colour(&err) {
        format!("\x1b[1;{colour}m{kind}:\x1b[0m")
    } else {
        format!("{kind}:")
    };
    // If nobody can be told, the exit code still tells.
    let _ = writeln!(err, "{kind} {}", printable(message));
}

/// Whether to colour what is written there: a terminal whose owner has not asked for none.
pub(crate) fn wants_colour(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// The text on one line and without control characters, which a file's name may contain and a
/// terminal may obey.
pub(crate) fn printable(text: &str) -> String {
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(visible).collect()
}

//! The lines of standard input.

use std::io::{self, BufRead, Read as _};
use std::sync::mpsc::Sender;

use super::ChatUiEvent;

/// The longest line, in bytes.
pub(super) const MAX_LINE: usize = 128 << 10;

/// What standard input has brought.
pub(super) enum StdinLine {
    Line(String),
    /// A line that is too long. Nothing of it is taken.
    TooLong,
    End,
}

/// Sends the lines of standard input, and their end.
pub(super) fn send_lines(inputs: &Sender<ChatUiEvent<StdinLine>>) {
    let mut lines = io::stdin().lock();
    loop {
        let entered = next_line(&mut lines);
        let is_end = matches!(entered, StdinLine::End);
        if inputs.send(ChatUiEvent::Person(entered)).is_err() || is_end {
            return;
        }
    }
}

/// The next line. A line that is too long is skipped completely, so its rest is not read as a line.
fn next_line(lines: &mut impl BufRead) -> StdinLine {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let before = line.len();
        // Bounded, because a line may never end.
        let read = lines.take(MAX_LINE as u64).read_until(b'\n', &mut line);
        let is_end = !matches!(read, Ok(count) if count > 0);
        if is_end && before == 0 && !is_too_long {
            return StdinLine::End;
        }
        let is_whole = is_end || line.last() == Some(&b'\n');
        is_too_long |= line.len() > MAX_LINE || !is_whole;
        match (is_whole, is_too_long) {
            (true, true) => return StdinLine::TooLong,
            (true, false) => return StdinLine::Line(String::from_utf8_lossy(&line).into_owned()),
            (false, _) => line.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_line_that_is_too_long_is_no_line() {
        let long = "x".repeat(MAX_LINE);
        let text = format!("one\n@bob {long}/remove emil\n{long}\ntwo\n{long}");
        let mut lines = text.as_bytes();
        let mut read = Vec::new();
        loop {
            read.push(match next_line(&mut lines) {
                StdinLine::Line(line) => line,
                StdinLine::TooLong => "too long".into(),
                StdinLine::End => break,
            });
        }
        assert_eq!(read, ["one\n", "too long", "too long", "two\n", "too long"]);
    }
}

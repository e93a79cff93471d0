//! A progress bar, on a terminal only.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// How often a spinner moves.
const TICK: Duration = Duration::from_millis(100);

/// The progress of a command, in bytes or steps. It is shown on standard error if that is a
/// terminal, and removed when dropped.
pub struct CommandProgress(ProgressBar);

impl CommandProgress {
    /// Begins at zero of `total` bytes, if the total is known.
    pub fn new(total: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total),
                "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {left}{msg}",
            ),
            None => (ProgressBar::no_length(), "{spinner} {bytes}  {bytes_per_sec}  {msg}"),
        };
        Self(bar.with_style(style(template)))
    }

    /// Begins at zero of `total` steps.
    pub fn steps(total: u64) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let style = style("{bar:30} {percent:>3} %  {left}{msg}");
        Self(ProgressBar::new(total).with_style(style))
    }

    /// Begins work of unknown length: shows the time since then.
    pub fn unknown() -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let spinner = ProgressBar::new_spinner().with_style(style("{spinner} {elapsed}  {msg}"));
        spinner.enable_steady_tick(TICK);
        Self(spinner)
    }

    /// Advances by a number of bytes or steps.
    pub fn advance(&self, by: usize) {
        self.0.inc(by as u64);
    }

    /// Shows what the command is doing.
    pub fn doing(&self, what: impl Into<Cow<'static, str>>) {
        self.0.set_message(what);
    }
}

impl Drop for CommandProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left)
}

/// The estimated time that is left, unknown before the first step.
fn left(state: &ProgressState, out: &mut dyn fmt::Write) {
    if state.pos() > 0 {
        // A failure to write is ignored: the text is then not shown.
        let _ = write!(out, "{:#} left  ", HumanDuration(state.eta()));
    }
}

//! A progress bar, on a terminal only.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// How far a command has come, in bytes or in steps. Shown on standard error if that is a terminal,
/// and removed from it when dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Begins at zero of `total` bytes, if the total is known.
    pub(crate) fn new(total: Option<u64>) -> Self {
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

    /// Begins at zero of `total` steps of a calculation.
    pub(crate) fn steps(total: u64) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let style = style("{bar:30} {percent:>3} %  {left}{msg}");
        Self(ProgressBar::new(total).with_style(style))
    }

    /// Goes on by so many bytes or steps.
    pub(crate) fn advance(&self, by: usize) {
        self.0.inc(by as u64);
    }

    /// Says what is being done.
    pub(crate) fn doing(&self, what: impl Into<Cow<'static, str>>) {
        self.0.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left)
}

/// How long it still takes, which nobody knows at the beginning.
fn left(state: &ProgressState, out: &mut dyn fmt::Write) {
    if state.pos() > 0 {
        // What cannot be written here is only not shown.
        let _ = write!(out, "{:#} left  ", HumanDuration(state.eta()));
    }
}

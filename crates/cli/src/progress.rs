//! A progress bar, on a terminal only.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

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
                "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left  {msg}",
            ),
            None => (ProgressBar::no_length(), "{spinner} {bytes}  {bytes_per_sec}  {msg}"),
        };
        let style = ProgressStyle::with_template(template);
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// Begins at zero of `total` steps of a calculation.
    pub(crate) fn steps(total: u64) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {eta} left  {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
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

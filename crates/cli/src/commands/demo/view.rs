//! The live view: one bar a channel and the file's own, on a terminal only.

use std::io::{self, IsTerminal};
use std::net::IpAddr;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bars. Removed from the terminal when dropped.
pub(super) struct View {
    all: MultiProgress,
    channels: Vec<ProgressBar>,
    file: ProgressBar,
}

impl View {
    /// Bars for channels at these addresses, on each of which about `len` bytes are to cross.
    pub(super) fn new(addresses: impl Iterator<Item = IpAddr>, len: u64) -> Self {
        let shown = io::stderr().is_terminal();
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let all = MultiProgress::with_draw_target(target);
        let template = "{prefix:20} {bar:30} {bytes:>11}  {bytes_per_sec}";
        let bar = |name: String| {
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(len).with_style(style).with_prefix(name);
            all.add(bar)
        };
        let channels = addresses
            .enumerate()
            .map(|(index, address)| bar(format!("channel {}  {address}", index + 1)))
            .collect();
        let file = bar("the file".into());
        Self { all, channels, file }
    }

    /// The bar of each channel.
    pub(super) fn channels(&self) -> &[ProgressBar] {
        &self.channels
    }

    /// The bar of what has arrived.
    pub(super) fn file(&self) -> &ProgressBar {
        &self.file
    }
}

impl Drop for View {
    fn drop(&mut self) {
        for bar in self.channels.iter().chain([&self.file]) {
            bar.finish_and_clear();
        }
        // A terminal that cannot be cleared is only untidy.
        let _ = self.all.clear();
    }
}

//! The report of the demo, as text or JSON.

use std::fmt::Write;
use std::io;

use base16ct::lower::encode_string;
use console::CommandFailure;
use indicatif::{BinaryBytes, HumanCount};
use serde::Serialize;

use super::examine::CaptureFinding;
use super::histogram::{NOISE_RANGE, NoiseVerdict, verdict};
use super::samples::SAMPLE_LEN;
use super::source::{DemoSourceFile, FileStatistics};
use super::topology::{CHANNELS, DemoTransfer};

/// The contents of the report.
pub(super) struct DemoChannelsReport<'a> {
    /// The file that was sent.
    pub(super) source: &'a DemoSourceFile,
    /// Statistics of its content.
    pub(super) content: &'a FileStatistics,
    /// Its transfer.
    pub(super) transfer: &'a DemoTransfer,
    /// The number of samples that were searched for.
    pub(super) samples: usize,
    /// What each eavesdropper has.
    pub(super) findings: &'a [CaptureFinding],
}

impl DemoChannelsReport<'_> {
    /// Whether the same file arrived.
    pub(super) fn is_equal(&self) -> bool {
        let fetched = &self.transfer.fetched;
        fetched.len == self.source.len && fetched.sha256 == self.content.sha256
    }

    /// Whether eavesdroppers without all channels have nothing but noise.
    pub(super) fn is_secret(&self) -> bool {
        let mut lacking = self.findings.iter().filter(|finding| !has_all(finding));
        lacking.all(CaptureFinding::is_secret)
    }

    /// Whether an eavesdropper on all channels has the file; `None` if there was none.
    pub(super) fn is_readable_with_all(&self) -> Option<bool> {
        let all = self.findings.iter().find(|finding| has_all(finding))?;
        // Samples that extend over two records are missed, which are fewer than one in a thousand.
        Some(all.first.starts_with(b"HTTP/1.1 200") && all.found * 10 >= self.samples * 9)
    }

    /// Prints the report as text.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(super) fn print(&self) -> Result<(), CommandFailure> {
        let text = self.text(console::wants_colour(&io::stdout()));
        console::print(text.trim_end().as_bytes())
    }

    /// Prints the report as JSON.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(super) fn print_json(&self) -> Result<(), CommandFailure> {
        console::print_json(&self.document())
    }

    fn text(&self, coloured: bool) -> String {
        [self.summary(), self.table(coloured), self.explanation(), self.conclusion()].join("\n")
    }

    fn summary(&self) -> String {
        let Self { source, transfer, .. } = self;
        let seconds = transfer.duration.as_secs_f64();
        let sent = encode_string(&self.content.sha256);
        let received = encode_string(&transfer.fetched.sha256);
        let same = if self.is_equal() { "the same" } else { "NOT THE SAME" };
        format!(
            "{CHANNELS} channels on this machine, 127.0.0.1 to 127.0.0.{CHANNELS}\n\n\
             \x20 file      {}: {} bytes\n\
             \x20 time      {seconds:.3} s, {}/s\n\
             \x20 SHA-256   {sent}  sent\n\
             \x20           {received}  received, {same}\n",
            console::printable(&source.description),
            HumanCount(source.len),
            BinaryBytes(self.bytes_per_second()),
        )
    }

    fn bytes_per_second(&self) -> u64 {
        let nanoseconds = self.transfer.duration.as_nanos().max(1);
        let rate = u128::from(self.transfer.fetched.len) * 1_000_000_000 / nanoseconds;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    fn table(&self, coloured: bool) -> String {
        let mut rows = vec![
            ["channels", "first bytes", "", "chi-squared", "looks like", "pieces found"]
                .map(str::to_owned),
        ];
        rows.extend(self.findings.iter().map(|finding| {
            row(label(finding), &finding.first, finding.chi_squared, self.found(finding))
        }));
        let content = self.content;
        rows.push(row("the file".into(), &content.first, content.chi_squared, String::new()));
        let mut text = String::from("What an eavesdropper has who listens on\n\n");
        for row in &rows {
            text.push_str(&aligned(row, &rows, coloured));
        }
        text
    }

    fn found(&self, finding: &CaptureFinding) -> String {
        match self.samples {
            0 => "too short".into(),
            samples => format!("{} of {samples}", finding.found),
        }
    }

    fn explanation(&self) -> String {
        let mut text = format!(
            "1+2          the XOR of what was seen on both\n\
             first bytes  where the file server's answer begins\n\
             chi-squared  how uneven all {} bytes of each are that follow the handshake, which is not\n\
             \x20            secret: noise has {:.0} to {:.0}, but once in ten million\n",
            HumanCount(self.findings.first().map_or(0, |finding| finding.len)),
            NOISE_RANGE.0,
            NOISE_RANGE.1,
        );
        if self.samples > 0 {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "pieces       {} of {SAMPLE_LEN} bytes, from random places of the file, looked for in all \
                 of it",
                HumanCount(self.samples as u64)
            );
        }
        text
    }

    fn conclusion(&self) -> String {
        let mut text = String::new();
        if !self.is_secret() {
            text.push_str("THIS IS NOT SECRET: one channel or two tell something of the file.\n");
        } else if self.findings.iter().any(|finding| finding.verdict() == NoiseVerdict::TooShort) {
            text.push_str(
                "Whoever listens on one channel, or on any two, has nothing of the file as far as can \
                 be told: it\nis too short for what they have to look like noise, or not.\n",
            );
        } else {
            text.push_str(
                "Whoever listens on one channel, or on any two, has noise: how long the file is, \
                 but not a\nbyte of what is in it.\n",
            );
        }
        match self.is_readable_with_all() {
            None => text.push_str("With --eavesdrop all, someone listens on all three."),
            Some(true) => text.push_str(
                "On all three THE FILE IS READABLE, as for whom it was sent: one channel must be \
                 out of reach.",
            ),
            Some(false) => text.push_str("All three together SHOULD give the file, and do not."),
        }
        text
    }

    fn document(&self) -> DemoChannelsDocument<'_> {
        let DemoTransfer { fetched, duration, .. } = self.transfer;
        DemoChannelsDocument {
            file: DemoFileDocument {
                name: &self.source.description,
                bytes: self.source.len,
                sha256: encode_string(&self.content.sha256),
            },
            received: ReceivedDocument {
                bytes: fetched.len,
                sha256: encode_string(&fetched.sha256),
            },
            equal: self.is_equal(),
            channels: CHANNELS,
            seconds: duration.as_secs_f64(),
            bytes_per_second: self.bytes_per_second(),
            noise: NOISE_RANGE.into(),
            samples: self.samples,
            eavesdroppers: self.findings.iter().map(EavesdropperDocument::of).collect(),
            secret: self.is_secret(),
            readable_with_all: self.is_readable_with_all(),
        }
    }
}

fn has_all(finding: &CaptureFinding) -> bool {
    finding.captures.len() == usize::from(CHANNELS)
}

/// The numbers of the channels, from 1.
fn label(finding: &CaptureFinding) -> String {
    let numbers: Vec<String> =
        finding.captures.iter().map(|index| (index + 1).to_string()).collect();
    numbers.join("+")
}

fn row(label: String, first: &[u8], chi_squared: Option<f64>, found: String) -> [String; 6] {
    let looks_like = match verdict(chi_squared) {
        NoiseVerdict::Noise => "noise",
        NoiseVerdict::NotNoise => "NOT noise",
        NoiseVerdict::TooShort => "too short",
    };
    let chi_squared = match chi_squared {
        None => String::new(),
        Some(value) if value < 1e6 => format!("{value:.1}"),
        Some(value) => format!("{value:.1e}"),
    };
    [label, encode_string(first), ascii(first), chi_squared, looks_like.into(), found]
}

/// One row with aligned columns; numbers are aligned to the right.
fn aligned(row: &[String; 6], rows: &[[String; 6]], coloured: bool) -> String {
    let mut line = String::new();
    for (column, cell) in row.iter().enumerate() {
        let width = rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let gap = if column == 0 { "  " } else { " " };
        let cell = if column == 3 { format!("{cell:>width$}") } else { format!("{cell:width$}") };
        let colour = match row[column].as_str() {
            "noise" if coloured => Some("32"),
            "NOT noise" if coloured => Some("31"),
            _ => None,
        };
        // Writing to a string does not fail.
        let _ = match colour {
            Some(colour) => write!(line, "{gap}\x1b[1;{colour}m{cell}\x1b[0m"),
            None => write!(line, "{gap}{cell}"),
        };
    }
    line.trim_end().to_owned() + "\n"
}

fn ascii(bytes: &[u8]) -> String {
    let visible = |&byte: &u8| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '.' };
    bytes.iter().map(visible).collect()
}

/// What `--json` prints. Channels are counted from 0.
#[derive(Serialize)]
struct DemoChannelsDocument<'a> {
    file: DemoFileDocument<'a>,
    received: ReceivedDocument,
    /// Whether the received data is the file.
    equal: bool,
    channels: u8,
    seconds: f64,
    bytes_per_second: u64,
    noise: NoiseRangeDocument,
    /// The number of samples that were searched for in each eavesdropper's captures.
    samples: usize,
    eavesdroppers: Vec<EavesdropperDocument>,
    /// Whether all eavesdroppers without all channels have nothing but noise.
    secret: bool,
    /// Whether the eavesdropper on all channels has the file; null without one.
    readable_with_all: Option<bool>,
}

/// A file.
#[derive(Serialize)]
pub(super) struct DemoFileDocument<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

#[derive(Serialize)]
struct ReceivedDocument {
    bytes: u64,
    sha256: String,
}

/// The range of chi-squared for noise.
#[derive(Serialize)]
struct NoiseRangeDocument {
    low: f64,
    high: f64,
}

impl From<(f64, f64)> for NoiseRangeDocument {
    fn from((low, high): (f64, f64)) -> Self {
        Self { low, high }
    }
}

#[derive(Serialize)]
struct EavesdropperDocument {
    channels: Vec<usize>,
    bytes: u64,
    first_bytes: String,
    chi_squared: Option<f64>,
    verdict: NoiseVerdict,
    samples_found: usize,
}

impl EavesdropperDocument {
    fn of(finding: &CaptureFinding) -> Self {
        Self {
            channels: finding.captures.clone(),
            bytes: finding.len,
            first_bytes: encode_string(&finding.first),
            chi_squared: finding.chi_squared,
            verdict: finding.verdict(),
            samples_found: finding.found,
        }
    }
}

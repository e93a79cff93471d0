//! Examines what an eavesdropper has: each capture, and the XOR of several captures.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use console::CommandProgress;
use micss::record;

use super::CHANNELS;
use super::histogram::{ByteHistogram, NoiseVerdict, verdict};
use super::samples::{FileSamples, SAMPLE_LEN};
use super::source::{FIRST_LEN, piece_len};

/// How many bytes of each capture are examined at a time.
const PIECE_LEN: usize = 256 << 10;

/// The length of a handshake message's header (`docs/protocols/association.md`): magic number,
/// version, kind, and length of the body.
const MESSAGE_HEADER_LEN: usize = 8;

/// The magic number of handshake messages.
const MESSAGE_MAGIC: [u8; 4] = *b"SNDR";

/// The number of messages that a server sends on a channel before the first record: its cookie and
/// the confirm.
const HANDSHAKE_MESSAGES: usize = 2;

/// The position of the service's first bytes. Before them are a record that reports that the
/// service is connected, with keys for the channels, and the header of the next record.
const FIRST_PAYLOAD: u64 = (2 * record::HEADER_LEN + record::opened_len(CHANNELS as usize)) as u64;

/// Captured bytes.
pub(super) struct ShareCapture {
    file: File,
    /// The start of the shares in the file.
    start: u64,
    len: u64,
}

impl ShareCapture {
    /// The shares that a server sent on one channel: everything after the handshake, which is not
    /// secret.
    ///
    /// # Errors
    /// If the file cannot be read, or does not begin with a handshake.
    pub(super) fn of_shares(file: File) -> io::Result<Self> {
        let mut start = 0;
        for _ in 0..HANDSHAKE_MESSAGES {
            let mut header = [0; MESSAGE_HEADER_LEN];
            file.read_exact_at(&mut header, start)?;
            let [a, b, c, d, _, _, high, low] = header;
            if [a, b, c, d] != MESSAGE_MAGIC {
                return Err(io::Error::other("a capture does not begin with the handshake"));
            }
            start += (MESSAGE_HEADER_LEN + usize::from(u16::from_be_bytes([high, low]))) as u64;
        }
        let len = file.metadata()?.len().saturating_sub(start);
        Ok(Self { file, start, len })
    }
}

/// The result of examining the XOR of some captures.
pub(super) struct CaptureFinding {
    /// The indices of the captures.
    pub(super) captures: Vec<usize>,
    /// The length of each capture.
    pub(super) len: u64,
    /// The bytes at the position of the service's first bytes, if the captures are long enough.
    pub(super) first: Vec<u8>,
    /// Chi-squared of the histogram against uniform bytes; `None` if there are too few bytes.
    pub(super) chi_squared: Option<f64>,
    /// The number of samples found.
    pub(super) found: usize,
}

impl CaptureFinding {
    /// The result of the chi-squared test.
    pub(super) fn verdict(&self) -> NoiseVerdict {
        verdict(self.chi_squared)
    }

    /// Whether it reveals nothing about the file, as far as the tests show.
    pub(super) fn is_secret(&self) -> bool {
        self.verdict() != NoiseVerdict::NotNoise && self.found == 0
    }
}

/// Examines the XOR of each set of captures, with all threads of the machine. The memory used does
/// not depend on the length of the captures.
///
/// # Errors
/// If a capture cannot be read, or their lengths differ.
pub(super) fn examine(
    captures: &[ShareCapture],
    sets: &[Vec<usize>],
    samples: &FileSamples,
) -> io::Result<Vec<CaptureFinding>> {
    let len = captures.first().map_or(0, |capture| capture.len);
    if captures.iter().any(|capture| capture.len != len) {
        return Err(io::Error::other("the channels carried different numbers of bytes"));
    }
    let progress = CommandProgress::new(Some(len));
    let next = AtomicU64::new(0);
    let work = || examine_pieces(captures, sets, samples, &next, &progress);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let counts = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        counts.collect::<io::Result<Vec<_>>>()
    })?;
    let finding = |(index, set): (usize, &Vec<usize>)| {
        let mut sum = CaptureCounts::new(samples.len());
        for counts in &counts {
            sum.merge(&counts[index]);
        }
        Ok(CaptureFinding {
            captures: set.clone(),
            len,
            first: first_bytes(captures, set)?,
            chi_squared: sum.histogram.chi_squared(),
            found: sum.found.iter().filter(|&&found| found).count(),
        })
    };
    sets.iter().enumerate().map(finding).collect()
}

/// The intermediate result for a set of captures.
struct CaptureCounts {
    histogram: ByteHistogram,
    /// Whether each sample was found.
    found: Vec<bool>,
}

impl CaptureCounts {
    fn new(samples: usize) -> Self {
        Self { histogram: ByteHistogram::new(), found: vec![false; samples] }
    }

    fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        for (found, more) in self.found.iter_mut().zip(&other.found) {
            *found |= more;
        }
    }
}

/// Examines the pieces that no other thread has taken.
fn examine_pieces(
    captures: &[ShareCapture],
    sets: &[Vec<usize>],
    samples: &FileSamples,
    next: &AtomicU64,
    progress: &CommandProgress,
) -> io::Result<Vec<CaptureCounts>> {
    let mut counts: Vec<CaptureCounts> =
        sets.iter().map(|_| CaptureCounts::new(samples.len())).collect();
    // A sample may extend into the next piece, so the search covers a few more bytes.
    let longest = PIECE_LEN + SAMPLE_LEN - 1;
    let mut pieces = vec![vec![0; longest]; captures.len()];
    let mut sum = vec![0; longest];
    let len = captures.first().map_or(0, |capture| capture.len);
    loop {
        let position = next.fetch_add(PIECE_LEN as u64, Ordering::Relaxed);
        if position >= len {
            return Ok(counts);
        }
        let searched = piece_len(len - position, longest);
        let counted = searched.min(PIECE_LEN);
        for (capture, piece) in captures.iter().zip(&mut pieces) {
            capture.file.read_exact_at(&mut piece[..searched], capture.start + position)?;
        }
        for (set, count) in sets.iter().zip(&mut counts) {
            let sum = &mut sum[..searched];
            xor(set.iter().map(|&index| &pieces[index][..searched]), sum);
            count.histogram.add(&sum[..counted]);
            if samples.len() > 0 {
                samples.search(sum, &mut count.found);
            }
        }
        progress.advance(counted);
    }
}

fn xor<'a>(pieces: impl Iterator<Item = &'a [u8]>, sum: &mut [u8]) {
    sum.fill(0);
    for piece in pieces {
        for (sum, byte) in sum.iter_mut().zip(piece) {
            *sum ^= byte;
        }
    }
}

/// The bytes at the position of the first payload.
fn first_bytes(captures: &[ShareCapture], set: &[usize]) -> io::Result<Vec<u8>> {
    let mut pieces = Vec::new();
    for &index in set {
        let capture = &captures[index];
        let mut piece = vec![0; piece_len(capture.len.saturating_sub(FIRST_PAYLOAD), FIRST_LEN)];
        capture.file.read_exact_at(&mut piece, capture.start + FIRST_PAYLOAD)?;
        pieces.push(piece);
    }
    let mut sum = vec![0; pieces.first().map_or(0, Vec::len)];
    xor(pieces.iter().map(Vec::as_slice), &mut sum);
    Ok(sum)
}

//! What an eavesdropper has: every capture, and what captures give together, searched through.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use micss::record;

use super::histogram::{Histogram, Verdict, verdict};
use super::samples::{SAMPLE, Samples};
use super::source::{FIRST, piece_len};
use crate::progress::Progress;

/// How many bytes of each capture are examined at a time.
const PIECE: usize = 256 << 10;

/// Bytes of a handshake message's header (`docs/protocols/association.md`): magic, version, kind
/// and the body's length.
const MESSAGE_HEADER: usize = 8;

/// What every handshake message begins with.
const MESSAGE_MAGIC: [u8; 4] = *b"SNDR";

/// What a server sends on a channel before the first record: its cookie and the confirm.
const MESSAGES: usize = 2;

/// Before the service's first bytes there are a record without payload, which says that the
/// service is connected, and the header of the next.
const FIRST_PAYLOAD: u64 = 2 * record::HEADER_LEN as u64;

/// Bytes that were captured.
pub(super) struct Capture {
    file: File,
    /// Where they begin in the file.
    start: u64,
    len: u64,
}

impl Capture {
    /// The shares of what a server sent on one channel: all that follows the handshake, which is
    /// not secret.
    ///
    /// # Errors
    /// When it cannot be read, or does not begin with a handshake.
    pub(super) fn of_shares(file: File) -> io::Result<Self> {
        let mut start = 0;
        for _ in 0..MESSAGES {
            let mut header = [0; MESSAGE_HEADER];
            file.read_exact_at(&mut header, start)?;
            let [a, b, c, d, _, _, high, low] = header;
            if [a, b, c, d] != MESSAGE_MAGIC {
                return Err(io::Error::other("a capture does not begin with the handshake"));
            }
            start += (MESSAGE_HEADER + usize::from(u16::from_be_bytes([high, low]))) as u64;
        }
        let len = file.metadata()?.len().saturating_sub(start);
        Ok(Self { file, start, len })
    }
}

/// What was found in the XOR of some captures.
pub(super) struct Finding {
    /// The captures' indices.
    pub(super) captures: Vec<usize>,
    /// How many bytes each has.
    pub(super) len: u64,
    /// The bytes where the server's first bytes cross, if there are that many.
    pub(super) first: Vec<u8>,
    /// Of their histogram against uniform bytes; `None` if there are too few to tell.
    pub(super) chi_squared: Option<f64>,
    /// How many of the samples were found.
    pub(super) found: usize,
}

impl Finding {
    /// What chi-squared says.
    pub(super) fn verdict(&self) -> Verdict {
        verdict(self.chi_squared)
    }

    /// Whether it says nothing about the file, as far as can be told.
    pub(super) fn is_secret(&self) -> bool {
        self.verdict() != Verdict::NotNoise && self.found == 0
    }
}

/// Examines the XOR of each of these sets of captures, in all of the machine's threads and in
/// memory that does not depend on how long they are.
///
/// # Errors
/// When a capture cannot be read, or they are not of one length.
pub(super) fn examine(
    captures: &[Capture],
    sets: &[Vec<usize>],
    samples: &Samples,
) -> io::Result<Vec<Finding>> {
    let len = captures.first().map_or(0, |capture| capture.len);
    if captures.iter().any(|capture| capture.len != len) {
        return Err(io::Error::other("the channels carried different numbers of bytes"));
    }
    let progress = Progress::new(Some(len));
    let next = AtomicU64::new(0);
    let work = || examine_pieces(captures, sets, samples, &next, &progress);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let tallies = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let tallies = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        tallies.collect::<io::Result<Vec<_>>>()
    })?;
    let finding = |(index, set): (usize, &Vec<usize>)| {
        let mut sum = Tally::new(samples.len());
        for tallies in &tallies {
            sum.merge(&tallies[index]);
        }
        Ok(Finding {
            captures: set.clone(),
            len,
            first: first_bytes(captures, set)?,
            chi_squared: sum.histogram.chi_squared(),
            found: sum.found.iter().filter(|&&found| found).count(),
        })
    };
    sets.iter().enumerate().map(finding).collect()
}

/// What is known of a set of captures so far.
struct Tally {
    histogram: Histogram,
    /// Of each sample, whether it was found.
    found: Vec<bool>,
}

impl Tally {
    fn new(samples: usize) -> Self {
        Self { histogram: Histogram::new(), found: vec![false; samples] }
    }

    fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        for (found, more) in self.found.iter_mut().zip(&other.found) {
            *found |= more;
        }
    }
}

/// Examines one piece after the other that no other thread has taken.
fn examine_pieces(
    captures: &[Capture],
    sets: &[Vec<usize>],
    samples: &Samples,
    next: &AtomicU64,
    progress: &Progress,
) -> io::Result<Vec<Tally>> {
    let mut tallies: Vec<Tally> = sets.iter().map(|_| Tally::new(samples.len())).collect();
    // A sample may begin in one piece and end in the next: the search looks a little further.
    let longest = PIECE + SAMPLE - 1;
    let mut pieces = vec![vec![0; longest]; captures.len()];
    let mut sum = vec![0; longest];
    let len = captures.first().map_or(0, |capture| capture.len);
    loop {
        let position = next.fetch_add(PIECE as u64, Ordering::Relaxed);
        if position >= len {
            return Ok(tallies);
        }
        let searched = piece_len(len - position, longest);
        let counted = searched.min(PIECE);
        for (capture, piece) in captures.iter().zip(&mut pieces) {
            capture.file.read_exact_at(&mut piece[..searched], capture.start + position)?;
        }
        for (set, tally) in sets.iter().zip(&mut tallies) {
            let sum = &mut sum[..searched];
            xor(set.iter().map(|&index| &pieces[index][..searched]), sum);
            tally.histogram.add(&sum[..counted]);
            if samples.len() > 0 {
                samples.search(sum, &mut tally.found);
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

/// The bytes at the place where the first record with a payload has its payload.
fn first_bytes(captures: &[Capture], set: &[usize]) -> io::Result<Vec<u8>> {
    let mut pieces = Vec::new();
    for &index in set {
        let capture = &captures[index];
        let mut piece = vec![0; piece_len(capture.len.saturating_sub(FIRST_PAYLOAD), FIRST)];
        capture.file.read_exact_at(&mut piece, capture.start + FIRST_PAYLOAD)?;
        pieces.push(piece);
    }
    let mut sum = vec![0; pieces.first().map_or(0, Vec::len)];
    xor(pieces.iter().map(Vec::as_slice), &mut sum);
    Ok(sum)
}

//! Searches the memory of a process for secrets. A test does so, too.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// How many bytes in a row of a secret are searched for.
const WINDOW_LEN: usize = size_of::<u128>();

/// How many bytes of memory are examined at a time.
const PIECE_LEN: usize = 1 << 20;

/// Secrets to search for: all 16 bytes in a row of each, big-endian and little-endian. Their bits
/// are inverted, so that the search does not find them here.
pub(super) struct SoughtSecrets {
    count: usize,
    /// The secret that has these bytes.
    inverted: HashMap<u128, usize>,
    /// Whether any begin with these three bytes, a bit for each three: few positions need another
    /// look.
    beginnings: Vec<u64>,
}

/// What a search has found.
pub(super) struct MemoryScan {
    /// The number of secrets that were searched for.
    pub(super) sought: usize,
    /// The secrets of which some 16 bytes are there, by their place among the sought.
    pub(super) found: BTreeSet<usize>,
    /// How many bytes were searched.
    pub(super) bytes: u64,
}

impl SoughtSecrets {
    /// These secrets.
    pub(super) fn of(secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let beginnings = vec![0; (1 << 24) / 64];
        let mut sought = Self { count: 0, inverted: HashMap::new(), beginnings };
        for secret in secrets {
            let mut bytes: Vec<u8> = secret.as_ref().iter().map(|byte| !byte).collect();
            sought.add(&bytes);
            bytes.reverse();
            sought.add(&bytes);
            sought.count += 1;
        }
        sought
    }

    /// Adds the windows of inverted bytes.
    fn add(&mut self, inverted: &[u8]) {
        for window in inverted.windows(WINDOW_LEN) {
            // The sign is repeated at one end: such bytes are anywhere.
            if window.iter().collect::<HashSet<_>>().len() > WINDOW_LEN / 2 {
                let window = inverted_window(window, 0);
                let [a, b, c, ..] = window.to_le_bytes();
                self.inverted.insert(window, self.count);
                let (word, bit) = beginning([a, b, c]);
                self.beginnings[word] |= bit;
            }
        }
    }

    /// Searches all memory that a process can write: `self`, or one with this identifier.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub(super) fn search(&self, process: &str) -> io::Result<MemoryScan> {
        let memory = File::open(format!("/proc/{process}/mem"))?;
        Ok(self.search_file(&memory, writable_regions(process)?))
    }

    /// Searches parts of a file: from the first position of each to before the second.
    pub(super) fn search_file(
        &self,
        file: &File,
        regions: impl IntoIterator<Item = (u64, u64)>,
    ) -> MemoryScan {
        let mut piece = vec![0; PIECE_LEN];
        let mut scan = MemoryScan { sought: self.count, found: BTreeSet::new(), bytes: 0 };
        for (start, end) in regions {
            let mut at = start;
            while at + WINDOW_LEN as u64 <= end {
                let len = usize::try_from(end - at).map_or(PIECE_LEN, |left| left.min(PIECE_LEN));
                // A region may have gone since the list was read.
                if file.read_exact_at(&mut piece[..len], at).is_err() {
                    break;
                }
                self.search_piece(&piece[..len], &mut scan.found);
                let step = if len == PIECE_LEN { len - WINDOW_LEN + 1 } else { len };
                scan.bytes += step as u64;
                at += step as u64;
            }
        }
        scan
    }

    fn search_piece(&self, piece: &[u8], found: &mut BTreeSet<usize>) {
        for window in piece.windows(WINDOW_LEN) {
            let (word, bit) = beginning([!window[0], !window[1], !window[2]]);
            if self.beginnings[word] & bit != 0 {
                found.extend(self.inverted.get(&inverted_window(window, u8::MAX)));
            }
        }
    }
}

/// The place of the bit for windows that begin with these bytes.
fn beginning([a, b, c]: [u8; 3]) -> (usize, u64) {
    let number = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
    (number / 64, 1 << (number % 64))
}

fn inverted_window(window: &[u8], mask: u8) -> u128 {
    let mut bytes = [0; WINDOW_LEN];
    for (byte, from) in bytes.iter_mut().zip(window) {
        *byte = from ^ mask;
    }
    u128::from_le_bytes(bytes)
}

/// The first addresses of the parts of memory that a process can write, and those after the last.
fn writable_regions(process: &str) -> io::Result<Vec<(u64, u64)>> {
    let region = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let parse = |address| u64::from_str_radix(address, 16).ok();
        rest.starts_with("rw").then_some((parse(start)?, parse(end)?))
    };
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    Ok(maps.lines().filter_map(region).collect())
}

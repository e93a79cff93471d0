//! Searches the memory of this process for shares.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use quorum::SecretInteger;

/// How many bytes in a row of a share are searched for.
const WINDOW_LEN: usize = size_of::<u128>();

/// How many bytes of memory are examined at a time.
const PIECE_LEN: usize = 1 << 20;

/// Shares to search for: all 16 bytes in a row of each, big-endian and little-endian. Their bits
/// are inverted, so that the search does not find them here.
pub(super) struct SoughtShares {
    count: usize,
    /// The share that has these bytes.
    inverted: HashMap<u128, usize>,
    /// Whether any begin with these two bytes: few positions need another look.
    beginnings: Vec<bool>,
}

/// What a search has found.
pub(super) struct MemoryScan {
    /// The number of shares that were searched for.
    pub(super) sought: usize,
    /// The number of shares of which some 16 bytes are in memory.
    pub(super) found: usize,
    /// How much memory was searched.
    pub(super) bytes: u64,
}

impl SoughtShares {
    /// These shares.
    pub(super) fn of<'a>(shares: impl IntoIterator<Item = &'a SecretInteger>) -> Self {
        let mut sought =
            Self { count: 0, inverted: HashMap::new(), beginnings: vec![false; 1 << 16] };
        for share in shares {
            let mut bytes = share.to_be_bytes();
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
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
                self.inverted.insert(window, self.count);
                self.beginnings[usize::from(beginning(window))] = true;
            }
        }
    }

    /// Searches all memory that this process can write.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub(super) fn search(&self) -> io::Result<MemoryScan> {
        let memory = File::open("/proc/self/mem")?;
        let mut piece = vec![0; PIECE_LEN];
        let mut found = HashSet::new();
        let mut bytes = 0;
        for (start, end) in writable_regions()? {
            let mut at = start;
            while at + WINDOW_LEN as u64 <= end {
                let len = usize::try_from(end - at).map_or(PIECE_LEN, |left| left.min(PIECE_LEN));
                // A region may have gone since the list was read.
                if memory.read_exact_at(&mut piece[..len], at).is_err() {
                    break;
                }
                self.search_piece(&piece[..len], &mut found);
                let step = if len == PIECE_LEN { len - WINDOW_LEN + 1 } else { len };
                bytes += step as u64;
                at += step as u64;
            }
        }
        Ok(MemoryScan { sought: self.count, found: found.len(), bytes })
    }

    fn search_piece(&self, piece: &[u8], found: &mut HashSet<usize>) {
        for window in piece.windows(WINDOW_LEN) {
            let begins = u16::from_le_bytes([!window[0], !window[1]]);
            if self.beginnings[usize::from(begins)] {
                found.extend(self.inverted.get(&inverted_window(window, u8::MAX)));
            }
        }
    }
}

/// The first two bytes of a window.
fn beginning(window: u128) -> u16 {
    let [first, second, ..] = window.to_le_bytes();
    u16::from_le_bytes([first, second])
}

fn inverted_window(window: &[u8], mask: u8) -> u128 {
    let mut bytes = [0; WINDOW_LEN];
    for (byte, from) in bytes.iter_mut().zip(window) {
        *byte = from ^ mask;
    }
    u128::from_le_bytes(bytes)
}

/// The first addresses of the parts of memory that this process can write, and those after the
/// last.
fn writable_regions() -> io::Result<Vec<(u64, u64)>> {
    let region = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let parse = |address| u64::from_str_radix(address, 16).ok();
        rest.starts_with("rw").then_some((parse(start)?, parse(end)?))
    };
    Ok(fs::read_to_string("/proc/self/maps")?.lines().filter_map(region).collect())
}

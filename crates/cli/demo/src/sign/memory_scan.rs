//! Searches the memory of a process for secrets. A test does so, too.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// How many bytes in a row of a secret are searched for.
const WINDOW_LEN: usize = size_of::<u128>();

/// A digest of so many bits is looked up for each position.
const DIGEST_BITS: u32 = 24;

/// A page of memory that was never written.
const ZEROS: [u8; 4096] = [0; 4096];

/// How many bytes of memory are examined at a time.
const PIECE_LEN: usize = 1 << 20;

/// Secrets to search for: all 16 bytes in a row of each, big-endian and little-endian. Their bits
/// are inverted, so that the search does not find them here.
pub struct SoughtSecrets {
    count: usize,
    /// The secret that has these bytes.
    inverted: HashMap<u128, usize>,
    /// A bit for each digest, set if any of these bytes have it: few positions need another look.
    digests: Vec<u64>,
}

/// What a search has found.
pub struct MemoryScan {
    /// The number of secrets that were searched for.
    pub sought: usize,
    /// The secrets of which some 16 bytes are there, by their place among the sought.
    pub found: BTreeSet<usize>,
    /// How many bytes were searched.
    pub bytes: u64,
}

impl SoughtSecrets {
    /// These secrets.
    pub fn of(secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let digests = vec![0; (1 << DIGEST_BITS) / 64];
        let mut sought = Self { count: 0, inverted: HashMap::new(), digests };
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
            let window = u128::from_le_bytes(window.try_into().expect("all are as long"));
            // The sign is repeated at one end: such bytes are anywhere.
            if distinct(window) > WINDOW_LEN / 2 {
                self.inverted.insert(window, self.count);
                let (word, bit) = digest(window);
                self.digests[word] |= bit;
            }
        }
    }

    /// Searches all memory that a process can write: `self`, or one with this identifier.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub fn search(&self, process: &str) -> io::Result<MemoryScan> {
        let memory = File::open(format!("/proc/{process}/mem"))?;
        Ok(self.search_file(&memory, writable_regions(process)?))
    }

    /// Searches parts of a file: from the first position of each to before the second.
    pub fn search_file(
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
        let mut window = u128::MAX;
        for page in piece.chunks(ZEROS.len()) {
            // Much of memory is zeros. With so many, a window has nothing else.
            let is_empty = *page == ZEROS[..page.len()];
            let len = if is_empty { page.len().min(WINDOW_LEN) } else { page.len() };
            for byte in &page[..len] {
                window = window >> 8 | u128::from(!byte) << 120;
                let (word, bit) = digest(window);
                if self.digests[word] & bit != 0 {
                    found.extend(self.inverted.get(&window));
                }
            }
        }
    }
}

/// How many different bytes there are.
fn distinct(window: u128) -> usize {
    let mut bytes = window.to_le_bytes();
    bytes.sort_unstable();
    1 + bytes.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// The place of the bit for these bytes.
#[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
fn digest(window: u128) -> (usize, u64) {
    let [low, high] = [window as u64, (window >> 64) as u64];
    // Fibonacci hashing. The halves of a secret differ, so zeros, of which memory is full, are not
    // looked up often.
    let digest = (low ^ high).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - DIGEST_BITS);
    ((digest / 64) as usize, 1 << (digest % 64))
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

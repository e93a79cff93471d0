//! Files that the parties of a trial write while it measures, and that are read meanwhile.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How much of a file is read at a time. A longer line is read in pieces.
pub(super) const CHUNK: usize = 64 << 10;

/// A directory with a file for each party.
pub(super) struct FollowedDirectory {
    directory: PathBuf,
    /// How much of each file was read, by the party.
    read: BTreeMap<String, u64>,
}

impl FollowedDirectory {
    /// Makes the directory, or empties it.
    ///
    /// # Errors
    /// If the system returns an error.
    pub(super) fn new(directory: PathBuf) -> io::Result<Self> {
        make_empty(&directory)?;
        Ok(Self { directory, read: BTreeMap::new() })
    }

    /// The lines that each party has written since the last time, of each at most 64 KiB. What
    /// cannot be read is left out. At the end, the last line may be incomplete.
    pub(super) fn news(&mut self, is_end: bool) -> Vec<(String, Vec<u8>)> {
        let mut news = Vec::new();
        for (party, path) in files(&self.directory) {
            let offset = self.read.entry(party.clone()).or_default();
            let lines = lines_from(&path, offset, is_end).unwrap_or_default();
            if !lines.is_empty() {
                news.push((party, lines));
            }
        }
        news
    }
}

/// Creates an empty directory, and removes an existing one.
pub(crate) fn make_empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::create_dir(directory),
    }
}

/// The files of a directory, by the party.
pub(super) fn files(directory: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|it| Some((it.file_name().into_string().ok()?, it.path()))).collect()
}

/// Reads complete lines from a position, and advances the position.
fn lines_from(path: &Path, offset: &mut u64, is_end: bool) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; CHUNK];
    let length = File::open(path)?.read_at(&mut bytes, *offset)?;
    let complete = bytes[..length].iter().rposition(|byte| *byte == b'\n').map(|last| last + 1);
    let end = match complete {
        Some(end) if !is_end => end,
        None if !is_end && length < CHUNK => 0,
        _ => length,
    };
    *offset += end as u64;
    bytes.truncate(end);
    Ok(bytes)
}

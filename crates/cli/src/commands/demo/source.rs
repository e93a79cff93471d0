//! The file that crosses the channels: one that the user names, or one made of the system's own.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::histogram::Histogram;
use super::scratch;
use crate::failure::Failure;
use crate::progress::Progress;

/// How long the system's own file is, in bytes.
pub(super) const DEFAULT_LEN: u64 = 256 << 20;

/// Where a system has files that anyone may read: programs, libraries and texts.
const SYSTEM: [&str; 4] = ["/usr/lib", "/usr/bin", "/usr/share", "/usr/local"];

/// How many of its first bytes are shown.
pub(super) const FIRST: usize = 16;

/// How many bytes are read at a time.
const PIECE: usize = 1 << 20;

/// A file of known length.
pub(super) struct SourceFile {
    /// Read by position, so that several can read it at the same time.
    pub(super) file: File,
    /// Its length in bytes.
    pub(super) len: u64,
    /// What it is, for a person.
    pub(super) description: String,
}

impl SourceFile {
    /// The file at `path`.
    ///
    /// # Errors
    /// When it is no file that can be read.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        // Asked before it is opened, since opening a pipe would wait for its other end.
        let metadata = fs::metadata(path)
            .map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
        if metadata.is_dir() {
            return Err(Failure::Usage(format!("{shown} is a directory; name a file in it")));
        }
        if !metadata.is_file() {
            return Err(Failure::Usage(format!("{shown} is not a regular file; name one that is")));
        }
        let file = File::open(path)
            .map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
        Ok(Self { file, len: metadata.len(), description: shown.to_string() })
    }

    /// A file made of the system's own, one after the other in the order of their names.
    ///
    /// # Errors
    /// When there is nothing to read, or it cannot be written.
    pub(super) fn of_the_system() -> Result<Self, Failure> {
        let mut file = scratch::file()?;
        let progress = Progress::new(Some(DEFAULT_LEN));
        let (mut len, mut count) = (0, 0);
        for path in Walk::new(&SYSTEM) {
            let copied = copy(&path, &mut file, DEFAULT_LEN - len)?;
            progress.advance(usize::try_from(copied).unwrap_or(usize::MAX));
            len += copied;
            count += u64::from(copied > 0);
            if len == DEFAULT_LEN {
                break;
            }
        }
        if len == 0 {
            let message = "this system has no files that can be read in /usr; give one with --file";
            return Err(Failure::Failed(message.into()));
        }
        let all = if len < DEFAULT_LEN { ", all there are" } else { "" };
        Ok(Self { file, len, description: format!("{count} of this system's own files{all}") })
    }

    /// Reads it through.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read_through(&self) -> io::Result<Content> {
        let (mut hash, mut histogram) = (Sha256::new(), Histogram::new());
        let mut first = Vec::new();
        let mut piece = vec![0; PIECE];
        let mut position = 0;
        while position < self.len {
            let len = piece_len(self.len - position, PIECE);
            self.file.read_exact_at(&mut piece[..len], position)?;
            hash.update(&piece[..len]);
            histogram.add(&piece[..len]);
            if position == 0 {
                first.extend_from_slice(&piece[..len.min(FIRST)]);
            }
            position += len as u64;
        }
        let (sha256, chi_squared) = (hash.finalize().into(), histogram.chi_squared());
        Ok(Content { sha256, first, chi_squared })
    }
}

/// What is in a file.
pub(super) struct Content {
    /// Its SHA-256.
    pub(super) sha256: [u8; 32],
    /// Its first bytes, at most [`FIRST`].
    pub(super) first: Vec<u8>,
    /// Of its histogram against uniform bytes; `None` if there are too few to tell.
    pub(super) chi_squared: Option<f64>,
}

/// The length of the next piece of at most `most` bytes, when `left` are left.
pub(super) fn piece_len(left: u64, most: usize) -> usize {
    usize::try_from(left).map_or(most, |left| left.min(most))
}

/// Appends the first bytes of a file, at most `most`. A file that cannot be read has none.
fn copy(path: &Path, to: &mut File, most: u64) -> Result<u64, Failure> {
    let Ok(from) = File::open(path) else { return Ok(0) };
    let is_file = from.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Ok(0);
    }
    io::copy(&mut from.take(most), to).map_err(|error| scratch::writing(&error))
}

/// The regular files below some directories, in the order of their names. Links are not followed.
struct Walk {
    /// What is still to be visited, the next one last.
    stack: Vec<PathBuf>,
}

impl Walk {
    fn new(roots: &[&str]) -> Self {
        Self { stack: roots.iter().rev().map(PathBuf::from).collect() }
    }
}

impl Iterator for Walk {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        loop {
            let path = self.stack.pop()?;
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if metadata.is_file() {
                return Some(path);
            }
            if metadata.is_dir() {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
                paths.sort_unstable_by(|a, b| b.cmp(a));
                self.stack.extend(paths);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_files_by_name_and_follows_no_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("b/c")).unwrap();
        for name in ["d", "b/z", "b/c/x", "a"] {
            fs::write(path(name), name).unwrap();
        }
        std::os::unix::fs::symlink(path("b"), path("link")).unwrap();
        let found: Vec<PathBuf> = Walk::new(&[directory.path().to_str().unwrap()]).collect();
        assert_eq!(found, ["a", "b/c/x", "b/z", "d"].map(path));
    }

    #[test]
    fn only_regular_files_are_taken() {
        for path in ["/", "/dev/null", "/no/such/file"] {
            let Err(failure) = SourceFile::open(Path::new(path)) else { panic!("{path}") };
            assert_eq!(failure.code(), 2, "{path}");
        }
    }

    #[test]
    fn a_file_is_read_through() {
        let path = tempfile::NamedTempFile::new().unwrap();
        fs::write(path.path(), "abc").unwrap();
        let content = SourceFile::open(path.path()).unwrap().read_through().unwrap();
        // FIPS 180-2, B.1.
        assert_eq!(content.sha256[..4], [0xBA, 0x78, 0x16, 0xBF]);
        assert_eq!((content.first, content.chi_squared), (b"abc".to_vec(), None));
    }
}

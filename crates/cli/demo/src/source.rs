//! The file that crosses the channels: the user's, or one made of the system's own files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use console::CommandProgress;
use sha2::{Digest, Sha256};

use super::histogram::ByteHistogram;
use super::scratch;

/// The length of the file made of the system's own, in bytes.
pub(super) const DEFAULT_LEN: u64 = 256 << 20;

/// Directories with files that all users can read: programs, libraries and texts.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/lib", "/usr/bin", "/usr/share", "/usr/local"];

/// How many of its first bytes are shown.
pub(super) const FIRST_LEN: usize = 16;

/// How many bytes are read at a time.
const PIECE_LEN: usize = 1 << 20;

/// A file of known length.
pub(super) struct DemoSourceFile {
    /// Read by position, so that several threads can read it concurrently.
    pub(super) file: File,
    /// Its length in bytes.
    pub(super) len: u64,
    /// A description for people.
    pub(super) description: String,
}

impl DemoSourceFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it is not a readable regular file.
    pub(super) fn open(path: &Path) -> Result<Self, CommandFailure> {
        let shown = path.display();
        // Checked before opening, because opening a named pipe would wait for its other end.
        let metadata = fs::metadata(path).map_err(|error| CommandFailure::reading(path, &error))?;
        if metadata.is_dir() {
            return Err(CommandFailure::Usage(format!(
                "{shown} is a directory; name a file in it"
            )));
        }
        if !metadata.is_file() {
            return Err(CommandFailure::Usage(format!(
                "{shown} is not a regular file; name one that is"
            )));
        }
        let file = File::open(path).map_err(|error| CommandFailure::reading(path, &error))?;
        Ok(Self { file, len: metadata.len(), description: shown.to_string() })
    }

    /// Concatenates the system's own files in the order of their names.
    ///
    /// # Errors
    /// If no file can be read, or the result cannot be written.
    pub(super) fn of_the_system() -> Result<Self, CommandFailure> {
        let mut file = scratch::file()?;
        let progress = CommandProgress::new(Some(DEFAULT_LEN));
        let (mut len, mut count) = (0, 0);
        for path in FileWalk::new(&SYSTEM_DIRECTORIES) {
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
            return Err(CommandFailure::Failed(message.into()));
        }
        let all = if len < DEFAULT_LEN { ", all there are" } else { "" };
        Ok(Self { file, len, description: format!("{count} of this system's own files{all}") })
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read_through(&self) -> io::Result<FileStatistics> {
        let (mut hash, mut histogram) = (Sha256::new(), ByteHistogram::new());
        let mut first = Vec::new();
        let mut piece = vec![0; PIECE_LEN];
        let mut position = 0;
        while position < self.len {
            let len = piece_len(self.len - position, PIECE_LEN);
            self.file.read_exact_at(&mut piece[..len], position)?;
            hash.update(&piece[..len]);
            histogram.add(&piece[..len]);
            if position == 0 {
                first.extend_from_slice(&piece[..len.min(FIRST_LEN)]);
            }
            position += len as u64;
        }
        let (sha256, chi_squared) = (hash.finalize().into(), histogram.chi_squared());
        Ok(FileStatistics { sha256, first, chi_squared })
    }
}

/// Statistics of a file's content.
pub(super) struct FileStatistics {
    /// Its SHA-256.
    pub(super) sha256: [u8; 32],
    /// The first bytes, at most [`FIRST_LEN`].
    pub(super) first: Vec<u8>,
    /// Chi-squared of its histogram against uniform bytes; `None` if there are too few bytes.
    pub(super) chi_squared: Option<f64>,
}

/// The length of the next piece of at most `most` bytes, if `left` bytes remain.
pub(super) fn piece_len(left: u64, most: usize) -> usize {
    usize::try_from(left).map_or(most, |left| left.min(most))
}

/// Appends the first bytes of a file, at most `most`. A file that cannot be read is skipped.
fn copy(path: &Path, to: &mut File, most: u64) -> Result<u64, CommandFailure> {
    let Ok(from) = File::open(path) else { return Ok(0) };
    let is_file = from.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Ok(0);
    }
    io::copy(&mut from.take(most), to).map_err(|error| scratch::writing(&error))
}

/// The regular files below some directories, in the order of their names. Symbolic links are not
/// followed.
struct FileWalk {
    /// The paths to visit, the next one last.
    stack: Vec<PathBuf>,
}

impl FileWalk {
    fn new(roots: &[&str]) -> Self {
        Self { stack: roots.iter().rev().map(PathBuf::from).collect() }
    }
}

impl Iterator for FileWalk {
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
        let found: Vec<PathBuf> = FileWalk::new(&[directory.path().to_str().unwrap()]).collect();
        assert_eq!(found, ["a", "b/c/x", "b/z", "d"].map(path));
    }

    #[test]
    fn only_regular_files_are_accepted() {
        for path in ["/", "/dev/null", "/no/such/file"] {
            let Err(failure) = DemoSourceFile::open(Path::new(path)) else { panic!("{path}") };
            assert_eq!(failure.code(), 2, "{path}");
        }
    }

    #[test]
    fn a_file_is_read_through() {
        let path = tempfile::NamedTempFile::new().unwrap();
        fs::write(path.path(), "abc").unwrap();
        let content = DemoSourceFile::open(path.path()).unwrap().read_through().unwrap();
        // FIPS 180-2, B.1.
        assert_eq!(content.sha256[..4], [0xBA, 0x78, 0x16, 0xBF]);
        assert_eq!((content.first, content.chi_squared), (b"abc".to_vec(), None));
    }
}

//! A folder that someone has uploaded: a directory, or an archive (tar, tar.gz or zip).
//!
//! Nothing of it is trusted. Its files, its paths and their sizes are bounded, and each is written
//! below the copy's directory: links are made last, so that nothing is written through one, and
//! lead to places in the folder.

mod archive;
mod copy;
mod path;
mod tree;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::limits::ContainmentLimits;
use archive::ArchiveFormat;
use copy::FolderCopy;
use path::UploadPath;

/// The largest archive that is read, in MiB. The index of a zip archive is read into memory.
const MAX_ARCHIVE_MIB: u64 = 32;

/// How many files a folder can have, and how large they can be together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadBounds {
    /// Files, directories and links.
    pub files: u32,
    /// The bytes of all files.
    pub bytes: u64,
}

impl Default for UploadBounds {
    fn default() -> Self {
        Self::of_limits(&ContainmentLimits::default())
    }
}

impl UploadBounds {
    /// The bounds of a folder that fits into a command's limits.
    pub fn of_limits(limits: &ContainmentLimits) -> Self {
        Self { files: limits.files, bytes: limits.disk_mib << 20 }
    }
}

/// Why a folder cannot be used, in one line.
#[derive(Debug, Error)]
pub enum UploadError {
    /// It cannot be read or written.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// It is neither a directory nor an archive.
    #[error("{0} is neither a folder nor an archive (tar, tar.gz or zip)")]
    NoFolder(String),
    /// It has too many files, is too large, or has too long paths.
    #[error("{0} is too large: {1}")]
    TooLarge(String, String),
    /// Something in it cannot be copied: what, and why.
    #[error("{0}: {1}")]
    Refused(String, String),
}

/// The user and group that own a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UploadOwner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// A folder that someone has uploaded.
#[derive(Clone, Debug)]
pub struct UploadedFolder {
    path: PathBuf,
    /// `None`: a directory.
    format: Option<ArchiveFormat>,
}

/// Something in a folder.
enum UploadEntry<'a> {
    Directory,
    File {
        content: &'a mut dyn Read,
        is_executable: bool,
    },
    /// A link to a path, which is relative to the link's directory.
    Symlink {
        target: Vec<u8>,
    },
    /// Another name of a file, by its path in the folder.
    HardLink {
        target: Vec<u8>,
    },
}

/// What is done with each entry.
type EntryVisitor<'a> = &'a mut dyn FnMut(&UploadPath, UploadEntry<'_>) -> Result<(), UploadError>;

impl UploadedFolder {
    /// Opens a directory or an archive.
    ///
    /// # Errors
    /// If there is none, or it is an archive of another kind, or too large a one.
    pub fn open(path: &Path) -> Result<Self, UploadError> {
        let shown = path.display().to_string();
        let failed = |error| UploadError::Io(shown.clone(), error);
        let metadata = path.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Ok(Self { path: path.to_owned(), format: None });
        }
        if !metadata.is_file() {
            return Err(UploadError::NoFolder(shown));
        }
        if metadata.len() > MAX_ARCHIVE_MIB << 20 {
            let what = format!("an archive has at most {MAX_ARCHIVE_MIB} MiB");
            return Err(UploadError::TooLarge(shown, what));
        }
        let mut file = File::open(path).map_err(failed)?;
        let format = ArchiveFormat::of(&mut file).map_err(failed)?;
        let format = format.ok_or(UploadError::NoFolder(shown))?;
        Ok(Self { path: path.to_owned(), format: Some(format) })
    }

    /// The paths of its files, sorted. Everything else in it is checked, too.
    ///
    /// # Errors
    /// If it cannot be read, is beyond the bounds, or something in it would not be copied.
    pub fn names(&self, bounds: &UploadBounds) -> Result<BTreeSet<String>, UploadError> {
        let mut names = BTreeSet::new();
        self.visit(bounds, &mut |path, entry| list(&mut names, path, entry))?;
        Ok(names)
    }

    /// The same of an archive in memory.
    ///
    /// # Errors
    /// Like [`Self::names`], or if it is no archive.
    pub fn names_in_archive(
        archive: &[u8],
        bounds: &UploadBounds,
    ) -> Result<BTreeSet<String>, UploadError> {
        let shown = || "the upload".to_owned();
        let mut archive = Cursor::new(archive);
        let format = ArchiveFormat::of(&mut archive);
        let format = format.map_err(|error| UploadError::Io(shown(), error))?;
        let format = format.ok_or_else(|| UploadError::NoFolder(shown()))?;
        let mut names = BTreeSet::new();
        archive::visit(archive, format, bounds, &mut |path, entry| list(&mut names, path, entry))?;
        Ok(names)
    }

    /// Copies it into an empty directory, of which nobody else has a part.
    ///
    /// # Errors
    /// If it cannot be read or written, is beyond the bounds, or something in it is refused: a path
    /// or a link that leads outside, a device, or a second file of the same name.
    pub fn unpack(&self, into: &Path, bounds: &UploadBounds) -> Result<(), UploadError> {
        self.unpack_for(into, bounds, None)
    }

    /// The same, for a user.
    pub(crate) fn unpack_for(
        &self,
        into: &Path,
        bounds: &UploadBounds,
        owner: Option<UploadOwner>,
    ) -> Result<(), UploadError> {
        let mut copy = FolderCopy::new(into, owner);
        self.visit(bounds, &mut |path, entry| copy.add(path, entry))?;
        copy.finish()
    }

    /// Calls `visit` for each entry, within the bounds.
    fn visit(&self, bounds: &UploadBounds, visit: EntryVisitor<'_>) -> Result<(), UploadError> {
        let Some(format) = self.format else {
            return tree::visit(&self.path, bounds, visit);
        };
        let failed = |error| UploadError::Io(self.path.display().to_string(), error);
        let file = File::open(&self.path).map_err(failed)?;
        archive::visit(file, format, bounds, visit)
    }
}

/// Adds an entry to the names of files, and checks it.
fn list(
    names: &mut BTreeSet<String>,
    path: &UploadPath,
    entry: UploadEntry<'_>,
) -> Result<(), UploadError> {
    match entry {
        UploadEntry::File { content, .. } => {
            io::copy(content, &mut io::sink()).map_err(|error| path.failed(error))?;
            names.insert(path.to_string());
        }
        UploadEntry::Symlink { target } => drop(path.link(&target)?),
        UploadEntry::HardLink { target } => drop(UploadPath::parse(&target)?),
        UploadEntry::Directory => {}
    }
    Ok(())
}

/// What is left of the bounds while a folder is read.
#[derive(Debug)]
struct BoundsLeft {
    bounds: UploadBounds,
    files: u32,
    bytes: u64,
}

impl BoundsLeft {
    fn new(bounds: UploadBounds) -> Self {
        Self { bounds, files: bounds.files, bytes: bounds.bytes }
    }

    /// Takes one more entry into account.
    fn add_entry(&mut self) -> Result<(), UploadError> {
        let files = self.files.checked_sub(1);
        let too_many = || {
            let what = format!("it may have {} files and folders", self.bounds.files);
            UploadError::TooLarge("the upload".into(), what)
        };
        self.files = files.ok_or_else(too_many)?;
        Ok(())
    }

    /// The error for a folder with too many bytes.
    fn too_large(&self) -> UploadError {
        let what = format!("its files may have {} MiB", self.bounds.bytes >> 20);
        UploadError::TooLarge("the upload".into(), what)
    }
}

/// Reads a file of the folder, as far as the bounds allow.
struct BoundedContent<'a, R> {
    inner: R,
    left: &'a mut u64,
    is_too_large: bool,
}

impl<R: Read> Read for BoundedContent<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        let Some(left) = self.left.checked_sub(length as u64) else {
            self.is_too_large = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        *self.left = left;
        Ok(length)
    }
}

/// Visits a file within the bounds.
fn visit_file(
    path: &UploadPath,
    content: impl Read,
    is_executable: bool,
    left: &mut BoundsLeft,
    visit: EntryVisitor<'_>,
) -> Result<(), UploadError> {
    let mut content = BoundedContent { inner: content, left: &mut left.bytes, is_too_large: false };
    let visited = visit(path, UploadEntry::File { content: &mut content, is_executable });
    if content.is_too_large { Err(left.too_large()) } else { visited }
}

//! Reads archives.
//!
//! A tar archive is read as a stream, whose headers and contents are bounded separately. The index
//! of a zip archive is read first; its size is that of the archive at most, which is bounded.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Seek};

use flate2::read::MultiGzDecoder;
use tar::{Archive, EntryType};
use zip::ZipArchive;

use super::path::UploadPath;
use super::{BoundsLeft, EntryVisitor, UploadBounds, UploadEntry, UploadError, visit_file};

/// A kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArchiveFormat {
    Tar,
    GzippedTar,
    Zip,
}

/// The longest header of a file in a tar archive, with the long names before it, in bytes.
const MAX_HEADER_LEN: u64 = 64 << 10;

/// The maximum length of a link's target in a zip archive.
const MAX_TARGET_LEN: u64 = 4096;

impl ArchiveFormat {
    /// The kind that a file begins like.
    pub(super) fn of(file: &mut (impl Read + Seek)) -> io::Result<Option<Self>> {
        let mut begin = Vec::new();
        file.by_ref().take(512).read_to_end(&mut begin)?;
        file.rewind()?;
        Ok(match &begin[..] {
            [0x1f, 0x8b, ..] => Some(Self::GzippedTar),
            [b'P', b'K', 3 | 5, 4 | 6, ..] => Some(Self::Zip),
            begin if begin.get(257..262) == Some(b"ustar") => Some(Self::Tar),
            _ => None,
        })
    }
}

/// Visits everything in an archive.
pub(super) fn visit(
    file: impl Read + Seek,
    format: ArchiveFormat,
    bounds: &UploadBounds,
    visit: EntryVisitor<'_>,
) -> Result<(), UploadError> {
    match format {
        ArchiveFormat::Tar => visit_tar(file, bounds, visit),
        ArchiveFormat::GzippedTar => visit_tar(MultiGzDecoder::new(file), bounds, visit),
        ArchiveFormat::Zip => visit_zip(file, bounds, visit),
    }
}

/// Reads a stream, but no more than is allowed at the moment.
struct AllowedStream<'a, R> {
    inner: R,
    allowed: &'a Cell<u64>,
}

impl<R: Read> Read for AllowedStream<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.allowed.get()).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let length = self.inner.read(&mut buffer[..most])?;
        self.allowed.set(self.allowed.get() - length as u64);
        Ok(length)
    }
}

fn visit_tar(
    stream: impl Read,
    bounds: &UploadBounds,
    visit: EntryVisitor<'_>,
) -> Result<(), UploadError> {
    let mut left = BoundsLeft::new(*bounds);
    let allowed = Cell::new(MAX_HEADER_LEN);
    let mut archive = Archive::new(AllowedStream { inner: stream, allowed: &allowed });
    let unreadable = |error: io::Error| match error.kind() {
        ErrorKind::FileTooLarge => {
            UploadError::TooLarge("the archive".into(), "its headers".into())
        }
        _ => UploadError::Io("the archive".into(), error),
    };
    let mut entries = archive.entries().map_err(unreadable)?;
    loop {
        // Between two files there are only headers: a file is read to its end.
        allowed.set(MAX_HEADER_LEN);
        let Some(entry) = entries.next() else { return Ok(()) };
        let mut entry = entry.map_err(unreadable)?;
        left.add_entry()?;
        let path = UploadPath::parse(&entry.path_bytes())?;
        let kind = entry.header().entry_type();
        let target = entry.link_name_bytes().map(Cow::into_owned).unwrap_or_default();
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let mode = entry.header().mode().unwrap_or(0);
                // One more byte shows that there are too many.
                allowed.set(left.bytes.saturating_add(MAX_HEADER_LEN));
                visit_file(&path, &mut entry, mode & 0o111 != 0, &mut left, visit)?;
            }
            EntryType::Directory => visit(&path, UploadEntry::Directory)?,
            EntryType::Symlink => visit(&path, UploadEntry::Symlink { target })?,
            EntryType::Link => visit(&path, UploadEntry::HardLink { target })?,
            // Comments of the whole archive.
            EntryType::XGlobalHeader => {}
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                return Err(path.refused("is a device or a pipe; remove it"));
            }
            _ => return Err(path.refused("is of an unknown kind; remove it")),
        }
    }
}

fn visit_zip(
    file: impl Read + Seek,
    bounds: &UploadBounds,
    visit: EntryVisitor<'_>,
) -> Result<(), UploadError> {
    let mut left = BoundsLeft::new(*bounds);
    let unreadable =
        |error: zip::result::ZipError| UploadError::Io("the archive".into(), error.into());
    let mut archive = ZipArchive::new(file).map_err(unreadable)?;
    for index in 0..archive.len() {
        left.add_entry()?;
        let mut entry = archive.by_index(index).map_err(unreadable)?;
        let path = UploadPath::parse(entry.name_raw())?;
        // The kind is in the upper half of a Unix system's attributes.
        let mode = entry.unix_mode().unwrap_or(0);
        match mode & libc::S_IFMT {
            _ if entry.is_dir() => visit(&path, UploadEntry::Directory)?,
            libc::S_IFLNK => {
                let mut target = Vec::new();
                let read = (&mut entry).take(MAX_TARGET_LEN + 1).read_to_end(&mut target);
                read.map_err(|error| path.failed(error))?;
                visit(&path, UploadEntry::Symlink { target })?;
            }
            libc::S_IFREG | 0 => {
                visit_file(&path, &mut entry, mode & 0o111 != 0, &mut left, visit)?;
            }
            _ => return Err(path.refused("is a device or a pipe; remove it")),
        }
    }
    Ok(())
}

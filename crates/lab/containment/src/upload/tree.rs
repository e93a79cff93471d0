//! Reads a directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use super::path::UploadPath;
use super::{BoundsLeft, EntryVisitor, UploadBounds, UploadEntry, UploadError, visit_file};

/// Visits everything in a directory.
pub(super) fn visit(
    directory: &Path,
    bounds: &UploadBounds,
    visit: EntryVisitor<'_>,
) -> Result<(), UploadError> {
    let mut left = BoundsLeft::new(*bounds);
    let mut directories = vec![directory.to_owned()];
    while let Some(at) = directories.pop() {
        let failed = |error| UploadError::Io(at.display().to_string(), error);
        for entry in fs::read_dir(&at).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            left.add_entry()?;
            let place = entry.path();
            let below = place.strip_prefix(directory).unwrap_or(&place);
            let path = UploadPath::parse(below.as_os_str().as_bytes())?;
            let metadata = entry.metadata().map_err(|error| path.failed(error))?;
            if metadata.is_dir() {
                visit(&path, UploadEntry::Directory)?;
                directories.push(place);
            } else if metadata.is_file() {
                let is_executable = metadata.permissions().mode() & 0o111 != 0;
                let content = open_file(&place).map_err(|error| path.failed(error))?;
                visit_file(&path, content, is_executable, &mut left, visit)?;
            } else if metadata.is_symlink() {
                let target = fs::read_link(&place).map_err(|error| path.failed(error))?;
                let target = target.as_os_str().as_bytes().to_vec();
                visit(&path, UploadEntry::Symlink { target })?;
            } else {
                return Err(path.refused("is a device, a pipe or a socket; remove it"));
            }
        }
    }
    Ok(())
}

/// Opens a file that may have become something else meanwhile, without waiting for a pipe's other
/// end.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

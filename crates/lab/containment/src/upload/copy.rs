//! Writes the copy of a folder.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown, lchown, symlink};
use std::path::{Path, PathBuf};

use super::path::UploadPath;
use super::{UploadEntry, UploadError, UploadOwner};

/// A copy that is being written. Links are made at the end, so that until then everything below the
/// directory is a real folder or a real file.
pub(super) struct FolderCopy<'a> {
    into: &'a Path,
    owner: Option<UploadOwner>,
    directories: BTreeSet<UploadPath>,
    files: BTreeSet<UploadPath>,
    /// The symbolic links, and where they lead.
    links: Vec<(UploadPath, PathBuf)>,
    /// Other names of files, and the files.
    names: Vec<(UploadPath, UploadPath)>,
}

impl<'a> FolderCopy<'a> {
    /// A copy in an empty directory.
    pub(super) fn new(into: &'a Path, owner: Option<UploadOwner>) -> Self {
        Self {
            into,
            owner,
            directories: BTreeSet::new(),
            files: BTreeSet::new(),
            links: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Adds an entry.
    pub(super) fn add(
        &mut self,
        path: &UploadPath,
        entry: UploadEntry<'_>,
    ) -> Result<(), UploadError> {
        if path.is_root() {
            return match entry {
                UploadEntry::Directory => Ok(()),
                _ => Err(UploadError::Refused(".".into(), "is the folder itself".into())),
            };
        }
        for parent in path.parents() {
            self.make_directory(&parent)?;
        }
        match entry {
            UploadEntry::Directory => self.make_directory(path),
            UploadEntry::File { content, is_executable } => {
                let mode = if is_executable { 0o755 } else { 0o644 };
                let made = self.write(path, mode, content);
                made.map_err(|error| named(path, error))?;
                self.files.insert(path.clone());
                Ok(())
            }
            UploadEntry::Symlink { target } => {
                self.links.push((path.clone(), path.link(&target)?));
                Ok(())
            }
            UploadEntry::HardLink { target } => {
                let target = UploadPath::parse(&target)?;
                self.names.push((path.clone(), target));
                Ok(())
            }
        }
    }

    /// Makes the links.
    pub(super) fn finish(self) -> Result<(), UploadError> {
        for (path, target) in &self.names {
            if !self.files.contains(target) {
                let what = format!("is a hard link to {target}, which is no file of the folder");
                return Err(path.refused(&what));
            }
            fs::hard_link(target.below(self.into), path.below(self.into))
                .map_err(|error| named(path, error))?;
        }
        for (path, target) in &self.links {
            let place = path.below(self.into);
            let made = symlink(target, &place).and_then(|()| self.give(&place));
            made.map_err(|error| named(path, error))?;
        }
        Ok(())
    }

    /// Makes a folder, if it is not there.
    fn make_directory(&mut self, path: &UploadPath) -> Result<(), UploadError> {
        if path.is_root() || self.directories.contains(path) {
            return Ok(());
        }
        let place = path.below(self.into);
        let made = DirBuilder::new().mode(0o755).create(&place).and_then(|()| self.give(&place));
        made.map_err(|error| named(path, error))?;
        self.directories.insert(path.clone());
        Ok(())
    }

    fn write(&self, path: &UploadPath, mode: u32, content: &mut dyn io::Read) -> io::Result<()> {
        let place = path.below(self.into);
        let mut file = File::options().write(true).create_new(true).mode(mode).open(place)?;
        io::copy(content, &mut file)?;
        match self.owner {
            Some(owner) => fchown(&file, Some(owner.user), Some(owner.group)),
            None => Ok(()),
        }
    }

    /// Gives a folder or a link to the owner.
    fn give(&self, place: &Path) -> io::Result<()> {
        match self.owner {
            Some(owner) => lchown(place, Some(owner.user), Some(owner.group)),
            None => Ok(()),
        }
    }
}

/// The error of a path that could not be made.
fn named(path: &UploadPath, error: io::Error) -> UploadError {
    match error.kind() {
        ErrorKind::AlreadyExists => path.refused("is in the folder twice"),
        ErrorKind::StorageFull => {
            UploadError::TooLarge("the upload".into(), format!("{path} does not fit"))
        }
        _ => path.failed(error),
    }
}

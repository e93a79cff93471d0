//! Lists the files and directories to send.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use super::FileSendError;
use crate::protocol::file::{FileAttributes, FileName};
use crate::protocol::tree::{MAX_ENTRIES, TreeEntry, TreePath};

/// The largest number of skipped paths that are named.
const MAX_NAMED: usize = 20;

/// What was found.
#[derive(Default)]
pub(super) struct FoundTree {
    /// The entries, each with the path of its file.
    pub(super) entries: Vec<(TreeEntry, PathBuf)>,
    pub(super) skipped: SkippedPaths,
}

/// Paths that are not sent: symbolic links, devices, pipes and sockets, and names that no receiver
/// accepts, such as those that begin with a dot.
#[derive(Clone, Debug, Default)]
pub struct SkippedPaths {
    /// How many there are. What is in a skipped directory is not counted.
    pub count: usize,
    /// The first of them.
    pub first: Vec<PathBuf>,
}

impl SkippedPaths {
    fn add(&mut self, path: PathBuf) {
        self.count += 1;
        if self.first.len() < MAX_NAMED {
            self.first.push(path);
        }
    }
}

/// Finds everything at and below these paths. A path may be a link, but links below it are skipped.
pub(super) fn find(paths: &[PathBuf]) -> Result<FoundTree, FileSendError> {
    let mut found = FoundTree::default();
    for path in paths {
        let failed = |source| FileSendError::File { path: path.clone(), source };
        let metadata = path.metadata().map_err(failed)?;
        // A path such as `.` does not end with a name.
        let named = match path.file_name() {
            Some(_) => path.clone(),
            None => path.canonicalize().map_err(failed)?,
        };
        let name = named.file_name().unwrap_or_default().as_encoded_bytes();
        let name = FileName::parse(name);
        let name = name.map_err(|source| FileSendError::Name { path: path.clone(), source })?;
        let is_kind = metadata.is_file() || metadata.is_dir();
        let top = TreePath::new(vec![name]).filter(|_| is_kind);
        let top = top.ok_or_else(|| FileSendError::Kind { path: path.clone() })?;
        found.add(&top, path, &metadata)?;
    }
    Ok(found)
}

impl FoundTree {
    fn add(
        &mut self,
        name: &TreePath,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<(), FileSendError> {
        if self.entries.len() >= MAX_ENTRIES {
            return Err(FileSendError::TooMany);
        }
        let attributes = FileAttributes::of(metadata);
        let length = metadata.is_file().then_some(metadata.len());
        let entry = TreeEntry { path: name.clone(), attributes, length };
        self.entries.push((entry, path.to_owned()));
        if length.is_none() { self.add_content(name, path) } else { Ok(()) }
    }

    /// Adds what is in a directory. Its depth is limited by that of a [`TreePath`].
    fn add_content(&mut self, directory: &TreePath, path: &Path) -> Result<(), FileSendError> {
        let failed = |source| FileSendError::File { path: path.to_owned(), source };
        for entry in fs::read_dir(path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let metadata = path
                .symlink_metadata()
                .map_err(|source| FileSendError::File { path: path.clone(), source })?;
            let name = FileName::parse(path.file_name().unwrap_or_default().as_encoded_bytes());
            let name = name.ok().and_then(|name| directory.join(name));
            match name {
                Some(name) if metadata.is_file() || metadata.is_dir() => {
                    self.add(&name, &path, &metadata)?;
                }
                _ => self.skipped.add(path),
            }
        }
        Ok(())
    }
}

//! Files for a site.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::connection::SiteConnection;
use super::message::{AgentRequest, FilePiece, MAX_PIECE_LEN};
use super::trial_path::TrialFilePath;

impl SiteConnection {
    /// Writes a file into the directory for the trial's files.
    ///
    /// # Errors
    /// If the name is none of a file there, or it cannot be written, in one line.
    pub(crate) fn write_file(
        &self,
        path: &str,
        content: &[u8],
        is_executable: bool,
    ) -> Result<(), String> {
        let path = self.file_path(path)?;
        let mut offset = 0;
        loop {
            let end = content.len().min(offset + MAX_PIECE_LEN);
            let piece = FilePiece {
                path: path.clone(),
                is_executable,
                offset: offset as u64,
                bytes: content[offset..end].to_vec(),
            };
            self.order(&AgentRequest::Put(piece))?;
            if end == content.len() {
                return Ok(());
            }
            offset = end;
        }
    }

    /// Writes a file of zero bytes into the directory for the trial's files.
    ///
    /// # Errors
    /// As for [`Self::write_file`].
    pub(crate) fn write_zeros(&self, path: &str, length: u32) -> Result<(), String> {
        self.order(&AgentRequest::Zeros { path: self.file_path(path)?, length })
    }

    /// Copies a folder of this machine to a directory of the trial's files.
    ///
    /// # Errors
    /// If it has something else than files and directories, or cannot be read or written, in one
    /// line.
    pub(crate) fn write_folder(&self, folder: &Path, to: &str) -> Result<(), String> {
        let failed =
            |path: &Path, what: &dyn ToString| format!("{}: {}", path.display(), what.to_string());
        let entries = fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
        let mut entries =
            entries.collect::<Result<Vec<_>, _>>().map_err(|error| failed(folder, &error))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let metadata = path.metadata().map_err(|error| failed(&path, &error))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| failed(&path, &"the name is not text"))?;
            let to = format!("{to}/{name}");
            if metadata.is_dir() {
                // A link to a folder above would never end.
                self.file_path(&to)?;
                self.write_folder(&path, &to)?;
            } else if metadata.is_file() {
                let content = fs::read(&path).map_err(|error| failed(&path, &error))?;
                let is_executable = metadata.permissions().mode() & 0o111 != 0;
                self.write_file(&to, &content, is_executable)?;
            } else {
                return Err(failed(&path, &"it is no file and no directory; remove it"));
            }
        }
        Ok(())
    }

    fn file_path(&self, path: &str) -> Result<TrialFilePath, String> {
        TrialFilePath::new(path)
            .ok_or_else(|| self.line(&format!("{path} cannot be the name of a file")))
    }
}

//! The names of a trial's files, as paths below its directory.

use std::path::{Path, PathBuf};

/// The maximum length of a path, in bytes. It is sent with a length of 8 bits.
const MAX_PATH_LEN: usize = 255;

/// The maximum number of names of a path.
const MAX_NAMES: usize = 16;

/// The path of a file or a directory below the directory for a trial's files. It cannot lead out of
/// it by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrialFilePath(String);

impl TrialFilePath {
    /// Checks a path: names, separated by single slashes, none of them `.` or `..`.
    pub(crate) fn new(path: &str) -> Option<Self> {
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        let is_valid = path.len() <= MAX_PATH_LEN
            && path.split('/').count() <= MAX_NAMES
            && path.split('/').all(is_name);
        is_valid.then(|| Self(path.to_owned()))
    }

    /// The path as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The path below a directory.
    pub(crate) fn below(&self, directory: &Path) -> PathBuf {
        directory.join(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_file_path_does_not_lead_out_of_its_directory() {
        for path in ["page", "pair/web-server.sh", "...", "a b/.hidden"] {
            assert!(TrialFilePath::new(path).is_some(), "{path}");
        }
        let long = "x".repeat(MAX_PATH_LEN + 1);
        let deep = ["x"; MAX_NAMES + 1].join("/");
        let wrong = ["", "/", "/etc/passwd", "..", "a/../../b", "a//b", "a/", "./a", "a\0b"];
        for path in wrong.into_iter().chain([&*long, &*deep]) {
            assert!(TrialFilePath::new(path).is_none(), "{path}");
        }
    }
}

//! Finds programs that are named without a path. Searches only absolute directories of `PATH` and
//! the system's directories.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The system's own directories, which some users' `PATH` lacks.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The path of a program. Empty and relative entries of `PATH`, which refer to the working
/// directory, are ignored.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    directories(env::var_os("PATH").as_deref())
        .map(|directory| directory.join(name))
        .find(|it| is_program(it))
}

/// The `PATH` for programs that search for others themselves.
pub(crate) fn search_path() -> OsString {
    // Splitting removed the separators, so joining cannot fail.
    env::join_paths(directories(env::var_os("PATH").as_deref()))
        .unwrap_or_else(|_| SYSTEM_DIRECTORIES.join(":").into())
}

/// Whether the path is an executable file.
pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn directories(path: Option<&OsStr>) -> impl Iterator<Item = PathBuf> {
    let named =
        path.into_iter().flat_map(env::split_paths).filter(|directory| directory.is_absolute());
    named.chain(SYSTEM_DIRECTORIES.map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_directories_are_searched() {
        let all = |path: &str| -> Vec<PathBuf> { directories(Some(OsStr::new(path))).collect() };
        let system = SYSTEM_DIRECTORIES.map(PathBuf::from);
        for path in ["", ":", ".", "bin:..", ":."] {
            assert_eq!(all(path), system, "{path}");
        }
        assert_eq!(all(":/a:b:/c:")[..3], ["/a", "/c", SYSTEM_DIRECTORIES[0]].map(PathBuf::from));
        assert!(find_program("sh").is_some_and(|shell| shell.is_absolute()));
    }
}

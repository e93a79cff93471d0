//! Where programs are found that are named without a path: only in places that the user, or the
//! system, names in full.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the system's own programs are, which not every user's `PATH` has.
const SYSTEM: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The program of this name. Entries of `PATH` that are empty or relative, which mean the directory
/// that a user happens to be in, do not count.
pub(crate) fn found(name: &str) -> Option<PathBuf> {
    places(env::var_os("PATH").as_deref()).map(|place| place.join(name)).find(|it| is_program(it))
}

/// The `PATH` for programs that find others themselves.
pub(crate) fn search_path() -> OsString {
    // What was split can be joined.
    env::join_paths(places(env::var_os("PATH").as_deref()))
        .unwrap_or_else(|_| SYSTEM.join(":").into())
}

/// Whether this is a program.
pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn places(path: Option<&OsStr>) -> impl Iterator<Item = PathBuf> {
    let named = path.into_iter().flat_map(env::split_paths).filter(|place| place.is_absolute());
    named.chain(SYSTEM.map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_in_full() {
        let all = |path: &str| -> Vec<PathBuf> { places(Some(OsStr::new(path))).collect() };
        let system = SYSTEM.map(PathBuf::from);
        for path in ["", ":", ".", "bin:..", ":."] {
            assert_eq!(all(path), system, "{path}");
        }
        assert_eq!(all(":/a:b:/c:")[..3], ["/a", "/c", SYSTEM[0]].map(PathBuf::from));
        assert!(found("sh").is_some_and(|shell| shell.is_absolute()));
    }
}

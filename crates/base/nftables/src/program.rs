//! Finds programs to run: only in directories with an absolute path.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directories of system programs, which are not in every user's `PATH`.
const SYSTEM: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The program of this name in a directory of `PATH`, or else in a system directory. Entries of
/// `PATH` that are empty or relative, and so mean the current directory, are ignored.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    find_in(env::var_os("PATH").as_deref(), name)
}

fn find_in(path: Option<&OsStr>, name: &str) -> Option<PathBuf> {
    // A name with a slash could be in another directory.
    let is_name = Path::new(name).file_name() == Some(OsStr::new(name));
    let places = path.into_iter().flat_map(env::split_paths).filter(|place| place.is_absolute());
    let mut places = places.chain(SYSTEM.map(PathBuf::from)).map(|place| place.join(name));
    places.find(|program| is_name && is_program(program))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_directories_of_path_are_searched() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("own");
        fs::write(&program, "").unwrap();
        let found = |path: &str| find_in(Some(OsStr::new(path)), "own");
        let shown = place.path().to_str().unwrap();
        assert_eq!(found(shown), None, "it cannot be run");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found(&format!("::.:{shown}")).as_deref(), Some(program.as_path()));
        for path in ["", ":", ".", "..", "target:", &shown[1..]] {
            assert_eq!(found(path), None, "{path}");
        }
        // This relative path leads to the program from the directory in which tests run.
        let up = "../".repeat(env::current_dir().unwrap().components().count());
        let relative = format!("{up}{}", &shown[1..]);
        assert!(Path::new(&relative).join("own").exists());
        assert_eq!(found(&relative), None);
        assert_eq!(find_in(Some(OsStr::new(shown)), "./own"), None);
    }

    #[test]
    fn without_path_system_directories_are_searched() {
        for path in [None, Some(OsStr::new(""))] {
            assert!(find_in(path, "sh").is_some_and(|shell| shell.is_absolute()), "{path:?}");
        }
    }
}

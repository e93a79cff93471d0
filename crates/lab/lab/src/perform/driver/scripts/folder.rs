//! The pair of scripts in a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use containment::{UploadBounds, UploadedFolder};

/// A folder, and the name of a pair of scripts in it.
#[derive(Clone, Debug)]
pub(super) struct ScriptPair {
    /// The folder or the archive.
    pub(super) folder: UploadedFolder,
    /// Its path on this machine.
    pub(super) path: PathBuf,
    /// Where in it the scripts are.
    pub(super) directory: PathBuf,
    name: String,
}

impl ScriptPair {
    /// Finds the pair with a name, or the only one. The error is one line.
    ///
    /// With `bounds` everything in the folder is checked. A directory of the user's own has none.
    pub(super) fn find(
        path: &Path,
        name: Option<&str>,
        bounds: Option<&UploadBounds>,
    ) -> Result<Self, String> {
        let folder = UploadedFolder::open(path).map_err(|error| format!("scripts: {error}"))?;
        let names = match bounds {
            None if path.is_dir() => top_names(path)?,
            bounds => folder
                .names(&bounds.copied().unwrap_or_default())
                .map_err(|error| format!("scripts {}: {error}", path.display()))?,
        };
        let (directory, names) = place(names);
        let pairs = pairs(&names);
        let shown = path.display();
        let name = match (name, &pairs[..]) {
            (Some(name), pairs) if pairs.contains(&name) => name,
            (Some(name), _) => {
                return Err(format!("{shown} lacks {name}-client.sh or {name}-server.sh"));
            }
            (None, [only]) => only,
            (None, []) => return Err(format!("{shown} {NO_PAIR}")),
            (None, several) => {
                let several = several.join(", ");
                return Err(format!("there are several pairs; set name to one of {several}"));
            }
        };
        let name = name.to_owned();
        Ok(Self { folder, path: path.to_owned(), directory, name })
    }

    /// The name of the script of a party: `client` or `server`.
    pub(super) fn script(&self, role: &str) -> String {
        format!("{}-{role}.sh", self.name)
    }
}

/// Checks that an archive in memory has one pair, and nothing that is refused. The error is one
/// line.
pub(super) fn check_archive(archive: &[u8]) -> Result<(), String> {
    let names = UploadedFolder::names_in_archive(archive, &UploadBounds::default());
    let (_, names) = place(names.map_err(|error| error.to_string())?);
    match &pairs(&names)[..] {
        [_] => Ok(()),
        [] => Err(format!("the upload {NO_PAIR}")),
        several => Err(format!("the upload has several pairs: {}; keep one", several.join(", "))),
    }
}

/// Why a folder is refused that has no scripts.
const NO_PAIR: &str = "has no pair of NAME-client.sh and NAME-server.sh";

/// The names of the pairs among the names of files.
fn pairs(names: &BTreeSet<String>) -> Vec<&str> {
    let is_pair =
        |name: &&str| names.contains(&format!("{name}-client.sh")) && check_name(name).is_ok();
    names.iter().filter_map(|it| it.strip_suffix("-server.sh")).filter(is_pair).collect()
}

/// The names in a directory.
fn top_names(path: &Path) -> Result<BTreeSet<String>, String> {
    let entries =
        fs::read_dir(path).map_err(|error| format!("scripts {}: {error}", path.display()))?;
    Ok(entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect())
}

/// Where the scripts are, and the names of the files there: in the folder itself, or in the only
/// folder in it, as archives often have one.
fn place(names: BTreeSet<String>) -> (PathBuf, BTreeSet<String>) {
    let tops: BTreeSet<&str> = names.iter().filter_map(|it| Some(it.split_once('/')?.0)).collect();
    let has_files = names.iter().any(|name| !name.contains('/'));
    match tops.first() {
        Some(top) if tops.len() == 1 && !has_files => {
            let below = names.iter().filter_map(|it| it.split_once('/')).map(|(_, rest)| rest);
            (PathBuf::from(top), below.map(str::to_owned).collect())
        }
        _ => (PathBuf::new(), names),
    }
}

/// The maximum length of a name.
const MAX_NAME_LEN: usize = 64;

/// Checks the name of a pair; the error is one line.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric());
    if is_plain && (1..=MAX_NAME_LEN).contains(&name.len()) {
        return Ok(());
    }
    Err(format!("name is \"{name}\"; use 1 to {MAX_NAME_LEN} letters a-z, A-Z and digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_in_the_folder_or_in_the_only_folder_in_it() {
        let of = |names: &[&str]| place(names.iter().map(|name| (*name).to_owned()).collect()).0;
        assert_eq!(of(&["a-client.sh", "data/x"]), PathBuf::new());
        assert_eq!(of(&["pair/a-client.sh", "pair/data/x"]), PathBuf::from("pair"));
        assert_eq!(of(&["pair/a-client.sh", "data/x"]), PathBuf::new());
    }
}

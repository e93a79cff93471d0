//! The pair of scripts in a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder, and the name of a pair of scripts in it.
#[derive(Clone, Debug)]
pub(super) struct ScriptPair {
    pub(super) folder: PathBuf,
    name: String,
}

impl ScriptPair {
    /// Finds the pair with a name, or the only one. The error is one line.
    pub(super) fn find(folder: &Path, name: Option<&str>) -> Result<Self, String> {
        let entries = fs::read_dir(folder)
            .map_err(|error| format!("folder {}: {error}", folder.display()))?;
        let names: BTreeSet<String> =
            entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect();
        let is_pair =
            |name: &&str| names.contains(&format!("{name}-client.sh")) && check_name(name).is_ok();
        let pairs: Vec<&str> =
            names.iter().filter_map(|it| it.strip_suffix("-server.sh")).filter(is_pair).collect();
        let name = match (name, &pairs[..]) {
            (Some(name), pairs) if pairs.contains(&name) => name,
            (Some(name), _) => {
                let folder = folder.display();
                return Err(format!("{folder} lacks {name}-client.sh or {name}-server.sh"));
            }
            (None, [only]) => only,
            (None, []) => {
                let folder = folder.display();
                return Err(format!("{folder} has no pair of NAME-client.sh and NAME-server.sh"));
            }
            (None, several) => {
                let several = several.join(", ");
                return Err(format!("there are several pairs; set name to one of {several}"));
            }
        };
        Ok(Self { folder: folder.to_owned(), name: name.to_owned() })
    }

    /// The name of the script of a party: `client` or `server`.
    pub(super) fn script(&self, role: &str) -> String {
        format!("{}-{role}.sh", self.name)
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

//! The files that a configuration names, relative to its directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use directory::store;
use keys::SharedKey;
use keys::file::{self, KEY_LEN, KeyFileError};
use rustix::fs::{Access, access};
use service::config::KeyPath;
use toml::Value;

use super::finding::{CheckFinding, FindingSeverity};

/// The settings that name a key file.
const NAMES: [&str; 3] = ["key", "shared_key", "secret_key"];

/// Whether the key files that the text of a configuration names can be used.
pub(crate) fn keys(config: &Path, text: &str) -> Vec<CheckFinding> {
    let mut names = Vec::new();
    collect(&Value::Table(text.parse().unwrap_or_default()), &KeyPath::default(), &mut names);
    let folder = config.parent().unwrap_or(Path::new(""));
    let findings = names.iter().map(|(path, file)| key(&path.to_string(), &folder.join(file)));
    findings.chain(same_keys_of_clients(&names, folder)).collect()
}

/// Clients of a server with the same key, in different files.
fn same_keys_of_clients(names: &[(KeyPath, String)], folder: &Path) -> Vec<CheckFinding> {
    let clients = names.iter().filter(|(path, _)| path.table() == "client");
    let mut known: HashMap<[u8; 8], String> = HashMap::new();
    let same = |(path, file): &(KeyPath, String)| {
        let key = SharedKey::read(&folder.join(file)).ok()?;
        let first = known.insert(key.fingerprint(), file.clone())?;
        let what = format!("{file} has the same key as {first}, of another client");
        let fix = "give each client its own key: sunder key new FILE";
        Some(CheckFinding::new(FindingSeverity::Error, path.to_string(), what, fix))
    };
    clients.filter_map(same).collect()
}

/// The names of key files in a value of a configuration, each with the path of its setting.
fn collect(value: &Value, path: &KeyPath, names: &mut Vec<(KeyPath, String)>) {
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(name, value)| collect(value, &path.key(name), names));
        }
        Value::Array(list) => {
            let values = list.iter().enumerate();
            values.for_each(|(index, value)| collect(value, &path.index(index), names));
        }
        Value::String(file) if NAMES.contains(&path.name()) => {
            names.push((path.clone(), file.clone()));
        }
        _ => {}
    }
}

/// Whether a file can be written, or created if it does not exist.
pub(crate) fn database(subject: &str, path: &Path) -> CheckFinding {
    let shown = path.display();
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let (place, needed) = if path.exists() {
        (path, Access::READ_OK | Access::WRITE_OK)
    } else {
        (directory, Access::WRITE_OK | Access::EXEC_OK)
    };
    let Err(error) = access(place, needed) else {
        return match store::check_place(path) {
            Ok(()) => CheckFinding::ok(subject, format!("{shown} can be written")),
            Err(error) => {
                CheckFinding::new(FindingSeverity::Error, subject, error.problem(), error.advice())
            }
        };
    };
    let what = format!("{shown} cannot be written: {error}");
    let fix = format!(
        "create {}, or make it writable for the user that the command runs as",
        directory.display()
    );
    CheckFinding::new(FindingSeverity::Error, subject, what, fix)
}

/// Warns of key files that other users can read or replace.
pub(crate) fn warn_of_exposed_keys(keys: &[PathBuf]) {
    for error in keys.iter().filter_map(|key| file::exposure(key)) {
        let (what, fix) = (error.problem(), error.advice());
        console::warning(&format!("key: {what}, and so impersonate a peer: {fix}"));
    }
}

fn key(subject: &str, path: &Path) -> CheckFinding {
    let shown = path.display();
    let error = |what: String, fix| CheckFinding::new(FindingSeverity::Error, subject, what, fix);
    match file::read(path) {
        Ok(_) => match file::exposure(path) {
            Some(error) => {
                let what = format!("{}, and so impersonate this end", error.problem());
                CheckFinding::new(FindingSeverity::Warning, subject, what, error.advice())
            }
            None => {
                CheckFinding::ok(subject, format!("{shown} is a key that only its owner can read"))
            }
        },
        Err(KeyFileError::Missing { .. }) => error(
            format!("no such file: {shown}"),
            format!("copy it from the other end, or create one here: sunder key new {shown}"),
        ),
        Err(KeyFileError::Unreadable { source, .. }) => error(
            format!("{shown} cannot be read: {source}"),
            format!("make it readable for the user that the command runs as: ls -l {shown}"),
        ),
        Err(KeyFileError::Digits { .. }) => error(
            format!("{shown} is not a key: it must be {} hexadecimal digits", 2 * KEY_LEN),
            format!("copy it from the other end, or remove it and run: sunder key new {shown}"),
        ),
        Err(other @ (KeyFileError::Rsa { .. } | KeyFileError::Public { .. })) => {
            error(other.to_string(), format!("copy the key again: {shown}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_database_can_be_written_or_made() {
        let place = tempfile::tempdir().unwrap();
        let level = |name: &str| database("directory, file", &place.path().join(name)).level;
        assert_eq!(level("new"), FindingSeverity::Ok);
        fs::write(place.path().join("old"), "").unwrap();
        assert_eq!(level("old"), FindingSeverity::Ok);
        assert_eq!(level("none/new"), FindingSeverity::Error);
        assert!(!place.path().join("new").exists(), "nothing is changed");
    }

    #[test]
    fn missing_readable_and_malformed_key_files_are_found() {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("tunnel.toml");
        let key_finding = || {
            let mut findings = keys(&config, "key = \"x.key\"\nmu = 2\n");
            assert_eq!(findings.len(), 1);
            findings.remove(0)
        };
        let path = place.path().join("x.key");
        let missing = key_finding();
        assert!(
            missing.level == FindingSeverity::Error
                && missing.fix.unwrap().contains("sunder key new")
        );
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (text, mode, expected) in [
            ("0aF9".repeat(16) + "\n", 0o600, FindingSeverity::Ok),
            ("0aF9".repeat(16), 0o640, FindingSeverity::Warning),
            ("0aG9".repeat(16), 0o600, FindingSeverity::Error),
            ("0aF9".repeat(15), 0o600, FindingSeverity::Error),
        ] {
            write(&text, mode);
            let finding = key_finding();
            assert_eq!(finding.level, expected, "{finding:?}");
            assert_eq!(finding.subject, "key");
            let message = finding.message.replace(path.to_str().unwrap(), "");
            assert!(!message.contains("0a"), "{finding:?}");
        }
        assert!(keys(&config, "mu = 2\n").is_empty());
    }
}

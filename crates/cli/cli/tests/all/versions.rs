//! Files that an earlier version has written: its configurations, shares, circuits, keys and
//! stores. `scripts/version-files` has made them, with the revision that their folder is named
//! after. docs/compatibility.md says what must be read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::sunder;
use crate::setup::errors_in;

/// A copy of the earlier version's files of one kind.
pub(crate) fn earlier_files(kind: &str) -> TempDir {
    files_of("9af3f08", kind)
}

/// The same of another revision.
fn files_of(revision: &str, kind: &str) -> TempDir {
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/versions");
    let files = versions.join(revision).join(kind);
    let copy = tempfile::tempdir().unwrap();
    copy_private(&files, copy.path());
    copy
}

/// Copies a folder. Git does not keep that only the owner may read it.
fn copy_private(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let copy = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&copy).unwrap();
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).unwrap();
            copy_private(&entry.path(), &copy);
        } else {
            fs::copy(entry.path(), &copy).unwrap();
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// What a command prints that must succeed.
fn printed(place: &TempDir, arguments: &[&str]) -> String {
    let output = sunder(place.path(), arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn configurations_of_an_earlier_version_have_no_errors() {
    let place = earlier_files("configurations");
    let entries = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_config = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml");
    let configs: Vec<PathBuf> = entries.filter(is_config).collect();
    assert_eq!(configs.len(), 5);
    for config in configs {
        let errors = errors_in(&config);
        let in_text = |it: &&String| !it.contains("this host does not have the address");
        let errors: Vec<&String> = errors.iter().filter(in_text).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", config.display());
    }
}

#[test]
fn shares_of_an_earlier_version_are_joined() {
    let place = earlier_files("shares");
    let secret = fs::read(place.path().join("secret")).unwrap();
    for (joined, one, other) in [
        ("a", "shamir/secret.1.share", "shamir/secret.3.share"),
        ("b", "xor/secret.1.share", "xor/secret.2.share"),
    ] {
        printed(&place, &["join", "--out", joined, one, other]);
        assert_eq!(fs::read(place.path().join(joined)).unwrap(), secret);
    }
}

#[test]
fn circuits_of_an_earlier_version_are_the_same() {
    let place = earlier_files("circuits");
    let digests = ["adder", "old.txt", "fashion.txt"].map(|file| {
        let described = printed(&place, &["circuit", "info", file]);
        let digest = described.lines().find(|line| line.contains("SHA-256")).map(str::to_owned);
        digest.unwrap()
    });
    assert!(digests.iter().all(|digest| digest == &digests[0]), "{digests:?}");
}

#[test]
fn the_directory_of_an_earlier_version_is_read_and_changed() {
    let place = earlier_files("directory");
    let list = ["directory", "list", "--config", "proxy.toml"];
    let peers = printed(&place, &list);
    assert!(peers.contains("203.0.113.5:6522") && peers.contains("198.51.100.5:6522"), "{peers}");
    let add = ["directory", "add", "--config", "proxy.toml", "192.0.2.9", "192.0.2.9:6522"];
    printed(&place, &[&add[..], &["198.51.100.9:6522"]].concat());
    assert!(printed(&place, &list).contains("198.51.100.9:6522"));
}

#[test]
fn identities_of_an_earlier_version_stay() {
    let place = earlier_files("quorum");
    let nodes = fs::read_to_string(place.path().join("nodes.toml")).unwrap();
    for number in 1..=4 {
        let public = printed(&place, &["key", "public", &format!("{number}.key")]);
        assert!(nodes.contains(public.trim()), "{public} of server {number}");
    }
}

/// Conversations have got numbers since, which the earlier state does not have.
#[test]
fn a_chat_of_an_earlier_version_is_refused_with_what_to_do() {
    let place = earlier_files("chat");
    let output = sunder(place.path(), &["chat", "--config", "alice.toml", "--plain"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_ne!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("another version of Sunder: continue with that version"), "{message}");
}

/// The state of a chat by mix-in-place 2 is read: the administrator can invite, and others are
/// members, so that an invitation of theirs is refused for this reason only.
#[test]
fn states_of_a_chat_before_broadcasts_are_read() {
    let place = files_of("02a63d9", "chat");
    let invite = |name: &str| {
        let config = format!("{name}.toml");
        let arguments = ["chat", "invite", "--config", &config, "--print", "dora"];
        let output = sunder(place.path(), &arguments);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (is_done, code) = invite("alice");
    assert!(is_done && code.starts_with("sunder-mix-2-"), "{code}");
    for name in ["bob", "carol"] {
        let (is_done, reason) = invite(name);
        assert!(!is_done && reason.contains("only the group's administrator"), "{reason}");
    }
    let checked = sunder(place.path(), &["doctor", "--config", "proxy.toml"]);
    assert!(checked.status.success(), "{checked:?}");
}

//! Paths that stay in a folder.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::UploadError;

/// The maximum length of a path, in bytes.
const MAX_PATH_LEN: usize = 1024;

/// The maximum length of a name, in bytes.
const MAX_NAME_LEN: usize = 255;

/// The maximum number of names of a path.
const MAX_DEPTH: usize = 32;

/// The path of something in a folder: names below each other, none of which is `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UploadPath {
    names: Vec<String>,
}

impl UploadPath {
    /// Parses a path. `..` is resolved, and must not lead above the folder.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, UploadError> {
        let text = text(bytes)?;
        if text.starts_with('/') {
            return Err(refused(text, "is a path from /; use paths in the folder"));
        }
        let mut names: Vec<String> = Vec::new();
        for name in text.split('/') {
            match name {
                ".." if names.pop().is_none() => return Err(refused(text, "leaves the folder")),
                "" | "." | ".." => {}
                name => names.push(checked_name(text, name)?),
            }
        }
        if names.len() > MAX_DEPTH {
            let what = format!("is deeper than {MAX_DEPTH} folders");
            return Err(refused(text, &what));
        }
        Ok(Self { names })
    }

    /// Checks the target of a symbolic link at this path. `..` may only be at its beginning, where
    /// it leads from real folders: after the name of another link it could lead anywhere.
    pub(super) fn link(&self, target: &[u8]) -> Result<PathBuf, UploadError> {
        let shown = String::from_utf8_lossy(target);
        let leads = |what: &str| {
            let what = format!("leads to {}, {what}", shown.chars().take(80).collect::<String>());
            UploadError::Refused(self.to_string(), what)
        };
        let text = text(target).map_err(|_| leads("which is no path"))?;
        if text.starts_with('/') {
            return Err(leads("a path from /; make it relative"));
        }
        let mut depth = self.names.len().saturating_sub(1);
        let mut is_down = false;
        for name in text.split('/').filter(|name| !["", "."].contains(name)) {
            if name != ".." {
                is_down = true;
                checked_name(text, name)?;
                continue;
            }
            if is_down {
                return Err(leads("with .. after a name; write it without"));
            }
            depth = depth.checked_sub(1).ok_or_else(|| leads("outside the folder"))?;
        }
        Ok(PathBuf::from(text))
    }

    /// Whether it is the folder itself.
    pub(super) fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// The path below a directory.
    pub(super) fn below(&self, directory: &Path) -> PathBuf {
        self.names.iter().fold(directory.to_owned(), |path, name| path.join(name))
    }

    /// The folders on the way to it, from the outermost one.
    pub(super) fn parents(&self) -> impl Iterator<Item = Self> {
        (1..self.names.len()).map(|length| Self { names: self.names[..length].to_vec() })
    }

    /// The error if it cannot be read or written.
    pub(super) fn failed(&self, error: io::Error) -> UploadError {
        UploadError::Io(self.to_string(), error)
    }

    /// The error if it is not copied, and why.
    pub(super) fn refused(&self, why: &str) -> UploadError {
        UploadError::Refused(self.to_string(), why.into())
    }
}

impl fmt::Display for UploadPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.names.join("/"))
    }
}

/// The text of a path of bounded length.
fn text(bytes: &[u8]) -> Result<&str, UploadError> {
    let text = str::from_utf8(bytes).ok().filter(|text| !text.contains(char::is_control));
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    let Some(text) = text else {
        return Err(refused(&shown().escape_debug().to_string(), "is no plain text (UTF-8)"));
    };
    if bytes.len() > MAX_PATH_LEN {
        return Err(refused(&shown(), &format!("is longer than {MAX_PATH_LEN} bytes")));
    }
    Ok(text)
}

fn checked_name(path: &str, name: &str) -> Result<String, UploadError> {
    if name.len() > MAX_NAME_LEN {
        return Err(refused(path, &format!("has a name of more than {MAX_NAME_LEN} bytes")));
    }
    Ok(name.to_owned())
}

fn refused(path: &str, why: &str) -> UploadError {
    UploadError::Refused(path.chars().take(80).collect(), why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_the_folder() {
        let parsed = |path: &str| UploadPath::parse(path.as_bytes()).map(|it| it.to_string());
        for (path, expected) in
            [("a", "a"), ("./a/b", "a/b"), ("a//b/", "a/b"), ("a/../b", "b"), (".", "")]
        {
            assert_eq!(parsed(path).unwrap(), expected, "{path}");
        }
        for path in ["..", "../a", "a/../../b", "/etc/shadow", "a\0b", "a\nb"] {
            assert!(parsed(path).is_err(), "{path}");
        }
        assert!(UploadPath::parse(b"\xff").is_err());
        assert!(parsed(&"a/".repeat(32)).is_ok() && parsed(&"a/".repeat(33)).is_err());
        assert!(parsed(&"a".repeat(255)).is_ok() && parsed(&"a".repeat(256)).is_err());
        assert!(parsed(&"./".repeat(600)).is_err());
    }

    #[test]
    fn a_link_stays_in_the_folder() {
        let leads = |link: &str, target: &str| {
            UploadPath::parse(link.as_bytes()).unwrap().link(target.as_bytes()).is_ok()
        };
        for (link, target) in
            [("l", "a"), ("l", "a/b"), ("d/l", "../a"), ("d/e/l", "../../a/b"), ("d/l", ".")]
        {
            assert!(leads(link, target), "{link} {target}");
        }
        for (link, target) in [
            ("l", "/etc/shadow"),
            ("l", ".."),
            ("l", "../a"),
            ("d/l", "../../a"),
            // `d/up` may be a link to `..`.
            ("l", "d/up/.."),
            ("d/l", "../e/.."),
            ("l", "a\0"),
        ] {
            assert!(!leads(link, target), "{link} {target}");
        }
    }
}

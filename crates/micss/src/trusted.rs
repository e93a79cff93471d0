//! Files and folders that nobody else on this host can change.
//!
//! A file is as trustworthy as whoever owns it and whoever can write to it, and as whoever can put another in
//! its place: that is, who can write to its folder, or to a folder above. Those who run this and root are
//! trusted. Root also trusts the user to whom it has given a folder, as the user of a service, with what is
//! in this folder.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What others can write to.
const OTHERS: u32 = 0o022;

/// Where nobody can rename or remove what another user owns.
const STICKY: u32 = 0o1000;

/// The owner that a user namespace shows where the true one does not exist in it.
const UNMAPPED: u32 = 65534;

/// Why a file or a folder is not trusted.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", self.what(), self.fix())]
pub enum TrustError {
    /// It belongs to somebody else.
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others can write to it.
    Writable {
        /// The file or folder.
        path: PathBuf,
    },
    /// Others can read it, and it is a secret.
    Readable {
        /// The file.
        path: PathBuf,
    },
    /// It is a link, a device or the like.
    Kind {
        /// What is no file.
        path: PathBuf,
    },
    /// It cannot be looked at.
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl TrustError {
    /// What is wrong, for a person.
    pub fn what(&self) -> String {
        match self {
            Self::Owner { path, owner } => {
                format!("{} belongs to user {owner}, who could change it", path.display())
            }
            Self::Writable { path } => format!("others can write to {}", path.display()),
            Self::Readable { path } => format!("others can read {}", path.display()),
            Self::Kind { path } => format!("{} is not a regular file", path.display()),
            Self::Unreadable { path, source } => format!("{}: {source}", path.display()),
        }
    }

    /// What to do.
    pub fn fix(&self) -> String {
        match self {
            Self::Owner { .. } => "run this as that user, or name another place".into(),
            Self::Writable { path } => {
                format!("chmod go-w {}, or name another place", path.display())
            }
            Self::Readable { path } => format!("chmod 600 {}", path.display()),
            Self::Kind { .. } => "remove it, or name another place".into(),
            Self::Unreadable { .. } => "make it readable, or name another place".into(),
        }
    }
}

/// A folder in which only those who are trusted can make, rename or remove files.
#[derive(Clone, Debug)]
pub struct TrustedFolder {
    path: PathBuf,
    owners: Owners,
}

/// Who is trusted there.
#[derive(Clone, Copy, Debug)]
struct Owners {
    own: u32,
    /// To whom root has given the folder.
    given: Option<u32>,
}

impl Owners {
    fn includes(self, user: u32) -> bool {
        user == self.own || user == 0 || Some(user) == self.given
    }
}

impl TrustedFolder {
    /// Looks at a folder, and all that it is in.
    ///
    /// # Errors
    /// When it does not exist; when somebody who is not trusted owns one of them, or can write to it. A folder
    /// above may be writable by all if it is sticky, as `/tmp` is.
    pub fn new(path: &Path) -> Result<Self, TrustError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let real = fs::canonicalize(path).map_err(|source| unreadable(path, source))?;
        let above: Vec<&Path> = real.ancestors().collect();
        let folders = above.into_iter().rev().map(|folder| Ok((folder, metadata(folder)?)));
        let folders = folders.collect::<Result<Vec<_>, TrustError>>()?;
        let own = rustix::process::geteuid().as_raw();
        let owners = owners(own, in_user_namespace(), &folders)?;
        Ok(Self { path: real, owners })
    }

    /// The folder that a file is in or is to be in, and the file's name there, links followed.
    ///
    /// # Errors
    /// When the folder is not trusted, or there is none.
    pub fn of(file: &Path) -> Result<(Self, OsString), TrustError> {
        let real = match fs::canonicalize(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => file.to_owned(),
            real => real.map_err(|source| unreadable(file, source))?,
        };
        let nameless = || unreadable(file, ErrorKind::IsADirectory.into());
        let name = real.file_name().ok_or_else(nameless)?.to_owned();
        Ok((Self::new(real.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Its path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what this user does there is trusted.
    pub fn trusts(&self, user: u32) -> bool {
        self.owners.includes(user)
    }

    /// Whether a file there can be trusted: it is a regular file, of an owner who is, and others cannot write to
    /// it. One that does not exist can be.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_file(&self, name: &OsStr) -> Result<(), TrustError> {
        let path = self.path.join(name);
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(|source| unreadable(&path, source))?,
        };
        if !metadata.is_file() {
            return Err(TrustError::Kind { path });
        }
        if !self.trusts(metadata.uid()) {
            return Err(TrustError::Owner { path, owner: metadata.uid() });
        }
        if metadata.mode() & OTHERS != 0 {
            return Err(TrustError::Writable { path });
        }
        Ok(())
    }

    /// The same of a file that is a secret: nobody but its owner may read it, either.
    ///
    /// # Errors
    /// When others can read it or change it.
    pub fn check_secret(&self, name: &OsStr) -> Result<(), TrustError> {
        self.check_file(name)?;
        let path = self.path.join(name);
        let is_exposed = fs::metadata(&path).is_ok_and(|file| file.mode() & 0o077 != 0);
        if is_exposed { Err(TrustError::Readable { path }) } else { Ok(()) }
    }
}

/// Who is trusted in the last of these folders, each of which is in the one before.
fn owners(
    own: u32,
    in_namespace: bool,
    folders: &[(&Path, impl Attributes)],
) -> Result<Owners, TrustError> {
    let mut owners = Owners { own, given: None };
    // In the one above nobody but root can give folders to others.
    let mut is_roots = true;
    for (index, (path, folder)) in folders.iter().enumerate() {
        let path = || path.to_path_buf();
        let (owner, mode) = folder.owner_and_mode();
        let is_last = index + 1 == folders.len();
        let is_unmapped = in_namespace && owner == UNMAPPED && !is_last;
        if !owners.includes(owner) && !is_unmapped {
            if own != 0 || !is_roots || owners.given.is_some() {
                return Err(TrustError::Owner { path: path(), owner });
            }
            owners.given = Some(owner);
        }
        if mode & OTHERS != 0 && (is_last || mode & STICKY == 0) {
            return Err(TrustError::Writable { path: path() });
        }
        is_roots = owner == 0 && mode & OTHERS == 0;
    }
    Ok(owners)
}

/// What is asked of a folder's metadata.
trait Attributes {
    fn owner_and_mode(&self) -> (u32, u32);
}

impl Attributes for Metadata {
    fn owner_and_mode(&self) -> (u32, u32) {
        (self.uid(), self.mode())
    }
}

fn metadata(path: &Path) -> Result<Metadata, TrustError> {
    fs::symlink_metadata(path).map_err(|source| unreadable(path, source))
}

fn unreadable(path: &Path, source: io::Error) -> TrustError {
    TrustError::Unreadable { path: path.to_owned(), source }
}

/// Whether there are users outside whom this process cannot tell apart, root among them perhaps.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.is_empty() && map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    impl Attributes for (u32, u32) {
        fn owner_and_mode(&self) -> (u32, u32) {
            *self
        }
    }

    /// Who is trusted, as root or the user 1000, in the last of these folders: `None` for nobody.
    fn trusted(own: u32, in_namespace: bool, folders: &[(u32, u32)]) -> Option<Vec<u32>> {
        let folders: Vec<_> = folders.iter().map(|folder| (Path::new("/x"), *folder)).collect();
        let owners = owners(own, in_namespace, &folders).ok()?;
        Some([0, 1000, 2000].into_iter().filter(|user| owners.includes(*user)).collect())
    }

    #[test]
    fn nobody_else_owns_a_folder_or_can_write_to_it() {
        let (root, tmp) = ((0, 0o755), (0, 0o1777));
        for (own, folders, expected) in [
            (1000, vec![root, (1000, 0o755)], Some(vec![0, 1000])),
            (1000, vec![root, (0, 0o755)], Some(vec![0, 1000])),
            (1000, vec![root, tmp, (1000, 0o700)], Some(vec![0, 1000])),
            (0, vec![root, tmp, (0, 0o700)], Some(vec![0])),
            // Files can be made there by everybody.
            (0, vec![root, tmp], None),
            (0, vec![root, (0, 0o775)], None),
            (0, vec![root, (0, 0o777), (0, 0o755)], None),
            (1000, vec![root, (2000, 0o755)], None),
            (1000, vec![root, (2000, 0o755), (1000, 0o700)], None),
            // Root has given it to a user, or that user has made it where everybody can.
            (0, vec![root, (2000, 0o700)], Some(vec![0, 2000])),
            (0, vec![root, (2000, 0o700), (2000, 0o700)], Some(vec![0, 2000])),
            (0, vec![root, tmp, (2000, 0o700)], None),
            (0, vec![root, (2000, 0o700), (1000, 0o700)], None),
            (0, vec![root, (2000, 0o770)], None),
        ] {
            assert_eq!(trusted(own, false, &folders), expected, "{own}: {folders:?}");
        }
    }

    #[test]
    fn in_a_user_namespace_the_folders_above_may_be_anybodys_that_it_does_not_know() {
        let above = (UNMAPPED, 0o755);
        assert_eq!(trusted(0, true, &[above, (0, 0o755)]), Some(vec![0]));
        assert_eq!(trusted(0, true, &[above, above]), None);
        assert_eq!(trusted(0, false, &[above, (1000, 0o755), (0, 0o755)]), None);
        assert_eq!(trusted(0, true, &[(UNMAPPED, 0o777), (0, 0o755)]), None);
    }

    #[test]
    fn files_are_regular_and_nobody_else_can_change_them() {
        let place = tempfile::tempdir().unwrap();
        let folder = TrustedFolder::new(place.path()).unwrap();
        let name = OsStr::new("x");
        let path = place.path().join("x");
        folder.check_file(name).unwrap();
        fs::write(&path, "").unwrap();
        for (mode, is_trusted) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(folder.check_file(name).is_ok(), is_trusted, "{mode:o}");
        }
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(matches!(folder.check_file(name), Err(TrustError::Kind { .. })));
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give files to others");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let folder = TrustedFolder::new(place.path()).unwrap();
        let path = place.path().join("x");
        fs::write(&path, "").unwrap();
        chown(&path, Some(1000), None).unwrap();
        let error = folder.check_file(OsStr::new("x")).unwrap_err().to_string();
        assert!(error.contains("belongs to user 1000"), "{error}");
        chown(place.path(), Some(1000), None).unwrap();
        let error = TrustedFolder::new(place.path()).unwrap_err().to_string();
        assert!(error.contains("belongs to user 1000") && error.lines().count() == 1, "{error}");
    }
}

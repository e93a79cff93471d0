//! Files and folders that no other user of this host can change.
//!
//! A file can be changed by its owner, by every user who may write to it, and by every user who can
//! replace it because they may write to its folder, to a folder above, or to a folder with a link
//! that leads there. The user who runs the program and root are trusted. Root also trusts the user
//! to whom it has given a folder, such as the user of a service, with the content of this folder.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{self, Component, Path, PathBuf};

use rustix::io::Errno;

/// The mode bits that let other users write to a file.
const OTHERS: u32 = 0o022;

/// The mode bit of a folder where only its owner can rename or remove a file.
const STICKY: u32 = 0o1000;

/// The most links that a path may go through, as in the kernel.
const MAX_LINKS: usize = 40;

/// The owner that a user namespace shows for users that do not exist in it.
const UNMAPPED: u32 = 65534;

/// Why a file or a folder is not trusted.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", self.problem(), self.advice())]
pub enum TrustError {
    /// It belongs to another user.
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// Its owner.
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
    /// It is not a regular file, but a link or a device, for example.
    Kind {
        /// What is not a regular file.
        path: PathBuf,
    },
    /// It cannot be inspected.
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl TrustError {
    /// A description of the problem, for the user.
    pub fn problem(&self) -> String {
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

    /// What to do about it.
    pub fn advice(&self) -> String {
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

/// A folder in which only trusted users can create, rename or remove files.
#[derive(Clone, Debug)]
pub struct TrustedFolder {
    path: PathBuf,
    owners: TrustedOwners,
}

/// The users who are trusted there.
#[derive(Clone, Copy, Debug)]
struct TrustedOwners {
    own: u32,
    /// The user to whom root has given the folder.
    given: Option<u32>,
}

impl TrustedOwners {
    fn includes(self, user: u32) -> bool {
        user == self.own || user == 0 || Some(user) == self.given
    }
}

impl TrustedFolder {
    /// Checks a folder and all folders above it.
    ///
    /// # Errors
    /// If it does not exist, or if an untrusted user owns one of these folders or can write to it.
    /// A folder above may be writable by all users if it is sticky, as `/tmp` is. The same
    /// conditions hold for each link that the path goes through.
    pub fn new(path: &Path) -> Result<Self, TrustError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let real = fs::canonicalize(path).map_err(|source| unreadable(path, source))?;
        let own = rustix::process::geteuid().as_raw();
        let owners = owners(own, in_user_namespace(), &down_to(&real)?, true)?;
        let folder = Self { path: real, owners };
        folder.check_links(path)?;
        Ok(folder)
    }

    /// The folder of a file that exists or is to be created, and the file's name there. Follows
    /// links.
    ///
    /// # Errors
    /// If the folder is not trusted or does not exist.
    pub fn containing(file: &Path) -> Result<(Self, OsString), TrustError> {
        let real = match fs::canonicalize(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => file.to_owned(),
            real => real.map_err(|source| unreadable(file, source))?,
        };
        let nameless = || unreadable(file, ErrorKind::IsADirectory.into());
        let name = real.file_name().ok_or_else(nameless)?.to_owned();
        let folder = Self::new(real.parent().unwrap_or(Path::new("")))?;
        folder.check_links(file)?;
        Ok((folder, name))
    }

    /// Checks that only users who are trusted here can replace a link of the path.
    fn check_links(&self, path: &Path) -> Result<(), TrustError> {
        for link in links(path)? {
            let mut above = down_to(link.parent().unwrap_or(Path::new("/")))?;
            let (owner, _) = owner_and_mode(&link)?;
            // The mode of a link does not determine who can replace it.
            above.push((&link, (owner, 0)));
            let given = owners(self.owners.own, in_user_namespace(), &above, false)?.given;
            if let Some(owner) = given.filter(|given| !self.trusts(*given)) {
                return Err(TrustError::Owner { path: link, owner });
            }
        }
        Ok(())
    }

    /// Its path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this user is trusted there.
    pub fn trusts(&self, user: u32) -> bool {
        self.owners.includes(user)
    }

    /// Checks that a file there is a regular file of a trusted owner to which others cannot write.
    /// A file that does not exist passes.
    ///
    /// # Errors
    /// If it is not such a file.
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

    /// Checks a file that contains a secret: only its owner may read it.
    ///
    /// # Errors
    /// If others can read it or change it.
    pub fn check_secret(&self, name: &OsStr) -> Result<(), TrustError> {
        self.check_file(name)?;
        let path = self.path.join(name);
        let is_exposed = fs::metadata(&path).is_ok_and(|file| file.mode() & 0o077 != 0);
        if is_exposed { Err(TrustError::Readable { path }) } else { Ok(()) }
    }
}

/// An owner and a mode.
type OwnerAndMode = (u32, u32);

/// The users who are trusted in the last of these folders, each of which is inside the one before.
/// The last one contains the file, unless that is a link.
fn owners(
    own: u32,
    in_namespace: bool,
    folders: &[(&Path, OwnerAndMode)],
    ends_in_folder: bool,
) -> Result<TrustedOwners, TrustError> {
    let mut owners = TrustedOwners { own, given: None };
    // Only root can give folders to others in the folder above.
    let mut is_roots = true;
    for (index, (path, (owner, mode))) in folders.iter().enumerate() {
        let (owner, mode, path) = (*owner, *mode, || path.to_path_buf());
        let is_last = ends_in_folder && index + 1 == folders.len();
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

/// All folders above a folder, the outermost first, and itself; each with its owner and mode.
fn down_to(folder: &Path) -> Result<Vec<(&Path, OwnerAndMode)>, TrustError> {
    let above: Vec<&Path> = folder.ancestors().collect();
    above.into_iter().rev().map(|folder| Ok((folder, owner_and_mode(folder)?))).collect()
}

fn owner_and_mode(path: &Path) -> Result<OwnerAndMode, TrustError> {
    let metadata = fs::symlink_metadata(path).map_err(|source| unreadable(path, source))?;
    Ok((metadata.uid(), metadata.mode()))
}

/// The links that a path goes through, each with its folder's real path. A file that does not exist
/// is not a link.
fn links(path: &Path) -> Result<Vec<PathBuf>, TrustError> {
    let wrong = |source| unreadable(path, source);
    let whole = path::absolute(path).map_err(wrong)?;
    let mut left: VecDeque<PathBuf> = parts(&whole).collect();
    let (mut real, mut links) = (PathBuf::new(), Vec::new());
    while let Some(part) = left.pop_front() {
        if part == Path::new("..") {
            real.pop();
            continue;
        }
        // An absolute target replaces the path so far.
        let next = real.join(part);
        if !next.is_symlink() {
            real = next;
            continue;
        }
        let target = fs::read_link(&next).map_err(wrong)?;
        parts(&target).collect::<Vec<_>>().into_iter().rev().for_each(|part| left.push_front(part));
        links.push(next);
        if links.len() > MAX_LINKS {
            return Err(wrong(Errno::LOOP.into()));
        }
    }
    Ok(links)
}

/// The components of a path, without `.`.
fn parts(path: &Path) -> impl Iterator<Item = PathBuf> {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| PathBuf::from(part.as_os_str()))
}

fn unreadable(path: &Path, source: io::Error) -> TrustError {
    TrustError::Unreadable { path: path.to_owned(), source }
}

/// Whether this process is in a user namespace, where users outside it all look the same.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.is_empty() && map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    /// The users who are trusted in the last of these folders, for a process of root or of user
    /// 1000: `None` for nobody.
    fn trusted(own: u32, in_namespace: bool, folders: &[(u32, u32)]) -> Option<Vec<u32>> {
        let folders: Vec<_> = folders.iter().map(|folder| (Path::new("/x"), *folder)).collect();
        let owners = owners(own, in_namespace, &folders, true).ok()?;
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
    fn a_link_that_others_can_replace_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let [shared, own, link] =
            ["shared", "own", "shared/link"].map(|name| place.path().join(name));
        fs::create_dir(&shared).unwrap();
        fs::create_dir(&own).unwrap();
        fs::write(own.join("key"), "").unwrap();
        symlink("../own", &link).unwrap();
        symlink("own/key", place.path().join("key")).unwrap();
        symlink("../own/key", shared.join("key")).unwrap();
        let paths = [link.clone(), link.join("new"), place.path().join("x/../shared/./link")];
        fs::create_dir(place.path().join("x")).unwrap();
        fs::create_dir(own.join("new")).unwrap();
        // All may make files where it is sticky, but nobody can replace those of others.
        for (mode, is_trusted) in [(0o755, true), (0o1777, true), (0o777, false), (0o775, false)] {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            for path in &paths {
                let folder = TrustedFolder::new(path);
                assert_eq!(folder.is_ok(), is_trusted, "{mode:o}: {folder:?}");
            }
            for file in [shared.join("key"), link.join("key"), link.join("later")] {
                assert_eq!(
                    TrustedFolder::containing(&file).is_ok(),
                    is_trusted,
                    "{mode:o}: {file:?}"
                );
            }
            assert!(TrustedFolder::containing(&place.path().join("key")).is_ok());
        }
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("round", place.path().join("round")).unwrap();
        assert!(links(&place.path().join("round")).is_err());
    }

    /// A user makes, where all may, a link to a folder that root has given to this user.
    #[test]
    fn a_link_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give files to others");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let [shared, theirs] = ["shared", "theirs"].map(|name| place.path().join(name));
        for (folder, mode) in [(&shared, 0o1777), (&theirs, 0o700)] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        chown(&theirs, Some(1000), None).unwrap();
        assert!(TrustedFolder::new(&theirs).unwrap().trusts(1000));
        let link = shared.join("sunder");
        symlink(&theirs, &link).unwrap();
        assert!(TrustedFolder::new(&link).is_ok(), "root's own");
        lchown(&link, Some(1000), None).unwrap();
        let error = TrustedFolder::new(&link).unwrap_err();
        assert!(matches!(error, TrustError::Owner { owner: 1000, .. }), "{error}");
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

//! The files that a contained command can write: a file system in memory, of bounded size.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use tempfile::TempDir;

use crate::limits::ContainmentLimits;
use crate::upload::UploadOwner;

/// The files of a command. They are in the mount namespace of one thread, and gone when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct CommandWorkspace {
    /// Where they are mounted.
    place: TempDir,
}

/// The directories of a workspace.
const DIRECTORIES: [&str; 4] = ["folder", "tmp", "shm", "etc"];

/// The accounts that a command sees.
const ACCOUNTS: [(&str, &str); 4] = [
    ("passwd", "contained:x:1000:1000::/folder:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
    ("group", "contained:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\n"),
];

impl CommandWorkspace {
    /// Makes it in a directory. This thread must have a mount namespace of its own.
    pub(crate) fn new(
        directory: &Path,
        limits: &ContainmentLimits,
        owner: Option<UploadOwner>,
    ) -> io::Result<Self> {
        let place = tempfile::tempdir_in(directory)?;
        let size = format!("mode=755,size={}m,nr_inodes={}", limits.disk_mib, limits.files);
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", place.path(), "tmpfs", flags, Some(&*CString::new(size)?))?;
        let workspace = Self { place };
        for name in DIRECTORIES {
            let path = workspace.path(name);
            fs::create_dir(&path)?;
            if let Some(owner) = owner {
                chown(path, Some(owner.user), Some(owner.group))?;
            }
        }
        for (name, text) in ACCOUNTS {
            fs::write(workspace.path("etc").join(name), text)?;
        }
        Ok(workspace)
    }

    /// Shows a program of the host as the file `program`, if it is there: the command's user may be
    /// unable to reach its directory.
    pub(crate) fn show(&self, program: &Path) -> io::Result<()> {
        if !program.is_file() {
            return Ok(());
        }
        let place = self.path("program");
        fs::write(&place, "")?;
        Ok(mount_bind(program, &place)?)
    }

    /// One of its directories: `folder`, `tmp`, `shm` or `etc`; or the program that it shows.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Whether no byte or no file more fits.
    pub(crate) fn is_full(&self) -> bool {
        statvfs(self.place.path()).is_ok_and(|it| it.f_bfree == 0 || it.f_ffree == 0)
    }

    /// The bytes of its files.
    pub(crate) fn used(&self) -> u64 {
        let used = statvfs(self.place.path()).map(|it| (it.f_blocks - it.f_bfree) * it.f_frsize);
        used.unwrap_or(0)
    }
}

impl Drop for CommandWorkspace {
    fn drop(&mut self) {
        // The directory below it is removed afterwards.
        let _ = unmount(self.place.path(), UnmountFlags::DETACH);
    }
}

/// The names of the files about accounts, in `etc`.
pub(crate) fn account_files() -> impl Iterator<Item = &'static str> {
    ACCOUNTS.iter().map(|(name, _)| *name)
}

//! Where a user's programs keep files, and writing whole files. After a crash or an error, a file
//! has either all of its new content, or is as it was before.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use random::RandomGenerator;

/// Whether a write waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It returns when the content and the name are on the disk, where the file system can say so.
    Synced,
    /// The system writes the content later. A crash of the host may damage the file.
    Cached,
}

/// The directory for what a part of Sunder keeps for this user between runs: `sunder/NAME` in
/// `$XDG_STATE_HOME`, or in `~/.local/state`. `None` without a home directory.
pub fn state_directory(name: &str) -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("sunder").join(name))
}

/// Creates a directory, and those above it, accessible only to this user. Leaves one that exists as
/// it is.
///
/// # Errors
/// If the system reports an error.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces a file, or creates it. The new one has this mode, less the umask. It is written as
/// `NAME.new` beside the file first, so only one process at a time may replace a file.
///
/// # Errors
/// When it cannot be written. The old content is then kept, unless only waiting for the disk
/// failed.
pub fn replace(path: &Path, content: &[u8], mode: u32, durability: Durability) -> io::Result<()> {
    let mut new = path.to_owned();
    new.as_mut_os_string().push(".new");
    // An interrupted write may have left it.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write(&new, content, mode, durability)?;
    if let Err(error) = fs::rename(&new, path) {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    match durability {
        Durability::Synced => sync_folder(folder_of(path)),
        Durability::Cached => Ok(()),
    }
}

/// Creates a file with this mode, less the umask, and waits for the disk. Of several processes that
/// create the same file, one succeeds. A file system without hard links may keep a part of the file
/// after a crash.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] if there is such a file, and others when it cannot be written.
pub fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = folder_of(path);
    let number = RandomGenerator::system().array().map_err(io::Error::other)?;
    let new = folder.join(format!(".sunder-{:016x}", u64::from_ne_bytes(number)));
    write(&new, content, mode, Durability::Synced)?;
    let named = match fs::hard_link(&new, path) {
        // Not on this file system, or not for this process.
        Err(error)
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
        {
            write(path, content, mode, Durability::Synced)
        }
        linked => linked,
    };
    let _ = fs::remove_file(&new);
    named?;
    sync_folder(folder)
}

/// Writes a new file. Removes it when that fails, which also frees the space on a full disk.
fn write(path: &Path, content: &[u8], mode: u32, durability: Durability) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let written = file.write_all(content).and_then(|()| match durability {
        Durability::Synced => file.sync_all(),
        Durability::Cached => Ok(()),
    });
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some file systems cannot do this.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::thread;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn entries(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn a_private_directory_is_of_its_user_only() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sunder/lab");
        for _ in 0..2 {
            create_private_directory(&path).unwrap();
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
        }
    }

    #[test]
    fn a_file_is_replaced_by_another_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        for durability in [Durability::Synced, Durability::Cached] {
            replace(&path, b"a long first content", 0o400, durability).unwrap();
            let first = fs::metadata(&path).unwrap().ino();
            // An interrupted write has left a part, with another mode.
            fs::write(place.path().join("x.new"), "part").unwrap();
            let mut reader = File::open(&path).unwrap();
            replace(&path, b"second", 0o600, durability).unwrap();
            assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"second".to_vec(), 0o600));
            assert_ne!(fs::metadata(&path).unwrap().ino(), first);
            // A program that has opened the old file still reads all of it.
            let mut old = Vec::new();
            io::Read::read_to_end(&mut reader, &mut old).unwrap();
            assert_eq!(old, b"a long first content");
            assert_eq!(entries(place.path()), std::slice::from_ref(&path));
        }
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("folder");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"content", 0o600, Durability::Synced).is_err());
        assert_eq!(entries(place.path()), [path]);
    }

    #[test]
    fn a_file_is_created_once_and_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        let created = thread::scope(|scope| {
            let threads: Vec<_> = (0..8u8)
                .map(|number| {
                    let path = &path;
                    scope.spawn(move || create(path, &[number; 1000], 0o600))
                })
                .collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        let number = created.iter().position(Result::is_ok).unwrap();
        let others = created.iter().filter_map(|it| it.as_ref().err());
        assert_eq!(others.filter(|it| it.kind() == ErrorKind::AlreadyExists).count(), 7);
        assert_eq!(fs::read(&path).unwrap(), vec![u8::try_from(number).unwrap(); 1000]);
        assert_eq!((mode(&path), entries(place.path())), (0o600, vec![path]));
        let nowhere = create(&place.path().join("none/x"), b"", 0o600).unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    }
}

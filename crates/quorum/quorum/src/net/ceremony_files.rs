//! The files that the ceremony writes, specified in `docs/formats/quorum.md`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use keys::file::exposure;
use keys::storage;
use zeroize::Zeroizing;

use crate::protocol::ceremony::bundle::{MAX_BUNDLE_LEN, QuorumBundle, QuorumBundleError};
use crate::protocol::ceremony::share_file::{
    MAX_SHARE_FILE_LEN, QuorumShareFile, QuorumShareFileError,
};

/// The name of the file with the public key.
pub const PUBLIC_KEY_FILE: &str = "public.pem";

/// Why a file of the ceremony cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CeremonyFileError {
    /// The directory is not empty.
    #[error("{} is not empty, and nothing is overwritten; name another directory", .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The system reports an error.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// Other users can read or replace it.
    #[error("{what}, and use the shares: {fix}")]
    Exposed {
        /// Who can do what.
        what: String,
        /// What to do.
        fix: String,
    },
    /// It is not a share file.
    #[error("{}: {source}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why it is not a share file.
        source: QuorumShareFileError,
    },
    /// It is not a bundle, or not for this server.
    #[error("{}: {source}", .path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: QuorumBundleError,
    },
}

fn of_file(path: &Path) -> impl Fn(io::Error) -> CeremonyFileError + '_ {
    |source| CeremonyFileError::Io { path: path.to_owned(), source }
}

/// Creates the directory for a ceremony's files. If it exists already, it must be empty.
///
/// # Errors
/// If it is not empty, or cannot be created.
pub fn create_directory(directory: &Path) -> Result<(), CeremonyFileError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut entries = fs::read_dir(directory).map_err(of_file(directory))?;
            if entries.next().is_some() {
                return Err(CeremonyFileError::NotEmpty { path: directory.to_owned() });
            }
            Ok(())
        }
        created => created.map_err(of_file(directory)),
    }
}

/// Writes the public key, and a file for each server that only the owner can read. Returns the
/// paths of the servers' files.
///
/// # Errors
/// If a file already exists or cannot be written.
pub fn write(
    directory: &Path,
    files: &[QuorumShareFile],
) -> Result<Vec<PathBuf>, CeremonyFileError> {
    let mut paths = Vec::new();
    if let Some(first) = files.first() {
        let pem = first.public().to_pem();
        let path = directory.join(PUBLIC_KEY_FILE);
        storage::create(&path, pem.as_bytes(), 0o644).map_err(of_file(&path))?;
    }
    for file in files {
        let path = directory.join(format!("server-{}.share", file.server));
        storage::create(&path, &file.to_bytes(), 0o600).map_err(of_file(&path))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Writes a bundle to a new file, which everybody may read.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write_bundle(path: &Path, bundle: &QuorumBundle) -> Result<(), CeremonyFileError> {
    storage::create(path, &bundle.to_bytes(), 0o644).map_err(of_file(path))
}

/// Reads a bundle.
///
/// # Errors
/// If the file cannot be read, or is not a bundle.
pub fn read_bundle(path: &Path) -> Result<QuorumBundle, CeremonyFileError> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(of_file(path))?;
    file.take(MAX_BUNDLE_LEN).read_to_end(&mut content).map_err(of_file(path))?;
    QuorumBundle::parse(&content)
        .map_err(|source| CeremonyFileError::Bundle { path: path.to_owned(), source })
}

/// Reads and completely checks the file of one server.
///
/// # Errors
/// If the file cannot be read, other users can read or replace it, or it is not a share file.
pub fn read_share_file(path: &Path) -> Result<QuorumShareFile, CeremonyFileError> {
    let file = File::open(path).map_err(of_file(path))?;
    if let Some(error) = exposure(path) {
        return Err(CeremonyFileError::Exposed { what: error.problem(), fix: error.advice() });
    }
    let len = file.metadata().map_err(of_file(path))?.len().min(MAX_SHARE_FILE_LEN);
    // Reserve room for all of it, because a buffer that grows leaves copies.
    let capacity = usize::try_from(len).unwrap_or(0) + 1;
    let mut content = Zeroizing::new(Vec::with_capacity(capacity));
    let mut bounded = file.take(len);
    bounded.read_to_end(&mut content).map_err(of_file(path))?;
    QuorumShareFile::parse(&content)
        .map_err(|source| CeremonyFileError::Content { path: path.to_owned(), source })
}

/// Overwrites the file of a server in place, and removes it. The server's store has the shares.
///
/// # Errors
/// If the file cannot be overwritten or removed.
pub fn destroy_share_file(path: &Path) -> Result<(), CeremonyFileError> {
    let overwritten = OpenOptions::new().write(true).open(path).and_then(|mut file| {
        let len = file.metadata()?.len();
        io::copy(&mut io::repeat(0).take(len), &mut file)?;
        file.flush()?;
        file.sync_all()
    });
    overwritten.and_then(|()| fs::remove_file(path)).map_err(of_file(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use keys::RsaPublicKey;
    use tempfile::TempDir;

    use super::*;
    use crate::protocol::testing::share_files;

    #[test]
    fn files_are_written_once_and_only_the_owner_reads_shares() {
        let place = TempDir::new().unwrap();
        let directory = place.path().join("ceremony");
        create_directory(&directory).unwrap();
        create_directory(&directory).unwrap();
        let files = share_files();
        let paths = write(&directory, &files).unwrap();
        assert_eq!(paths.len(), 4);
        let key = RsaPublicKey::read(&directory.join(PUBLIC_KEY_FILE)).unwrap();
        assert_eq!(&key, files[0].public());
        for (path, file) in paths.iter().zip(&files) {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(read_share_file(path).unwrap().server, file.server);
        }
        let again = create_directory(&directory).unwrap_err();
        assert!(matches!(again, CeremonyFileError::NotEmpty { .. }));
        let before = fs::read(&paths[0]).unwrap();
        assert!(write(&directory, &files).is_err());
        assert_eq!(fs::read(&paths[0]).unwrap(), before);
    }

    #[test]
    fn share_file_that_is_exposed_or_invalid_is_rejected() {
        let place = TempDir::new().unwrap();
        let path = write(place.path(), &share_files()).unwrap().remove(0);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_share_file(&path).err().unwrap();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, vec![0; 2 << 20]).unwrap();
        let error = read_share_file(&path).err().unwrap();
        assert!(matches!(error, CeremonyFileError::Content { .. }), "{error}");
    }

    #[test]
    fn a_destroyed_file_is_overwritten() {
        let place = TempDir::new().unwrap();
        let path = write(place.path(), &share_files()).unwrap().remove(0);
        let mut handle = File::open(&path).unwrap();
        let len = handle.metadata().unwrap().len();
        destroy_share_file(&path).unwrap();
        assert!(!path.exists());
        let mut content = Vec::new();
        handle.read_to_end(&mut content).unwrap();
        assert_eq!(content, vec![0; usize::try_from(len).unwrap()]);
    }
}

//! Files that appear under their name only when they are complete, and never replace another file.
//!
//! Where the system supports it, an incomplete file has no name (`O_TMPFILE`), so nothing remains
//! however the command ends. Elsewhere it has a temporary name in the same directory. That file is
//! removed if the command fails or is interrupted; only `kill -9` and a power failure leave it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use tempfile::TempPath;
use zeroize::Zeroizing;

use super::interrupt;

/// An incomplete file. Only its owner can read and write it.
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    /// Its temporary name, if it has one.
    temporary: Option<TempPath>,
}

impl OutputFile {
    /// Creates the file that will be at `path`.
    ///
    /// # Errors
    /// If `path` exists, or no file can be created there.
    pub(crate) fn create(path: PathBuf) -> Result<Self, CommandFailure> {
        refuse_existing(&path)?;
        let directory = directory_of(&path);
        let (file, temporary) = match unnamed(directory) {
            Some(file) => (file, None),
            None => named(directory).map_err(|error| creation_failure(&path, &error))?,
        };
        Ok(Self { file, path, temporary })
    }

    /// Appends to the file.
    ///
    /// # Errors
    /// If writing fails.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), CommandFailure> {
        self.file.write_all(bytes).map_err(|error| CommandFailure::writing(&self.path, &error))
    }

    /// Overwrites the start of the file.
    ///
    /// # Errors
    /// If writing fails.
    pub(crate) fn write_beginning(&mut self, bytes: &[u8]) -> Result<(), CommandFailure> {
        self.file
            .write_all_at(bytes, 0)
            .map_err(|error| CommandFailure::writing(&self.path, &error))
    }

    /// What was written, up to `max` bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn contents(&self, max: usize) -> Result<Zeroizing<Vec<u8>>, CommandFailure> {
        let mut bytes = Zeroizing::new(vec![0; max]);
        let mut len = 0;
        loop {
            let read = self.file.read_at(&mut bytes[len..], len as u64);
            match read.map_err(|error| CommandFailure::reading(&self.path, &error))? {
                0 => break,
                read => len += read,
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Gives the file its name.
    fn publish(self) -> io::Result<()> {
        match self.temporary {
            None => link(&self.file, &self.path),
            Some(temporary) => Ok(temporary.persist_noclobber(&self.path)?),
        }
    }
}

/// Gives complete files their names, after all of them are on the disk. Afterwards either all or
/// none exist, unless the host stops or the command is killed (`SIGKILL`) in between. Another
/// signal during this call ends the command after it.
///
/// # Errors
/// If writing fails, or one of the names was taken in the meantime.
pub(crate) fn publish_all(outputs: Vec<OutputFile>) -> Result<(), CommandFailure> {
    for output in &outputs {
        output.file.sync_all().map_err(|error| CommandFailure::writing(&output.path, &error))?;
    }
    let Some(path) = outputs.first().map(|output| output.path.clone()) else { return Ok(()) };
    interrupt::uninterrupted(|| name_all(outputs))
        .map_err(|error| CommandFailure::writing(&path, &error))??;
    // Makes the names survive a power failure. Some file systems do not support this.
    let _ = File::open(directory_of(&path)).and_then(|directory| directory.sync_all());
    Ok(())
}

fn name_all(outputs: Vec<OutputFile>) -> Result<(), CommandFailure> {
    let mut published = Vec::new();
    for output in outputs {
        let path = output.path.clone();
        if let Err(error) = output.publish() {
            for path in published {
                // The failure that is reported matters more than this one.
                let _ = fs::remove_file(path);
            }
            return Err(match error.kind() {
                ErrorKind::AlreadyExists => exists(&path),
                _ => CommandFailure::writing(&path, &error),
            });
        }
        published.push(path);
    }
    Ok(())
}

fn refuse_existing(path: &Path) -> Result<(), CommandFailure> {
    match path.symlink_metadata() {
        Ok(_) => Err(exists(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(creation_failure(path, &error)),
    }
}

fn exists(path: &Path) -> CommandFailure {
    let path = path.display();
    CommandFailure::Usage(format!(
        "{path} exists; move it away, or choose another place with --out"
    ))
}

fn creation_failure(path: &Path, error: &io::Error) -> CommandFailure {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => CommandFailure::Usage(format!(
            "no such directory: {}; create it first, or choose another place with --out",
            directory_of(path).display()
        )),
        ErrorKind::InvalidFilename => CommandFailure::Usage(format!(
            "the file name {} is too long; choose another one with --out",
            path.display()
        )),
        _ => CommandFailure::writing(path, error),
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// A file without a name; `None` if the system does not support it, or could not name it later.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(open(directory, flags, Mode::RUSR | Mode::WUSR).ok()?);
    descriptor_path(&file).exists().then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path) -> Option<File> {
    None
}

/// Names a file that has no name. Fails if the name is taken.
#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, descriptor_path(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn descriptor_path(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// A file with a temporary name, which is also removed on a signal.
fn named(directory: &Path) -> io::Result<(File, Option<TempPath>)> {
    interrupt::removed_on_signal(|| {
        let file = tempfile::Builder::new().prefix(".sunder-").tempfile_in(directory)?;
        let (file, path) = file.into_parts();
        Ok((path.to_path_buf(), (file, Some(path))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file with a temporary name, as on a file system without `O_TMPFILE`.
    fn create_named(path: &Path) -> OutputFile {
        let (file, temporary) = named(directory_of(path)).unwrap();
        OutputFile { file, path: path.to_owned(), temporary }
    }

    fn entries(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_file_has_its_name_only_when_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let make: [fn(&Path) -> OutputFile; 2] =
            [|path| OutputFile::create(path.to_owned()).unwrap(), create_named];
        for create in make {
            let mut output = create(&path);
            output.append(b"headbody").unwrap();
            output.write_beginning(b"HEAD").unwrap();
            assert!(!path.exists());
            publish_all(vec![output]).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"HEADbody");
            assert_eq!(entries(directory.path()), 1);
            fs::remove_file(&path).unwrap();

            drop(create(&path));
            assert_eq!(entries(directory.path()), 0);
        }
    }

    #[test]
    fn nothing_is_overwritten_and_all_names_are_given_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["first", "second"].map(|name| directory.path().join(name));
        let make: [fn(&Path) -> OutputFile; 2] =
            [|path| OutputFile::create(path.to_owned()).unwrap(), create_named];
        for create in make {
            let outputs = paths.iter().map(|path| create(path)).collect();
            // Another process takes the second name.
            fs::write(&paths[1], "another's").unwrap();
            assert!(matches!(publish_all(outputs), Err(CommandFailure::Usage(_))));
            assert_eq!(fs::read(&paths[1]).unwrap(), b"another's");
            assert_eq!(entries(directory.path()), 1);
            assert!(matches!(OutputFile::create(paths[1].clone()), Err(CommandFailure::Usage(_))));
            fs::remove_file(&paths[1]).unwrap();
        }
    }
}

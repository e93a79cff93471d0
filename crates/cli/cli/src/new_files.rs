//! New configurations and their keys, for the commands that write them.

use std::io;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use keys::{KEY_LEN, file, storage};
use random::RandomGenerator;
use zeroize::Zeroizing;

use crate::daemon::{self, ConfiguredDaemon};

/// Checks the text of a new configuration.
///
/// # Errors
/// If the daemon would refuse it: the first problem.
pub(crate) fn check<D: ConfiguredDaemon>(text: &str, file: &Path) -> Result<(), CommandFailure> {
    let checked = D::parse(text, daemon::config_dir(file));
    checked.map(drop).map_err(|problems| {
        let (key, problem) = (problems.first().key.to_string(), problems.first());
        let key = if key.is_empty() { key } else { format!("{key}: ") };
        CommandFailure::Usage(format!("{key}{problem}"))
    })
}

/// Writes a new configuration that only its owner can read.
///
/// # Errors
/// If there is such a file, or it cannot be written.
pub(crate) fn write(text: &str, file: &Path) -> Result<(), CommandFailure> {
    storage::create(file, text.as_bytes(), 0o600).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => existing(file),
        _ => CommandFailure::writing(file, &error),
    })
}

/// Checks that there is no such file yet, before anything is written.
///
/// # Errors
/// If there is one.
pub(crate) fn check_absent(files: &[&Path]) -> Result<(), CommandFailure> {
    files.iter().find(|file| file.symlink_metadata().is_ok()).map_or(Ok(()), |it| Err(existing(it)))
}

fn existing(file: &Path) -> CommandFailure {
    let file = file.display();
    CommandFailure::Usage(format!("{file} exists, and is kept; name another file with --out"))
}

/// A file for a key of a new configuration.
pub(crate) struct NewKeyFile {
    /// Where it is: in a directory beside the configuration with the name of it, where the units of
    /// systemd expect it.
    pub(crate) path: PathBuf,
    /// Its path relative to the configuration, as a value of TOML.
    pub(crate) value: String,
}

impl NewKeyFile {
    /// The file with this name for a configuration.
    ///
    /// # Errors
    /// If the configuration's name has no extension, or is not UTF-8.
    pub(crate) fn of(config: &Path, name: &str) -> Result<Self, CommandFailure> {
        let directory = config.with_extension("");
        let stem = directory.file_name().and_then(|stem| stem.to_str());
        match stem {
            Some(stem) if directory != config => {
                Ok(Self { value: quoted(&format!("{stem}/{name}")), path: directory.join(name) })
            }
            _ => Err(CommandFailure::Usage(format!(
                "{}: a configuration needs a name such as office.toml",
                config.display()
            ))),
        }
    }

    /// Writes the key. Creates the directory, accessible only to this user, if there is none.
    ///
    /// # Errors
    /// If there is such a file, or it cannot be written.
    pub(crate) fn write(&self, key: &[u8; KEY_LEN]) -> Result<(), CommandFailure> {
        let directory = self.path.parent().unwrap_or(&self.path);
        let written = storage::create_private_directory(directory)
            .and_then(|()| file::create(&self.path, key));
        written.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => existing(&self.path),
            _ => CommandFailure::writing(&self.path, &error),
        })
    }
}

/// A random key.
///
/// # Errors
/// If the operating system provides no random bytes.
pub(crate) fn random_key() -> Result<Zeroizing<[u8; KEY_LEN]>, CommandFailure> {
    let mut key = Zeroizing::new([0; KEY_LEN]);
    let filled = RandomGenerator::system().fill(&mut *key);
    filled.map(|()| key).map_err(|error| CommandFailure::Failed(error.to_string()))
}

/// A text as a value of TOML.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

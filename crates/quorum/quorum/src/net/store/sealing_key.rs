//! The keys of epochs and of runs of a refresh, and their files.
//!
//! A file contains a magic number, a nonce, and the key sealed by XChaCha20-Poly1305 under the
//! master key, 80 bytes in total. It is overwritten in place when the epoch or the run ends.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use keys::file::KEY_LEN;
use keys::sealed::SealedKey;
use random::{RandomError, RandomGenerator};
use zeroize::Zeroizing;

use super::error::{QuorumStoreError, damaged, of_file};
use super::file::sync_directory;
use super::master_key::MasterKey;
use crate::protocol::wire::Sha256Digest;

/// The first bytes of the file.
const MAGIC: &[u8; 8] = b"SNDR-QEK";

/// The length of the file, in bytes.
const FILE_LEN: usize = MAGIC.len() + KEY_LEN + SealedKey::OVERHEAD;

/// The scope of a key, which is also its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SealingKeyScope {
    /// The shares of an epoch.
    Epoch(u64),
    /// The voting key of an epoch.
    Voting(u64),
    /// What a server keeps during a run.
    Run(Sha256Digest),
}

impl SealingKeyScope {
    fn file_name(self) -> String {
        match self {
            Self::Epoch(number) => format!("epoch-{number}.key"),
            Self::Voting(number) => format!("voting-{number}.key"),
            Self::Run(id) => format!("run-{id}.key"),
        }
    }

    fn from_file_name(name: &str) -> Option<Self> {
        let name = name.strip_suffix(".key")?;
        if let Some(number) = name.strip_prefix("epoch-") {
            return number.parse().ok().map(Self::Epoch);
        }
        if let Some(number) = name.strip_prefix("voting-") {
            return number.parse().ok().map(Self::Voting);
        }
        let digits = name.strip_prefix("run-")?.as_bytes();
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self::Run(Sha256Digest(id))).filter(|key| key.file_name().len() == name.len() + 4)
    }

    /// The context to which its ciphertext is bound.
    fn context(self) -> Vec<u8> {
        match self {
            Self::Epoch(number) => [&b"k"[..], &number.to_be_bytes()].concat(),
            Self::Voting(number) => [&b"v"[..], &number.to_be_bytes()].concat(),
            Self::Run(id) => [&b"r"[..], &id.0].concat(),
        }
    }
}

impl fmt::Display for SealingKeyScope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(number) => write!(out, "epoch {number}"),
            Self::Voting(number) => write!(out, "voting in epoch {number}"),
            Self::Run(id) => write!(out, "run {id}"),
        }
    }
}

/// The key that encrypts the shares or the voting key of one epoch, or the items of one run.
/// Secret.
pub(super) struct SealingKey(SealedKey);

impl SealingKey {
    /// Generates a key and writes its file, which is then completely on disk. An existing file with
    /// this name is destroyed, because no row of the database needs it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn create(
        directory: &Path,
        of: SealingKeyScope,
        master: &MasterKey,
        generator: &mut RandomGenerator,
    ) -> Result<Self, QuorumStoreError> {
        destroy(directory, of)?;
        let key = Zeroizing::new(generator.array::<KEY_LEN>()?);
        let mut content = MAGIC.to_vec();
        let master = SealedKey::new(master.bytes());
        content.extend(master.seal(&of.context(), &*key, generator)?);
        let path = path(directory, of);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| {
            file.write_all(&content)?;
            file.sync_all()
        });
        written.map_err(of_file(path))?;
        sync_directory(directory)?;
        Ok(Self(SealedKey::new(&key)))
    }

    /// Reads a key from its file.
    ///
    /// # Errors
    /// If the file is missing or damaged, or the master key is wrong.
    pub(super) fn read(
        directory: &Path,
        of: SealingKeyScope,
        master: &MasterKey,
    ) -> Result<Self, QuorumStoreError> {
        let path = path(directory, of);
        let mut content = Vec::new();
        let read = File::open(&path)
            .and_then(|file| file.take(FILE_LEN as u64 + 1).read_to_end(&mut content));
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(damaged(format!("the key of {of} is missing")));
            }
            read => read.map_err(of_file(path))?,
        };
        let sealed = content.strip_prefix(MAGIC).filter(|_| content.len() == FILE_LEN);
        let sealed = sealed.ok_or_else(|| damaged(format!("the key of {of}")))?;
        let key = SealedKey::new(master.bytes()).open(&of.context(), sealed);
        let key = key.ok_or(QuorumStoreError::WrongMasterKey { of: of.to_string() })?;
        let key: Zeroizing<[u8; KEY_LEN]> = Zeroizing::new(
            key.as_slice().try_into().map_err(|_| damaged("the length of a key".into()))?,
        );
        Ok(Self(SealedKey::new(&key)))
    }

    /// Encrypts a secret, bound to `context`.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub(super) fn seal(
        &self,
        context: impl AsRef<[u8]>,
        secret: &[u8],
        generator: &mut RandomGenerator,
    ) -> Result<Vec<u8>, RandomError> {
        self.0.seal(context.as_ref(), secret, generator)
    }

    /// Decrypts the output of [`SealingKey::seal`]. `None` if it was changed, or bound to another
    /// context.
    pub(super) fn open(
        &self,
        context: impl AsRef<[u8]>,
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        self.0.open(context.as_ref(), sealed)
    }
}

/// The scopes that have a key file, in ascending order, epochs first.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn list(directory: &Path) -> Result<Vec<SealingKeyScope>, QuorumStoreError> {
    let mut keys = Vec::new();
    for entry in fs::read_dir(directory).map_err(of_file(directory))? {
        let name = entry.map_err(of_file(directory))?.file_name();
        keys.extend(name.to_str().and_then(SealingKeyScope::from_file_name));
    }
    keys.sort_unstable();
    Ok(keys)
}

/// Overwrites a key in place, and removes its file. Returns whether there was one.
///
/// # Errors
/// If the file cannot be overwritten.
pub(super) fn destroy(directory: &Path, of: SealingKeyScope) -> Result<bool, QuorumStoreError> {
    let path = path(directory, of);
    let mut file = match OpenOptions::new().write(true).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(of_file(&path))?,
    };
    let overwritten = file.write_all(&[0; FILE_LEN]).and_then(|()| file.sync_all());
    overwritten.and_then(|()| fs::remove_file(&path)).map_err(of_file(&path))?;
    sync_directory(directory)?;
    Ok(true)
}

pub(super) fn path(directory: &Path, of: SealingKeyScope) -> PathBuf {
    directory.join(of.file_name())
}

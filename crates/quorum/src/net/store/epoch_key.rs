//! The key of an epoch, and its file.
//!
//! The file is magic, nonce and the key as XChaCha20-Poly1305 seals it under the master key: 80
//! bytes. It is overwritten in place when the epoch ends.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use keys::file::KEY_LEN;
use sharing::{Generator, RandomError};
use zeroize::Zeroizing;

use super::error::{StoreError, damaged, of_file};
use super::file::sync_directory;
use super::master_key::MasterKey;

/// The first bytes of the file.
const MAGIC: &[u8; 8] = b"SNDR-QEK";

/// The length of a nonce, in bytes.
const NONCE_LEN: usize = 24;

/// The length of the code that authenticates a ciphertext, in bytes.
const CODE_LEN: usize = 16;

/// The length of the file, in bytes.
const FILE_LEN: usize = MAGIC.len() + NONCE_LEN + KEY_LEN + CODE_LEN;

/// The key that encrypts the shares of one epoch. Secret.
pub(super) struct EpochKey(XChaCha20Poly1305);

impl EpochKey {
    /// Draws a key and writes its file, which then is complete on disk. A file of this epoch that
    /// is there already is destroyed: no row of the database needs it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn create(
        directory: &Path,
        epoch: u64,
        master: &MasterKey,
        generator: &mut Generator,
    ) -> Result<Self, StoreError> {
        destroy(directory, epoch)?;
        let key = Zeroizing::new(generator.array::<KEY_LEN>()?);
        let mut content = MAGIC.to_vec();
        content.extend(seal(&cipher(master.bytes()), &context(epoch), &*key, generator)?);
        let path = path(directory, epoch);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| {
            file.write_all(&content)?;
            file.sync_all()
        });
        written.map_err(of_file(path))?;
        sync_directory(directory)?;
        Ok(Self(cipher(&key)))
    }

    /// Reads a key from its file.
    ///
    /// # Errors
    /// When the file is missing or damaged, or the master key is another.
    pub(super) fn read(
        directory: &Path,
        epoch: u64,
        master: &MasterKey,
    ) -> Result<Self, StoreError> {
        let path = path(directory, epoch);
        let mut content = Vec::new();
        let read = File::open(&path)
            .and_then(|file| file.take(FILE_LEN as u64 + 1).read_to_end(&mut content));
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(damaged(format!("the key of epoch {epoch} is missing")));
            }
            read => read.map_err(of_file(path))?,
        };
        let sealed = content.strip_prefix(MAGIC).filter(|_| content.len() == FILE_LEN);
        let sealed = sealed.ok_or_else(|| damaged(format!("the key of epoch {epoch}")))?;
        let key = open(&cipher(master.bytes()), &context(epoch), sealed);
        let key = key.ok_or(StoreError::WrongMasterKey { number: epoch })?;
        let key: Zeroizing<[u8; KEY_LEN]> = Zeroizing::new(
            key.as_slice().try_into().map_err(|_| damaged("the length of a key".into()))?,
        );
        Ok(Self(cipher(&key)))
    }

    /// Encrypts a secret; it is bound to `context`.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub(super) fn seal(
        &self,
        context: impl AsRef<[u8]>,
        secret: &[u8],
        generator: &mut Generator,
    ) -> Result<Vec<u8>, RandomError> {
        seal(&self.0, context.as_ref(), secret, generator)
    }

    /// Decrypts what [`EpochKey::seal`] returned; `None` if it was changed or has another context.
    pub(super) fn open(
        &self,
        context: impl AsRef<[u8]>,
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        open(&self.0, context.as_ref(), sealed)
    }
}

/// The epochs that have a key file, in ascending order.
///
/// # Errors
/// When the directory cannot be read.
pub(super) fn list(directory: &Path) -> Result<Vec<u64>, StoreError> {
    let mut epochs = Vec::new();
    for entry in fs::read_dir(directory).map_err(of_file(directory))? {
        let name = entry.map_err(of_file(directory))?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("epoch-")?.strip_suffix(".key"));
        epochs.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    epochs.sort_unstable();
    Ok(epochs)
}

/// Overwrites the key of an epoch in place, and removes its file. Returns whether there was one.
///
/// # Errors
/// When the file cannot be overwritten.
pub(super) fn destroy(directory: &Path, epoch: u64) -> Result<bool, StoreError> {
    let path = path(directory, epoch);
    let mut file = match OpenOptions::new().write(true).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(of_file(&path))?,
    };
    let overwritten = file.write_all(&[0; FILE_LEN]).and_then(|()| file.sync_all());
    overwritten.and_then(|()| fs::remove_file(&path)).map_err(of_file(&path))?;
    sync_directory(directory)?;
    Ok(true)
}

fn path(directory: &Path, epoch: u64) -> PathBuf {
    directory.join(format!("epoch-{epoch}.key"))
}

fn context(epoch: u64) -> [u8; 9] {
    let mut context = [b'k'; 9];
    context[1..].copy_from_slice(&epoch.to_be_bytes());
    context
}

fn cipher(key: &[u8; KEY_LEN]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.into())
}

fn seal(
    cipher: &XChaCha20Poly1305,
    context: &[u8],
    secret: &[u8],
    generator: &mut Generator,
) -> Result<Vec<u8>, RandomError> {
    // Random nonces of 24 bytes do not repeat.
    let nonce = generator.array::<NONCE_LEN>()?;
    let payload = Payload { msg: secret, aad: context };
    let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
    let sealed = sealed.unwrap_or_else(|_| unreachable!("secrets are shorter than 256 GiB"));
    Ok([&nonce[..], &sealed].concat())
}

fn open(cipher: &XChaCha20Poly1305, context: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, ciphertext) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let payload = Payload { msg: ciphertext, aad: context };
    cipher.decrypt(&XNonce::from(*nonce), payload).ok().map(Zeroizing::new)
}

//! One server at a time uses a directory: another one would take its runs for interrupted ones.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;

/// A directory that this server uses. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ServerLock(File);

/// Who uses a directory.
#[derive(Debug)]
pub(crate) enum DirectoryUse {
    /// This server.
    Own(ServerLock),
    /// Another server, which listens on this address; `None` if it has just started.
    Other(Option<SocketAddr>),
}

impl ServerLock {
    /// Takes a directory for this server, unless another one uses it.
    ///
    /// # Errors
    /// If the system reports an error.
    pub(crate) fn take(directory: &Path) -> io::Result<DirectoryUse> {
        let path = directory.join("address");
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                Ok(DirectoryUse::Own(Self(file)))
            }
            Err(TryLockError::WouldBlock) => {
                let mut address = String::new();
                (&mut file).take(100).read_to_string(&mut address)?;
                Ok(DirectoryUse::Other(address.trim().parse().ok()))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Notes the address on which this server listens.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn note(&mut self, address: SocketAddr) -> io::Result<()> {
        self.0.write_all(format!("{address}\n").as_bytes())
    }
}

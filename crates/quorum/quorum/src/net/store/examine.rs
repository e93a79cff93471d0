//! Examines a store without opening it. A server may have it open.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use keys::trusted::TrustedFolder;
use rustix::fs::{Access, access};

use super::error::{QuorumStoreError, damaged, of_file};
use super::master_key::MasterKey;
use super::sealing_key::{self, SealingKey, SealingKeyScope};
use super::{audit, file};
use crate::protocol::server::GroupStart;

/// A summary of a store.
#[derive(Clone, Debug)]
pub struct QuorumStoreSummary {
    /// The start of its server. `None` if the server waits to be invited or has never run.
    pub start: Option<GroupStart>,
    /// The epochs whose shares it contains.
    pub epochs: Vec<u64>,
    /// When the audit log was last written.
    pub audit_written: Option<SystemTime>,
}

/// Examines the store in a directory without changing anything: whether other users can change it,
/// whether this user can write its files, and whether the master key decrypts its keys. `None` if
/// there is no store.
///
/// # Errors
/// The error that keeps a server from opening it.
pub fn examine(
    directory: &Path,
    master: &MasterKey,
) -> Result<Option<QuorumStoreSummary>, QuorumStoreError> {
    if !directory.exists() {
        return Ok(None);
    }
    let folder = TrustedFolder::new(directory)?;
    let directory = folder.path();
    let writable =
        |path: &Path, rights| access(path, rights).map_err(|error| of_file(path)(error.into()));
    writable(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
    for entry in fs::read_dir(directory).map_err(of_file(directory))? {
        let name = entry.map_err(of_file(directory))?.file_name();
        folder.check_file(&name)?;
        writable(&directory.join(name), Access::READ_OK | Access::WRITE_OK)?;
    }
    let keys = sealing_key::list(directory)?;
    if !file::has_database(directory) {
        return match keys.first() {
            Some(&SealingKeyScope::Epoch(number)) => {
                Err(QuorumStoreError::DatabaseMissing { number })
            }
            _ => Ok(None),
        };
    }
    let connection = file::open_to_read(&directory.join(file::DATABASE))?;
    let epochs = super::epochs(&connection)?;
    for &number in &epochs {
        SealingKey::read(directory, SealingKeyScope::Epoch(number), master)?;
    }
    let query = "SELECT start FROM state";
    let start: Option<Vec<u8>> = connection.query_row(query, [], |row| row.get(0))?;
    let start = start.map(|bytes| GroupStart::parse(&bytes)).transpose();
    let start = start.map_err(|error| damaged(format!("the start: {error}")))?;
    let written = fs::metadata(directory.join(audit::NAME)).and_then(|found| found.modified());
    Ok(Some(QuorumStoreSummary { start, epochs, audit_written: written.ok() }))
}

//! In place of the database, in a program that is built without it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use super::{DirectoryEntry, DirectoryStoreError, LearnedAddresses};
use crate::addresses::ChannelAddresses;
use crate::message::ProofScheme;

/// A database that cannot be opened.
#[derive(Debug)]
pub struct DirectoryStore(Infallible);

impl DirectoryStore {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn open(_path: &Path) -> Result<Self, DirectoryStoreError> {
        Err(DirectoryStoreError::Absent)
    }

    pub(crate) fn find(
        &self,
        _peer: IpAddr,
    ) -> Result<Option<DirectoryEntry>, DirectoryStoreError> {
        match self.0 {}
    }

    pub(crate) fn learn(
        &mut self,
        _peer: IpAddr,
        _addresses: ChannelAddresses,
        _scheme: ProofScheme,
        _now: SystemTime,
    ) -> Result<LearnedAddresses, DirectoryStoreError> {
        match self.0 {}
    }
}

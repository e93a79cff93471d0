//! The database as an `SQLite` file.

mod file;
mod rows;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, TransactionBehavior, params};

use super::{AddressSource, DirectoryEntry, DirectoryStoreError, LearnedAddresses, MAX_PEERS};
use crate::addresses::ChannelAddresses;
use crate::message::ProofScheme;
use crate::signed_list::SignedDirectoryList;
use file::number;
use rows::read;

/// One row for each address, or one row without an address for a peer that has none. With each, the
/// key of the signed list.
const ROWS: &str = "SELECT host, source, learnt_at, place, address, \
    (SELECT key FROM signed_list) \
    FROM peer LEFT JOIN channel ON channel.peer = peer.host";

/// The last second of the year 9999. The text of a later date has another form.
pub(super) const LAST_SECOND: u64 = 253_402_300_799;

/// An open database.
#[derive(Debug)]
pub struct DirectoryStore(Connection);

impl DirectoryStore {
    /// Opens a database, or creates an empty one that only its owner may read.
    ///
    /// # Errors
    /// When it cannot be opened or created, or is not a database of this version; when other users
    /// can change it or the files that `SQLite` keeps beside it.
    pub fn open(path: &Path) -> Result<Self, DirectoryStoreError> {
        Ok(Self(file::open(path)?))
    }

    /// What the database knows of a peer.
    ///
    /// # Errors
    /// When the database cannot be read or is damaged.
    pub fn find(&self, peer: IpAddr) -> Result<Option<DirectoryEntry>, DirectoryStoreError> {
        find(&self.0, peer)
    }

    /// All entries, in the order of the peers' addresses.
    ///
    /// # Errors
    /// When the database cannot be read or is damaged.
    pub fn list(&self) -> Result<Vec<DirectoryEntry>, DirectoryStoreError> {
        let mut entries = read(&self.0, &format!("{ROWS} ORDER BY host, place"), None)?;
        entries.sort_by_key(|entry| entry.peer);
        Ok(entries)
    }

    /// Adds a peer's addresses from the operator. Replaces and returns the existing entry.
    ///
    /// # Errors
    /// When the database cannot be written or is damaged.
    pub fn add(
        &mut self,
        peer: IpAddr,
        addresses: &ChannelAddresses,
        now: SystemTime,
    ) -> Result<Option<DirectoryEntry>, DirectoryStoreError> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = find(&change, peer)?;
        put(&change, peer, addresses, AddressSource::Manual, now)?;
        change.commit()?;
        Ok(before)
    }

    /// Replaces the signed list. What the operator has added stays; what was learnt of its peers is
    /// replaced. Returns the peers that the operator has added with other addresses.
    ///
    /// # Errors
    /// When there is already a list of the same key with this number or a higher one. When the
    /// database would have more than [`MAX_PEERS`], cannot be written, or is damaged.
    pub fn import(
        &mut self,
        list: &SignedDirectoryList,
        now: SystemTime,
    ) -> Result<Vec<IpAddr>, DirectoryStoreError> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let last = "SELECT max(number) FROM signed_list WHERE key = ?1";
        let last: Option<u32> = change.query_row(last, [list.key], |row| row.get(0))?;
        if let Some(last) = last.filter(|&last| last >= list.number) {
            return Err(DirectoryStoreError::OldList { number: list.number, last });
        }
        change
            .execute_batch("DELETE FROM signed_list; DELETE FROM peer WHERE source = 'signed'")?;
        let insert = "INSERT INTO signed_list (key, number) VALUES (?1, ?2)";
        change.execute(insert, params![list.key, list.number])?;
        let mut kept = Vec::new();
        for (&peer, addresses) in &list.peers {
            match find(&change, peer)? {
                Some(entry) if entry.source == AddressSource::Manual => {
                    kept.extend((entry.addresses != *addresses).then_some(peer));
                }
                _ => put(&change, peer, addresses, AddressSource::Signed(list.key), now)?,
            }
        }
        if count(&change)? > MAX_PEERS.into() {
            return Err(DirectoryStoreError::Full);
        }
        change.commit()?;
        Ok(kept)
    }

    /// Adds a peer's addresses from an exchange. Replaces what was learnt of it before.
    ///
    /// # Errors
    /// When the operator has added the peer, a signed list has it, or the database is full. When it
    /// cannot be written or is damaged.
    pub fn learn(
        &mut self,
        peer: IpAddr,
        addresses: ChannelAddresses,
        scheme: ProofScheme,
        now: SystemTime,
    ) -> Result<LearnedAddresses, DirectoryStoreError> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = find(&change, peer)?;
        match &before {
            Some(entry) if !matches!(entry.source, AddressSource::Learnt(_)) => {
                return Err(DirectoryStoreError::not_learnable(peer, entry.source));
            }
            None if count(&change)? >= MAX_PEERS.into() => return Err(DirectoryStoreError::Full),
            _ => {}
        }
        put(&change, peer, &addresses, AddressSource::Learnt(scheme), now)?;
        change.commit()?;
        Ok(LearnedAddresses { addresses, before: before.map(|entry| entry.addresses) })
    }

    /// Removes a peer, even a damaged one. Returns whether there was one.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn remove(&mut self, peer: IpAddr) -> Result<bool, DirectoryStoreError> {
        Ok(forget(&self.0, peer)?)
    }
}

fn count(connection: &Connection) -> Result<i64, DirectoryStoreError> {
    number(connection, "SELECT count(*) FROM peer")
}

fn find(
    connection: &Connection,
    peer: IpAddr,
) -> Result<Option<DirectoryEntry>, DirectoryStoreError> {
    let query = format!("{ROWS} WHERE host = ?1 ORDER BY place");
    Ok(read(connection, &query, Some(peer))?.pop())
}

fn put(
    connection: &Connection,
    peer: IpAddr,
    addresses: &ChannelAddresses,
    source: AddressSource,
    now: SystemTime,
) -> Result<(), DirectoryStoreError> {
    forget(connection, peer)?;
    let host = peer.to_string();
    let since = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(LAST_SECOND);
    let learnt_at = i64::try_from(since).unwrap_or(0);
    connection.execute(
        "INSERT INTO peer (host, source, learnt_at) VALUES (?1, ?2, ?3)",
        params![host, source.name(), learnt_at],
    )?;
    let mut insert =
        connection.prepare("INSERT INTO channel (peer, place, address) VALUES (?1, ?2, ?3)")?;
    for (place, address) in (0_i64..).zip(addresses.as_slice()) {
        insert.execute(params![host, place, address.to_string()])?;
    }
    Ok(())
}

/// Removes a peer, and with it its addresses.
fn forget(connection: &Connection, peer: IpAddr) -> Result<bool, rusqlite::Error> {
    let removed = connection.execute("DELETE FROM peer WHERE host = ?1", [peer.to_string()])?;
    Ok(removed > 0)
}

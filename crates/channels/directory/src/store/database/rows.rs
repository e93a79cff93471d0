//! Reads rows into entries, and checks every value.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::types::FromSql;
use rusqlite::{Connection, Row};

use super::super::error::{DirectoryStoreError, damaged, one_line};
use super::super::{AddressSource, DirectoryEntry};
use super::LAST_SECOND;
use crate::addresses::{ChannelAddresses, ChannelAddressesError};
use crate::message::ProofScheme;
use crate::signed_list::KeyDigest;

/// The entries in the rows of a query, which are ordered by peer.
pub(super) fn read(
    connection: &Connection,
    query: &str,
    peer: Option<IpAddr>,
) -> Result<Vec<DirectoryEntry>, DirectoryStoreError> {
    let mut statement = connection.prepare(query)?;
    let peer = peer.map(|peer| peer.to_string());
    let mut rows = statement.query(rusqlite::params_from_iter(peer))?;
    let mut found: Vec<UncheckedPeerRows> = Vec::new();
    while let Some(row) = rows.next()? {
        let host: String = field(row, 0)?;
        match found.last_mut() {
            Some(last) if last.host == host => last.add_address(row)?,
            _ => {
                let mut next = UncheckedPeerRows::new(host, row)?;
                next.add_address(row)?;
                found.push(next);
            }
        }
    }
    found.into_iter().map(UncheckedPeerRows::check).collect()
}

/// The source with this name. `signer` is the key of the signed list, if there is one.
fn source_from_name(name: &str, signer: Option<KeyDigest>) -> Option<AddressSource> {
    let learnt = [ProofScheme::Hmac, ProofScheme::Ed25519].map(AddressSource::Learnt);
    let mut all =
        [AddressSource::Manual].into_iter().chain(learnt).chain(signer.map(AddressSource::Signed));
    all.find(|source| source.name() == name)
}

/// The rows of one peer, not yet checked in full.
struct UncheckedPeerRows {
    host: String,
    peer: IpAddr,
    source: AddressSource,
    learnt_at: SystemTime,
    addresses: Vec<SocketAddr>,
}

impl UncheckedPeerRows {
    fn new(host: String, row: &Row<'_>) -> Result<Self, DirectoryStoreError> {
        let peer = whole(&host).ok_or_else(|| damaged(format!("{host:?} is not an address")))?;
        let name: String = field(row, 1)?;
        let signer: Option<[u8; 32]> = field(row, 5)?;
        let source = source_from_name(&name, signer)
            .ok_or_else(|| damaged(format!("{host} is from {name:?}, which is not a source")))?;
        let seconds: i64 = field(row, 2)?;
        let seconds = u64::try_from(seconds).ok().filter(|&seconds| seconds <= LAST_SECOND);
        let learnt_at = seconds
            .map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds))
            .ok_or_else(|| damaged(format!("{host} was learnt at no time")))?;
        Ok(Self { host, peer, source, learnt_at, addresses: Vec::new() })
    }

    fn add_address(&mut self, row: &Row<'_>) -> Result<(), DirectoryStoreError> {
        let host = &self.host;
        let place: Option<i64> = field(row, 3)?;
        if place != i64::try_from(self.addresses.len()).ok() {
            return Err(damaged(format!("{host} lacks an address")));
        }
        let text: String = field(row, 4)?;
        let address =
            whole(&text).ok_or_else(|| damaged(format!("{host} has the address {text:?}")))?;
        self.addresses.push(address);
        Ok(())
    }

    fn check(self) -> Result<DirectoryEntry, DirectoryStoreError> {
        let Self { host, peer, source, learnt_at, addresses } = self;
        let wrong = |error: ChannelAddressesError| damaged(format!("{host}: {error}"));
        let addresses = ChannelAddresses::new(addresses).map_err(wrong)?;
        Ok(DirectoryEntry { peer, addresses, source, learnt_at })
    }
}

/// A value whose text is in the form that this program writes.
fn whole<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|value: &T| value.to_string() == text)
}

fn field<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, DirectoryStoreError> {
    row.get(index).map_err(|error| damaged(one_line(&error)))
}

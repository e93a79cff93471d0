//! The changes of a server's state, and what they add up to.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use sharing::Generator;
use zeroize::Zeroizing;

use super::audit::Event;
use super::error::{StoreError, damaged};
use super::sealing_key::{self, KeyOf, SealingKey};
use super::{Store, file};
use crate::log::Height;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::refresh::{Item, Round};
use crate::protocol::server::{Change, EncodedShares, Saved, Start};
use crate::protocol::wire::Digest;

impl Store {
    /// Keeps changes, all of them or none: they are durable when this returns.
    ///
    /// # Errors
    /// When the files cannot be written, or the shares of an epoch are here already. Then nothing
    /// is changed; but keys of epochs and runs that have ended may remain until the store is opened
    /// next, if they could not be overwritten.
    pub fn save(
        &mut self,
        changes: &[Change],
        generator: &mut Generator,
        now: SystemTime,
    ) -> Result<(), StoreError> {
        let mut ended = Vec::new();
        let mut events = Vec::new();
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for change in changes {
            match change {
                Change::Start(start) => save_start(&transaction, start)?,
                Change::Shares { epoch, shares } => {
                    let of = KeyOf::Epoch(*epoch);
                    if is_live(&transaction, of)? {
                        return Err(StoreError::EpochExists { number: *epoch });
                    }
                    // The key is complete on disk before the rows that need it are.
                    let key = SealingKey::create(&self.directory, of, &self.master, generator)?;
                    save_shares(&transaction, *epoch, shares, &key, generator)?;
                    events.push(Event::EpochBegun { epoch: *epoch, shares: shares.len() });
                }
                Change::End { epoch } => {
                    let row = file::signed(*epoch)?;
                    transaction.execute("DELETE FROM share WHERE epoch = ?1", [row])?;
                    transaction.execute("DELETE FROM epoch WHERE number = ?1", [row])?;
                    ended.push(KeyOf::Epoch(*epoch));
                }
                Change::Applied { height, entries } => {
                    save_height(&transaction, *height)?;
                    let height = file::signed(height.0)?;
                    let insert = "INSERT INTO entry (height, content) VALUES (?1, ?2)";
                    let mut insert = transaction.prepare(insert)?;
                    for entry in entries {
                        insert.execute(params![height, &entry[..]])?;
                    }
                }
                Change::Item { run, item, bytes } => {
                    let of = KeyOf::Run(*run);
                    let key = if is_live(&transaction, of)? {
                        SealingKey::read(&self.directory, of, &self.master)?
                    } else {
                        SealingKey::create(&self.directory, of, &self.master, generator)?
                    };
                    let name = name_of(*item);
                    let sealed = key.seal(item_context(*run, &name), bytes, generator)?;
                    let insert =
                        "INSERT OR REPLACE INTO item (run, name, sealed) VALUES (?1, ?2, ?3)";
                    transaction.execute(insert, params![run.0, name, sealed])?;
                }
                Change::EraseRun { run } => {
                    transaction.execute("DELETE FROM item WHERE run = ?1", [run.0])?;
                    ended.push(KeyOf::Run(*run));
                }
            }
        }
        transaction.commit()?;
        for of in ended {
            let had_key = sealing_key::destroy(&self.directory, of)?;
            if let KeyOf::Epoch(epoch) = of
                && had_key
            {
                events.push(Event::EpochEnded { epoch });
            }
        }
        events.iter().try_for_each(|event| self.record(event, now))
    }

    /// What all changes add up to.
    ///
    /// # Errors
    /// When the files cannot be read, or do not decrypt: they are damaged, or of another server.
    pub fn saved(&self) -> Result<Saved, StoreError> {
        let state = "SELECT start, height FROM state";
        let (start, height): (Option<Vec<u8>>, i64) =
            self.connection.query_row(state, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let start = start.map(|bytes| Start::parse(&bytes)).transpose();
        let start = start.map_err(|error| damaged(format!("the start: {error}")))?;
        let mut saved = Saved { start, height: height_of(height)?, ..Saved::default() };
        let mut statement =
            self.connection.prepare("SELECT height, content FROM entry ORDER BY place")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let content: Vec<u8> = row.get(1)?;
            saved.entries.push((height_of(row.get(0)?)?, content.into()));
        }
        for epoch in self.epochs()? {
            saved.shares.insert(epoch, self.shares(epoch)?);
        }
        for run in self.runs()? {
            saved.items.insert(run, self.items(run)?);
        }
        Ok(saved)
    }

    /// The shares of an epoch.
    fn shares(&self, epoch: u64) -> Result<EncodedShares, StoreError> {
        let key = SealingKey::read(&self.directory, KeyOf::Epoch(epoch), &self.master)?;
        let query = "SELECT label, sealed FROM share WHERE epoch = ?1 ORDER BY label";
        let mut statement = self.connection.prepare(query)?;
        let mut rows = statement.query([file::signed(epoch)?])?;
        let mut shares = Vec::new();
        while let Some(row) = rows.next()? {
            let label = Label(row.get(0)?);
            let share = key.open(share_context(epoch, label), row.get_ref(1)?.as_blob()?);
            let share = share.ok_or_else(|| damaged(format!("share {label} of epoch {epoch}")))?;
            shares.push((label, share));
        }
        Ok(shares)
    }

    /// What is kept of a run.
    fn items(&self, run: Digest) -> Result<BTreeMap<Item, Zeroizing<Vec<u8>>>, StoreError> {
        let key = SealingKey::read(&self.directory, KeyOf::Run(run), &self.master)?;
        let mut statement =
            self.connection.prepare("SELECT name, sealed FROM item WHERE run = ?1")?;
        let mut rows = statement.query([run.0])?;
        let mut items = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let name = row.get_ref(0)?.as_blob()?;
            let bytes = key.open(item_context(run, name), row.get_ref(1)?.as_blob()?);
            let item = item_of(name).zip(bytes);
            let (item, bytes) = item.ok_or_else(|| damaged(format!("an item of run {run}")))?;
            items.insert(item, bytes);
        }
        Ok(items)
    }

    /// The runs of which something is kept.
    fn runs(&self) -> Result<Vec<Digest>, StoreError> {
        let mut statement = self.connection.prepare("SELECT DISTINCT run FROM item")?;
        let runs = statement.query_map([], |row| row.get(0))?;
        runs.map(|run| Ok(Digest(run?))).collect()
    }

    /// The keys that rows of the database need.
    pub(super) fn live(&self) -> Result<Vec<KeyOf>, StoreError> {
        let epochs = self.epochs()?.into_iter().map(KeyOf::Epoch);
        Ok(epochs.chain(self.runs()?.into_iter().map(KeyOf::Run)).collect())
    }

    /// Destroys the keys that no row needs.
    pub(super) fn destroy_all_but(&self, keys: &[KeyOf], live: &[KeyOf]) -> Result<(), StoreError> {
        for &key in keys.iter().filter(|key| !live.contains(key)) {
            sealing_key::destroy(&self.directory, key)?;
        }
        Ok(())
    }

    /// Deletes what is kept of a run whose key is gone.
    pub(super) fn delete_items(&self, of: KeyOf) -> Result<(), StoreError> {
        if let KeyOf::Run(run) = of {
            self.connection.execute("DELETE FROM item WHERE run = ?1", [run.0])?;
        }
        Ok(())
    }
}

/// Whether rows of the database need a key.
fn is_live(transaction: &Transaction<'_>, of: KeyOf) -> Result<bool, StoreError> {
    let found = match of {
        KeyOf::Epoch(number) => {
            let query = "SELECT 1 FROM epoch WHERE number = ?1";
            let row = file::signed(number)?;
            transaction.query_row(query, [row], |_| Ok(())).optional()?
        }
        KeyOf::Run(run) => {
            let query = "SELECT 1 FROM item WHERE run = ?1 LIMIT 1";
            transaction.query_row(query, [run.0], |_| Ok(())).optional()?
        }
    };
    Ok(found.is_some())
}

fn save_start(transaction: &Transaction<'_>, start: &Start) -> Result<(), StoreError> {
    transaction.execute("UPDATE state SET start = ?1", [start.to_bytes()])?;
    let height = file::signed(start.height.0)?;
    transaction.execute("UPDATE state SET height = max(height, ?1)", [height])?;
    transaction.execute("DELETE FROM entry WHERE height <= ?1", [height])?;
    Ok(())
}

fn save_height(transaction: &Transaction<'_>, height: Height) -> Result<(), StoreError> {
    transaction.execute("UPDATE state SET height = ?1", [file::signed(height.0)?])?;
    Ok(())
}

fn save_shares(
    transaction: &Transaction<'_>,
    epoch: u64,
    shares: &EncodedShares,
    key: &SealingKey,
    generator: &mut Generator,
) -> Result<(), StoreError> {
    let number = file::signed(epoch)?;
    transaction.execute("INSERT INTO epoch (number) VALUES (?1)", [number])?;
    let insert = "INSERT INTO share (epoch, label, sealed) VALUES (?1, ?2, ?3)";
    let mut insert = transaction.prepare(insert)?;
    for (label, share) in shares {
        let sealed = key.seal(share_context(epoch, *label), share, generator)?;
        insert.execute(params![number, label.0, sealed])?;
    }
    Ok(())
}

fn height_of(number: i64) -> Result<Height, StoreError> {
    file::unsigned(number, "height").map(Height)
}

/// What a share's ciphertext is bound to: rows cannot be exchanged.
fn share_context(epoch: u64, label: Label) -> [u8; 11] {
    let mut context = [0; 11];
    context[0] = b's';
    context[1..9].copy_from_slice(&epoch.to_be_bytes());
    context[9..].copy_from_slice(&label.0.to_be_bytes());
    context
}

/// What an item's ciphertext is bound to.
fn item_context(run: Digest, name: &[u8]) -> Vec<u8> {
    [&b"i"[..], &run.0, name].concat()
}

fn name_of(item: Item) -> Vec<u8> {
    match item {
        Item::Seed(round) => vec![1, round.0],
        Item::SessionKey => vec![2],
        Item::Dealing(dealer, round) => vec![3, dealer.0, round.0],
        Item::Shares => vec![4],
    }
}

fn item_of(name: &[u8]) -> Option<Item> {
    match *name {
        [1, round] => Some(Item::Seed(Round(round))),
        [2] => Some(Item::SessionKey),
        [3, dealer, round] => Some(Item::Dealing(ServerIndex(dealer), Round(round))),
        [4] => Some(Item::Shares),
        _ => None,
    }
}

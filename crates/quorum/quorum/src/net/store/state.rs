//! Changes of a server's state, and the state that results from them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use random::RandomGenerator;
use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use zeroize::Zeroizing;

use super::audit::AuditEvent;
use super::error::{QuorumStoreError, damaged};
use super::sealing_key::{self, SealingKey, SealingKeyScope};
use super::{QuorumStore, file};
use crate::log::{Height, LogIncarnation};
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::refresh::{DealingRound, RunItemName};
use crate::protocol::server::{
    ApprovalWait, EncodedShareList, GroupStart, SavedServerState, SavedStateChange, chain_to_bytes,
};
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::Sha256Digest;

/// A stored voting key.
type StoredVotingKey = (Option<LogIncarnation>, Zeroizing<[u8; 32]>);

impl QuorumStore {
    /// Saves changes, all or none. They are durable when this returns.
    ///
    /// # Errors
    /// If the files cannot be written, or the shares of an epoch are stored already. Then nothing
    /// is changed. However, keys of epochs and runs that have ended may remain until the store is
    /// opened next, if they could not be overwritten.
    pub fn save(
        &mut self,
        changes: &[SavedStateChange],
        generator: &mut RandomGenerator,
        now: SystemTime,
    ) -> Result<(), QuorumStoreError> {
        let mut ended = Vec::new();
        let mut events = Vec::new();
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for change in changes {
            match change {
                SavedStateChange::Start(start) => save_start(&transaction, start)?,
                SavedStateChange::Restarted(start) => {
                    let bytes = (start.to_bytes(), file::signed(start.height.0)?);
                    let update = "UPDATE state SET start = ?1, height = ?2, newer = NULL";
                    transaction.execute(update, bytes)?;
                    transaction.execute("DELETE FROM entry", [])?;
                }
                SavedStateChange::Newer(chain) => {
                    let bytes = [chain_to_bytes(chain)];
                    transaction.execute("UPDATE state SET newer = ?1", bytes)?;
                }
                SavedStateChange::Shares { epoch, shares } => {
                    let of = SealingKeyScope::Epoch(*epoch);
                    if is_live(&transaction, of)? {
                        return Err(QuorumStoreError::EpochExists { number: *epoch });
                    }
                    // The key is completely on disk before the rows that need it.
                    let key = SealingKey::create(&self.directory, of, &self.master, generator)?;
                    save_shares(&transaction, *epoch, shares, &key, generator)?;
                    events.push(AuditEvent::EpochBegun { epoch: *epoch, shares: shares.len() });
                }
                SavedStateChange::Voting { epoch, life, secret } => {
                    // The previous key is destroyed at once, because its ciphertext was replaced.
                    let of = SealingKeyScope::Voting(*epoch);
                    let key = SealingKey::create(&self.directory, of, &self.master, generator)?;
                    let sealed = key.seal(of.to_string(), &secret[..], generator)?;
                    let insert =
                        "INSERT OR REPLACE INTO voting (epoch, life, sealed) VALUES (?1, ?2, ?3)";
                    let life = life.map(|life| life.0);
                    transaction.execute(insert, params![file::signed(*epoch)?, life, sealed])?;
                }
                SavedStateChange::End { epoch } => {
                    let row = file::signed(*epoch)?;
                    transaction.execute("DELETE FROM voting WHERE epoch = ?1", [row])?;
                    transaction.execute("DELETE FROM share WHERE epoch = ?1", [row])?;
                    transaction.execute("DELETE FROM epoch WHERE number = ?1", [row])?;
                    ended.extend([SealingKeyScope::Epoch(*epoch), SealingKeyScope::Voting(*epoch)]);
                }
                SavedStateChange::Applied { height, entries } => {
                    save_height(&transaction, *height)?;
                    let height = file::signed(height.0)?;
                    let insert = "INSERT INTO entry (height, content) VALUES (?1, ?2)";
                    let mut insert = transaction.prepare(insert)?;
                    for entry in entries {
                        insert.execute(params![height, &entry[..]])?;
                    }
                }
                SavedStateChange::Snapshot { height, bytes } => {
                    let insert =
                        "INSERT OR REPLACE INTO snapshot (one, height, content) VALUES (1, ?1, ?2)";
                    transaction.execute(insert, params![file::signed(height.0)?, &bytes[..]])?;
                }
                SavedStateChange::ApprovalWaits(wait) => save_approval(&transaction, wait)?,
                SavedStateChange::Item { run, item, bytes } => {
                    let of = SealingKeyScope::Run(*run);
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
                SavedStateChange::EraseRun { run } => {
                    transaction.execute("DELETE FROM item WHERE run = ?1", [run.0])?;
                    ended.push(SealingKeyScope::Run(*run));
                }
            }
        }
        transaction.commit()?;
        for of in ended {
            let had_key = sealing_key::destroy(&self.directory, of)?;
            if let SealingKeyScope::Epoch(epoch) = of
                && had_key
            {
                events.push(AuditEvent::EpochEnded { epoch });
            }
        }
        events.iter().try_for_each(|event| self.record(event, now))
    }

    /// The state that results from all changes.
    ///
    /// # Errors
    /// If the files cannot be read or decrypted: they are damaged, or belong to another server.
    pub fn saved(&self) -> Result<SavedServerState, QuorumStoreError> {
        let state = "SELECT start, height, newer FROM state";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let (start, height, newer): (Option<Vec<u8>>, i64, Option<Vec<u8>>) =
            self.connection.query_row(state, [], row)?;
        let start = start.map(|bytes| GroupStart::parse(&bytes)).transpose();
        let start = start.map_err(|error| damaged(format!("the start: {error}")))?;
        let newer = newer.map(|bytes| GroupStart::parse_chain(&bytes)).transpose();
        let newer = newer.map_err(|error| damaged(format!("the newest chain: {error}")))?;
        let mut saved = SavedServerState {
            start,
            newer,
            height: height_of(height)?,
            ..SavedServerState::default()
        };
        let mut statement =
            self.connection.prepare("SELECT height, content FROM entry ORDER BY place")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let content: Vec<u8> = row.get(1)?;
            saved.entries.push((height_of(row.get(0)?)?, content.into()));
        }
        let snapshot = "SELECT height, content FROM snapshot";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?));
        let found = self.connection.query_row(snapshot, [], row).optional()?;
        if let Some((height, content)) = found {
            saved.snapshot = Some((height_of(height)?, content.into()));
        }
        saved.approval = self.approval()?;
        for epoch in self.epochs()? {
            saved.shares.insert(epoch, self.shares(epoch)?);
        }
        for epoch in self.voting_epochs()? {
            saved.voting.extend(self.voting(epoch)?.map(|voting| (epoch, voting)));
        }
        for run in self.runs()? {
            saved.items.insert(run, self.items(run)?);
        }
        Ok(saved)
    }

    /// The last approval of the server that has waited for others.
    fn approval(&self) -> Result<Option<ApprovalWait>, QuorumStoreError> {
        let query = "SELECT epoch, run, withdrawn, since FROM approval";
        let row = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?))
        };
        let found = self.connection.query_row(query, [], row).optional()?;
        let Some((epoch, run, withdrawn, since)) = found else { return Ok(None) };
        let since = UnixSeconds(file::unsigned(since, "time")?);
        Ok(Some(ApprovalWait { epoch: file::unsigned(epoch, "number")?, run, withdrawn, since }))
    }

    /// The shares of an epoch.
    fn shares(&self, epoch: u64) -> Result<EncodedShareList, QuorumStoreError> {
        let key = SealingKey::read(&self.directory, SealingKeyScope::Epoch(epoch), &self.master)?;
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

    /// The voting key of an epoch, and the incarnation of the log that it belongs to. `None` if a
    /// crash or a restored backup has left a row without its key. Then the voting key is lost.
    fn voting(&self, epoch: u64) -> Result<Option<StoredVotingKey>, QuorumStoreError> {
        let of = SealingKeyScope::Voting(epoch);
        let key = match SealingKey::read(&self.directory, of, &self.master) {
            Err(QuorumStoreError::Damaged { .. }) => return Ok(None),
            key => key?,
        };
        let query = "SELECT life, sealed FROM voting WHERE epoch = ?1";
        let row = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, Option<[u8; 32]>>(0)?, row.get::<_, Vec<u8>>(1)?))
        };
        let (life, sealed) = self.connection.query_row(query, [file::signed(epoch)?], row)?;
        let Some(opened) = key.open(of.to_string(), &sealed) else { return Ok(None) };
        let mut secret = Zeroizing::new([0; 32]);
        if opened.len() != secret.len() {
            return Err(damaged(format!("the voting key of epoch {epoch}")));
        }
        secret.copy_from_slice(&opened);
        Ok(Some((life.map(LogIncarnation), secret)))
    }

    /// The epochs that have a voting key.
    fn voting_epochs(&self) -> Result<Vec<u64>, QuorumStoreError> {
        let mut statement = self.connection.prepare("SELECT epoch FROM voting ORDER BY epoch")?;
        let numbers = statement.query_map([], |row| row.get::<_, i64>(0))?;
        numbers.map(|number| file::unsigned(number?, "number")).collect()
    }

    /// Deletes voting keys that belong to no log yet. In a backup, they are copies of keys that may
    /// have been used since.
    pub(super) fn delete_unused_voting_keys(&self) -> Result<(), QuorumStoreError> {
        self.connection.execute("DELETE FROM voting WHERE life IS NULL", [])?;
        Ok(())
    }

    /// The saved items of a run.
    fn items(
        &self,
        run: Sha256Digest,
    ) -> Result<BTreeMap<RunItemName, Zeroizing<Vec<u8>>>, QuorumStoreError> {
        let key = SealingKey::read(&self.directory, SealingKeyScope::Run(run), &self.master)?;
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

    /// The runs with saved items.
    fn runs(&self) -> Result<Vec<Sha256Digest>, QuorumStoreError> {
        let mut statement = self.connection.prepare("SELECT DISTINCT run FROM item")?;
        let runs = statement.query_map([], |row| row.get(0))?;
        runs.map(|run| Ok(Sha256Digest(run?))).collect()
    }

    /// The keys that rows of the database need.
    pub(super) fn live(&self) -> Result<Vec<SealingKeyScope>, QuorumStoreError> {
        let epochs = self.epochs()?.into_iter().map(SealingKeyScope::Epoch);
        let voting = self.voting_epochs()?.into_iter().map(SealingKeyScope::Voting);
        Ok(epochs.chain(voting).chain(self.runs()?.into_iter().map(SealingKeyScope::Run)).collect())
    }

    /// Destroys the keys that no row needs.
    pub(super) fn destroy_all_but(
        &self,
        keys: &[SealingKeyScope],
        live: &[SealingKeyScope],
    ) -> Result<(), QuorumStoreError> {
        for &key in keys.iter().filter(|key| !live.contains(key)) {
            sealing_key::destroy(&self.directory, key)?;
        }
        Ok(())
    }

    /// Deletes the items of a run whose key is destroyed.
    pub(super) fn delete_items(&self, of: SealingKeyScope) -> Result<(), QuorumStoreError> {
        if let SealingKeyScope::Run(run) = of {
            self.connection.execute("DELETE FROM item WHERE run = ?1", [run.0])?;
        }
        Ok(())
    }
}

/// Whether rows of the database need a key.
fn is_live(transaction: &Transaction<'_>, of: SealingKeyScope) -> Result<bool, QuorumStoreError> {
    let found = match of {
        SealingKeyScope::Epoch(number) => {
            let query = "SELECT 1 FROM epoch WHERE number = ?1";
            let row = file::signed(number)?;
            transaction.query_row(query, [row], |_| Ok(())).optional()?
        }
        SealingKeyScope::Voting(number) => {
            let query = "SELECT 1 FROM voting WHERE epoch = ?1";
            let row = file::signed(number)?;
            transaction.query_row(query, [row], |_| Ok(())).optional()?
        }
        SealingKeyScope::Run(run) => {
            let query = "SELECT 1 FROM item WHERE run = ?1 LIMIT 1";
            transaction.query_row(query, [run.0], |_| Ok(())).optional()?
        }
    };
    Ok(found.is_some())
}

fn save_start(transaction: &Transaction<'_>, start: &GroupStart) -> Result<(), QuorumStoreError> {
    transaction.execute("UPDATE state SET start = ?1", [start.to_bytes()])?;
    let height = file::signed(start.height.0)?;
    transaction.execute("UPDATE state SET height = max(height, ?1)", [height])?;
    transaction.execute("DELETE FROM entry WHERE height <= ?1", [height])?;
    Ok(())
}

fn save_height(transaction: &Transaction<'_>, height: Height) -> Result<(), QuorumStoreError> {
    transaction.execute("UPDATE state SET height = ?1", [file::signed(height.0)?])?;
    Ok(())
}

fn save_approval(
    transaction: &Transaction<'_>,
    wait: &ApprovalWait,
) -> Result<(), QuorumStoreError> {
    let ApprovalWait { epoch, run, withdrawn, since } = *wait;
    let insert = "INSERT OR REPLACE INTO approval (one, epoch, run, withdrawn, since) \
                  VALUES (1, ?1, ?2, ?3, ?4)";
    let (epoch, since) = (file::signed(epoch)?, file::signed(since.0)?);
    transaction.execute(insert, params![epoch, run, withdrawn, since])?;
    Ok(())
}

fn save_shares(
    transaction: &Transaction<'_>,
    epoch: u64,
    shares: &EncodedShareList,
    key: &SealingKey,
    generator: &mut RandomGenerator,
) -> Result<(), QuorumStoreError> {
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

fn height_of(number: i64) -> Result<Height, QuorumStoreError> {
    file::unsigned(number, "height").map(Height)
}

/// The context to which a share's ciphertext is bound, so that rows cannot be exchanged.
fn share_context(epoch: u64, label: Label) -> [u8; 11] {
    let mut context = [0; 11];
    context[0] = b's';
    context[1..9].copy_from_slice(&epoch.to_be_bytes());
    context[9..].copy_from_slice(&label.0.to_be_bytes());
    context
}

/// The context to which an item's ciphertext is bound.
fn item_context(run: Sha256Digest, name: &[u8]) -> Vec<u8> {
    [&b"i"[..], &run.0, name].concat()
}

fn name_of(item: RunItemName) -> Vec<u8> {
    match item {
        RunItemName::Seed(round) => vec![1, round.0],
        RunItemName::SessionKey => vec![2],
        RunItemName::Dealing(dealer, round) => vec![3, dealer.0, round.0],
        RunItemName::Shares => vec![4],
    }
}

fn item_of(name: &[u8]) -> Option<RunItemName> {
    match *name {
        [1, round] => Some(RunItemName::Seed(DealingRound(round))),
        [2] => Some(RunItemName::SessionKey),
        [3, dealer, round] => Some(RunItemName::Dealing(ServerIndex(dealer), DealingRound(round))),
        [4] => Some(RunItemName::Shares),
        _ => None,
    }
}

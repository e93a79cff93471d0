//! The application of CometBFT: which blocks this server proposes and accepts, and which entries
//! the service gets from the blocks that were decided.
//!
//! Blocks are self-contained: a block that changes the servers names the next ones. So a server can
//! follow the chain from its first block on without the service's state. The first block, and each
//! block after one that changes the servers, is empty. All others have entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use encoding::FieldWrite as _;
use keys::IdentityPublicKey;

use super::block::{self, BlockContent};
use super::messages::{Misbehavior, ValidatorUpdate};
use crate::protocol::admission::{EntryAdmission, EntryCheck};
use crate::protocol::consensus::context::{LogValue, ValidatorAddress};
use crate::protocol::consensus::pool::{EntryPool, EntryPoolRefusal};
use crate::protocol::log_types::{CommittedEntries, Height, ServerSet};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The largest number of decided heights that wait for the service. A server that is far behind
/// gets no more before it has applied them.
const MAX_READY: usize = 64;

/// After this time without a new height, CometBFT is woken again.
const WAKE_AGAIN: Duration = Duration::from_secs(1);

/// The time after which a server sends its waiting entries again. It doubles up to the second
/// value.
const RESEND: Duration = Duration::from_secs(1);
const MAX_RESEND: Duration = Duration::from_secs(8);

/// The state of the chain after a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainPoint {
    /// The block's height.
    pub(crate) height: Height,
    /// The servers that agree, from the second height after the last change on.
    pub(crate) set: ServerSet,
    /// The hash that CometBFT compares.
    pub(crate) hash: Sha256Digest,
    /// Whether this block has changed the servers.
    pub(crate) has_changed: bool,
}

/// Why the log cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChainError {
    /// CometBFT has decided a block that no correct server accepts.
    #[error("height {0} of the chain is {1}: more than f servers are faulty")]
    Block(Height, MalformedEncoding),
    /// CometBFT has decided another height than the next one.
    #[error("CometBFT has decided height {0}, and the next one is {1}")]
    Order(Height, Height),
    /// The chain is that of other servers.
    #[error(
        "the chain names other servers at height {0} than the group: is it the chain of this group?"
    )]
    OtherServers(Height),
}

/// A server's application.
pub(crate) struct CometbftApplication {
    own: ValidatorAddress,
    /// The state before the first block.
    first: ChainPoint,
    /// The state after the last decided block.
    chain: ChainPoint,
    /// The state after a block that is decided and not saved yet, and its entries.
    unsaved: Option<(ChainPoint, CommittedEntries)>,
    /// The sets that blocks have begun, from the one at the last applied height on.
    sets: BTreeMap<Height, ServerSet>,
    /// The set that the service has reported for a height that is not decided here yet.
    expected: Option<(Height, ServerSet)>,
    /// A block that changes the servers, until the next block is decided.
    held: Option<CommittedEntries>,
    ready: VecDeque<CommittedEntries>,
    /// The last height that the service has taken or had before.
    taken: Height,
    /// The last height that the service has applied and reported.
    applied: Option<Height>,
    check: EntryCheck,
    pool: EntryPool,
    /// Makes the transactions that wake CometBFT unguessable.
    token: [u8; 16],
    wakes: u32,
    /// The height for which CometBFT was woken last, when, and whether it has taken the
    /// transaction.
    woken: Option<(Height, Duration, bool)>,
    resend_at: Option<Duration>,
    resend_pause: Duration,
}

impl CometbftApplication {
    /// The application of a server whose service has applied a height. `first` are the servers of
    /// the first epoch, and `token` is random.
    pub(crate) fn new(
        own: &IdentityPublicKey,
        first: ServerSet,
        applied: Height,
        token: [u8; 16],
    ) -> Self {
        let hash = block::first_hash(&first);
        let first = ChainPoint { height: Height(0), set: first, hash, has_changed: false };
        let check = EntryCheck::new(|_| EntryAdmission::Later);
        Self {
            own: ValidatorAddress::of(own),
            chain: first.clone(),
            sets: BTreeMap::from([(Height(0), first.set.clone())]),
            first,
            unsaved: None,
            expected: None,
            held: None,
            ready: VecDeque::new(),
            taken: applied,
            applied: None,
            check: check.clone(),
            pool: EntryPool::new(check),
            token,
            wakes: 0,
            woken: None,
            resend_at: None,
            resend_pause: RESEND,
        }
    }

    /// The state before the first block.
    pub(crate) fn first(&self) -> &ChainPoint {
        &self.first
    }

    /// The state after the last decided block.
    pub(crate) fn chain(&self) -> &ChainPoint {
        &self.chain
    }

    /// The height from which CometBFT must replay its blocks: what the service has, unless the
    /// chain ends before it.
    pub(crate) fn resume_height(&self, saved: Height) -> Height {
        self.taken.min(saved)
    }

    /// CometBFT has started, and decides the blocks after this state again.
    pub(crate) fn resume(&mut self, point: ChainPoint) {
        self.sets.insert(point.height, point.set.clone());
        self.sets.split_off(&point.height.next());
        self.chain = point;
        self.unsaved = None;
        self.held = None;
        self.ready.clear();
        self.woken = None;
    }

    /// The service has applied a height. Entries of the next one are checked with `check`.
    ///
    /// # Errors
    /// If the chain names other servers for the next height than the service.
    pub(crate) fn applied(
        &mut self,
        height: Height,
        next: &ServerSet,
        check: EntryCheck,
        now: Duration,
    ) -> Result<(), ChainError> {
        self.applied = Some(height);
        self.check = check.clone();
        self.pool.begin(check, now);
        if height > self.chain.height {
            self.expected = Some((height, next.clone()));
            return Ok(());
        }
        let known = self.sets.range(..=height).next_back();
        if known.is_some_and(|(_, set)| set != next) {
            return Err(ChainError::OtherServers(height));
        }
        if let Some((&from, _)) = known {
            self.sets = self.sets.split_off(&from);
        }
        Ok(())
    }

    /// Whether the service has applied everything that it can have.
    pub(crate) fn is_settled(&self) -> bool {
        self.ready.is_empty() && self.applied == Some(self.taken)
    }

    /// Whether a block of this height can be proposed or checked now.
    pub(crate) fn is_prepared(&self, height: Height) -> bool {
        self.is_empty_height(height) || self.applied.is_some_and(|it| it.next() >= height)
    }

    /// Whether a block of this height must be empty.
    fn is_empty_height(&self, height: Height) -> bool {
        height == Height(1) || (self.chain.has_changed && height == self.chain.height.next())
    }

    /// Whether the service has exactly the state on which a block of this height is based.
    fn is_next(&self, height: Height) -> bool {
        self.chain.height.next() == height && self.applied == Some(self.chain.height)
    }

    /// The transactions of a block that this server proposes.
    pub(crate) fn prepare(&self, height: Height) -> Vec<Bytes> {
        if self.is_empty_height(height) || !self.is_next(height) {
            return Vec::new();
        }
        let entries = self.pool.batch();
        let next = self.next_set(&entries);
        BlockContent { entries, next }.to_transactions()
    }

    /// Whether this server accepts a proposed block.
    pub(crate) fn accepts(&self, height: Height, transactions: &[Bytes]) -> bool {
        if self.is_empty_height(height) {
            return transactions.is_empty();
        }
        let Ok(BlockContent { entries, next }) = BlockContent::parse(transactions) else {
            return false;
        };
        let Some(value) = LogValue::new(self.own, &entries) else { return false };
        self.is_next(height) && self.pool.admits(&value).0 && self.next_set(&entries) == next
    }

    /// The servers after these entries, if they change.
    fn next_set(&self, entries: &[Bytes]) -> Option<ServerSet> {
        self.check.next_set(entries).filter(|next| *next != self.chain.set)
    }

    /// A block is decided. Returns the changes of the validators.
    ///
    /// # Errors
    /// If it is not the next block, or no correct server accepts it.
    pub(crate) fn decide(
        &mut self,
        height: Height,
        transactions: &[Bytes],
        now: Duration,
    ) -> Result<Vec<ValidatorUpdate>, ChainError> {
        let next = self.chain.height.next();
        if height != next {
            return Err(ChainError::Order(height, next));
        }
        let content = BlockContent::parse(transactions);
        let BlockContent { entries, next } =
            content.map_err(|why| ChainError::Block(height, why))?;
        let mut point = ChainPoint { height, has_changed: false, ..self.chain.clone() };
        let mut updates = Vec::new();
        if let Some(next) = next {
            updates = block::validator_updates(&point.set, &next);
            point.hash = block::next_hash(point.hash, &next);
            point.has_changed = true;
            point.set = next;
        }
        if let Some(value) = LogValue::new(self.own, &entries) {
            self.pool.committed(&value, now);
        }
        self.unsaved = Some((point, CommittedEntries { height, entries }));
        Ok(updates)
    }

    /// The state after the block that is decided and must be saved, before [`Self::saved`].
    pub(crate) fn unsaved(&self) -> Option<&ChainPoint> {
        self.unsaved.as_ref().map(|(point, _)| point)
    }

    /// The decided block is saved, and the service can have it. A block that changes the servers
    /// waits for the next one: the service may wipe this server's voting key when it applies it,
    /// and the old servers still decide the next block.
    ///
    /// # Errors
    /// If the chain names other servers than the service.
    pub(crate) fn saved(&mut self) -> Result<(), ChainError> {
        let Some((point, committed)) = self.unsaved.take() else { return Ok(()) };
        let height = point.height;
        if point.has_changed {
            self.sets.insert(height, point.set.clone());
        }
        self.chain = point;
        if let Some((_, set)) = self.expected.take_if(|(at, _)| *at == height)
            && set != self.chain.set
        {
            return Err(ChainError::OtherServers(height));
        }
        if height <= self.taken {
            return Ok(());
        }
        self.ready.extend(self.held.take());
        if self.chain.has_changed {
            self.held = Some(committed);
        } else {
            self.ready.push_back(committed);
        }
        Ok(())
    }

    /// Whether many decided heights wait for the service.
    pub(crate) fn is_full(&self) -> bool {
        self.ready.len() >= MAX_READY
    }

    /// The next height for the service, once it has applied the one before.
    pub(crate) fn poll_committed(&mut self) -> Option<CommittedEntries> {
        if self.applied != Some(self.taken) {
            return None;
        }
        let committed = self.ready.pop_front()?;
        self.taken = committed.height;
        Some(committed)
    }

    /// Accepts an entry that was submitted here. Returns whether it must be sent to other servers.
    ///
    /// # Errors
    /// If it may not be committed, or too many wait.
    pub(crate) fn submit(&mut self, entry: Bytes, now: Duration) -> Result<bool, EntryPoolRefusal> {
        let is_new = self.pool.submit(self.own, entry, now)?;
        if is_new && self.resend_at.is_none() {
            (self.resend_at, self.resend_pause) = (Some(now + RESEND), RESEND);
        }
        Ok(is_new)
    }

    /// Adds an entry of another server. If it is not accepted, that server sends it again, or
    /// proposes it itself.
    pub(crate) fn add(&mut self, from: ValidatorAddress, entry: Bytes, now: Duration) {
        let _ = self.pool.add(from, entry, now);
    }

    /// The entries that this server has submitted.
    pub(crate) fn own_entries(&self) -> Vec<Bytes> {
        self.pool.of(self.own).cloned().collect()
    }

    /// The entries that must be sent to the other servers again now.
    pub(crate) fn resend(&mut self, now: Duration) -> Vec<Bytes> {
        if self.resend_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let entries = self.own_entries();
        self.resend_pause = (self.resend_pause * 2).min(MAX_RESEND);
        self.resend_at = (!entries.is_empty()).then_some(now + self.resend_pause);
        entries
    }

    /// A transaction that makes CometBFT begin the next height, if there is something to commit and
    /// CometBFT does not know. It is never in a block.
    pub(crate) fn wake(&mut self, now: Duration) -> Option<Vec<u8>> {
        if !self.has_work() {
            return None;
        }
        let next = self.chain.height.next();
        let is_due = self.woken.is_none_or(|(height, at, is_taken)| {
            height != next || (!is_taken && at + WAKE_AGAIN <= now)
        });
        if !is_due {
            return None;
        }
        self.wakes = self.wakes.wrapping_add(1);
        self.woken = Some((next, now, false));
        Some(self.wake_transaction())
    }

    fn has_work(&self) -> bool {
        let is_next = self.unsaved.is_none() && self.applied == Some(self.chain.height);
        is_next && !self.chain.has_changed && !self.pool.is_empty()
    }

    fn wake_transaction(&self) -> Vec<u8> {
        let mut transaction = self.token.to_vec();
        transaction.put_u32(self.wakes);
        transaction
    }

    /// Whether CometBFT's pool keeps a transaction: the one by which this server has woken it,
    /// until a block is decided. So other servers cannot fill the pool.
    pub(crate) fn keeps(&mut self, transaction: &[u8], is_new: bool) -> bool {
        let is_own = is_new && self.has_work() && *transaction == self.wake_transaction();
        if let Some((_, _, is_taken)) = &mut self.woken {
            *is_taken |= is_own;
        }
        is_own
    }

    /// When to call [`Self::wake`] and [`Self::resend`] again.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let unanswered = self.woken.filter(|(_, _, is_taken)| !is_taken && self.has_work());
        let wake = unanswered.map(|(_, at, _)| at + WAKE_AGAIN);
        wake.into_iter().chain(self.resend_at).min()
    }

    /// The number of waiting entries.
    pub(crate) fn waiting(&self) -> usize {
        self.pool.len()
    }

    /// Since when the oldest entry that this server submitted has waited.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.pool.oldest_of(self.own)
    }

    /// The servers that have provably voted twice.
    pub(crate) fn faulty(&self, misbehavior: &[Misbehavior]) -> BTreeSet<String> {
        let servers = misbehavior.iter().filter_map(|it| it.validator.as_ref()).map(|validator| {
            let server = block::server_of(&self.chain.set, &validator.address);
            server.map_or_else(|| "a former server".to_owned(), |server| server.to_string())
        });
        servers.collect()
    }
}

#[cfg(test)]
mod tests;

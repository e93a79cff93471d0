//! What a server saves for a restart.

use std::collections::BTreeMap;

use bytes::Bytes;
use zeroize::Zeroizing;

use super::start::{GroupStart, SignedGroupHeader};
use crate::protocol::combination::Label;
use crate::protocol::log_types::{Height, LogIncarnation};
use crate::protocol::refresh::RunItemName;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::Sha256Digest;

/// Shares by label, encoded. Secret.
pub type EncodedShareList = Vec<(Label, Zeroizing<Vec<u8>>)>;

/// Since when an approval of this server has waited for those of others. `epoch`, `run` and
/// `withdrawn` name the approval: no other one has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalWait {
    /// The number of the current epoch.
    pub epoch: u64,
    /// The number of the run.
    pub run: u32,
    /// How many approvals this server has withdrawn before in this run.
    pub withdrawn: u8,
    /// When the log had it, by the system's clock, or when the clock was set back.
    pub since: UnixSeconds,
}

impl ApprovalWait {
    /// Whether both are of the same approval.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.epoch, self.run, self.withdrawn) == (other.epoch, other.run, other.withdrawn)
    }
}

/// A change of the saved state.
pub enum SavedStateChange {
    /// A new start, which replaces the old one. Heights up to the start's height count as applied,
    /// and their entries are deleted.
    Start(GroupStart),
    /// A start that f+1 servers have sent. The previous start, height and entries are deleted.
    Restarted(GroupStart),
    /// A chain of signed epochs that continues after the epoch of the start: that epoch has ended.
    Newer(Vec<SignedGroupHeader>),
    /// The shares of an epoch, to be encrypted at rest.
    Shares {
        /// The epoch's number.
        epoch: u64,
        /// All shares that the server must hold.
        shares: EncodedShareList,
    },
    /// A voting key for an epoch, to be encrypted at rest. It replaces the previous one.
    Voting {
        /// The epoch's number.
        epoch: u64,
        /// The incarnation of the log file that the key belongs to. `None` if no log was opened
        /// yet.
        life: Option<LogIncarnation>,
        /// The key. Secret.
        secret: Zeroizing<[u8; 32]>,
    },
    /// An epoch has ended. Its shares and its voting key are wiped.
    End {
        /// The epoch's number.
        epoch: u64,
    },
    /// A height has been applied.
    Applied {
        /// The height.
        height: Height,
        /// The entries that have had an effect, in their order.
        entries: Vec<Bytes>,
    },
    /// The replicated service's state after this height, which is that of the start. It replaces
    /// the previous one.
    Snapshot {
        /// The height.
        height: Height,
        /// The snapshot.
        bytes: Bytes,
    },
    /// An item of the open run, to be encrypted at rest. It replaces an item with the same name.
    Item {
        /// The run.
        run: Sha256Digest,
        /// Its name.
        item: RunItemName,
        /// Secret.
        bytes: Zeroizing<Vec<u8>>,
    },
    /// This server's approval of a refresh waits. It replaces the previous one.
    ApprovalWaits(ApprovalWait),
    /// The items of a run are to be wiped.
    EraseRun {
        /// The run.
        run: Sha256Digest,
    },
}

impl SavedStateChange {
    /// The new start, if it is one.
    pub fn start(&self) -> Option<&GroupStart> {
        match self {
            Self::Start(start) | Self::Restarted(start) => Some(start),
            _ => None,
        }
    }
}

/// The saved state, which results from all changes.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub struct SavedServerState {
    /// The start. A server without one waits to be invited.
    pub start: Option<GroupStart>,
    /// The newest chain of epochs that it has seen, if it continues after the start.
    pub newer: Option<Vec<SignedGroupHeader>>,
    /// The last height that was applied.
    pub height: Height,
    /// The stored entries with their heights, in their order.
    pub entries: Vec<(Height, Bytes)>,
    /// The last snapshot of the replicated service's state, and its height.
    pub snapshot: Option<(Height, Bytes)>,
    /// The shares by epoch.
    pub shares: BTreeMap<u64, EncodedShareList>,
    /// The voting keys by epoch, with the incarnation of the log file that each belongs to.
    pub voting: BTreeMap<u64, (Option<LogIncarnation>, Zeroizing<[u8; 32]>)>,
    /// The last approval of this server that has waited.
    pub approval: Option<ApprovalWait>,
    /// The items by run.
    pub items: BTreeMap<Sha256Digest, BTreeMap<RunItemName, Zeroizing<Vec<u8>>>>,
}

impl SavedServerState {
    /// Applies a change to the state in memory.
    pub fn apply(&mut self, change: SavedStateChange) {
        match change {
            SavedStateChange::Start(start) => {
                self.height = self.height.max(start.height);
                self.entries.retain(|(height, _)| *height > start.height);
                self.start = Some(start);
            }
            SavedStateChange::Restarted(start) => {
                (self.height, self.newer) = (start.height, None);
                self.entries.clear();
                self.start = Some(start);
            }
            SavedStateChange::Newer(chain) => self.newer = Some(chain),
            SavedStateChange::Shares { epoch, shares } => {
                self.shares.insert(epoch, shares);
            }
            SavedStateChange::Voting { epoch, life, secret } => {
                self.voting.insert(epoch, (life, secret));
            }
            SavedStateChange::End { epoch } => {
                self.shares.remove(&epoch);
                self.voting.remove(&epoch);
            }
            SavedStateChange::Applied { height, entries } => {
                self.height = height;
                self.entries.extend(entries.into_iter().map(|entry| (height, entry)));
            }
            SavedStateChange::Snapshot { height, bytes } => self.snapshot = Some((height, bytes)),
            SavedStateChange::ApprovalWaits(wait) => self.approval = Some(wait),
            SavedStateChange::Item { run, item, bytes } => {
                self.items.entry(run).or_default().insert(item, bytes);
            }
            SavedStateChange::EraseRun { run } => {
                self.items.remove(&run);
            }
        }
    }
}

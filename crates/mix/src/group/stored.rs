//! What is stored of a group. The layout is in `docs/protocols/mix.md`, *State*.

use sha2::{Digest, Sha256};

use super::GroupSettings;
use super::epoch::Epoch;
use super::waiting::Notices;
use crate::wire::fields::{Reader, put_counted};
use crate::wire::{MAX_NOTICE_LEN, WireError};

const MAGIC: [u8; 8] = *b"sndrmix1";

/// Why bytes are not the state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// They have been changed or cut.
    #[error("it is damaged")]
    Damaged,
    /// The last announcement does not belong to the group.
    #[error(
        "it is of another group, of another administrator, or of more members than there may be"
    )]
    OtherGroup,
}

impl From<WireError> for StoredError {
    fn from(_: WireError) -> Self {
        Self::Damaged
    }
}

#[derive(Default)]
pub(super) struct Stored {
    pub(super) epoch: Option<Epoch>,
    /// The first number that no round has had.
    pub(super) next_round: u64,
    pub(super) notices: Notices,
}

pub(super) fn encode(epoch: Option<&Epoch>, next_round: u64, notices: &Notices) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(next_round.to_be_bytes());
    put_counted(&mut out, epoch.map_or(&[], |epoch| epoch.announcement()));
    for (key, notice) in notices.all() {
        out.extend(key.to_bytes());
        put_counted(&mut out, &notice);
    }
    let digest = Sha256::digest(&out);
    out.extend(digest);
    out
}

impl Stored {
    /// Reads what was stored, and checks again that the administrator has announced the epoch.
    ///
    /// # Errors
    /// If the bytes are damaged, or do not belong to the group.
    pub(super) fn decode(bytes: &[u8], settings: &GroupSettings) -> Result<Self, StoredError> {
        let (content, digest) = bytes.split_last_chunk::<32>().ok_or(StoredError::Damaged)?;
        let mut reader = Reader::new(content);
        if Sha256::digest(content)[..] != digest[..] || reader.array()? != MAGIC {
            return Err(StoredError::Damaged);
        }
        let next_round = reader.u64()?;
        let announcement = reader.counted(settings.terms.max_announcement_len())?;
        let epoch = match announcement {
            none if none.is_empty() => None,
            some => Some(Epoch::verify(some, settings).map_err(|_| StoredError::OtherGroup)?),
        };
        let mut notices = Notices::default();
        while !reader.is_empty() {
            notices.insert(&reader.key()?, reader.counted(MAX_NOTICE_LEN)?);
        }
        Ok(Self { epoch, next_round, notices })
    }
}

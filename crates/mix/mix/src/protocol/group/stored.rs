//! The stored state of a group. The layout is in `docs/protocols/mix.md`, *State*.

use encoding::{FieldError, FieldReader, FieldWrite as _};
use sha2::{Digest, Sha256};

use super::MixGroupSettings;
use super::epoch::AnnouncedEpoch;
use super::waiting::LastNotices;
use crate::protocol::wire::fields::MixFields as _;
use crate::protocol::wire::{MAX_NOTICE_LEN, MixWireError};

const MAGIC: [u8; 8] = *b"sndrmix1";

/// Why a stored state is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupStateError {
    /// The bytes are corrupted or truncated.
    #[error("it is damaged")]
    Damaged,
    /// The last announcement does not belong to the group.
    #[error(
        "it is of another group, of another administrator, or of more members than there may be"
    )]
    OtherGroup,
}

impl From<FieldError> for GroupStateError {
    fn from(_: FieldError) -> Self {
        Self::Damaged
    }
}

impl From<MixWireError> for GroupStateError {
    fn from(_: MixWireError) -> Self {
        Self::Damaged
    }
}

#[derive(Default)]
pub(super) struct StoredGroup {
    pub(super) epoch: Option<AnnouncedEpoch>,
    /// The first unused round number.
    pub(super) next_round: u64,
    pub(super) notices: LastNotices,
}

pub(super) fn encode(
    epoch: Option<&AnnouncedEpoch>,
    next_round: u64,
    notices: &LastNotices,
) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(next_round.to_be_bytes());
    out.put_counted(epoch.map_or(&[], |epoch| epoch.announcement()));
    for (key, notice) in notices.all() {
        out.extend(key.to_bytes());
        out.put_counted(&notice);
    }
    let digest = Sha256::digest(&out);
    out.extend(digest);
    out
}

impl StoredGroup {
    /// Decodes a stored state, and verifies again the administrator's announcement of the epoch.
    ///
    /// # Errors
    /// If the bytes are damaged, or do not belong to the group.
    pub(super) fn decode(
        bytes: &[u8],
        settings: &MixGroupSettings,
    ) -> Result<Self, GroupStateError> {
        let (content, digest) = bytes.split_last_chunk::<32>().ok_or(GroupStateError::Damaged)?;
        let mut reader = FieldReader::new(content);
        if Sha256::digest(content)[..] != digest[..] || reader.take()? != MAGIC {
            return Err(GroupStateError::Damaged);
        }
        let next_round = reader.u64()?;
        let announcement = reader.counted_up_to(settings.terms.max_announcement_len())?;
        let epoch = match announcement {
            [] => None,
            some => Some(
                AnnouncedEpoch::verify(some, settings).map_err(|_| GroupStateError::OtherGroup)?,
            ),
        };
        let mut notices = LastNotices::default();
        while !reader.is_empty() {
            notices.insert(&reader.key()?, reader.counted_up_to(MAX_NOTICE_LEN)?.to_vec());
        }
        Ok(Self { epoch, next_round, notices })
    }
}

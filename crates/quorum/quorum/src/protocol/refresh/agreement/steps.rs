//! The checks of entries that are steps in a handover.

use handover::ParticipantId;

use super::run_handover::RunHandover;
use super::{LogEntryRefusal, RefreshAgreement};
use crate::protocol::refresh::entry::LogEntry;
use crate::protocol::refresh::handover_step::EncodedHandoverStep;
use crate::protocol::wire::Sha256Digest;

impl RefreshAgreement {
    /// The handover to which a step belongs, and the author as the handover numbers it.
    pub(super) fn handover_of(
        &self,
        entry: &LogEntry,
        step: &EncodedHandoverStep,
    ) -> Result<(&RunHandover, ParticipantId), LogEntryRefusal> {
        let run = self.run_of(Sha256Digest(step.header().run), entry)?;
        let handover = run.handover.as_ref().ok_or(LogEntryRefusal::OtherKey)?;
        Ok((handover, entry.author.participant().ok_or(LogEntryRefusal::Signature)?))
    }
}

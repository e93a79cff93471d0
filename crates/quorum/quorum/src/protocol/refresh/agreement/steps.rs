//! The checks of entries that are steps in the handover of an Ed25519 key.

use handover::{HandoverAgreement, HandoverEntryKind, ParticipantId};
use schnorr::SchnorrScheme;

use super::{LogEntryRefusal, RefreshAgreement};
use crate::protocol::refresh::entry::LogEntry;
use crate::protocol::refresh::handover_step::EncodedHandoverStep;
use crate::protocol::wire::Sha256Digest;

impl RefreshAgreement {
    /// Checks the rest of a step of a handover, which its author has signed.
    ///
    /// A Deal has many points, which are costly to decode, and entries are checked often. So it is
    /// decoded only when it is applied, once for each dealer. If it cannot be, or names a receiver
    /// that is not registered, its author is faulty: a correct dealer has seen in the log that the
    /// receivers are registered, and its Deal comes after that.
    pub(super) fn check_step(
        &self,
        entry: &LogEntry,
        step: &EncodedHandoverStep,
    ) -> Result<(), LogEntryRefusal> {
        if step.header().kind == HandoverEntryKind::Deal {
            return Ok(());
        }
        let (handover, author) = self.handover_of(entry, step)?;
        Ok(handover.check(author, &step.decode()?)?)
    }

    /// The handover to which a step belongs, and the author as the handover numbers it.
    pub(super) fn handover_of(
        &self,
        entry: &LogEntry,
        step: &EncodedHandoverStep,
    ) -> Result<(&HandoverAgreement<SchnorrScheme>, ParticipantId), LogEntryRefusal> {
        let run = self.run_of(Sha256Digest(step.header().run), entry)?;
        let handover = run.handover.as_ref().ok_or(LogEntryRefusal::OtherKey)?;
        Ok((handover, entry.author.participant().ok_or(LogEntryRefusal::Signature)?))
    }
}

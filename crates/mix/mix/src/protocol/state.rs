//! The error of a member's stored state.

use encoding::FieldError;

/// The bytes are not a stored state of conversations of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the state of conversations of this version")]
pub struct ConversationStateError;

impl From<FieldError> for ConversationStateError {
    fn from(_: FieldError) -> Self {
        Self
    }
}

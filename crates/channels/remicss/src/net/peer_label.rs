//! The name of a peer in the log.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// What stands before a line of the log about a peer: the name of a client, or nothing if there is
/// only one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerLabel(Option<Arc<str>>);

impl PeerLabel {
    /// The label of a client.
    pub(super) fn of_client(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// Whether it is a client's.
    pub(super) fn is_client(&self) -> bool {
        self.0.is_some()
    }
}

impl Display for PeerLabel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(formatter, "{name}: "))
    }
}

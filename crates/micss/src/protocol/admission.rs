//! Who has to go when there is not room for all, decided from the sources of connections. Pure:
//! sources and amounts come in, the numbers of those that are evicted come out.
//!
//! Two rules. Whoever has no open stream is evicted oldest first: what has waited for long is not
//! about to be used. Open streams are evicted newest first, the newcomer included: what has run for
//! long is worth more than what has just begun. Both only in the largest source, so one source can
//! take away its own places and nobody else's, as long as it has more than they.

mod budget;
mod pending;
mod sources;

pub(crate) use budget::{Budget, Evicted, Limit};
pub(crate) use pending::{Closed, PendingCounts, PendingEvent, PendingLimits, PendingTable};
pub(crate) use sources::Sources;

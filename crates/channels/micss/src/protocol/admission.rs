//! Decides which connections and streams are evicted when a limit is exceeded, by their sources.
//! Pure: sources and amounts come in, the numbers of evicted holders go out.
//!
//! There are two rules. Connections without an open stream are evicted oldest first: the longer one
//! has waited, the less likely it is to be used. Open streams are evicted newest first, including
//! the one that is opening: a long-running stream is worth more than a new one. Both rules evict
//! from the largest source only, so a source that has more than others can only displace its own
//! connections and streams.

mod budget;
mod pending;
mod sources;

pub(crate) use budget::{EvictedStream, ExhaustedResource, OpenStreamBudget};
pub(crate) use pending::{
    PendingCloseReason, PendingConnectionCounts, PendingConnectionEvent, PendingConnectionLimits,
    PendingConnectionTable,
};
pub(crate) use sources::SourceUsage;

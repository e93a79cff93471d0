//! Decides which connections and streams are evicted when a limit is exceeded, by their sources.
//! Pure: sources and amounts come in, the numbers of the evicted come out.
//!
//! There are two rules. Connections without an open stream are evicted oldest first: the longer one
//! has waited, the less likely it is to be used. Open streams are evicted newest first, including
//! the one that is opening: a stream that has run for long is worth more than one that has just
//! begun. Both rules evict from the largest source only, so a source can only displace its own
//! connections and streams as long as it has more than others.

mod budget;
mod pending;
mod sources;

pub(crate) use budget::{EvictedStream, ExhaustedResource, OpenStreamBudget};
pub(crate) use pending::{
    PendingCloseReason, PendingConnectionCounts, PendingConnectionEvent, PendingConnectionLimits,
    PendingConnectionTable,
};
pub(crate) use sources::SourceUsage;

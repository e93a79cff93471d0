//! Connections that have not proven anything yet. Their number is limited, in total and for each
//! source, so that those who only connect keep nobody out.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::stream::ByteStream;

/// The most at a time.
const MAX_PENDING: usize = 128;

/// The most of one source.
const MAX_OF_SOURCE: usize = 32;

/// The connections in a handshake.
#[derive(Default)]
pub(super) struct Pending {
    /// Oldest first.
    entries: Mutex<VecDeque<Entry>>,
}

struct Entry {
    source: IpAddr,
    stream: Arc<dyn ByteStream>,
}

impl Pending {
    /// Adds a connection. If there are too many, the oldest of its source is ended, or the oldest
    /// of the source with the most.
    pub(super) fn add(&self, stream: &Arc<dyn ByteStream>) {
        let source = source(stream.peer_addr().ip());
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(oldest) = to_evict(&entries, source)
            && let Some(evicted) = entries.remove(oldest)
        {
            // Its thread sees that, and ends.
            evicted.stream.close();
        }
        entries.push_back(Entry { source, stream: stream.clone() });
    }

    /// Removes a connection whose handshake has ended.
    pub(super) fn remove(&self, stream: &Arc<dyn ByteStream>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| !Arc::ptr_eq(&entry.stream, stream));
    }

    /// Ends all.
    pub(super) fn close(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.drain(..).for_each(|entry| entry.stream.close());
    }
}

fn to_evict(entries: &VecDeque<Entry>, source: IpAddr) -> Option<usize> {
    let count = |source| entries.iter().filter(|entry| entry.source == source).count();
    let crowded = if count(source) >= MAX_OF_SOURCE {
        source
    } else if entries.len() >= MAX_PENDING {
        entries.iter().map(|entry| entry.source).max_by_key(|source| count(*source))?
    } else {
        return None;
    };
    entries.iter().position(|entry| entry.source == crowded)
}

/// What counts as one source: an IPv4 address, or the first 48 bits of an IPv6 address, which a
/// site has.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 80 << 80).into()),
        address @ IpAddr::V4(_) => address,
    }
}

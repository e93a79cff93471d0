//! The open streams of a server, by the identifiers that clients send to reconnect their channels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use association::{ConnectionCookie, Rejoin};
use tokio::sync::mpsc;

use crate::net::stream::rejoins::RejoinClaim;
use crate::protocol::rejoin::RejoinKeys;

/// The largest number of connections that wait for a stream to take them.
const MAX_CLAIMS: usize = 16;

/// The streams that connections may join.
#[derive(Default)]
pub(crate) struct RejoinableStreams(Mutex<HashMap<[u8; 16], RejoinableStreamEntry>>);

struct RejoinableStreamEntry {
    keys: RejoinKeys,
    claims: mpsc::Sender<RejoinClaim>,
}

/// A stream that connections may join until this is dropped.
pub(crate) struct RejoinableStream {
    all: Arc<RejoinableStreams>,
    stream: [u8; 16],
}

impl RejoinableStreams {
    /// Adds a stream. Also returns the receiver of its connections.
    pub(crate) fn add(
        self: &Arc<Self>,
        keys: &RejoinKeys,
    ) -> (RejoinableStream, mpsc::Receiver<RejoinClaim>) {
        let (claims, receiver) = mpsc::channel(MAX_CLAIMS);
        let stream = keys.stream();
        self.entries().insert(stream, RejoinableStreamEntry { keys: keys.clone(), claims });
        (RejoinableStream { all: Arc::clone(self), stream }, receiver)
    }

    /// The sender to the stream that a Rejoin names, if the proof is valid for the channel.
    pub(crate) fn verify(
        &self,
        rejoin: &Rejoin,
        cookie: ConnectionCookie,
    ) -> Option<mpsc::Sender<RejoinClaim>> {
        let entries = self.entries();
        let entry = entries.get(&rejoin.association)?;
        entry.keys.verify(rejoin, cookie).then(|| entry.claims.clone())
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<[u8; 16], RejoinableStreamEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RejoinableStream {
    fn drop(&mut self) {
        self.all.entries().remove(&self.stream);
    }
}

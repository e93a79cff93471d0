//! The server's open streams, and the limits of their number and of the memory for their records.
//! [`OpenStreamBudget`] decides which are evicted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tracing::warn;

use crate::config::MicssServerConfig;
use crate::protocol::admission::{EvictedStream, ExhaustedResource, OpenStreamBudget};
use crate::protocol::memory::MemoryLease;
use crate::protocol::record::SMALL_RECORD;
use service::log::LogRateLimiter;

/// All open streams.
#[derive(Debug)]
pub(crate) struct OpenStreams {
    state: Mutex<OpenStreamTable>,
}

#[derive(Debug)]
struct OpenStreamTable {
    budget: OpenStreamBudget,
    /// Ends a stream.
    streams: HashMap<u64, Arc<Notify>>,
    counts: StreamLimitCounts,
    over_streams: LogRateLimiter,
    over_memory: LogRateLimiter,
}

/// Counts of reached limits, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamLimitCounts {
    /// Streams that were ended so that streams of other sources could open.
    pub(crate) evicted: u64,
    /// Streams that were ended or rejected, or limited to short records, because there was no
    /// memory.
    pub(crate) out_of_memory: u64,
    /// The bytes that records take, and the limit.
    pub(crate) bytes: u64,
}

/// An open stream. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    all: Arc<OpenStreams>,
    number: u64,
    evicted: Arc<Notify>,
}

impl OpenStreams {
    /// No open streams, with the limits of the configuration.
    pub(crate) fn new(config: &MicssServerConfig) -> Self {
        let state = OpenStreamTable {
            budget: OpenStreamBudget::new(config.max_streams, config.max_memory),
            streams: HashMap::new(),
            counts: StreamLimitCounts::default(),
            over_streams: LogRateLimiter::default(),
            over_memory: LogRateLimiter::default(),
        };
        Self { state: Mutex::new(state) }
    }

    /// Applies the limits of this configuration.
    pub(crate) fn reconfigure(&self, config: &MicssServerConfig) {
        self.with(|state| state.budget.reconfigure(config.max_streams, config.max_memory));
    }

    /// Opens a stream of a source with this number of channels. May evict others. `None` if the
    /// stream is rejected.
    pub(crate) fn open(self: &Arc<Self>, source: IpAddr, channels: usize) -> Option<OpenStream> {
        // In each direction: all shares, and the record itself.
        let bytes = 2 * (channels + 1) * SMALL_RECORD;
        self.with(|state| match state.budget.open(source, bytes as u64) {
            Ok(number) => {
                let evicted = Arc::new(Notify::new());
                state.streams.insert(number, Arc::clone(&evicted));
                Some(OpenStream { all: Arc::clone(self), number, evicted })
            }
            Err(limit) => {
                state.reached(limit, source, false);
                None
            }
        })
    }

    /// The counts of reached limits.
    pub(crate) fn counts(&self) -> StreamLimitCounts {
        self.with(|state| StreamLimitCounts { bytes: state.budget.bytes(), ..state.counts })
    }

    /// Changes the memory of a stream from `held` to `bytes`. Returns whether that is possible;
    /// reducing it always is.
    fn resize(&self, number: u64, held: &mut u64, bytes: u64) -> bool {
        let before = *held;
        let may = bytes <= before
            || self.with(|state| {
                let may = state.budget.take(number, bytes - before);
                if !may && let Some(source) = state.budget.source(number) {
                    state.reached(ExhaustedResource::Memory, source, false);
                }
                may
            });
        if bytes < before {
            self.with(|state| state.budget.release(number, before - bytes));
        }
        if may {
            *held = bytes;
        }
        may
    }

    /// Runs an operation, and ends the streams that it evicts.
    fn with<T>(&self, act: impl FnOnce(&mut OpenStreamTable) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut state);
        while let Some(EvictedStream { number, source, limit }) = state.budget.poll_evicted() {
            if let Some(evicted) = state.streams.remove(&number) {
                evicted.notify_one();
            }
            state.reached(limit, source, true);
        }
        result
    }
}

impl OpenStreamTable {
    /// Records that a limit was reached: a stream of this source was evicted or limited.
    fn reached(&mut self, limit: ExhaustedResource, source: IpAddr, evicted: bool) {
        self.counts.evicted += u64::from(evicted);
        let open = self.budget.streams();
        match limit {
            ExhaustedResource::Streams => {
                if let Some(occurrences) = self.over_streams.count_event() {
                    warn!(
                        %source,
                        open,
                        occurrences,
                        "streams refused, or ended: limit reached, see max_streams; this \
                         source has the most"
                    );
                }
            }
            ExhaustedResource::Memory => {
                self.counts.out_of_memory += 1;
                if let Some(occurrences) = self.over_memory.count_event() {
                    let bytes = self.budget.bytes();
                    warn!(
                        %source,
                        open,
                        bytes,
                        occurrences,
                        "streams without memory for records: limit reached, see max_memory_mib; this \
                         source holds the most"
                    );
                }
            }
        }
    }
}

impl OpenStream {
    /// Waits until the stream is evicted.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// The lease of one direction.
    pub(crate) fn lease(&self) -> MemoryLease {
        let (all, number, mut held) = (Arc::clone(&self.all), self.number, 0);
        MemoryLease::limited(move |bytes| all.resize(number, &mut held, bytes as u64))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.all.with(|state| {
            state.streams.remove(&self.number);
            state.budget.close(self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use random::RandomGenerator;
    use sharing::SharingParameters;

    use super::*;
    use crate::protocol::incoming::{IncomingRecords, SEED_LEN};
    use crate::protocol::outgoing::OutgoingRecords;
    use crate::protocol::record::{
        HEADER_LEN, MAX_PAYLOAD, MAX_RECORD, MicssRecordError, MicssRecordKind,
    };

    /// The memory of two channels for one direction with long records.
    fn open_streams() -> Arc<OpenStreams> {
        let text = "listen = [\"127.0.0.1:1\"]\nallow = []\nmax_memory_mib = 16\n";
        let mut config = MicssServerConfig::from_toml(text).unwrap();
        config.max_memory = 3 * (2 * 3 * 4096) + 3 * (MAX_RECORD as u64 + 36 - 4096);
        Arc::new(OpenStreams::new(&config))
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// All shares of a record with a payload of this length.
    fn shares(len: usize) -> Vec<Vec<u8>> {
        let mut outgoing =
            OutgoingRecords::new(SharingParameters::xor(2).unwrap(), RandomGenerator::system());
        outgoing.make_room(len);
        outgoing.seal_payload(MicssRecordKind::Data, &vec![1; len]).unwrap();
        (0..2).map(|channel| outgoing.unsent(channel).to_vec()).collect()
    }

    fn receive(
        incoming: &mut IncomingRecords,
        len: usize,
    ) -> Result<Option<usize>, MicssRecordError> {
        for (channel, share) in shares(len).into_iter().enumerate() {
            let space = incoming.space(channel);
            let piece = space.len().min(share.len());
            space[..piece].copy_from_slice(&share[..piece]);
            incoming.filled(channel, piece);
        }
        incoming.take_next().map(|next| next.map(|next| next.payload.len()))
    }

    #[test]
    fn without_memory_records_that_are_sent_stay_short_and_long_ones_are_not_received() {
        let all = open_streams();
        let incoming = || IncomingRecords::new(SharingParameters::xor(2).unwrap(), [7; SEED_LEN]);
        let [holds, asks] = [1, 1].map(|last| all.open(ip(last), 2).unwrap());
        let mut first = incoming();
        first.limit_memory(holds.lease());
        assert_eq!(
            receive(&mut first, MAX_PAYLOAD),
            Ok(None),
            "there is room, and not all has come"
        );
        assert_eq!(all.counts().out_of_memory, 0);

        let mut second = incoming();
        second.limit_memory(asks.lease());
        assert_eq!(receive(&mut second, 1000), Ok(Some(1000)));
        assert_eq!(receive(&mut second, MAX_PAYLOAD), Err(MicssRecordError::NoMemory));
        let mut outgoing =
            OutgoingRecords::new(SharingParameters::xor(2).unwrap(), RandomGenerator::system());
        outgoing.limit_memory(asks.lease(), MemoryLease::default());
        for _ in 0..3 {
            outgoing.make_room(MAX_PAYLOAD);
            let len = outgoing.payload_mut().len();
            assert_eq!(len, 4096 - HEADER_LEN);
            outgoing.seal(MicssRecordKind::Data, len).unwrap();
            for channel in 0..2 {
                outgoing.advance(channel, 4096);
            }
        }
        assert!(all.counts().out_of_memory >= 4);

        // The other source holds less, so it gets memory of the first one.
        let other = all.open(ip(2), 2).unwrap();
        let mut third = incoming();
        third.limit_memory(other.lease());
        assert_eq!(receive(&mut third, MAX_PAYLOAD), Ok(None));
        assert_eq!(all.counts().evicted, 1);
        let before = all.counts().bytes;
        drop(other);
        assert!(all.counts().bytes < before);
        drop((holds, asks));
        assert_eq!(all.counts().bytes, 0);
    }

    #[tokio::test]
    async fn the_evicted_stream_is_notified() {
        let all = open_streams();
        let streams: Vec<OpenStream> = (0..3).map(|_| all.open(ip(1), 2).unwrap()).collect();
        all.with(|state| state.budget.reconfigure(3, u64::MAX));
        assert!(all.open(ip(1), 2).is_none());
        let other = all.open(ip(2), 2).unwrap();
        streams[2].evicted().await;
        assert_eq!(all.counts().evicted, 1);
        drop((streams, other));
        assert_eq!(all.counts().bytes, 0);
    }
}

//! Measures the rate at which the peer's trains arrive.

use std::time::Duration;

use crate::protocol::train::PacketTrain;

/// Shorter trains are not measured.
const MIN_PACKETS: u32 = 16;

/// Packets of a train beyond this number are not measured.
const MAX_PACKETS: u64 = 256;

#[derive(Debug, Default)]
pub(in crate::protocol) struct TrainRateMeter {
    /// The number of the train's first packet, the train, and how many of its packets have arrived.
    current: Option<(u64, PacketTrain, u32)>,
    /// The rate of the last complete train, in bytes/s, if it was not reported yet.
    rate: Option<f64>,
}

impl TrainRateMeter {
    /// Records a packet of `len` bytes; `is_first` if it is the first of a train.
    pub(in crate::protocol) fn add(
        &mut self,
        number: u64,
        arrived_at: Duration,
        len: usize,
        is_first: bool,
    ) {
        if is_first {
            // The first packet of a train shows that the train before is complete.
            if let Some((_, train, packets)) = self.current.take()
                && packets >= MIN_PACKETS
                && let Some(estimate) = train.estimate()
            {
                self.rate = Some(estimate.rate);
            }
            self.current = Some((number, PacketTrain::new(), 0));
        }
        let Some((first, train, packets)) = &mut self.current else { return };
        let position = number.checked_sub(*first).filter(|position| *position < MAX_PACKETS);
        if let Some(position) = position.and_then(|position| u32::try_from(position).ok()) {
            train.add(position, arrived_at, len);
            *packets += 1;
        }
    }

    /// Takes the rate of a train that was not reported yet.
    pub(in crate::protocol) fn take_rate(&mut self) -> Option<f64> {
        self.rate.take()
    }
}

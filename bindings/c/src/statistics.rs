//! `sunder_statistics`.

use std::time::Duration;

/// `sunder_statistics`: its fields as in the header, `size` first, all others u64.
#[derive(Debug)]
#[repr(C)]
pub struct Statistics {
    size: usize,
    pub(crate) bytes_sent: u64,
    bytes_received: u64,
    packets_sent: u64,
    packets_sent_again: u64,
    round_trip_ns: u64,
    min_round_trip_ns: u64,
    delivery_rate: u64,
}

impl From<transport::ConnectionStatistics> for Statistics {
    fn from(statistics: transport::ConnectionStatistics) -> Self {
        let path = statistics.path;
        let ns = |time: Option<Duration>| {
            time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        Self {
            size: size_of::<Self>(),
            bytes_sent: statistics.bytes_sent,
            bytes_received: statistics.bytes_received,
            packets_sent: path.packets_sent.unwrap_or_default(),
            packets_sent_again: path.packets_sent_again.unwrap_or_default(),
            round_trip_ns: ns(path.round_trip),
            min_round_trip_ns: ns(path.min_round_trip),
            delivery_rate: path.delivery_rate.unwrap_or_default(),
        }
    }
}

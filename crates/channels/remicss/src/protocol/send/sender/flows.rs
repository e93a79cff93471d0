//! The last symbol of each flow, so that the receiver can keep a flow in order.

use std::time::Duration;

/// The number of buckets for flows. Two flows in one bucket wait for each other.
const BUCKETS: usize = 1024;

/// After this time a symbol has arrived or is lost, so that nothing needs to wait for it.
const FLOW_TIMEOUT: Duration = Duration::from_millis(250);

/// The last symbol of each flow.
pub(super) struct FlowTable(Box<[Option<LastFlowSymbol>]>);

#[derive(Clone, Copy)]
struct LastFlowSymbol {
    number: u64,
    at: Duration,
}

impl FlowTable {
    pub(super) fn new() -> Self {
        Self(vec![None; BUCKETS].into())
    }

    /// The distance from symbol `number` to the flow's previous symbol: 0 if there is none that
    /// matters, 255 for 255 or more.
    pub(super) fn distance_to_previous(&self, flow: u16, number: u64, now: Duration) -> u8 {
        self.0[bucket(flow)]
            .filter(|last| now.saturating_sub(last.at) <= FLOW_TIMEOUT)
            .map_or(0, |last| u8::try_from(number - last.number).unwrap_or(u8::MAX))
    }

    /// Records symbol `number` as the flow's last.
    pub(super) fn record(&mut self, flow: u16, number: u64, at: Duration) {
        self.0[bucket(flow)] = Some(LastFlowSymbol { number, at });
    }
}

fn bucket(flow: u16) -> usize {
    usize::from(flow) % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_has_its_own_last_symbol() {
        let ms = Duration::from_millis;
        let mut flows = FlowTable::new();
        assert_eq!(flows.distance_to_previous(1, 7, ms(0)), 0);
        flows.record(1, 7, ms(0));
        assert_eq!(flows.distance_to_previous(1, 8, ms(0)), 1);
        assert_eq!(flows.distance_to_previous(1, 261, ms(250)), 254);
        assert_eq!(flows.distance_to_previous(1, 262, ms(250)), 255);
        assert_eq!(flows.distance_to_previous(1, 7 + (1 << 40), ms(250)), 255);
        assert_eq!(flows.distance_to_previous(1, 8, ms(251)), 0);
        assert_eq!(flows.distance_to_previous(2, 8, ms(0)), 0);
        assert_eq!(flows.distance_to_previous(1 + 1024, 8, ms(0)), 1);
    }
}

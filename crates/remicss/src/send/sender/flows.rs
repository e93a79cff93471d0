//! Which symbol of a flow was its last, so that the receiver can keep a flow in order.

use std::time::Duration;

/// How many buckets flows are told apart by. Two flows in one bucket wait for each other.
const BUCKETS: usize = 1024;

/// After this long a symbol has arrived or never will, so that nothing need wait for it.
const MATTERS: Duration = Duration::from_millis(250);

/// The last symbol of each flow.
pub(super) struct Flows(Box<[Option<Last>]>);

#[derive(Clone, Copy)]
struct Last {
    number: u64,
    at: Duration,
}

impl Flows {
    pub(super) fn new() -> Self {
        Self(vec![None; BUCKETS].into())
    }

    /// How many numbers before symbol `number` the flow's last symbol was: 0 if none that matters,
    /// 255 for 255 or more.
    pub(super) fn previous(&self, flow: u16, number: u64, now: Duration) -> u8 {
        self.0[bucket(flow)]
            .filter(|last| now.saturating_sub(last.at) <= MATTERS)
            .map_or(0, |last| u8::try_from(number - last.number).unwrap_or(u8::MAX))
    }

    /// Symbol `number` was sent and is the flow's last.
    pub(super) fn sent(&mut self, flow: u16, number: u64, at: Duration) {
        self.0[bucket(flow)] = Some(Last { number, at });
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
        let mut flows = Flows::new();
        assert_eq!(flows.previous(1, 7, ms(0)), 0);
        flows.sent(1, 7, ms(0));
        assert_eq!(flows.previous(1, 8, ms(0)), 1);
        assert_eq!(flows.previous(1, 261, ms(250)), 254);
        assert_eq!(flows.previous(1, 262, ms(250)), 255);
        assert_eq!(flows.previous(1, 7 + (1 << 40), ms(250)), 255);
        assert_eq!(flows.previous(1, 8, ms(251)), 0);
        assert_eq!(flows.previous(2, 8, ms(0)), 0);
        assert_eq!(flows.previous(1 + 1024, 8, ms(0)), 1);
    }
}

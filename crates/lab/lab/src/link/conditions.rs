//! The conditions of an emulated link in one direction.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The conditions of a link in one direction. By default it has no rate limit, no delay, no loss,
/// and a queue of 50 ms.
///
/// Sizes are those of IP packets, headers included. A superpacket counts as the packets that it
/// would be on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmulatedLinkConditions {
    /// The rate, in Mbit/s. `None`: no limit.
    pub rate_mbit: Option<f64>,
    /// The time from the transmission of a packet's last bit until its arrival, in ms.
    pub delay_ms: f64,
    /// The maximum deviation of the delay from `delay_ms`, in ms; at most `delay_ms`. The delay
    /// changes so slowly that packets stay in order.
    pub jitter_ms: f64,
    /// The fraction of packets that are lost after their transmission: 0 to 1.
    pub loss: f64,
    /// The mean number of packets that are lost in a row, at least 1 (Gilbert's model). `None`:
    /// losses are independent.
    pub burst: Option<f64>,
    /// Packets longer than this number of bytes are lost after their transmission, without an ICMP
    /// message. `None`: none are.
    pub max_len: Option<usize>,
    /// The fraction of packets that others overtake: 0 to 1.
    pub reorder: f64,
    /// The additional delay of such a packet, in ms.
    pub reorder_ms: f64,
    /// The fraction of packets that arrive twice: 0 to 1.
    pub duplicate: f64,
    /// The maximum length of the queue, in ms of the link's rate. Packets that exceed it are
    /// dropped.
    pub queue_ms: f64,
}

impl Default for EmulatedLinkConditions {
    fn default() -> Self {
        Self {
            rate_mbit: None,
            delay_ms: 0.0,
            jitter_ms: 0.0,
            loss: 0.0,
            burst: None,
            max_len: None,
            reorder: 0.0,
            reorder_ms: 1.0,
            duplicate: 0.0,
            queue_ms: 50.0,
        }
    }
}

/// A condition with an impossible value.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{key} is {value}; {must}")]
pub struct ImpossibleCondition {
    /// The name of the field.
    pub key: &'static str,
    /// Its value.
    pub value: f64,
    /// The allowed values.
    pub must: &'static str,
}

/// The minimum rate: at 1 kbit/s a packet of 1500 bytes takes 12 s.
const MIN_RATE_MBIT: f64 = 0.001;

/// The maximum rate.
const MAX_RATE_MBIT: f64 = 1e6;

/// The maximum of all times: an hour, in ms.
const MAX_TIME_MS: f64 = 3_600_000.0;

impl EmulatedLinkConditions {
    /// Returns these conditions if all are possible.
    ///
    /// # Errors
    /// The first impossible condition.
    pub fn checked(self) -> Result<Self, ImpossibleCondition> {
        let refuse = |key, value, must| Err(ImpossibleCondition { key, value, must });
        if let Some(rate) = self.rate_mbit
            && !(MIN_RATE_MBIT..=MAX_RATE_MBIT).contains(&rate)
        {
            return refuse("rate_mbit", rate, "it must be from 0.001 to 1000000");
        }
        let times = [
            ("delay_ms", self.delay_ms),
            ("jitter_ms", self.jitter_ms),
            ("reorder_ms", self.reorder_ms),
            ("queue_ms", self.queue_ms),
        ];
        for (key, value) in times {
            if !(0.0..=MAX_TIME_MS).contains(&value) {
                return refuse(key, value, "it must be from 0 to 3600000, an hour");
            }
        }
        for (key, value) in
            [("loss", self.loss), ("reorder", self.reorder), ("duplicate", self.duplicate)]
        {
            if !(0.0..=1.0).contains(&value) {
                return refuse(key, value, "it is a part and must be from 0 to 1");
            }
        }
        if self.jitter_ms > self.delay_ms {
            return refuse("jitter_ms", self.jitter_ms, "it must not be more than delay_ms");
        }
        match self.burst {
            Some(burst) if !(1.0..=1e6).contains(&burst) => {
                refuse("burst", burst, "it must be from 1 to 1000000 packets")
            }
            Some(burst) if self.loss < 1.0 && self.loss / (1.0 - self.loss) > burst => refuse(
                "burst",
                burst,
                "so much loss needs longer bursts: loss / (1 - loss) at least",
            ),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_conditions_are_rejected() {
        let fine = EmulatedLinkConditions { delay_ms: 10.0, ..EmulatedLinkConditions::default() };
        let cases = [
            ("rate_mbit", EmulatedLinkConditions { rate_mbit: Some(0.0), ..fine }),
            ("rate_mbit", EmulatedLinkConditions { rate_mbit: Some(f64::INFINITY), ..fine }),
            ("delay_ms", EmulatedLinkConditions { delay_ms: -1.0, ..fine }),
            ("jitter_ms", EmulatedLinkConditions { jitter_ms: 10.1, ..fine }),
            ("loss", EmulatedLinkConditions { loss: 1.1, ..fine }),
            ("loss", EmulatedLinkConditions { loss: f64::NAN, ..fine }),
            ("burst", EmulatedLinkConditions { burst: Some(0.5), ..fine }),
            ("burst", EmulatedLinkConditions { loss: 0.9, burst: Some(2.0), ..fine }),
            ("reorder", EmulatedLinkConditions { reorder: -0.1, ..fine }),
            ("reorder_ms", EmulatedLinkConditions { reorder_ms: f64::NAN, ..fine }),
            ("duplicate", EmulatedLinkConditions { duplicate: 2.0, ..fine }),
            ("queue_ms", EmulatedLinkConditions { queue_ms: 1e9, ..fine }),
        ];
        for (key, conditions) in cases {
            assert_eq!(conditions.checked().unwrap_err().key, key);
        }
        assert_eq!(fine.checked(), Ok(fine));
        // A link that is down loses every packet.
        assert!(EmulatedLinkConditions { loss: 1.0, burst: Some(1.0), ..fine }.checked().is_ok());
    }
}

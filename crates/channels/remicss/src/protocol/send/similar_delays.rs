//! Delays that TCP treats as equal.

/// Delays are similar up to this factor. Besides twice the lowest round trip, BBR allows for data
/// that is acknowledged at once when a late packet arrives. Over two channels of 20 Mbit/s with 10
/// and 24 ms, one connection gets twice as much as over one of them.
const SIMILAR_DELAY_FACTOR: f64 = 2.5;

/// Delays that differ by less, in ms, are similar whatever their ratio: TCP's allowance for
/// superpackets bridges the difference. Over two channels of 50 Mbit/s with delays of 0.1 and 2.5
/// ms, one connection (BBR) gets 93 Mbit/s, and 45 if only one of them is used; with 0.1 and 4.7 ms
/// at 300 Mbit/s, 557.
const SIMILAR_DELAY_MS: f64 = 5.0;

/// The longest delay that is similar to the shortest, both in ms.
pub(crate) fn longest_similar_ms(shortest_ms: f64) -> f64 {
    (SIMILAR_DELAY_FACTOR * shortest_ms).max(shortest_ms + SIMILAR_DELAY_MS)
}

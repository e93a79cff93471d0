//! How much can be sent at once into a receive buffer (Transputation, 4.2).

/// The largest number of bytes that can be sent in one window: L = B / (1 - `R_arrival` /
/// `R_read`).
///
/// While the reader reads a full buffer of `buffer` bytes, more bytes arrive; while it reads those,
/// still more. L is the sum of this geometric series. It converges if the reader is faster than the
/// arrivals: `0 <= arrival_rate < read_rate`, both in bytes/s. Otherwise the result is `None`, as
/// the buffer never becomes empty; [`overflow_after`] computes how much fits in that case.
///
/// ```
/// use sunder_transport::window::max_window;
///
/// assert_eq!(max_window(1000, 0.0, 50.0), Some(1000.0));
/// assert_eq!(max_window(1000, 75.0, 100.0), Some(4000.0));
/// assert_eq!(max_window(1000, 100.0, 100.0), None);
/// ```
pub fn max_window(buffer: u64, arrival_rate: f64, read_rate: f64) -> Option<f64> {
    let is_inside = arrival_rate >= 0.0 && arrival_rate < read_rate && read_rate.is_finite();
    is_inside.then(|| bytes(buffer) / (1.0 - arrival_rate / read_rate))
}

/// The number of bytes after which a buffer overflows if it is filled at one rate and read at a
/// lower one: B / (1 - `R_read` / `R_arrival`). This is the series of [`max_window`] with the rates
/// exchanged: while the buffer is filled, some of it is read. `None` if the reader is at least as
/// fast, so that the buffer never overflows.
pub fn overflow_after(buffer: u64, arrival_rate: f64, read_rate: f64) -> Option<f64> {
    max_window(buffer, read_rate, arrival_rate)
}

/// The smallest buffer for a window that arrives at one rate and is read at another: the inverse of
/// [`overflow_after`]. If the reading rate is unknown, the buffer is as large as the window.
pub fn receive_buffer(window: f64, arrival_rate: f64, read_rate: Option<f64>) -> f64 {
    let is_known = |rate: &f64| rate.is_finite() && *rate >= 0.0;
    let read_rate = read_rate.filter(is_known).unwrap_or(0.0);
    if arrival_rate > 0.0 { window * (1.0 - read_rate / arrival_rate).max(0.0) } else { window }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of buffers are far below 2^52")]
fn bytes(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn outside_of_its_domain_there_is_no_window() {
        let inf = f64::INFINITY;
        for (arrival, read) in [(2.0, 1.0), (1.0, 1.0), (0.0, 0.0), (-1.0, 1.0), (1.0, inf)] {
            assert_eq!(max_window(10, arrival, read), None, "{arrival} {read}");
        }
        assert_eq!(max_window(10, f64::NAN, 1.0), None);
        assert_eq!(max_window(10, 1.0, f64::NAN), None);
    }

    proptest! {
        /// Adds up what arrives while the buffer's content is read.
        #[test]
        fn the_window_is_the_sum_of_the_series(
            buffer in 1..1_000_000_u64, read in 1.0..1e9_f64, part in 0.0..0.95_f64,
        ) {
            let arrival = read * part;
            let (mut sum, mut more) = (0.0, bytes(buffer));
            for _ in 0..1000 {
                sum += more;
                more *= arrival / read;
            }
            let window = max_window(buffer, arrival, read).unwrap();
            prop_assert!((window - sum).abs() <= 1e-6 * sum);
        }

        /// Fills a buffer in small steps.
        #[test]
        fn the_buffer_overflows_after_so_many_bytes(
            buffer in 1000..100_000_u64, arrival in 1.0..1e6_f64, part in 0.0..0.9_f64,
        ) {
            let read = arrival * part;
            let step = bytes(buffer) / arrival / 1000.0;
            let (mut filled, mut arrived) = (0.0, 0.0);
            while filled < bytes(buffer) {
                arrived += arrival * step;
                filled += (arrival - read) * step;
            }
            let expected = overflow_after(buffer, arrival, read).unwrap();
            prop_assert!((arrived - expected).abs() <= 0.002 * expected);
            let needed = receive_buffer(expected, arrival, Some(read));
            prop_assert!((needed - bytes(buffer)).abs() <= 1e-6 * needed);
        }
    }
}

//! Limits the rate at which a program sends.

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The smallest rate, in bits/s. At a lower one, a record of 64 KiB would take so long that a
/// receiver would seem silent.
const MIN_BITS: f64 = 400e3;

/// The largest rate, in bits/s.
const MAX_BITS: f64 = 1e12;

/// The longest time for which the rate may be saved up.
const MAX_SAVED: Duration = Duration::from_millis(50);

/// The number of bytes that are sent at once.
const PIECE_LEN: usize = 8 << 10;

/// A limit of the rate at which data is sent, shared by all connections to which it is given.
///
/// ```
/// use sunder_transport::SendLimit;
///
/// let limit: SendLimit = "20Mbit".parse()?;
/// assert_eq!(limit.bits_per_second(), 20e6);
/// # Ok::<_, sunder_transport::SendLimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SendLimit(Arc<Mutex<TokenBucket>>);

/// A text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rate: give a number with kbit, Mbit or Gbit (per second), at least 400kbit")]
pub struct SendLimitError;

impl SendLimit {
    /// The limit, in bits/s.
    pub fn bits_per_second(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes_per_second * 8.0
    }

    /// Waits until the first of these bytes may be sent. Returns them.
    pub(super) fn next_piece<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let piece = &bytes[..bytes.len().min(PIECE_LEN)];
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = bucket.take(piece.len(), Instant::now());
        drop(bucket);
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        piece
    }
}

impl FromStr for SendLimit {
    type Err = SendLimitError;

    fn from_str(text: &str) -> Result<Self, SendLimitError> {
        let units = [("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)];
        let parsed = units.into_iter().find_map(|(unit, factor)| {
            let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            Some(number * factor)
        });
        let bits = parsed.filter(|bits| (MIN_BITS..=MAX_BITS).contains(bits));
        let bytes_per_second = bits.ok_or(SendLimitError)? / 8.0;
        let bucket = TokenBucket { bytes_per_second, sent_until: None };
        Ok(Self(Arc::new(Mutex::new(bucket))))
    }
}

/// A token bucket, as the time at which everything taken from it has been sent at its rate.
#[derive(Debug)]
struct TokenBucket {
    bytes_per_second: f64,
    sent_until: Option<Instant>,
}

impl TokenBucket {
    /// Takes this number of bytes. Returns how long to wait before they are sent.
    fn take(&mut self, len: usize, now: Instant) -> Duration {
        let earliest = now.checked_sub(MAX_SAVED).unwrap_or(now);
        let start = self.sent_until.map_or(earliest, |until| until.max(earliest));
        #[expect(clippy::cast_precision_loss, reason = "a piece is short")]
        let duration = Duration::from_secs_f64(len as f64 / self.bytes_per_second);
        let until = start + duration;
        self.sent_until = Some(until);
        until.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(bytes_per_second: f64) -> TokenBucket {
        TokenBucket { bytes_per_second, sent_until: None }
    }

    /// In virtual time: a sender that always has data, and one that pauses.
    #[test]
    fn the_rate_is_kept_and_pauses_are_saved_up_for_a_moment_only() {
        let start = Instant::now();
        for rate in [50e3, 2.5e6, 1e9] {
            let (mut bucket, mut now) = (bucket(rate), start);
            let mut sent = 0.0;
            while now < start + Duration::from_secs(10) {
                now += bucket.take(PIECE_LEN, now).max(Duration::from_nanos(1));
                sent += 8192.0;
            }
            let most = rate * (10.0 + MAX_SAVED.as_secs_f64()) + 2.0 * 8192.0;
            assert!((rate * 9.9..most).contains(&sent), "{rate}: {sent}");
            // An hour of silence is not made up for.
            now += Duration::from_secs(3600);
            let mut at_once = 0.0;
            while bucket.take(PIECE_LEN, now).is_zero() {
                at_once += 8192.0;
            }
            assert!(at_once <= rate * MAX_SAVED.as_secs_f64(), "{rate}: {at_once}");
        }
    }

    #[test]
    fn rates_are_read_as_users_write_them() {
        for (text, bits) in
            [("20Mbit", 20e6), ("2.5 Mbit", 2.5e6), ("400kbit", 400e3), ("1Gbit", 1e9)]
        {
            let limit: SendLimit = text.parse().unwrap();
            assert!((limit.bits_per_second() - bits).abs() < 1.0, "{text}");
        }
        for wrong in
            ["", "20", "20MB", "Mbit", "-1Mbit", "399kbit", "NaNMbit", "infGbit", "1e9Gbit"]
        {
            assert!(wrong.parse::<SendLimit>().is_err(), "{wrong}");
        }
    }
}

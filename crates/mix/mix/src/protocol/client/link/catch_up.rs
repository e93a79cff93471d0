//! How a member catches up with rounds that it has missed, and how long that may take.

use std::time::Duration;

use super::MixClientError;
use crate::protocol::wire::MixTerms;

/// The proxy answers a request for past rounds before it tells the member of a further round, but
/// for those that it had told it of. So these are many, and the time is long.
const MAX_UNANSWERED_ROUNDS: u64 = 16;
const UNANSWERED_TIMEOUT: Duration = Duration::from_secs(10);

/// How many live rounds catching up may take, besides twice those that were missed: between two
/// messages with past rounds, of which each has one round or more, there are hardly two live ones.
const MIN_CATCH_UP_ROUNDS: u64 = 64;

/// Live rounds while a member catches up. It reads nothing of them, so a proxy that never sends the
/// last past round would keep all back.
#[derive(Default)]
pub(super) struct CatchUpProgress {
    rounds: u64,
    /// How many there may be, once it is known how many were missed.
    most: Option<u64>,
    /// Those since past rounds were asked for, and when the first of them began.
    unanswered: u64,
    unanswered_since: Option<Duration>,
}

impl CatchUpProgress {
    /// Past rounds have come. The next ones are asked for.
    pub(super) fn handle_past(&mut self) {
        (self.unanswered, self.unanswered_since) = (0, None);
    }

    /// A live round begins. `arrived` is the number of the last round that has arrived. Returns how
    /// many live rounds there were.
    ///
    /// # Errors
    /// If the proxy does not send what was asked for, or does not come to an end.
    pub(super) fn handle_round(
        &mut self,
        now: Duration,
        round: u64,
        arrived: u64,
        terms: &MixTerms,
    ) -> Result<u64, MixClientError> {
        let most = *self.most.get_or_insert_with(|| {
            // At another proxy, the numbers may be lower.
            let missed = round.checked_sub(arrived).unwrap_or(round);
            // The time is for rounds in which all take part. If fewer do, the same bytes hold more
            // rounds.
            let members = terms.shape().members() as u128;
            let kept = terms.keep().as_millis() / terms.least_interval().as_millis() * members;
            let missed = missed.min(u64::try_from(kept).unwrap_or(u64::MAX));
            missed.saturating_mul(2).saturating_add(MIN_CATCH_UP_ROUNDS)
        });
        self.rounds += 1;
        self.unanswered += 1;
        let since = *self.unanswered_since.get_or_insert(now);
        let is_long = now.saturating_sub(since) >= UNANSWERED_TIMEOUT;
        if self.unanswered > MAX_UNANSWERED_ROUNDS && is_long {
            return Err(MixClientError::OutOfTurn("rounds, and not the past ones that it keeps"));
        }
        if self.rounds > most {
            return Err(MixClientError::OutOfTurn("past rounds, and never the last ones"));
        }
        Ok(self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MailboxShape;
    use crate::protocol::exchange::MixExchangeKind;

    fn terms(keep_s: u64) -> MixTerms {
        let shape = MailboxShape::new(3, 1, 1, 3, 64).unwrap();
        let interval = Duration::from_secs(1);
        let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, interval, interval).unwrap();
        terms.with_keep(Duration::from_secs(keep_s))
    }

    /// The number of live rounds after which a member ends a catch-up in which one message with
    /// past rounds comes after each of them.
    fn ends_after(round: u64, arrived: u64, keep_s: u64) -> u64 {
        let mut progress = CatchUpProgress::default();
        let ends = (0..1_000_000).find(|live| {
            let now = Duration::from_secs(*live);
            progress.handle_past();
            progress.handle_round(now, round + live, arrived, &terms(keep_s)).is_err()
        });
        ends.expect("it ends")
    }

    #[test]
    fn a_catch_up_ends_whatever_the_proxy_sends() {
        assert_eq!(ends_after(1_000, 900, 86_400), 64 + 200);
        // A round far beyond the last one does not extend it.
        assert_eq!(ends_after(u64::MAX >> 1, 900, 3_600), 64 + 3 * 7_200);
        assert_eq!(ends_after(5, 900, 86_400), 64 + 10, "at a proxy with lower numbers");
    }

    /// A slow disk or a slow connection delays an answer, and the rounds after it as well.
    #[test]
    fn an_answer_with_past_rounds_may_be_late() {
        let (mut progress, day) = (CatchUpProgress::default(), Duration::from_secs(86_400));
        let terms = terms(86_400);
        for round in 0..16 {
            let now = Duration::from_secs(round);
            assert_eq!(progress.handle_round(now, 1_000 + round, 0, &terms), Ok(round + 1));
        }
        assert!(progress.handle_round(Duration::from_secs(9), 1_016, 0, &terms).is_ok());
        assert!(progress.handle_round(Duration::from_secs(10), 1_017, 0, &terms).is_err());
        progress.handle_past();
        assert!(progress.handle_round(day, 1_018, 0, &terms).is_ok());
    }
}

//! The audit of partial signatures for other servers. The first answer for a message and server
//! gets a line. Later ones share a line every ten minutes, while the pair is among the last
//! [`MAX_KNOWN`]. A faulty server may repeat a request without end, and each line takes disk space
//! permanently.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use keys::IdentityPublicKey;

use crate::protocol::policy::MessageDigest;

/// The interval between two lines for one message and server.
const INTERVAL: Duration = Duration::from_secs(600);

/// The largest number of known pairs of message and server. More distinct pairs need a line each
/// anyway. A thousand pairs take half a MiB of memory.
const MAX_KNOWN: usize = 8_192;

/// Answers that must be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnswerAuditRecord {
    pub(super) to: IdentityPublicKey,
    pub(super) message: MessageDigest,
    pub(super) count: u64,
}

/// Counts answers per message and server.
#[derive(Default)]
pub(super) struct AnswerCounter {
    /// The number of answers since the last line.
    known: HashMap<([u8; 32], MessageDigest), u64>,
    /// The same pairs, ordered by the times of their last lines.
    order: VecDeque<(Instant, IdentityPublicKey, MessageDigest)>,
}

impl AnswerCounter {
    /// Counts an answer. Returns what must be recorded now, if it is the first one.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        to: IdentityPublicKey,
        message: MessageDigest,
    ) -> Option<AnswerAuditRecord> {
        if let Some(count) = self.known.get_mut(&(to.to_bytes(), message)) {
            *count += 1;
            return None;
        }
        self.known.insert((to.to_bytes(), message), 0);
        self.order.push_back((now, to, message));
        Some(AnswerAuditRecord { to, message, count: 1 })
    }

    /// The next answers whose line is due. Call this until it returns nothing.
    pub(super) fn poll(&mut self, now: Instant) -> Option<AnswerAuditRecord> {
        loop {
            let (at, ..) = self.order.front()?;
            let is_due = now.saturating_duration_since(*at) >= INTERVAL;
            if !is_due && self.order.len() <= MAX_KNOWN {
                return None;
            }
            let (_, to, message) = self.order.pop_front()?;
            let count = self.known.remove(&(to.to_bytes(), message)).unwrap_or(0);
            if count > 0 {
                if is_due {
                    self.known.insert((to.to_bytes(), message), 0);
                    self.order.push_back((now, to, message));
                }
                return Some(AnswerAuditRecord { to, message, count });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keys::IdentitySecretKey;

    #[test]
    fn repeated_answers_are_counted() {
        let (mut counter, start) = (AnswerCounter::default(), Instant::now());
        let [one, other] = [1, 2].map(|byte| IdentitySecretKey::new(&[byte; 32]).public());
        let message = MessageDigest::of(b"message");
        let first = counter.answered(start, one, message);
        assert_eq!(first, Some(AnswerAuditRecord { to: one, message, count: 1 }));
        assert!(counter.answered(start, other, message).is_some());
        (0..1_000_000).for_each(|_| assert_eq!(counter.answered(start, one, message), None));
        assert_eq!(counter.poll(start + INTERVAL / 2), None);
        let later = start + INTERVAL;
        assert_eq!(
            counter.poll(later),
            Some(AnswerAuditRecord { to: one, message, count: 1_000_000 })
        );
        assert_eq!(counter.poll(later), None);
        // The other pair is evicted, and counted anew.
        assert!(counter.answered(later, other, message).is_some());
        assert_eq!(counter.answered(later, one, message), None);
    }

    #[test]
    fn answer_counter_is_bounded() {
        let (mut counter, now) = (AnswerCounter::default(), Instant::now());
        let to = IdentitySecretKey::new(&[1; 32]).public();
        for number in 0..2 * MAX_KNOWN {
            let message = MessageDigest::of(&number.to_be_bytes());
            assert!(counter.answered(now, to, message).is_some());
            assert_eq!(counter.answered(now, to, message), None);
            while counter.poll(now).is_some() {}
        }
        assert_eq!((counter.known.len(), counter.order.len()), (MAX_KNOWN, MAX_KNOWN));
    }
}

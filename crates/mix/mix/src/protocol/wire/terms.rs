//! The terms that the proxy and the members of a group share, and the bounds of message lengths
//! that follow from them.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{MAX_JOIN_LEN, MAX_PAST_LEN, MAX_SET_UP_LEN};
use crate::protocol::audit;
use crate::protocol::exchange::{ExchangeShapeError, MixExchangeKind};
use crate::protocol::round::NONCE_LEN;
use crate::{MailboxShape, MailboxShapeError};

/// The longest opening, request or answer of an exchange, in bytes.
pub const MAX_BODY_LEN: usize = 256 << 20;

/// The range of the interval of a round, in milliseconds.
const INTERVAL_MS: RangeInclusive<u128> = 1..=3_600_000;

/// The terms of a group's exchanges. They do not change while the proxy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixTerms {
    exchange: MixExchangeKind,
    shape: MailboxShape,
    interval: Duration,
    least_interval: Duration,
    keep: Duration,
}

/// Why parameters are not valid terms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixTermsError {
    /// An interval is out of range, or the least interval is longer than the interval.
    #[error("the least interval must be 1 ms to the interval, and that at most an hour")]
    Interval,
    /// The shape is not possible.
    #[error(transparent)]
    Mailbox(#[from] MailboxShapeError),
    /// A request or an answer can be too long.
    #[error("an exchange of this kind may take {len} bytes, but at most {MAX_BODY_LEN} are sent")]
    Body {
        /// The length in bytes.
        len: usize,
    },
    /// The kind of exchange does not support this shape.
    #[error(transparent)]
    Shape(#[from] ExchangeShapeError),
}

impl MixTerms {
    /// Terms for exchanges of a kind, in rounds of `least_interval` to `interval`, in whole
    /// milliseconds.
    ///
    /// # Errors
    /// If an interval is out of its range, a request or an answer can have more than
    /// [`MAX_BODY_LEN`] bytes, or the kind of exchange does not support this
    /// shape.
    #[expect(clippy::missing_panics_doc, reason = "an interval has at most an hour")]
    pub fn new(
        exchange: impl Into<MixExchangeKind>,
        shape: MailboxShape,
        interval: Duration,
        least_interval: Duration,
    ) -> Result<Self, MixTermsError> {
        let (most, least) = (interval.as_millis(), least_interval.as_millis());
        if !INTERVAL_MS.contains(&most) || !INTERVAL_MS.contains(&least) || least > most {
            return Err(MixTermsError::Interval);
        }
        let exchange = exchange.into();
        exchange.check_shape(&shape)?;
        let milliseconds = |count| Duration::from_millis(u64::try_from(count).expect("an hour"));
        let (interval, least_interval) = (milliseconds(most), milliseconds(least));
        let keep = Duration::ZERO;
        let terms = Self { exchange, shape, interval, least_interval, keep };
        match terms.max_body_len() {
            len if len > MAX_BODY_LEN => Err(MixTermsError::Body { len }),
            _ => Ok(terms),
        }
    }

    /// The same, with a proxy that keeps closed rounds for this time, in whole seconds; zero if it
    /// keeps none. Only rounds of exchanges by broadcast can be kept.
    #[must_use]
    pub fn with_keep(self, keep: Duration) -> Self {
        match self.exchange {
            MixExchangeKind::Broadcast => {
                Self { keep: Duration::from_secs(keep.as_secs()), ..self }
            }
            MixExchangeKind::Oblivious(_) => self,
        }
    }

    /// How long the proxy keeps closed rounds for members that are away; zero if it keeps none.
    pub fn keep(&self) -> Duration {
        self.keep
    }

    /// How members exchange with the proxy.
    pub fn exchange(&self) -> MixExchangeKind {
        self.exchange
    }

    /// The shape of the group's mailbox.
    pub fn shape(&self) -> &MailboxShape {
        &self.shape
    }

    /// The maximum duration of a round.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The minimum duration of a round.
    pub fn least_interval(&self) -> Duration {
        self.least_interval
    }

    /// The longest message of a member to the proxy, in bytes.
    pub fn max_to_proxy_len(&self) -> usize {
        let head = 1 + 8 + NONCE_LEN + 32;
        let others = MAX_SET_UP_LEN.max(MAX_JOIN_LEN).max(self.max_announcement_len());
        head + others.max(self.max_body_len()).max(self.max_audit_len())
    }

    /// The longest message of the proxy to a member, in bytes.
    pub fn max_to_member_len(&self) -> usize {
        let participants = self.shape.members() * (2 + NONCE_LEN);
        let longest = self.max_to_proxy_len() + 2 * (4 + 8) + participants;
        if self.keep.is_zero() { longest } else { longest.max(2 + self.max_past_len()) }
    }

    /// The longest records of a message with past rounds, in bytes.
    pub(crate) fn max_past_len(&self) -> usize {
        MAX_PAST_LEN + 64 + self.max_announcement_len() + self.max_past_round_len()
    }

    /// The longest record of a past round, in bytes.
    pub(crate) fn max_past_round_len(&self) -> usize {
        64 + self.shape.members() * (2 + NONCE_LEN) + self.max_body_len()
    }

    /// The longest announcement of an epoch, in bytes.
    pub fn max_announcement_len(&self) -> usize {
        (24 << 10) + 512 * self.shape.members()
    }

    /// The longest message of an audit, in bytes; 0 if mailboxes are too large for audits.
    pub fn max_audit_len(&self) -> usize {
        audit::max_message_len(&self.shape)
    }

    /// The longest opening, request or answer of an exchange, in bytes.
    pub fn max_body_len(&self) -> usize {
        self.exchange.message_lens(&self.shape).longest()
    }
}

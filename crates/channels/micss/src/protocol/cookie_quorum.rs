//! A client's wait for the cookies of a set of connections, one for each channel. It continues
//! without channels that bring none, or another channel's, as long as enough are left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use association::ConnectionCookie;
use subtle::ConstantTimeEq;

use crate::protocol::incoming::LATE_CHANNEL_TIMEOUT;

/// The time limit for channels to connect and bring their cookies. If one packet in seven is lost,
/// TCP alone takes more than 10 s for one connection in fifty.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The cookies that have arrived, and the channels that are still awaited.
pub(crate) struct CookieQuorum {
    needed: usize,
    /// The channels that have neither brought a cookie nor failed.
    pending: BTreeSet<usize>,
    /// The channels whose paths are lost.
    unusable: BTreeSet<usize>,
    /// By channel.
    cookies: BTreeMap<usize, ConnectionCookie>,
    deadline: Duration,
}

impl CookieQuorum {
    /// A wait for these channels, of which `needed` are enough.
    pub(crate) fn new(
        channels: impl IntoIterator<Item = usize>,
        needed: usize,
        now: Duration,
    ) -> Self {
        let pending = channels.into_iter().collect();
        let (unusable, cookies) = (BTreeSet::new(), BTreeMap::new());
        Self { needed, pending, unusable, cookies, deadline: now + HANDSHAKE_TIMEOUT }
    }

    /// Handles the cookie of a channel. Returns whether the channel is used. A server generates
    /// every cookie anew, so if another channel has brought the same one, it was copied, and this
    /// channel is left out.
    pub(crate) fn handle_cookie(
        &mut self,
        channel: usize,
        cookie: ConnectionCookie,
        now: Duration,
    ) -> bool {
        if !self.pending.remove(&channel) {
            return false;
        }
        if self.cookies.values().any(|known| known.ct_eq(&cookie).into()) {
            return false;
        }
        self.cookies.insert(channel, cookie);
        if self.cookies.len() == self.needed {
            self.deadline = self.deadline.min(now + LATE_CHANNEL_TIMEOUT);
        }
        true
    }

    /// Records that a channel will not bring a cookie.
    pub(crate) fn handle_failed(&mut self, channel: usize) {
        self.pending.remove(&channel);
    }

    /// Records that the path of a channel is lost, or works again. While it is lost, the channel is
    /// not awaited if enough others have brought their cookies.
    pub(crate) fn handle_path(&mut self, channel: usize, is_unusable: bool) {
        if is_unusable {
            self.unusable.insert(channel);
        } else {
            self.unusable.remove(&channel);
        }
    }

    /// After the deadline, the channels that are still awaited; before it, none.
    pub(crate) fn late(&self, now: Duration) -> impl DoubleEndedIterator<Item = usize> {
        self.pending.iter().copied().filter(move |_| now >= self.deadline)
    }

    /// Whether the wait is over: all channels have answered, or enough have and the paths of the
    /// others are lost; too few can; or the deadline has passed.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        let is_enough = self.cookies.len() >= self.needed;
        self.pending.is_empty()
            || is_enough && self.pending.is_subset(&self.unusable)
            || self.cookies.len() + self.pending.len() < self.needed
            || now >= self.deadline
    }

    /// The deadline.
    pub(crate) fn poll_timeout(&self) -> Duration {
        self.deadline
    }

    /// The cookies by their channels, if there are enough.
    pub(crate) fn finish(self) -> Option<BTreeMap<usize, ConnectionCookie>> {
        (self.cookies.len() >= self.needed).then_some(self.cookies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cookie(byte: u8) -> ConnectionCookie {
        ConnectionCookie::new([byte; 16])
    }

    #[test]
    fn the_others_are_waited_for_once_enough_have_come() {
        let mut quorum = CookieQuorum::new(0..3, 2, SECOND);
        assert_eq!(quorum.poll_timeout(), 31 * SECOND);
        assert!(quorum.handle_cookie(2, cookie(2), 2 * SECOND));
        assert!(quorum.handle_cookie(0, cookie(0), 3 * SECOND));
        assert_eq!(quorum.poll_timeout(), 5 * SECOND);
        assert!(!quorum.is_over(4 * SECOND));
        assert!(quorum.is_over(5 * SECOND));
        assert!(quorum.late(5 * SECOND).eq([1]));
        let cookies = quorum.finish().unwrap();
        assert!(cookies.into_keys().eq([0, 2]));
    }

    #[test]
    fn the_wait_for_the_others_does_not_extend_the_wait_for_all() {
        let mut quorum = CookieQuorum::new(0..2, 1, SECOND);
        assert!(quorum.handle_cookie(1, cookie(1), 30 * SECOND));
        assert_eq!(quorum.poll_timeout(), 31 * SECOND);
    }

    #[test]
    fn a_channel_whose_path_is_lost_is_waited_for_only_if_it_is_needed() {
        let mut quorum = CookieQuorum::new(0..3, 2, SECOND);
        quorum.handle_path(1, true);
        assert!(quorum.handle_cookie(0, cookie(0), SECOND));
        assert!(!quorum.is_over(SECOND), "two are needed");
        assert!(quorum.handle_cookie(2, cookie(2), SECOND));
        assert!(quorum.is_over(SECOND));
        quorum.handle_path(1, false);
        assert!(!quorum.is_over(SECOND), "it may come");
        assert!(quorum.handle_cookie(1, cookie(1), SECOND));
        assert!(quorum.is_over(SECOND));
        assert!(quorum.finish().unwrap().into_keys().eq([0, 1, 2]));
    }

    #[test]
    fn a_copied_cookie_is_not_used() {
        let mut quorum = CookieQuorum::new(0..3, 2, SECOND);
        assert!(quorum.handle_cookie(0, cookie(1), SECOND));
        assert!(!quorum.handle_cookie(1, cookie(1), SECOND));
        assert!(!quorum.is_over(SECOND), "the third can make two");
        quorum.handle_failed(2);
        assert!(quorum.is_over(SECOND));
        assert!(quorum.finish().is_none());
    }

    #[test]
    fn too_few_that_can_answer_are_not_waited_for() {
        let mut quorum = CookieQuorum::new(0..3, 3, SECOND);
        assert!(quorum.handle_cookie(0, cookie(0), SECOND));
        quorum.handle_failed(1);
        assert!(quorum.is_over(SECOND));
        assert!(quorum.late(SECOND).next().is_none(), "there is time left");
    }
}

//! A queue for received messages with a rate limit per link. No message is dropped while its link
//! lasts: the messages that wait use up the link's window, so the sender stops.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::context::ValidatorAddress;

/// The rate at which messages of a link are handled, in bytes per second.
const RATE: u64 = 4 << 20;

/// The largest burst, in seconds' worth of bytes.
const BURST: Duration = Duration::from_secs(8);

/// The cost of a message besides its bytes, because even a short message costs time to check.
const MESSAGE_COST: usize = 4 << 10;

/// The waiting messages of all links.
#[derive(Debug)]
pub(crate) struct FairLinkQueue<T> {
    links: BTreeMap<ValidatorAddress, LinkBacklog<T>>,
    /// The link that had the last turn.
    last: ValidatorAddress,
}

#[derive(Debug)]
struct LinkBacklog<T> {
    waiting: VecDeque<(usize, T)>,
    /// When everything that was handled would have arrived at [`RATE`].
    virtual_arrival: Duration,
}

impl<T> Default for FairLinkQueue<T> {
    fn default() -> Self {
        Self { links: BTreeMap::new(), last: ValidatorAddress([0; 32]) }
    }
}

impl<T> FairLinkQueue<T> {
    /// Adds a message of a server, of this many bytes.
    pub(crate) fn push(&mut self, from: ValidatorAddress, len: usize, message: T) {
        self.link(from).waiting.push_back((len, message));
    }

    /// The link with a server has ended. Its waiting messages are dropped. Otherwise a server that
    /// reconnects repeatedly would occupy another window of memory each time.
    pub(crate) fn clear(&mut self, server: ValidatorAddress) {
        self.link(server).waiting = VecDeque::new();
    }

    /// Charges a server for bytes that it has caused this one to send.
    pub(crate) fn charge(&mut self, server: ValidatorAddress, len: usize, now: Duration) {
        self.link(server).advance_virtual_arrival(len, now);
    }

    /// The next message that may be handled. Links take turns.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<(ValidatorAddress, T)> {
        let ready = |(_, link): &(&ValidatorAddress, &mut LinkBacklog<T>)| {
            link.ready().is_some_and(|at| at <= now)
        };
        let after = (std::ops::Bound::Excluded(self.last), std::ops::Bound::Unbounded);
        let mut next = self.links.range_mut(after).find(ready);
        if next.is_none() {
            next = self.links.range_mut(..=self.last).find(ready);
        }
        let (&from, link) = next?;
        let (len, message) = link.waiting.pop_front()?;
        link.advance_virtual_arrival(len, now);
        self.last = from;
        Some((from, message))
    }

    /// The number of messages that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.links.values().map(|link| link.waiting.len()).sum()
    }

    /// When the next message may be handled, if one waits.
    pub(crate) fn ready(&self) -> Option<Duration> {
        self.links.values().filter_map(LinkBacklog::ready).min()
    }

    fn link(&mut self, server: ValidatorAddress) -> &mut LinkBacklog<T> {
        let new = || LinkBacklog { waiting: VecDeque::new(), virtual_arrival: Duration::ZERO };
        self.links.entry(server).or_insert_with(new)
    }
}

impl<T> LinkBacklog<T> {
    fn ready(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then(|| self.virtual_arrival.saturating_sub(BURST))
    }

    fn advance_virtual_arrival(&mut self, len: usize, now: Duration) {
        let nanos = (len + MESSAGE_COST) as u64 * (1_000_000_000 / RATE);
        self.virtual_arrival = self.virtual_arrival.max(now) + Duration::from_nanos(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_waits_and_others_do_not() {
        let (flood, other) = (ValidatorAddress([1; 32]), ValidatorAddress([2; 32]));
        let mut inflow = FairLinkQueue::default();
        for number in 0..1000 {
            inflow.push(flood, 1 << 20, number);
        }
        let mut now = Duration::ZERO;
        let handled = std::iter::from_fn(|| inflow.pop(now)).count();
        assert!((30..40).contains(&handled), "{handled}");
        inflow.push(other, 100, 7777);
        assert_eq!(inflow.pop(now), Some((other, 7777)));
        assert_eq!(inflow.pop(now), None);
        // Later, at the rate; in order.
        let mut later = Vec::new();
        while let Some(at) = inflow.ready() {
            assert!(at > now);
            now = at;
            later.extend(std::iter::from_fn(|| inflow.pop(now)).map(|(_, number)| number));
        }
        assert!(later.is_sorted() && later.len() == 1000 - handled);
        let expected = Duration::from_secs((1000 - handled as u64) / 4);
        assert!(now.abs_diff(expected) < Duration::from_secs(10), "{now:?}");
    }

    #[test]
    fn fair_queue_drops_messages_of_ended_links_but_keeps_their_rate() {
        let server = ValidatorAddress([1; 32]);
        let mut inflow = FairLinkQueue::default();
        for number in 0..1000 {
            inflow.push(server, 1 << 20, number);
        }
        while inflow.pop(Duration::ZERO).is_some() {}
        inflow.clear(server);
        assert_eq!(inflow.ready(), None);
        inflow.push(server, 1, 1000);
        assert_eq!(inflow.pop(Duration::ZERO), None);
        let at = inflow.ready().unwrap();
        assert_eq!(inflow.pop(at), Some((server, 1000)));
    }

    #[test]
    fn fair_queue_is_round_robin() {
        let mut inflow = FairLinkQueue::default();
        for number in 0..4 {
            inflow.push(ValidatorAddress([1; 32]), 1, number);
            inflow.push(ValidatorAddress([2; 32]), 1, number + 10);
        }
        let order: Vec<_> = std::iter::from_fn(|| inflow.pop(Duration::ZERO)).collect();
        assert!(order.windows(2).all(|pair| pair[0].0 != pair[1].0), "{order:?}");
    }
}

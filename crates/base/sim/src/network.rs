//! Links, timers and the event queue that acts as the virtual clock.
//!
//! A link has one direction; a connection consists of two links. The network transports bytes and
//! does not know the ends: its user reads the events and passes them to the right end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::SeededRng;
use crate::link::{SimulatedLink, SimulatedLinkConditions};

/// One direction of one connection or channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimulatedLinkId(usize);

impl SimulatedLinkId {
    /// Links are numbered 0, 1, 2, ... in the order in which they were made.
    pub fn index(self) -> usize {
        self.0
    }
}

/// An event of the simulation. `T` identifies timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimulationEvent<T> {
    /// Bytes of a stream, or a datagram, come out of the far end of a link.
    Arrived {
        /// The link they came over.
        link: SimulatedLinkId,
        /// Never empty on a stream, unless an attacker injects zero bytes.
        bytes: Vec<u8>,
    },
    /// The far end of a link sees it closed. Nothing arrives on it afterwards.
    Closed {
        /// The closed link.
        link: SimulatedLinkId,
    },
    /// The attacker gets what was sent on a seized link. Nothing arrives unless it is injected.
    Intercepted {
        /// The seized link.
        link: SimulatedLinkId,
        /// The bytes of one send, uncut: of a stream when they would arrive, a datagram at once.
        bytes: Vec<u8>,
    },
    /// The attacker sees that the sender has closed a seized link.
    InterceptedClose {
        /// The seized link.
        link: SimulatedLinkId,
    },
    /// A timer is due.
    Timer(T),
}

/// A network of directed links, its clock and its timers.
#[derive(Debug)]
pub struct SimulatedNetwork<T> {
    now: Duration,
    rng: SeededRng,
    links: Vec<SimulatedLink>,
    /// Ordered by time, and at equal times in the order in which the events were caused.
    queue: BTreeMap<(Duration, u64), SimulationEvent<T>>,
    caused: u64,
}

impl<T> SimulatedNetwork<T> {
    /// An empty network at time zero.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            rng: SeededRng::new(seed),
            links: Vec::new(),
            queue: BTreeMap::new(),
            caused: 0,
        }
    }

    /// The virtual time: that of the latest event that was returned.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Adds a link with a random delay between `min_delay` and `max_delay`.
    pub fn add_link(&mut self, min_delay: Duration, max_delay: Duration) -> SimulatedLinkId {
        self.links.push(SimulatedLink::new(SimulatedLinkConditions::delayed(min_delay, max_delay)));
        SimulatedLinkId(self.links.len() - 1)
    }

    /// The conditions of a link for what is sent from now on.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn conditions_mut(&mut self, link: SimulatedLinkId) -> &mut SimulatedLinkConditions {
        &mut self.links[link.0].conditions
    }

    /// Hands a link to the attacker: what is sent on it from now on is intercepted.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn seize(&mut self, link: SimulatedLinkId) {
        self.links[link.0].is_seized = true;
    }

    /// Takes a link from the attacker: what is sent on it from now on arrives.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn release(&mut self, link: SimulatedLinkId) {
        self.links[link.0].is_seized = false;
    }

    /// Whether the attacker controls the link.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn is_seized(&self, link: SimulatedLinkId) -> bool {
        self.links[link.0].is_seized
    }

    /// Sends bytes on a stream: all of them arrive in order, segmented at random.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn send_stream(&mut self, link: SimulatedLinkId, bytes: &[u8]) {
        if self.links[link.0].is_seized {
            let at = self.arrival(link);
            let bytes = bytes.to_vec();
            self.schedule(at, SimulationEvent::Intercepted { link, bytes });
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + self.rng.index(rest.len()));
            let at = self.arrival(link);
            let bytes = piece.to_vec();
            self.schedule(at, SimulationEvent::Arrived { link, bytes });
            rest = after;
        }
    }

    /// Closes a stream after everything that was sent on it has arrived.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn close_stream(&mut self, link: SimulatedLinkId) {
        let at = self.arrival(link);
        if self.links[link.0].is_seized {
            self.schedule(at, SimulationEvent::InterceptedClose { link });
        } else {
            self.schedule(at, SimulationEvent::Closed { link });
        }
    }

    /// Sends a datagram. It arrives once, twice or not at all, and may overtake others. Returns
    /// when it will first arrive; `None` if it is lost, or if the link is seized, so that the
    /// attacker decides later.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn send_datagram(&mut self, link: SimulatedLinkId, bytes: Vec<u8>) -> Option<Duration> {
        if self.links[link.0].is_seized {
            self.schedule(self.now, SimulationEvent::Intercepted { link, bytes });
            return None;
        }
        self.pass_datagram(link, bytes)
    }

    /// Sends a datagram of the attacker on a seized link, with the link's conditions. Returns when
    /// it will first arrive; `None` if it is lost.
    ///
    /// # Panics
    /// If the link belongs to another network.
    pub fn pass_datagram(&mut self, link: SimulatedLinkId, bytes: Vec<u8>) -> Option<Duration> {
        let departure = self.links[link.0].departure(self.now, bytes.len())?;
        let SimulatedLinkConditions {
            min_delay,
            max_delay,
            loss_permille,
            max_datagram_len,
            duplication_permille,
            ..
        } = self.links[link.0].conditions;
        if bytes.len() > max_datagram_len {
            return None;
        }
        let is_doubled = duplication_permille > 0 && self.rng.below(1000) < duplication_permille;
        let mut first: Option<Duration> = None;
        for bytes in std::iter::repeat_n(bytes, 1 + usize::from(is_doubled)) {
            if self.rng.below(1000) >= loss_permille {
                let is_fixed = min_delay >= max_delay;
                let delay = if is_fixed {
                    min_delay
                } else {
                    self.rng.duration_between(min_delay, max_delay)
                };
                let at = departure + delay;
                self.schedule(at, SimulationEvent::Arrived { link, bytes });
                first = Some(first.map_or(at, |first| first.min(at)));
            }
        }
        first
    }

    /// Injects bytes or a datagram of the attacker, which arrive after `delay`, in the order of
    /// their arrival times.
    pub fn inject(&mut self, link: SimulatedLinkId, bytes: Vec<u8>, delay: Duration) {
        self.schedule(self.now + delay, SimulationEvent::Arrived { link, bytes });
    }

    /// Closes a link on behalf of the attacker after `delay`.
    pub fn inject_close(&mut self, link: SimulatedLinkId, delay: Duration) {
        self.schedule(self.now + delay, SimulationEvent::Closed { link });
    }

    /// Sets a timer for `at`, or for now if that time has passed.
    ///
    /// A timer cannot be cancelled: a state machine that is called too early has nothing to do.
    pub fn set_timer(&mut self, at: Duration, token: T) {
        self.schedule(at.max(self.now), SimulationEvent::Timer(token));
    }

    /// The number of pending events: what is in flight, and timers.
    pub fn pending_events(&self) -> usize {
        self.queue.len()
    }

    /// The next event, with the clock advanced to its time; `None` if no event is pending.
    pub fn next_event(&mut self) -> Option<SimulationEvent<T>> {
        self.pop(Duration::MAX)
    }

    /// The next event up to `deadline`, with the clock advanced to its time. If it returns `None`,
    /// the clock has advanced to `deadline`, which may be the next timeout of a state machine.
    pub fn next_event_until(&mut self, deadline: Duration) -> Option<SimulationEvent<T>> {
        let event = self.pop(deadline);
        if event.is_none() {
            self.now = self.now.max(deadline);
        }
        event
    }

    fn pop(&mut self, deadline: Duration) -> Option<SimulationEvent<T>> {
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= deadline
        {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            if self.still_happens(&event) {
                return Some(event);
            }
        }
        None
    }

    /// Whether an event is still delivered. The far end of a closed link gets no further events,
    /// not even a second close.
    fn still_happens(&mut self, event: &SimulationEvent<T>) -> bool {
        match event {
            SimulationEvent::Arrived { link, .. } => !self.links[link.0].is_closed,
            SimulationEvent::Closed { link } => {
                !std::mem::replace(&mut self.links[link.0].is_closed, true)
            }
            SimulationEvent::Intercepted { .. }
            | SimulationEvent::InterceptedClose { .. }
            | SimulationEvent::Timer(_) => true,
        }
    }

    fn arrival(&mut self, link: SimulatedLinkId) -> Duration {
        let link = &mut self.links[link.0];
        let delay = self.rng.duration_between(link.conditions.min_delay, link.conditions.max_delay);
        link.last_arrival = link.last_arrival.max(self.now + delay);
        link.last_arrival
    }

    fn schedule(&mut self, at: Duration, event: SimulationEvent<T>) {
        self.caused += 1;
        self.queue.insert((at, self.caused), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkBottleneck;

    const LOW: Duration = Duration::from_millis(1);
    const HIGH: Duration = Duration::from_millis(50);

    fn log(seed: u64) -> Vec<(Duration, SimulationEvent<u8>)> {
        let mut net = SimulatedNetwork::new(seed);
        let links = [net.add_link(LOW, HIGH), net.add_link(LOW, HIGH)];
        for round in 0..10 {
            for link in links {
                net.send_stream(link, &[round; 7]);
            }
        }
        net.set_timer(HIGH, 1);
        std::iter::from_fn(|| net.next_event().map(|event| (net.now(), event))).collect()
    }

    #[test]
    fn one_seed_is_one_run() {
        assert_eq!(log(1), log(1));
        assert_ne!(log(1), log(2));
    }

    #[test]
    fn time_never_runs_backwards() {
        assert!(log(3).is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn streams_arrive_whole_and_in_order_and_then_close() {
        for seed in 0..200 {
            let mut net = SimulatedNetwork::<()>::new(seed);
            let link = net.add_link(LOW, HIGH);
            net.send_stream(link, b"first ");
            net.send_stream(link, b"second");
            net.close_stream(link);
            let mut heard = Vec::new();
            let mut closed = false;
            while let Some(event) = net.next_event() {
                match event {
                    SimulationEvent::Arrived { bytes, .. } => heard.extend(bytes),
                    SimulationEvent::Closed { .. } => closed = true,
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            assert_eq!((heard.as_slice(), closed), (&b"first second"[..], true));
        }
    }

    #[test]
    fn on_a_seized_link_only_the_attacker_decides_what_arrives() {
        let mut net = SimulatedNetwork::<()>::new(5);
        let link = net.add_link(LOW, HIGH);
        net.seize(link);
        net.send_stream(link, b"secret");
        let bytes = b"secret".to_vec();
        assert_eq!(net.next_event(), Some(SimulationEvent::Intercepted { link, bytes }));
        net.close_stream(link);
        assert_eq!(net.next_event(), Some(SimulationEvent::InterceptedClose { link }));
        assert_eq!(net.next_event(), None);

        net.inject(link, b"late".to_vec(), HIGH);
        net.inject(link, b"soon".to_vec(), LOW);
        let soon = SimulationEvent::Arrived { link, bytes: b"soon".to_vec() };
        let late = SimulationEvent::Arrived { link, bytes: b"late".to_vec() };
        assert_eq!([net.next_event(), net.next_event()], [Some(soon), Some(late)]);
    }

    #[test]
    fn nothing_arrives_after_a_close() {
        let mut net = SimulatedNetwork::<()>::new(5);
        let link = net.add_link(LOW, HIGH);
        net.inject_close(link, LOW);
        net.inject_close(link, HIGH);
        net.inject(link, b"ghost".to_vec(), HIGH);
        assert_eq!(net.next_event(), Some(SimulationEvent::Closed { link }));
        assert_eq!(net.next_event(), None);
    }

    #[test]
    fn events_of_one_time_keep_their_order() {
        let mut net = SimulatedNetwork::new(5);
        for token in 0..20 {
            net.set_timer(LOW, token);
        }
        let order: Vec<_> = std::iter::from_fn(|| net.next_event()).collect();
        assert_eq!(order, (0..20).map(SimulationEvent::Timer).collect::<Vec<_>>());
    }

    /// The arrival times of a hundred datagrams, sent every millisecond.
    fn datagrams(conditions: SimulatedLinkConditions) -> Vec<(Duration, u8)> {
        let mut net = SimulatedNetwork::new(5);
        let link = net.add_link(LOW, LOW);
        *net.conditions_mut(link) = conditions;
        (0..100).for_each(|number| net.set_timer(LOW * number, number));
        let mut arrived = Vec::new();
        while let Some(event) = net.next_event() {
            match event {
                SimulationEvent::Timer(number) => {
                    let number = u8::try_from(number).unwrap();
                    let before = net.pending_events();
                    let arrival = net.send_datagram(link, vec![number; 125]);
                    assert_eq!(arrival.is_some(), net.pending_events() > before);
                }
                SimulationEvent::Arrived { bytes, .. } => {
                    assert_eq!(bytes, [bytes[0]; 125], "whole");
                    arrived.push((net.now(), bytes[0]));
                }
                other => panic!("{other:?}"),
            }
        }
        arrived
    }

    #[test]
    fn datagrams_are_lost_duplicated_and_reordered_as_the_conditions_say() {
        let fixed = SimulatedLinkConditions::delayed(HIGH, HIGH);
        let all: Vec<_> = (0..100).map(|n| (HIGH + LOW * u32::from(n), n)).collect();
        assert_eq!(datagrams(fixed), all);
        assert!(
            !datagrams(SimulatedLinkConditions::delayed(LOW, HIGH)).is_sorted_by_key(|(_, n)| *n)
        );
        let lossy = datagrams(SimulatedLinkConditions { loss_permille: 300, ..fixed });
        assert!((50..90).contains(&lossy.len()), "{}", lossy.len());
        let twice = datagrams(SimulatedLinkConditions { duplication_permille: 1000, ..fixed });
        assert_eq!(twice.len(), 200);
        assert!(datagrams(SimulatedLinkConditions { loss_permille: 1000, ..fixed }).is_empty());
        assert_eq!(
            datagrams(SimulatedLinkConditions { max_datagram_len: 125, ..fixed }).len(),
            100
        );
        assert!(datagrams(SimulatedLinkConditions { max_datagram_len: 124, ..fixed }).is_empty());
    }

    #[test]
    fn a_bottleneck_queues_and_a_policer_drops() {
        // 1 Mbit/s: a datagram takes a millisecond, the time between two.
        let queue = |rate_bps, is_policed| {
            let bottleneck = Some(LinkBottleneck { rate_bps, max_queue: 4 * LOW, is_policed });
            datagrams(SimulatedLinkConditions {
                bottleneck,
                ..SimulatedLinkConditions::delayed(HIGH, HIGH)
            })
        };
        let at = |number: u8| HIGH + LOW * u32::from(number);
        assert!(queue(1_000_000, false).iter().all(|(time, number)| *time == at(number + 1)));
        // At half the rate, half of them wait for four or five others, and half are lost.
        let half = queue(500_000, false);
        assert!((50..=53).contains(&half.len()), "{}", half.len());
        assert!(
            half[10..]
                .iter()
                .all(|(time, number)| { (at(number + 5)..=at(number + 6)).contains(time) })
        );
        let policed = queue(500_000, true);
        assert_eq!(policed.len(), half.len());
        assert!(policed.iter().all(|(time, number)| *time == at(*number)));
    }

    #[test]
    fn an_attacker_decides_what_becomes_of_a_datagram() {
        let mut net = SimulatedNetwork::<()>::new(5);
        let link = net.add_link(LOW, LOW);
        net.seize(link);
        assert_eq!(net.send_datagram(link, b"secret".to_vec()), None);
        let bytes = b"secret".to_vec();
        assert_eq!(
            net.next_event(),
            Some(SimulationEvent::Intercepted { link, bytes: bytes.clone() })
        );
        assert_eq!(net.now(), Duration::ZERO, "before it would arrive");
        net.inject(link, Vec::new(), Duration::ZERO);
        assert_eq!(net.pass_datagram(link, bytes.clone()), Some(LOW));
        assert_eq!(net.next_event(), Some(SimulationEvent::Arrived { link, bytes: Vec::new() }));
        assert_eq!(net.next_event(), Some(SimulationEvent::Arrived { link, bytes: bytes.clone() }));
        assert_eq!(net.now(), LOW);
        net.release(link);
        assert_eq!(net.send_datagram(link, bytes.clone()), Some(2 * LOW));
        assert_eq!(net.next_event(), Some(SimulationEvent::Arrived { link, bytes }));
    }

    #[test]
    fn the_clock_stops_at_a_deadline() {
        let mut net = SimulatedNetwork::new(5);
        net.set_timer(HIGH, ());
        assert_eq!((net.next_event_until(LOW), net.now()), (None, LOW));
        assert_eq!((net.next_event_until(Duration::ZERO), net.now()), (None, LOW));
        assert_eq!(
            (net.next_event_until(HIGH), net.now()),
            (Some(SimulationEvent::Timer(())), HIGH)
        );
        assert_eq!((net.next_event_until(2 * HIGH), net.now()), (None, 2 * HIGH));
    }
}

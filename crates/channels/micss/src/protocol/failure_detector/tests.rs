use super::*;

const MS: Duration = Duration::from_millis(1);

/// A channel that is observed when its detector requires it.
struct Detection {
    detector: FailureDetector,
    now: Duration,
    /// When the peer was heard.
    heard_at: Option<Duration>,
    seen: PathObservation,
    probes: usize,
    cuts: usize,
    events: Vec<(Duration, FailureDetectorEvent)>,
}

impl Detection {
    fn new(in_use: bool, round_trip: Option<Duration>) -> Self {
        let seen =
            PathObservation { is_wanted: true, in_use, round_trip, ..PathObservation::default() };
        let now = Duration::from_secs(1000);
        let detector = FailureDetector::default();
        let (heard_at, events) = (Some(now), Vec::new());
        let mut watched = Self { detector, now, heard_at, seen, probes: 0, cuts: 0, events };
        watched.look();
        watched
    }

    fn look(&mut self) {
        let heard = self.heard_at.map(|at| self.now - at);
        self.detector
            .handle_observation(self.now, &PathObservation { since_received: heard, ..self.seen });
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(event) = self.detector.poll_event() {
            match event {
                FailureDetectorEvent::Probe { .. } => {
                    self.probes += 1;
                    self.seen.unanswered_probes += 1;
                }
                FailureDetectorEvent::Cut => self.cuts += 1,
                other => self.events.push((self.now, other)),
            }
        }
    }

    /// Runs until then, with a peer that answers each probe after this delay, or never.
    fn run(&mut self, until: Duration, answers: Option<Duration>) {
        let until = self.now + until;
        while let Some(next) = self.detector.poll_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            let asked = self.probes;
            self.look();
            if let Some(delay) = answers
                && self.probes > asked
            {
                self.heard_at = self.heard_at.max(Some(self.now + delay));
                self.now += delay;
                self.seen.unanswered_probes = 0;
                self.look();
            }
        }
        self.now = until;
    }

    fn is_up(&self) -> bool {
        matches!(self.detector.state(), PathState::Up { .. })
    }
}

#[test]
fn a_channel_in_use_that_falls_silent_is_lost_within_three_seconds() {
    let mut watched = Detection::new(true, Some(20 * MS));
    let silent = watched.now;
    watched.run(Duration::from_secs(60), None);
    let [(at, FailureDetectorEvent::Lost(lost))] = &watched.events[..] else {
        panic!("{:?}", watched.events)
    };
    assert_eq!((lost.since, &lost.cause), (silent, &PathLossCause::NoAnswer));
    assert_eq!(*at - silent, QUIET_TIMEOUT + MIN_ANSWER_TIMEOUT);
    assert_eq!(watched.detector.state().unusable_since(), Some(silent));
}

/// A stream that got no acknowledgement gives up its connection, which may be the last one, before
/// as many probes are unanswered as a lossy channel needs.
#[test]
fn a_silent_channel_whose_last_connection_is_given_up_is_lost() {
    let round_trip = Some(20 * MS);
    for (silence, is_lost) in [(3000 * MS, true), (2000 * MS, false)] {
        let begin = Duration::from_secs(1000);
        let mut detector = FailureDetector::default();
        for since in (0..).map(|step| step * POLL_INTERVAL).take_while(|it| *it <= silence) {
            let seen = PathObservation {
                is_wanted: true,
                in_use: true,
                since_received: Some(since),
                unanswered_probes: 3,
                round_trip,
                loss: 0.5,
            };
            detector.handle_observation(begin + since, &seen);
        }
        assert!(detector.awaits_answer() && detector.state().lost().is_none());
        detector.handle_observation(begin + silence, &PathObservation::default());
        assert_eq!(detector.state().lost().is_some(), is_lost, "{silence:?}");
        assert!(!detector.awaits_answer());
    }
}

#[test]
fn a_lossy_channel_needs_more_probes() {
    let needed = [0.0, 0.02, 0.05, 0.1, 0.15, 0.3, 1.0].map(min_unanswered);
    assert_eq!(needed, [3, 3, 3, 4, 5, 6, 6]);
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.seen.loss = 0.15;
    watched.now += QUIET_TIMEOUT;
    for tries in [0, 3, 4, 5] {
        assert!(watched.is_up(), "{tries}");
        watched.seen.unanswered_probes = tries;
        watched.now += MIN_ANSWER_TIMEOUT;
        watched.look();
    }
    assert!(!watched.is_up());
}

#[test]
fn an_idle_channel_is_lost_as_soon_after_its_first_probe() {
    let mut watched = Detection::new(false, Some(20 * MS));
    let silent = watched.now;
    watched.run(Duration::from_secs(60), None);
    assert_eq!(watched.events[0].0 - silent, IDLE_QUIET_TIMEOUT + MIN_ANSWER_TIMEOUT);
}

#[test]
fn a_channel_that_answers_is_not_lost_and_rarely_probed() {
    for (in_use, most) in [(true, 80), (false, 6)] {
        let mut watched = Detection::new(in_use, Some(20 * MS));
        watched.run(Duration::from_secs(60), Some(20 * MS));
        assert!(watched.is_up() && watched.events.is_empty());
        assert!((1..=most).contains(&watched.probes), "{in_use}: {}", watched.probes);
    }
}

/// A queue of five seconds, which the round-trip times include.
#[test]
fn a_slow_channel_has_a_timeout_by_its_round_trip() {
    let mut watched = Detection::new(true, Some(Duration::from_secs(5)));
    watched.run(Duration::from_secs(60), Some(Duration::from_millis(5500)));
    assert!(watched.is_up() && watched.events.is_empty(), "{:?}", watched.events);
    let silent = watched.heard_at.unwrap();
    watched.run(Duration::from_secs(60), None);
    assert!(watched.events[0].0 - silent < Duration::from_secs(8));
}

/// A closed window: the kernel probes at growing intervals, and cannot be made to probe sooner.
#[test]
fn silence_without_probes_is_not_a_loss() {
    let mut watched = Detection::new(true, Some(20 * MS));
    for _ in 0..1000 {
        watched.now += POLL_INTERVAL;
        watched.seen.unanswered_probes = 2;
        watched.look();
    }
    assert!(watched.is_up());
}

#[test]
fn after_a_suspend_a_channel_is_probed_before_it_is_lost() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.now += Duration::from_secs(3600);
    watched.seen.unanswered_probes = 9;
    watched.look();
    assert!(watched.is_up() && watched.probes == 1);
    watched.heard_at = Some(watched.now);
    watched.look();
    assert!(watched.is_up());
}

#[test]
fn a_recovery_is_reported_with_the_duration_of_the_loss() {
    let mut watched = Detection::new(true, Some(20 * MS));
    let silent = watched.now;
    watched.run(Duration::from_secs(46), None);
    watched.heard_at = Some(watched.now);
    watched.look();
    let after = watched.now - silent;
    assert_eq!(watched.events[1].1, FailureDetectorEvent::Recovered { after });
    assert!(watched.is_up());
    // And it is lost again as soon.
    let again = watched.now;
    watched.seen.unanswered_probes = 0;
    watched.run(Duration::from_secs(60), None);
    assert!(watched.events[2].0 - again <= 2 * QUIET_TIMEOUT + MIN_ANSWER_TIMEOUT + POLL_INTERVAL);
}

#[test]
fn packets_from_before_the_loss_are_not_a_recovery() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.run(Duration::from_secs(10), None);
    // With the precision of the kernel's clock.
    watched.heard_at = Some(watched.events[0].0 + 10 * MS);
    watched.look();
    assert!(!watched.is_up());
}

/// It is probed at growing intervals, but soon if a stream wants it.
#[test]
fn a_lost_channel_is_probed() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.run(Duration::from_secs(1000), None);
    assert!((100..200).contains(&watched.probes), "{}", watched.probes);
    watched.detector.handle_demand();
    assert!(watched.detector.poll_timeout().unwrap() <= watched.now + LOST_POLL_INTERVAL.0);
}

#[test]
fn a_refusal_is_known_at_once_and_cuts_no_stream() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.detector.handle_failure(watched.now, PathLossCause::Refused("refused".into()));
    assert!(watched.detector.state().lost().is_some());
    assert_eq!(watched.detector.state().unusable_since(), None);
    // Open streams are still heard.
    watched.run(Duration::from_secs(5), Some(20 * MS));
    assert!(!watched.is_up());
    watched.detector.handle_connected(watched.now);
    assert!(watched.is_up());
}

#[test]
fn a_refusing_channel_whose_route_is_lost_is_lost_from_then_on() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.detector.handle_failure(watched.now, PathLossCause::Refused("refused".into()));
    watched.run(Duration::from_secs(3600), Some(20 * MS));
    let unreachable = PathLossCause::Unreachable("no route".into());
    watched.detector.handle_failure(watched.now, unreachable.clone());
    assert_eq!(watched.detector.state().unusable_since(), Some(watched.now));
    let lost = FailureDetectorEvent::Lost(PathLoss { since: watched.now, cause: unreachable });
    assert!(std::iter::from_fn(|| watched.detector.poll_event()).any(|event| event == lost));
    // Another error does not restart it.
    let since = watched.now;
    let other = PathLossCause::Unreachable("no device".into());
    watched.detector.handle_failure(since + POLL_INTERVAL, other);
    assert_eq!(watched.detector.state().unusable_since(), Some(since));
    assert_eq!(watched.detector.poll_event(), None);
}

#[test]
fn open_streams_can_use_a_silent_channel_again_that_refuses() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.run(Duration::from_secs(10), None);
    assert!(watched.detector.state().unusable_since().is_some());
    watched.detector.handle_failure(watched.now, PathLossCause::Refused("refused".into()));
    assert_eq!(watched.detector.state().unusable_since(), None);
    assert!(watched.detector.state().lost().is_some());
}

#[test]
fn a_refusing_channel_that_falls_silent_is_lost() {
    for (in_use, quiet) in [(true, QUIET_TIMEOUT), (false, IDLE_QUIET_TIMEOUT)] {
        let mut watched = Detection::new(in_use, Some(20 * MS));
        watched.detector.handle_failure(watched.now, PathLossCause::Refused("refused".into()));
        watched.run(Duration::from_secs(600), Some(20 * MS));
        assert!(watched.events.iter().all(|(_, event)| {
            matches!(
                event,
                FailureDetectorEvent::Lost(PathLoss { cause: PathLossCause::Refused(_), .. })
            )
        }));
        watched.events.clear();
        let silent = watched.heard_at.unwrap();
        watched.run(Duration::from_secs(60), None);
        let [(at, FailureDetectorEvent::Lost(lost))] = &watched.events[..] else {
            panic!("{in_use}: {:?}", watched.events)
        };
        assert_eq!((lost.since, &lost.cause), (silent, &PathLossCause::NoAnswer), "{in_use}");
        assert!(*at - silent <= quiet + MIN_ANSWER_TIMEOUT + POLL_INTERVAL, "{in_use}");
    }
}

#[test]
fn an_unused_refusing_channel_is_tried_at_growing_intervals() {
    let mut watched = Detection::new(false, Some(20 * MS));
    watched.seen.is_wanted = false;
    watched.detector.handle_failure(watched.now, PathLossCause::Refused("refused".into()));
    watched.run(Duration::from_secs(1000), None);
    assert!((100..200).contains(&watched.probes), "{}", watched.probes);
    watched.detector.handle_demand();
    assert!(watched.detector.poll_timeout().unwrap() <= watched.now + LOST_POLL_INTERVAL.0);
}

#[test]
fn a_channel_without_a_route_is_lost_at_once() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.detector.handle_failure(watched.now, PathLossCause::Unreachable("no route".into()));
    assert_eq!(watched.detector.state().unusable_since(), Some(watched.now));
    watched.now += POLL_INTERVAL;
    watched.heard_at = Some(watched.now);
    watched.look();
    assert!(watched.is_up(), "it has a way again");
}

/// A channel that has never answered has more time.
#[test]
fn a_peer_that_was_never_there() {
    let mut watched = Detection::new(true, None);
    watched.heard_at = None;
    watched.detector = FailureDetector::default();
    let begin = watched.now;
    watched.look();
    watched.run(Duration::from_secs(60), None);
    assert_eq!(watched.events[0].0 - begin, INITIAL_ANSWER_TIMEOUT);
}

#[test]
fn an_unused_channel_is_not_probed() {
    let mut watched = Detection::new(false, Some(20 * MS));
    watched.seen.is_wanted = false;
    watched.look();
    assert_eq!(watched.detector.poll_timeout(), None);
}

/// Many streams whose connections end at once cost one connection attempt.
#[test]
fn queued_probes_are_merged() {
    let mut watched = Detection::new(true, Some(20 * MS));
    watched.now += QUIET_TIMEOUT;
    watched.detector.handle_observation(watched.now, &watched.seen);
    for _ in 0..3 {
        watched.detector.handle_suspicion(watched.now);
    }
    assert_eq!(watched.detector.poll_event(), Some(FailureDetectorEvent::Probe { connect: true }));
    assert_eq!(watched.detector.poll_event(), None);
    watched.detector.handle_observation(watched.now, &watched.seen);
    assert_eq!(watched.detector.poll_event(), Some(FailureDetectorEvent::Probe { connect: false }));
}

/// A host that refuses connections, and does not answer on open ones.
#[test]
fn causes_that_alternate_are_reported_once_a_minute() {
    let mut watched = Detection::new(true, Some(20 * MS));
    let refused = || PathLossCause::Refused("refused".into());
    let mut changes = 0;
    let until = watched.now + Duration::from_secs(600);
    while watched.now < until {
        watched.now = watched.detector.poll_timeout().unwrap();
        watched.look();
        if watched.detector.state().unusable_since().is_some() {
            changes += 1;
            watched.detector.handle_failure(watched.now, refused());
            watched.drain();
            assert_eq!(watched.detector.state().unusable_since(), None, "the status is current");
        }
    }
    assert!(changes > 100 && watched.cuts == changes, "{changes} changes, {} cuts", watched.cuts);
    // The first change is reported at once.
    let times: Vec<Duration> = watched.events.iter().map(|(at, _)| *at).collect();
    assert!(times[1] - times[0] < Duration::from_secs(3), "{times:?}");
    assert!(times[1..].windows(2).all(|pair| pair[1] - pair[0] >= REPORT_INTERVAL), "{times:?}");
    assert!((8..=12).contains(&times.len()), "{times:?}");
    // What it is in the end is reported, if only later.
    watched.run(2 * REPORT_INTERVAL, None);
    let Some((_, FailureDetectorEvent::Lost(last))) = watched.events.last() else {
        panic!("no report")
    };
    assert_eq!(
        Some(last.cause.breaks_open_connections()),
        watched.detector.state().lost().map(|l| l.cause.breaks_open_connections())
    );
}

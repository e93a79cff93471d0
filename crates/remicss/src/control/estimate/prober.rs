//! The phases that all channels whose bottleneck is known go through together: a *probe* of one interval at a
//! quarter more than the rate known, a *drain* at a quarter less, and then a *cruise* a little below it, until
//! the next probe.

/// How many intervals there are from one probe to the next.
const SHORTEST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 64;

/// For how many intervals a probe's outcome is waited for. A control share is lost now and then.
const LONGEST_WAIT: u32 = 8;

/// How fast channels are sent on for now whose bottleneck is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A little less than is known to arrive.
    Cruise,
    /// More than that.
    Probe,
    /// Less than that.
    Drain,
}

/// What an interval has shown of a channel, the less remarkable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A probe did not arrive as a whole, and the rate known is right.
    Same,
    /// It did, or it did not and the rate known was wrong, or that has fallen.
    Moved,
    /// The bottleneck was met by a rate that was not known to be carried, so that there is a queue now.
    Met,
}

/// The phases that all channels are in together.
#[derive(Clone, Debug)]
pub struct Prober {
    /// How many phases have begun. Cruise, probe and drain take turns.
    turn: u64,
    /// For how many intervals more no probe begins.
    rest: u32,
    pause: u32,
    /// The most remarkable that a channel has shown since the last probe.
    verdict: Option<Verdict>,
}

impl Prober {
    /// Begins with a probe, as soon as there is something to send.
    pub fn new() -> Self {
        Self { turn: 0, rest: 0, pause: SHORTEST_PAUSE, verdict: None }
    }

    /// The phase's number. An interval belongs to it as a whole if this is the same at both its ends.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// The phase that this turn is.
    pub fn phase(turn: u64) -> Phase {
        match turn % 3 {
            0 => Phase::Cruise,
            1 => Phase::Probe,
            _ => Phase::Drain,
        }
    }

    /// An interval is over, in which some channel whose bottleneck is known was `busy` or none was.
    pub fn advance(&mut self, busy: bool) {
        match Self::phase(self.turn) {
            Phase::Cruise => {
                self.rest = self.rest.saturating_sub(1);
                if self.rest > 0 || !busy {
                    return;
                }
                self.verdict = None;
            }
            Phase::Probe => {}
            Phase::Drain => self.rest = LONGEST_WAIT,
        }
        self.turn += 1;
    }

    /// A channel has shown something in an interval of this turn. The most remarkable decides when
    /// the next probe is.
    pub fn handle_verdict(&mut self, turn: u64, verdict: Verdict) {
        if verdict == Verdict::Met {
            self.pause = SHORTEST_PAUSE;
            if Self::phase(self.turn) == Phase::Cruise {
                // To the next drain.
                self.turn += 2;
                self.verdict = None;
            }
            return;
        }
        // A probe's drain and the cruise behind it are its cycle.
        let is_over = turn.div_ceil(3) != self.turn.div_ceil(3);
        if is_over || self.verdict >= Some(verdict) {
            return;
        }
        self.verdict = Some(verdict);
        (self.rest, self.pause) = match verdict {
            Verdict::Same => (self.pause, (2 * self.pause).min(LONGEST_PAUSE)),
            _ => (SHORTEST_PAUSE, SHORTEST_PAUSE),
        };
    }
}

impl Default for Prober {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_that_fail_come_less_often() {
        let mut prober = Prober::new();
        assert_eq!(Prober::phase(prober.turn()), Phase::Cruise);
        prober.advance(false);
        assert_eq!(prober.turn(), 0, "there is nothing to probe with");
        for pause in [8, 16, 32, 64, 64] {
            prober.advance(true);
            prober.advance(true);
            prober.advance(true);
            let drain = prober.turn() - 1;
            assert_eq!(Prober::phase(drain), Phase::Drain);
            prober.handle_verdict(drain, Verdict::Same);
            prober.handle_verdict(drain, Verdict::Same);
            let cruise = (0..100).take_while(|_| {
                prober.advance(true);
                Prober::phase(prober.turn()) == Phase::Cruise
            });
            assert_eq!(cruise.count() + 1, pause);
            prober.turn -= 1;
            prober.rest = 1;
        }
        prober.handle_verdict(prober.turn(), Verdict::Moved);
        assert_eq!((prober.rest, prober.pause), (SHORTEST_PAUSE, SHORTEST_PAUSE));
    }

    #[test]
    fn one_channel_that_moves_is_enough_for_another_probe_soon() {
        for verdicts in [[Verdict::Moved, Verdict::Same], [Verdict::Same, Verdict::Moved]] {
            let mut prober = Prober { pause: LONGEST_PAUSE, ..Prober::new() };
            (0..3).for_each(|_| prober.advance(true));
            for verdict in verdicts {
                prober.handle_verdict(2, verdict);
            }
            assert_eq!((prober.rest, prober.pause), (SHORTEST_PAUSE, SHORTEST_PAUSE));
            prober.rest = 0;
            prober.advance(true);
            assert_eq!(Prober::phase(prober.turn()), Phase::Probe);
            prober.handle_verdict(2, Verdict::Same);
            assert_eq!(prober.pause, SHORTEST_PAUSE, "that was the last probe's");
        }
    }

    #[test]
    fn what_growth_has_queued_is_drained_at_once() {
        let mut prober = Prober::new();
        prober.handle_verdict(0, Verdict::Met);
        assert_eq!((Prober::phase(prober.turn()), prober.turn()), (Phase::Drain, 2));
        prober.handle_verdict(0, Verdict::Met);
        assert_eq!(prober.turn(), 2);
        prober.advance(true);
        let cruise = (0..100).take_while(|_| {
            prober.advance(true);
            Prober::phase(prober.turn()) == Phase::Cruise
        });
        assert_eq!(cruise.count() + 1, LONGEST_WAIT as usize);
    }
}

//! The phases that all channels with a known bottleneck go through together: a *probe* of one
//! interval at a quarter above the known rate, a *drain* of one interval at a quarter below it, and
//! then a *cruise* a little below it, until the next probe.

/// The minimum and maximum number of intervals from one probe to the next.
const MIN_PROBE_INTERVAL: u32 = 4;
const MAX_PROBE_INTERVAL: u32 = 64;

/// The maximum number while a channel carries less than usual.
const FALLEN_PROBE_INTERVAL: u32 = 4;

/// The maximum number of intervals to wait for a probe's result, since control shares may be lost.
const MAX_RESULT_WAIT: u32 = 8;

/// The phase of the channels with a known bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePhase {
    /// Sending a little below the known rate.
    Cruise,
    /// Sending above the known rate.
    Probe,
    /// Sending below the known rate.
    Drain,
}

/// What an interval has shown of a channel, in ascending order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeResult {
    /// A probe did not arrive completely, and the known rate is right.
    Same,
    /// A probe arrived completely, or the known rate was wrong.
    Changed,
    /// The bottleneck was met by a rate that was not known to be carried, so a queue has built up.
    BottleneckMet,
}

/// The state of the phases, common to all channels.
#[derive(Clone, Debug)]
pub struct ProbeCycle {
    /// The number of phases that have begun. Cruise, probe and drain alternate.
    phase_number: u64,
    /// The number of intervals before the next probe.
    intervals_left: u32,
    interval: u32,
    /// The most important result of a channel since the last probe.
    result: Option<ProbeResult>,
}

impl ProbeCycle {
    /// Starts with a probe, as soon as there is something to send.
    pub fn new() -> Self {
        Self { phase_number: 0, intervals_left: 0, interval: MIN_PROBE_INTERVAL, result: None }
    }

    /// The number of the current phase. An interval is entirely within a phase if this number is
    /// the same at both its ends.
    pub fn phase_number(&self) -> u64 {
        self.phase_number
    }

    /// The phase with this number.
    pub fn phase(phase_number: u64) -> ProbePhase {
        match phase_number % 3 {
            0 => ProbePhase::Cruise,
            1 => ProbePhase::Probe,
            _ => ProbePhase::Drain,
        }
    }

    /// Ends an interval. `busy` says whether a channel with a known bottleneck was busy in it, and
    /// `has_fallen` whether one carries less than usual.
    pub fn advance(&mut self, busy: bool, has_fallen: bool) {
        match Self::phase(self.phase_number) {
            ProbePhase::Cruise => {
                self.intervals_left = self.intervals_left.saturating_sub(1);
                if has_fallen {
                    self.intervals_left = self.intervals_left.min(FALLEN_PROBE_INTERVAL - 1);
                }
                if self.intervals_left > 0 || !busy {
                    return;
                }
                self.result = None;
            }
            ProbePhase::Probe => {}
            ProbePhase::Drain => self.intervals_left = MAX_RESULT_WAIT,
        }
        self.phase_number += 1;
    }

    /// Handles a channel's result of a phase. The most important result decides when the next probe
    /// is.
    pub fn handle_result(&mut self, phase_number: u64, result: ProbeResult) {
        if result == ProbeResult::BottleneckMet {
            self.interval = MIN_PROBE_INTERVAL;
            if Self::phase(self.phase_number) == ProbePhase::Cruise {
                // Skips to the next drain.
                self.phase_number += 2;
                self.result = None;
            }
            return;
        }
        // A probe's drain and the cruise after it belong to its cycle.
        let is_over = phase_number.div_ceil(3) != self.phase_number.div_ceil(3);
        if is_over || self.result >= Some(result) {
            return;
        }
        self.result = Some(result);
        (self.intervals_left, self.interval) = match result {
            ProbeResult::Same => (self.interval, (2 * self.interval).min(MAX_PROBE_INTERVAL)),
            _ => (MIN_PROBE_INTERVAL, MIN_PROBE_INTERVAL),
        };
    }
}

impl Default for ProbeCycle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_that_fail_come_less_often() {
        let mut prober = ProbeCycle::new();
        assert_eq!(ProbeCycle::phase(prober.phase_number()), ProbePhase::Cruise);
        prober.advance(false, false);
        assert_eq!(prober.phase_number(), 0, "there is nothing to probe with");
        for interval in [4, 8, 16, 32, 64, 64] {
            prober.advance(true, false);
            prober.advance(true, false);
            prober.advance(true, false);
            let drain = prober.phase_number() - 1;
            assert_eq!(ProbeCycle::phase(drain), ProbePhase::Drain);
            prober.handle_result(drain, ProbeResult::Same);
            prober.handle_result(drain, ProbeResult::Same);
            let cruise = (0..100).take_while(|_| {
                prober.advance(true, false);
                ProbeCycle::phase(prober.phase_number()) == ProbePhase::Cruise
            });
            assert_eq!(cruise.count() + 1, interval);
            prober.phase_number -= 1;
            prober.intervals_left = 1;
        }
        prober.handle_result(prober.phase_number(), ProbeResult::Changed);
        assert_eq!(
            (prober.intervals_left, prober.interval),
            (MIN_PROBE_INTERVAL, MIN_PROBE_INTERVAL)
        );
    }

    #[test]
    fn one_changed_rate_shortens_the_probe_interval() {
        for verdicts in
            [[ProbeResult::Changed, ProbeResult::Same], [ProbeResult::Same, ProbeResult::Changed]]
        {
            let mut prober = ProbeCycle { interval: MAX_PROBE_INTERVAL, ..ProbeCycle::new() };
            (0..3).for_each(|_| prober.advance(true, false));
            for result in verdicts {
                prober.handle_result(2, result);
            }
            assert_eq!(
                (prober.intervals_left, prober.interval),
                (MIN_PROBE_INTERVAL, MIN_PROBE_INTERVAL)
            );
            prober.intervals_left = 0;
            prober.advance(true, false);
            assert_eq!(ProbeCycle::phase(prober.phase_number()), ProbePhase::Probe);
            prober.handle_result(2, ProbeResult::Same);
            assert_eq!(prober.interval, MIN_PROBE_INTERVAL, "that was the last probe's");
        }
    }

    #[test]
    fn a_queue_from_growth_is_drained_at_once() {
        let mut prober = ProbeCycle::new();
        prober.handle_result(0, ProbeResult::BottleneckMet);
        assert_eq!(
            (ProbeCycle::phase(prober.phase_number()), prober.phase_number()),
            (ProbePhase::Drain, 2)
        );
        prober.handle_result(0, ProbeResult::BottleneckMet);
        assert_eq!(prober.phase_number(), 2);
        prober.advance(true, false);
        let cruise = (0..100).take_while(|_| {
            prober.advance(true, false);
            ProbeCycle::phase(prober.phase_number()) == ProbePhase::Cruise
        });
        assert_eq!(cruise.count() + 1, MAX_RESULT_WAIT as usize);
    }
}

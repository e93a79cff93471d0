//! Limits how often the user is told of what a proxy can do again and again: otherwise the lines
//! hide what was there before.

use std::mem::{self, Discriminant};
use std::time::Duration;

use crate::protocol::event::MixClientEvent;

/// The minimum interval between two reports of a kind.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Passes the first report of each kind on, and then one in an interval, with the number of those
/// since the one before.
#[derive(Default)]
pub(super) struct ReportLimiter {
    kinds: Vec<LimitedReport>,
}

struct LimitedReport {
    kind: Discriminant<MixClientEvent>,
    /// When one was passed on.
    at: Duration,
    /// The last one since, and their number.
    held: Option<(MixClientEvent, u64)>,
}

impl ReportLimiter {
    /// Takes an event. Returns it if it is to be shown now.
    pub(super) fn pass(&mut self, now: Duration, event: MixClientEvent) -> Option<MixClientEvent> {
        if !is_limited(&event) {
            return Some(event);
        }
        let kind = mem::discriminant(&event);
        let Some(report) = self.kinds.iter_mut().find(|report| report.kind == kind) else {
            self.kinds.push(LimitedReport { kind, at: now, held: None });
            return Some(event);
        };
        let others = report.held.take().map_or(0, |(_, count)| count);
        report.held = Some((event, others + 1));
        self.poll(now)
    }

    /// What was held back and is to be shown now.
    pub(super) fn poll(&mut self, now: Duration) -> Option<MixClientEvent> {
        let is_due = |report: &&mut LimitedReport| {
            report.held.is_some() && now.saturating_sub(report.at) >= REPORT_INTERVAL
        };
        let report = self.kinds.iter_mut().find(is_due)?;
        report.at = now;
        match report.held.take()? {
            (event, 1) => Some(event),
            (event, count) => Some(MixClientEvent::Repeated { last: Box::new(event), count }),
        }
    }
}

fn is_limited(event: &MixClientEvent) -> bool {
    matches!(
        event,
        MixClientEvent::NotOfThisRound { .. }
            | MixClientEvent::ChangedByProxy { .. }
            | MixClientEvent::LeftOut { .. }
            | MixClientEvent::Missed { .. }
            | MixClientEvent::CatchingUp { .. }
            | MixClientEvent::AlwaysLate { .. }
            | MixClientEvent::TermsChanged { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_each_round_are_limited_to_one_a_minute() {
        let mut reports = ReportLimiter::default();
        let mut shown = Vec::new();
        for second in 0..150_u64 {
            let now = Duration::from_secs(second);
            for event in [
                MixClientEvent::ChangedByProxy { round: second },
                MixClientEvent::LeftOut { round: second },
                MixClientEvent::Joined,
            ] {
                shown.extend(reports.pass(now, event));
            }
        }
        let joined = shown.iter().filter(|event| **event == MixClientEvent::Joined).count();
        assert_eq!(joined, 150, "nothing else is limited");
        shown.retain(|event| *event != MixClientEvent::Joined);
        let repeated = |last, count| MixClientEvent::Repeated { last: Box::new(last), count };
        let (changed, left_out) = (
            |round| MixClientEvent::ChangedByProxy { round },
            |round| MixClientEvent::LeftOut { round },
        );
        let expected = [
            changed(0),
            left_out(0),
            repeated(changed(60), 60),
            repeated(left_out(60), 60),
            repeated(changed(120), 60),
            repeated(left_out(120), 60),
        ];
        assert_eq!(shown, expected);
        // What was held back is shown even if nothing else comes.
        let now = Duration::from_secs(180);
        assert_eq!(reports.poll(now), Some(repeated(changed(149), 29)));
        assert_eq!(reports.poll(now), Some(repeated(left_out(149), 29)));
        assert_eq!(reports.poll(now), None);
        let text = repeated(changed(149), 29).to_string();
        assert!(text.starts_with("29 times, at last: the proxy has changed"), "{text}");
    }
}

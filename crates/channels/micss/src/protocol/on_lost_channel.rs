//! Decides what a new stream does while channels are lost, and when an open stream ends.
//!
//! Pure: the states of channels and the time come in, decisions and deadlines go out. The caller
//! chooses the epoch of times.

use std::time::Duration;

use crate::protocol::failure_detector::PathState;

/// What new streams do if a channel that they need is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LostChannelAction {
    /// They fail at once.
    #[default]
    Fail,
    /// They wait as long as open streams do.
    Wait,
}

/// What a new stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamAdmission {
    /// It opens.
    Open,
    /// It waits for a change, at most until this time.
    WaitUntil(Duration),
    /// It fails, because of the channel with this index.
    Fail(usize),
}

/// The decision for a stream that was requested at `since` and can continue without `spare` of
/// these channels.
pub(crate) fn admit<'a>(
    channels: impl Iterator<Item = &'a PathState>,
    spare: usize,
    policy: LostChannelAction,
    (now, since, timeout): (Duration, Duration, Duration),
) -> StreamAdmission {
    // If connecting fails at once, with the system's error, a stream that does not wait may try.
    let keeps_out = |state: &PathState| match policy {
        LostChannelAction::Fail => state.unusable_since().is_some(),
        LostChannelAction::Wait => state.lost().is_some(),
    };
    let lost = channels.enumerate().filter(|(_, state)| keeps_out(state)).map(|(index, _)| index);
    let Some(index) = lost.skip(spare).last() else { return StreamAdmission::Open };
    let end = since + timeout;
    if policy == LostChannelAction::Wait && now < end {
        StreamAdmission::WaitUntil(end)
    } else {
        StreamAdmission::Fail(index)
    }
}

/// When an open stream ends, and because of which of its channels (by their order here). The stream
/// can continue without `spare` of them and waits for `timeout`. Each channel is given by the time
/// since when it has been unusable, or `None`.
pub(crate) fn end_of_stream(
    channels: impl Iterator<Item = Option<Duration>>,
    spare: usize,
    timeout: Duration,
) -> Option<(Duration, usize)> {
    let cut = channels.enumerate().filter_map(|(index, since)| Some((since?, index)));
    let mut cut: Vec<_> = cut.collect();
    cut.sort_unstable();
    cut.get(spare).map(|&(since, index)| (since + timeout, index))
}

#[cfg(test)]
mod tests {
    use super::LostChannelAction::{Fail, Wait};
    use super::*;
    use crate::protocol::failure_detector::{PathLoss, PathLossCause};

    fn lost(since: u64, cause: PathLossCause) -> PathState {
        PathState::Lost(PathLoss { since: Duration::from_secs(since), cause })
    }

    #[test]
    fn new_streams_fail_or_wait_by_the_policy() {
        let up = PathState::Up { since: Duration::ZERO };
        let silent = lost(50, PathLossCause::NoAnswer);
        let refused = lost(50, PathLossCause::Refused("refused".into()));
        let second = Duration::from_secs(1);
        let admitted = |states: &[&PathState], spare, policy, now: u32| {
            let times = (now * second, 60 * second, 90 * second);
            admit(states.iter().copied(), spare, policy, times)
        };
        assert_eq!(admitted(&[&up, &up], 0, Fail, 60), StreamAdmission::Open);
        assert_eq!(admitted(&[&up, &PathState::Unknown], 0, Wait, 60), StreamAdmission::Open);
        assert_eq!(admitted(&[&up, &silent], 0, Fail, 60), StreamAdmission::Fail(1));
        assert_eq!(admitted(&[&silent, &up, &up], 1, Fail, 60), StreamAdmission::Open);
        assert_eq!(admitted(&[&silent, &up, &silent], 1, Fail, 60), StreamAdmission::Fail(2));
        let until = StreamAdmission::WaitUntil(150 * second);
        assert_eq!(admitted(&[&up, &silent], 0, Wait, 60), until);
        assert_eq!(admitted(&[&up, &silent], 0, Wait, 150), StreamAdmission::Fail(1));
        // Connecting reports this at once.
        assert_eq!(admitted(&[&up, &refused], 0, Fail, 60), StreamAdmission::Open);
        assert_eq!(admitted(&[&up, &refused], 0, Wait, 60), until);
    }

    #[test]
    fn open_streams_end_when_a_needed_channel_was_lost_for_the_timeout() {
        let up = PathState::Up { since: Duration::ZERO };
        let [early, late] = [50, 70].map(|since| lost(since, PathLossCause::NoAnswer));
        let refused = lost(10, PathLossCause::Refused("refused".into()));
        let second = Duration::from_secs(1);
        let end = |states: &[&PathState], spare| {
            let unusable = states.iter().map(|state| state.unusable_since());
            end_of_stream(unusable, spare, 90 * second)
        };
        assert_eq!(end(&[&up, &up], 0), None);
        assert_eq!(end(&[&late, &early, &refused], 0), Some((140 * second, 1)));
        assert_eq!(end(&[&late, &early, &refused], 1), Some((160 * second, 0)));
        assert_eq!(end(&[&late, &early, &refused], 2), None);
    }
}

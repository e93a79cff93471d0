//! Decides which of several servers carries new streams: the first one, or a later one while the
//! earlier ones are gone.
//!
//! Pure: the time and the state of each server come in, decisions go out. The caller chooses the
//! epoch of times.

use std::time::Duration;

/// Chooses among servers in order of preference.
#[derive(Debug)]
pub(crate) struct ServerChoice {
    /// Since when each server works; `None` while it is gone.
    working_since: Vec<Option<Duration>>,
    current: usize,
    /// When the current server was chosen.
    since: Duration,
    /// How long an earlier server must work before it is used again.
    switch_back_after: Duration,
}

/// A change of the server for new streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerSwitch {
    /// The current server is gone, and this one is used instead.
    Away(usize),
    /// This server comes before the current one, and has worked for long enough.
    Back(usize),
}

impl ServerChoice {
    /// A choice among `servers` servers that counts all of them as working, and begins with the
    /// first.
    pub(crate) fn new(servers: usize, switch_back_after: Duration, now: Duration) -> Self {
        Self { working_since: vec![Some(now); servers], current: 0, since: now, switch_back_after }
    }

    /// The index of the server for new streams.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// When this server was chosen.
    pub(crate) fn since(&self) -> Duration {
        self.since
    }

    /// Since when a server works.
    pub(crate) fn working_since(&self, server: usize) -> Option<Duration> {
        self.working_since[server]
    }

    /// Handles the state of all servers: for each, whether it is gone. Must be called often, also
    /// while nothing changes.
    pub(crate) fn handle_states(
        &mut self,
        are_gone: impl IntoIterator<Item = bool>,
        now: Duration,
    ) -> Option<ServerSwitch> {
        for (working_since, is_gone) in self.working_since.iter_mut().zip(are_gone) {
            *working_since = if is_gone { None } else { Some(working_since.unwrap_or(now)) };
        }
        let mut servers = self.working_since.iter().enumerate();
        let is_steady =
            |since: &Option<Duration>| since.is_some_and(|it| now >= it + self.switch_back_after);
        let switch = if self.working_since[self.current].is_none() {
            // While all are gone, the current one stays: it is probed, and its error is reported.
            let (next, _) = servers.find(|(_, since)| since.is_some())?;
            ServerSwitch::Away(next)
        } else {
            let (first, _) = servers.take(self.current).find(|(_, since)| is_steady(since))?;
            ServerSwitch::Back(first)
        };
        let (ServerSwitch::Away(next) | ServerSwitch::Back(next)) = switch;
        (self.current, self.since) = (next, now);
        Some(switch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn new_streams_use_the_first_server_that_works() {
        let mut choice = ServerChoice::new(3, 60 * SECOND, Duration::ZERO);
        assert_eq!(choice.handle_states([false, false, false], SECOND), None);
        assert_eq!(choice.handle_states([false, true, false], SECOND), None);
        let away = choice.handle_states([true, true, false], 2 * SECOND);
        assert_eq!(away, Some(ServerSwitch::Away(2)));
        assert_eq!((choice.current(), choice.since()), (2, 2 * SECOND));
        // The second server returns, and the third one still works.
        assert_eq!(choice.handle_states([true, false, false], 3 * SECOND), None);
        let away = choice.handle_states([true, false, true], 4 * SECOND);
        assert_eq!(away, Some(ServerSwitch::Away(1)));
        assert_eq!(choice.handle_states([true, true, true], 5 * SECOND), None);
        assert_eq!(choice.current(), 1);
    }

    #[test]
    fn an_earlier_server_is_used_again_after_it_has_worked_for_a_time() {
        let mut choice = ServerChoice::new(2, 60 * SECOND, Duration::ZERO);
        choice.handle_states([true, false], SECOND);
        assert_eq!(choice.handle_states([false, false], 10 * SECOND), None);
        // It is gone for a moment, so the time begins again.
        assert_eq!(choice.handle_states([true, false], 60 * SECOND), None);
        assert_eq!(choice.handle_states([false, false], 61 * SECOND), None);
        assert_eq!(choice.handle_states([false, false], 120 * SECOND), None);
        let back = choice.handle_states([false, false], 121 * SECOND);
        assert_eq!(back, Some(ServerSwitch::Back(0)));
        // If the backup is gone, the first one is used at once, however short it has worked.
        choice.handle_states([true, false], 130 * SECOND);
        let away = choice.handle_states([false, true], 131 * SECOND);
        assert_eq!(away, Some(ServerSwitch::Away(0)));
    }

    proptest! {
        /// With any sequence of states, a server that is gone is used only if all are gone.
        #[test]
        fn a_server_that_is_gone_is_not_used(
            steps in proptest::collection::vec((any::<[bool; 3]>(), 0..100_u32), 1..50)
        ) {
            let mut choice = ServerChoice::new(3, 60 * SECOND, Duration::ZERO);
            let mut now = Duration::ZERO;
            for (gone, pause) in steps {
                now += pause * SECOND;
                choice.handle_states(gone, now);
                prop_assert!(!gone[choice.current()] || gone.iter().all(|gone| *gone));
            }
        }
    }
}

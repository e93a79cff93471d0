//! A client in either of its states, with one interface.

use std::collections::VecDeque;
use std::time::Duration;

use sunder_association::{
    AssociationClientEvent as ConfirmEvent, AssociationMessage, AssociationTerms,
    ClientHandshakeAbort, ConfirmCollector, CookieCollector, CookieList, CookieProgress,
};

/// What the driver must do, in order.
#[derive(Clone, Debug)]
pub(crate) enum ClientEvent {
    Transmit { channel: usize, message: AssociationMessage },
    Associated { list: CookieList },
    Aborted { reason: ClientHandshakeAbort },
}

enum State {
    Cookies(CookieCollector),
    Confirms(ConfirmCollector),
    Aborted,
}

pub(crate) struct Client {
    state: State,
    events: VecDeque<ClientEvent>,
}

impl Client {
    pub(crate) fn new(terms: AssociationTerms, deadline: Duration) -> Self {
        let state = State::Cookies(CookieCollector::new(terms, deadline));
        Self { state, events: VecDeque::new() }
    }

    pub(crate) fn handle_bytes<'a>(
        &mut self,
        channel: usize,
        bytes: &'a [u8],
        now: Duration,
    ) -> &'a [u8] {
        let mut rest = &bytes[bytes.len()..];
        self.step(
            |cookies| cookies.handle_bytes(channel, bytes, now),
            |confirms| rest = confirms.handle_bytes(channel, bytes, now),
        );
        rest
    }

    pub(crate) fn handle_message(
        &mut self,
        channel: usize,
        message: &AssociationMessage,
        now: Duration,
    ) {
        self.step(
            |cookies| cookies.handle_message(channel, message, now),
            |confirms| confirms.handle_message(channel, message, now),
        );
    }

    pub(crate) fn handle_closed(&mut self, channel: usize) {
        self.step(
            |cookies| Err(cookies.handle_closed(channel)),
            |confirms| confirms.handle_closed(channel),
        );
    }

    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        self.step(
            |cookies| cookies.handle_timeout(now).map(CookieProgress::Some),
            |confirms| confirms.handle_timeout(now),
        );
    }

    pub(crate) fn exclude(&mut self, channel: usize) -> bool {
        let mut excluded = false;
        self.step(
            |cookies| Ok(CookieProgress::Some(cookies)),
            |confirms| excluded = confirms.exclude(channel),
        );
        excluded
    }

    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Cookies(cookies) => Some(cookies.poll_timeout()),
            State::Confirms(confirms) => confirms.poll_timeout(),
            State::Aborted => None,
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// The list, if it is not answered on a channel.
    pub(crate) fn unanswered(&self, channel: usize) -> Option<AssociationMessage> {
        match &self.state {
            State::Confirms(confirms) if confirms.is_unanswered(channel) => {
                Some(AssociationMessage::List(confirms.list().clone()))
            }
            _ => None,
        }
    }

    fn step(
        &mut self,
        collect: impl FnOnce(CookieCollector) -> Result<CookieProgress, ClientHandshakeAbort>,
        confirm: impl FnOnce(&mut ConfirmCollector),
    ) {
        self.state = match std::mem::replace(&mut self.state, State::Aborted) {
            State::Cookies(cookies) => match collect(cookies) {
                Ok(CookieProgress::Some(cookies)) => State::Cookies(cookies),
                Ok(CookieProgress::All(confirms)) => {
                    for channel in 0..confirms.list().cookies().len() {
                        let message = AssociationMessage::List(confirms.list().clone());
                        self.events.push_back(ClientEvent::Transmit { channel, message });
                    }
                    State::Confirms(confirms)
                }
                Err(reason) => {
                    self.events.push_back(ClientEvent::Aborted { reason });
                    State::Aborted
                }
            },
            State::Confirms(mut confirms) => {
                confirm(&mut confirms);
                match confirms.poll_event() {
                    Some(ConfirmEvent::Associated { list }) => {
                        self.events.push_back(ClientEvent::Associated { list });
                    }
                    Some(ConfirmEvent::Aborted { reason }) => {
                        // Lists that were not sent yet must not be sent any more.
                        self.events.clear();
                        self.events.push_back(ClientEvent::Aborted { reason });
                    }
                    None => {}
                }
                State::Confirms(confirms)
            }
            State::Aborted => State::Aborted,
        };
    }
}

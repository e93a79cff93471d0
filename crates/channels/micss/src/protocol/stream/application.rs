//! The application's side of a stream: what is read from it, and what is delivered to it.

use std::time::Duration;

use random::RandomError;

use super::{ApplicationReadState, COALESCE_DELAY, StreamEndpoint, StreamFailure, StreamPhase};
use crate::protocol::record::HEADER_LEN;

impl StreamEndpoint {
    /// At a client whose application has waited for the answer: starts reading the application.
    pub(crate) fn connect_application(&mut self, now: Duration) {
        if self.application == ApplicationReadState::Absent {
            self.application = ApplicationReadState::Reading;
            self.timers.sent(now);
        }
    }

    /// Delays sealed records until the application's first bytes, which can be sent with them
    /// unless payloads have no headers.
    pub(super) fn hold(&mut self, now: Duration) {
        if !self.is_raw() {
            self.timers.start_coalescing(now + COALESCE_DELAY);
        }
    }

    /// Whether the application should be read.
    pub(crate) fn wants_application(&self) -> bool {
        let is_next = (self.outgoing.is_sent_on_enough() || self.timers.is_coalescing())
            && !self.drops_records;
        let is_running = !matches!(self.phase, StreamPhase::Aborting | StreamPhase::Over);
        self.application == ApplicationReadState::Reading && is_next && is_running
    }

    /// The buffer for the application's next bytes, of which `available` have arrived. Only allowed
    /// while they are wanted.
    pub(crate) fn application_space(&mut self, available: usize) -> &mut [u8] {
        self.outgoing.make_room(available);
        self.outgoing.payload_mut()
    }

    /// Whether the end can be sent together with the first `len` bytes of
    /// [`StreamEndpoint::application_space`], so that it is worth checking whether the application
    /// has ended.
    pub(crate) fn end_fits_behind(&self, len: usize) -> bool {
        self.outgoing.room() >= 2 * HEADER_LEN + len
    }

    /// Records that the application has filled the first `len` bytes of its space. It has ended if
    /// there are none, or if `is_end`.
    pub(crate) fn handle_application(&mut self, len: usize, is_end: bool, now: Duration) {
        let sealed = self.seal_application(len, is_end || len == 0);
        self.timers.stop_coalescing();
        self.timers.sent(now);
        if let Err(error) = sealed {
            self.fail(error.into(), now);
        }
        self.update(now);
    }

    fn seal_application(&mut self, len: usize, is_end: bool) -> Result<(), RandomError> {
        if len > 0 {
            self.outgoing.seal_data(len)?;
        }
        // If there is no space for the end, the application reports it again.
        if is_end && (len == 0 || self.outgoing.room() >= HEADER_LEN) {
            self.outgoing.finish()?;
            self.application = ApplicationReadState::Ended;
        }
        Ok(())
    }

    /// The application's connection is broken.
    pub(crate) fn handle_application_error(&mut self, now: Duration) {
        self.fail(StreamFailure::Application, now);
        self.update(now);
    }

    /// The bytes to write to the application next.
    pub(crate) fn to_deliver(&self) -> &[u8] {
        self.delivery.map_or(&[], |(kind, len, done)| {
            &self.incoming.received_record(kind, len).payload[done..]
        })
    }

    /// The application has taken the next `len` bytes.
    pub(crate) fn handle_delivered(&mut self, len: usize, now: Duration) {
        let Some((_, total, done)) = &mut self.delivery else { return };
        *done += len;
        if done == total {
            self.delivery = None;
            self.timers.received(now);
            self.update(now);
        }
    }
}

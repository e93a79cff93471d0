//! The actions of a stream after any change.

use std::task::Poll;
use std::time::Duration;

use random::RandomError;
use zeroize::Zeroizing;

use super::{
    ApplicationReadState, StreamEndpoint, StreamFailure, StreamPhase, StreamProtocolError,
    StreamProtocolEvent, may_rejoin,
};
use crate::protocol::record::MicssRecordKind;
use crate::protocol::rejoin::RejoinKeys;
use crate::protocol::target::ServiceRefusal;

/// The time limit for sending an abort.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

impl StreamEndpoint {
    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<StreamProtocolEvent> {
        self.events.pop_front()
    }

    /// Whether [`StreamEndpoint::advance`] must be called: the search for the right channels runs
    /// in slices, so that other streams can run in between.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work
    }

    /// Whether the next record opens a stream. Its sender may be unauthenticated.
    pub(crate) fn is_opening(&self) -> bool {
        self.incoming.is_opening()
    }

    /// Runs a slice of the work.
    pub(crate) fn advance(&mut self, now: Duration) {
        if std::mem::take(&mut self.has_work) {
            self.timers.received(now);
            self.update(now);
        }
    }

    /// Advances as far as possible after any change.
    pub(super) fn update(&mut self, now: Duration) {
        if let StreamPhase::Confirming(confirming) = &mut self.phase
            && confirming.is_confirmed()
        {
            self.phase = StreamPhase::Answer;
        }
        let taken = self.take_records(now);
        self.timers.set_waiting(self.incoming.is_waiting(), now);
        self.take_losses();
        if let Err(error) = taken {
            self.fail(error.into(), now);
        }
        self.lose_dispensable();
        if let Err(error) = self.acknowledge() {
            self.fail(error.into(), now);
        }
        let is_taken = self.outgoing.is_sent_on_all();
        if is_taken && !self.timers.is_coalescing() {
            self.handle_all_sent();
        }
        self.finish_if_done();
        self.expect(now);
        self.note_behind(now);
        let is_untaken = !is_taken && self.outgoing.has_spare() && !self.timers.is_coalescing();
        self.timers.set_untaken(is_untaken, now);
    }

    /// Whether records are taken from the channels now.
    pub(super) fn is_receiving(&self) -> bool {
        let is_phase = matches!(
            self.phase,
            StreamPhase::Answer | StreamPhase::Request | StreamPhase::Refused | StreamPhase::Open
        );
        // The peer's acknowledgements follow its last data, and a break must be detected.
        let is_answered = self.is_raw() || self.has_sent_all() && self.outgoing.is_acknowledged();
        let is_over =
            self.has_received_all && (is_answered || !matches!(self.phase, StreamPhase::Open));
        is_phase && self.delivery.is_none() && !is_over
    }

    /// Whether all records were taken, but channels that are behind are still read: they may be
    /// reused, and their peer waits until they are.
    pub(super) fn awaits_late(&self) -> bool {
        let is_late = self.has_received_all && !self.incoming.is_caught_up();
        is_late && self.outgoing.has_spare() && matches!(self.phase, StreamPhase::Open)
    }

    /// Whether the end of this direction has been sent.
    fn has_sent_all(&self) -> bool {
        self.application == ApplicationReadState::Sent
    }

    /// Takes the records that have arrived, up to one that must be delivered.
    fn take_records(&mut self, now: Duration) -> Result<(), StreamProtocolError> {
        while self.is_receiving() && !self.has_work {
            match self.incoming.poll_next()? {
                Poll::Pending => self.has_work = true,
                Poll::Ready(Some((kind, len))) => {
                    let is_late = self.timers.taken(now);
                    self.handle_record(kind, len)?;
                    self.owes_acknowledgement |= is_late && self.may_acknowledge(kind);
                }
                Poll::Ready(None) if self.awaits_only_unusable() && self.incoming.skip_late() => {}
                Poll::Ready(None) => break,
            }
        }
        Ok(())
    }

    fn handle_record(
        &mut self,
        kind: MicssRecordKind,
        len: usize,
    ) -> Result<(), StreamProtocolError> {
        match (&self.phase, kind) {
            (StreamPhase::Request, MicssRecordKind::Open) => {
                let request = self.incoming.received_record(kind, len).payload.to_vec();
                self.phase = StreamPhase::Connecting;
                self.timers.limit(None);
                self.events.push_back(StreamProtocolEvent::Requested(Zeroizing::new(request)));
            }
            (StreamPhase::Answer, MicssRecordKind::Opened) => {
                self.phase = StreamPhase::Open;
                let keys = self.incoming.received_record(kind, len).payload;
                let keys = RejoinKeys::parse(keys, self.terms.channels());
                self.rejoining.set_keys(keys.filter(|_| may_rejoin(self.terms)));
                self.timers.limit(None);
                if self.is_raw() {
                    self.incoming.drop_records();
                }
                self.events.push_back(StreamProtocolEvent::Opened);
            }
            (StreamPhase::Answer, MicssRecordKind::Refused) => {
                let reason = self.incoming.received_record(kind, len).payload.first().copied();
                let refusal = reason.and_then(ServiceRefusal::from_byte);
                return Err(refusal.unwrap_or(ServiceRefusal::Unreachable).into());
            }
            (StreamPhase::Refused, MicssRecordKind::Finish | MicssRecordKind::Abort) => {
                self.has_received_all = true;
            }
            (StreamPhase::Refused, _) => {}
            (StreamPhase::Open, MicssRecordKind::Ack) => {
                let position = self.incoming.received_record(kind, len).payload.try_into();
                let is_possible = position.is_ok_and(|position| {
                    self.outgoing.handle_acknowledged(u64::from_be_bytes(position))
                });
                if !is_possible {
                    return Err(StreamProtocolError::Unexpected(kind));
                }
                if self.timers.is_idle() {
                    self.outgoing.shrink();
                }
            }
            (StreamPhase::Open, kind) if self.has_received_all => {
                return Err(StreamProtocolError::Unexpected(kind));
            }
            (StreamPhase::Open, MicssRecordKind::Data | MicssRecordKind::DataAck) => {
                self.owes_acknowledgement |= kind == MicssRecordKind::DataAck;
                self.delivery = (len > 0).then_some((kind, len, 0));
            }
            (StreamPhase::Open, MicssRecordKind::Finish) => {
                self.has_received_all = true;
                self.events.push_back(StreamProtocolEvent::ShutApplication);
            }
            (StreamPhase::Open, MicssRecordKind::Abort) => {
                return Err(StreamProtocolError::PeerAborted);
            }
            (_, kind) => return Err(StreamProtocolError::Unexpected(kind)),
        }
        Ok(())
    }

    /// Whether an acknowledgement of a record may be sent without a request. After a channel was
    /// full, the peer's TCP may not know that the window is open again: a lost window update is not
    /// retransmitted, and the peer's window probes can be two minutes apart (RFC 9293, 3.8.6.1). A
    /// data segment carries the window, and is retransmitted.
    fn may_acknowledge(&self, kind: MicssRecordKind) -> bool {
        let is_data = matches!(kind, MicssRecordKind::Data | MicssRecordKind::DataAck);
        is_data && matches!(self.phase, StreamPhase::Open) && may_rejoin(self.terms)
    }

    /// Acknowledges what was consumed if the peer has requested that, once earlier records are on
    /// their way.
    fn acknowledge(&mut self) -> Result<(), RandomError> {
        let may_seal = matches!(self.phase, StreamPhase::Open) && self.outgoing.is_sent_on_enough();
        if may_seal && std::mem::take(&mut self.owes_acknowledgement) {
            let position = self.incoming.position().to_be_bytes();
            self.outgoing.seal_payload(MicssRecordKind::Ack, &position)?;
        }
        Ok(())
    }

    /// All sealed records have been sent.
    fn handle_all_sent(&mut self) {
        if std::mem::take(&mut self.drops_records) {
            self.outgoing.drop_records();
        }
        if matches!(self.phase, StreamPhase::Aborting) {
            self.close(false);
        } else if self.application == ApplicationReadState::Ended {
            self.application = ApplicationReadState::Sent;
            // With records, acknowledgements may follow.
            if self.is_raw() && !matches!(self.phase, StreamPhase::Refused) {
                self.events.push_back(StreamProtocolEvent::ShutChannels);
            }
        }
    }

    fn finish_if_done(&mut self) {
        let is_answered = self.outgoing.is_acknowledged() && !self.owes_acknowledgement;
        let is_done = is_answered && self.outgoing.is_sent_on_all();
        if self.has_received_all && self.application == ApplicationReadState::Sent && is_done {
            match self.phase {
                StreamPhase::Open if !self.awaits_late() => {
                    self.phase = StreamPhase::Over;
                    self.events.push_back(StreamProtocolEvent::Finished);
                }
                StreamPhase::Refused => self.close(false),
                _ => {}
            }
        }
    }

    /// Breaks the stream. Tells the peer that it is incomplete, if a record can.
    pub(super) fn fail(&mut self, failure: StreamFailure, now: Duration) {
        match self.phase {
            StreamPhase::Over => return,
            // The peer was not told.
            StreamPhase::Aborting => return self.close(true),
            // The peer was told, or cannot be.
            StreamPhase::Refused => return self.close(false),
            _ => {}
        }
        self.events.push_back(StreamProtocolEvent::Failed(self.attribute(failure)));
        (self.delivery, self.has_work) = (None, false);
        self.timers.stop_coalescing();
        // A client does not interpret anything before the Confirms as a record.
        if matches!(self.phase, StreamPhase::Request | StreamPhase::Connecting) {
            self.close(false);
        } else if self.outgoing.may_abort()
            && self.outgoing.seal_payload(MicssRecordKind::Abort, &[]).is_ok()
        {
            self.phase = StreamPhase::Aborting;
            self.timers.limit(Some(now + ABORT_TIMEOUT));
        } else {
            self.close(true);
        }
    }

    /// Finds the cause of a failure. If the path of a channel is lost, breaks of the other channels
    /// are a consequence: the peer has detected the loss first. So is an abort if the stream needs
    /// that channel. A channel that the stream continues without causes neither.
    fn attribute(&self, failure: StreamFailure) -> StreamFailure {
        let lost = if matches!(failure, StreamFailure::Protocol(StreamProtocolError::PeerAborted)) {
            self.lost_channel()
        } else {
            let lost =
                self.live().filter_map(|channel| Some((self.unusable_since[channel]?, channel)));
            lost.min().filter(|_| failure.may_follow_loss())
        };
        lost.map_or(failure, |(_, channel)| StreamFailure::Lost(channel))
    }

    pub(super) fn close(&mut self, reset: bool) {
        self.phase = StreamPhase::Over;
        self.events.push_back(StreamProtocolEvent::Closed { reset });
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::protocol::stream::pair::{client, events, server, transfer};

    /// The server's failure if the client aborts while the path of the second channel is lost or
    /// not.
    fn failure(threshold: u8, is_lost: bool) -> StreamFailure {
        let mut client = client(threshold);
        let mut server = server(&mut client, threshold, |_| ());
        server.accept(Duration::ZERO);
        let opened = Duration::from_millis(2);
        server.handle_timeout(opened, |_| Duration::ZERO);
        transfer(&mut server, &mut client, opened);
        assert!(matches!(events(&mut client)[..], [StreamProtocolEvent::Opened]));
        let (lost, now) = (Duration::from_secs(1), Duration::from_secs(2));
        server.handle_path(1, is_lost.then_some(lost), now);
        client.handle_application_error(now);
        transfer(&mut client, &mut server, now);
        let failure = events(&mut server).into_iter().find_map(|event| match event {
            StreamProtocolEvent::Failed(failure) => Some(failure),
            _ => None,
        });
        failure.expect("the stream fails")
    }

    #[test]
    fn an_abort_follows_the_loss_of_a_channel_only_if_that_is_needed() {
        assert!(matches!(failure(3, true), StreamFailure::Lost(1)));
        assert!(matches!(
            failure(2, true),
            StreamFailure::Protocol(StreamProtocolError::PeerAborted)
        ));
        assert!(matches!(
            failure(3, false),
            StreamFailure::Protocol(StreamProtocolError::PeerAborted)
        ));
    }

    #[test]
    fn a_break_does_not_follow_the_loss_of_a_channel_that_was_given_up() {
        let breaks = |is_given_up: bool| {
            let mut client = client(2);
            let second = Duration::from_secs(1);
            client.handle_path(0, Some(second), second);
            let others = if is_given_up { [0, 1] } else { [2, 1] };
            for channel in others {
                client.handle_broken(channel, io::ErrorKind::ConnectionReset, 2 * second);
            }
            events(&mut client).into_iter().find_map(|event| match event {
                StreamProtocolEvent::Failed(failure) => Some(failure),
                _ => None,
            })
        };
        assert!(matches!(breaks(true), Some(StreamFailure::Channel { channel: 1, .. })));
        assert!(matches!(breaks(false), Some(StreamFailure::Lost(0))));
    }
}

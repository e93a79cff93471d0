//! Handles received datagrams.

use std::net::SocketAddr;
use std::time::Duration;

use udp::streams::ReceivedDatagram;

use super::super::config::Error;
use super::super::frame::{BurstCloseReason, BurstFrame, ParsedBurstFrames};
use super::super::handshake::{IP_OVERHEAD, MeasuredTrain};
use super::super::packet::{BurstDatagram, BurstHandshakeMessage, HEADER_LEN};
use super::super::receiving::BurstPacketOutcome;
use super::super::sending::BurstPacketContent;
use super::{BurstCloseState, BurstConnection, BurstConnectionStage};

/// The shortest time between two closes in response to what arrives.
const CLOSE_INTERVAL: Duration = Duration::from_millis(25);

/// A train of the listener, which a client measures and reports.
#[derive(Default)]
pub(super) struct PendingTrainReport {
    pub(super) train: Option<MeasuredTrain>,
    /// When it is sent next.
    pub(super) next_at: Option<Duration>,
    pub(super) sends: u32,
}

impl BurstConnection {
    pub(super) fn take_datagram(&mut self, now: Duration, datagram: &ReceivedDatagram<'_>) {
        let at = datagram.arrived_at.min(now);
        let is_taken = match BurstDatagram::parse(datagram.bytes) {
            Some(BurstDatagram::Handshake(id, handshake)) => {
                let is_mine = datagram.from == self.paths.peer()
                    && id == if self.is_client { self.own_id } else { self.peer_id };
                is_mine && self.take_handshake(now, at, &handshake, datagram.bytes.len())
            }
            Some(BurstDatagram::Sealed { to, number, sealed }) if to == self.own_id => {
                self.take_packet(now, at, datagram.from, number, sealed)
            }
            _ => false,
        };
        self.refused += u64::from(!is_taken);
    }

    fn take_handshake(
        &mut self,
        now: Duration,
        at: Duration,
        handshake: &BurstHandshakeMessage<'_>,
        len: usize,
    ) -> bool {
        match (&mut self.stage, handshake) {
            (BurstConnectionStage::Answering(server), BurstHandshakeMessage::Hello(_)) => {
                server.handle_hello(at, len);
            }
            (
                BurstConnectionStage::Answering(server),
                BurstHandshakeMessage::Train(position, _),
            ) => {
                server.handle_train(at, *position, len);
            }
            (
                BurstConnectionStage::Connecting(_) | BurstConnectionStage::Open,
                BurstHandshakeMessage::Train(position, count),
            ) if self.is_client => {
                let train = self.report.train.get_or_insert_with(|| MeasuredTrain::new(*count, at));
                train.add(at, *position, len);
                if self.report.next_at.is_some() {
                    self.report.next_at = Some(train.wait_until());
                }
            }
            (BurstConnectionStage::Connecting(client), handshake) => {
                if let Some(established) = client.handle(at, handshake) {
                    self.stage = BurstConnectionStage::Open;
                    self.establish(now, established);
                    // The client's first packet opens the connection at the listener.
                    self.ping_at = now;
                    if self.config.train > 0 {
                        let train = self
                            .report
                            .train
                            .get_or_insert_with(|| MeasuredTrain::new(self.config.train, at));
                        self.report.next_at = Some(train.wait_until());
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn take_packet(
        &mut self,
        now: Duration,
        at: Duration,
        from: SocketAddr,
        number: u64,
        sealed: &[u8],
    ) -> bool {
        if self.receiving.has(number) || matches!(self.stage, BurstConnectionStage::Over) {
            return false;
        }
        let Some(crypt) = &mut self.crypt else { return false };
        let is_authentic = crypt.is_authentic();
        let len = HEADER_LEN + sealed.len() + IP_OVERHEAD;
        let mut plaintext = std::mem::take(&mut self.plaintext);
        let opened = crypt.open(number, sealed, &mut plaintext);
        let is_taken = opened.is_some_and(|frames| {
            let violation = match ParsedBurstFrames::parse(frames) {
                None => Some("a wrong frame"),
                Some(frames) => match self.take_frames(now, at, from, number, &frames, len) {
                    BurstPacketOutcome::Taken => None,
                    BurstPacketOutcome::Refused => return false,
                    BurstPacketOutcome::Violation(what) => Some(what),
                },
            };
            // Without encryption the packet may be forged.
            if let Some(what) = violation
                && is_authentic
                && !self.is_over()
            {
                let error = Error::Violation(what);
                self.close_with(now, BurstCloseReason::Violation, Some(error));
            }
            violation.is_none()
        });
        self.plaintext = plaintext;
        is_taken
    }

    fn take_frames(
        &mut self,
        now: Duration,
        at: Duration,
        from: SocketAddr,
        number: u64,
        frames: &ParsedBurstFrames<'_>,
        len: usize,
    ) -> BurstPacketOutcome {
        if let BurstConnectionStage::Closing(closing) = &mut self.stage {
            closing.is_due |= now >= closing.next_at;
            if frames.clone().any(|frame| matches!(frame, BurstFrame::Close(_))) {
                self.stage = BurstConnectionStage::Over;
            }
            return BurstPacketOutcome::Taken;
        }
        if let BurstConnectionStage::Lingering(closing) = &mut self.stage {
            closing.is_due |= now >= closing.next_at;
        }
        let is_newest = self.receiving.is_newest(number);
        let verdict = self.receiving.handle_packet(number, at, len, frames);
        if verdict != BurstPacketOutcome::Taken {
            return verdict;
        }
        if let BurstConnectionStage::Answering(server) = &self.stage {
            let round_trip = server.round_trip(at);
            self.sending.handle_first_round_trip(round_trip);
            self.stage = BurstConnectionStage::Open;
        }
        if self.is_closed_by_program {
            self.receiving.discard(now);
        }
        self.last_received_at = now;
        self.ping_at = now + self.config.silence_timeout / 3;
        self.paths.handle_packet(now, from, is_newest);
        for frame in frames.clone() {
            match frame {
                BurstFrame::Ack(ack) => {
                    let (paths, report) = (&mut self.paths, &mut self.report);
                    let is_right = self.sending.handle_ack(now, &ack, |content| match content {
                        BurstPacketContent::MtuProbe(probe) => paths.handle_probe(now, probe),
                        BurstPacketContent::TrainReport => report.next_at = None,
                        _ => {}
                    });
                    if !is_right {
                        return BurstPacketOutcome::Violation(
                            "an acknowledgement of what was not sent",
                        );
                    }
                }
                BurstFrame::Challenge(challenge) => {
                    if self.paths.handle_challenge(from, challenge) {
                        self.sending.change_path(now);
                    }
                }
                BurstFrame::Response(challenge) => {
                    if self.paths.handle_response(from, challenge) {
                        self.sending.change_path(now);
                    }
                }
                BurstFrame::Close(reason) => {
                    self.handle_close(reason);
                    return BurstPacketOutcome::Taken;
                }
                #[allow(clippy::cast_precision_loss, reason = "a rate")]
                BurstFrame::TrainReport { rate, longest } => {
                    if rate > 0
                        && let Some(rate) = self.start_rate(Some(rate as f64))
                    {
                        self.sending.handle_train(rate);
                    }
                    self.paths.set_longest(longest.into());
                }
                BurstFrame::Ping | BurstFrame::Repair(_) | BurstFrame::Stream(_) => {}
            }
        }
        verdict
    }

    /// Handles a close by the peer.
    fn handle_close(&mut self, reason: BurstCloseReason) {
        if reason == BurstCloseReason::Done {
            self.sending.handle_done();
        }
        let has_sent = self.sending.is_finished() && self.sending.is_flushed();
        self.error = match reason {
            BurstCloseReason::Violation => Some(Error::ReportedViolation),
            _ if has_sent && self.receiving.is_complete() => None,
            _ => Some(Error::Closed),
        };
        self.stage = BurstConnectionStage::Over;
    }
}

impl BurstCloseState {
    /// Whether to send a close now.
    pub(super) fn poll(&mut self, now: Duration) -> bool {
        if !self.is_due {
            return false;
        }
        self.next_at = now + CLOSE_INTERVAL;
        self.is_due = false;
        true
    }
}

//! What arrives.

use std::net::SocketAddr;
use std::time::Duration;

use udp::streams::Datagram;

use super::super::config::Error;
use super::super::frame::{CloseReason, Frame, Frames};
use super::super::handshake::{IP_OVERHEAD, MeasuredTrain};
use super::super::packet::{HEADER_LEN, Handshake, Packet};
use super::super::receiving::Verdict;
use super::super::sending::Content;
use super::{Closing, Connection, Stage};

/// A close is sent again for what arrives after this time.
const CLOSE_INTERVAL: Duration = Duration::from_millis(25);

/// A train of the listener that a client measures and reports.
#[derive(Default)]
pub(super) struct Report {
    pub(super) train: Option<MeasuredTrain>,
    /// When it is sent next.
    pub(super) next_at: Option<Duration>,
    pub(super) sends: u32,
}

impl Connection {
    pub(super) fn take_datagram(&mut self, now: Duration, datagram: &Datagram<'_>) {
        let at = datagram.arrived_at.min(now);
        let is_taken = match Packet::parse(datagram.bytes) {
            Some(Packet::Handshake(id, handshake)) => {
                let is_mine = datagram.from == self.paths.peer()
                    && id == if self.is_client { self.own_id } else { self.peer_id };
                is_mine && self.take_handshake(now, at, &handshake, datagram.bytes.len())
            }
            Some(Packet::Sealed { to, number, sealed }) if to == self.own_id => {
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
        handshake: &Handshake<'_>,
        len: usize,
    ) -> bool {
        match (&mut self.stage, handshake) {
            (Stage::Answering(server), Handshake::Hello(_)) => server.handle_hello(at, len),
            (Stage::Answering(server), Handshake::Train(position, _)) => {
                server.handle_train(at, *position, len);
            }
            (Stage::Connecting(_) | Stage::Open, Handshake::Train(position, count))
                if self.is_client =>
            {
                let train = self.report.train.get_or_insert_with(|| MeasuredTrain::new(*count, at));
                train.add(at, *position, len);
                if self.report.next_at.is_some() {
                    self.report.next_at = Some(train.wait_until());
                }
            }
            (Stage::Connecting(client), handshake) => {
                if let Some(established) = client.handle(at, handshake) {
                    self.stage = Stage::Open;
                    self.establish(now, established);
                    // The first packet tells the listener that there is a connection.
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
        if self.receiving.has(number) || matches!(self.stage, Stage::Over) {
            return false;
        }
        let Some(crypt) = &mut self.crypt else { return false };
        let is_authentic = crypt.is_authentic();
        let len = HEADER_LEN + sealed.len() + IP_OVERHEAD;
        let mut plaintext = std::mem::take(&mut self.plaintext);
        let opened = crypt.open(number, sealed, &mut plaintext);
        let is_taken = opened.is_some_and(|frames| {
            let violation = match Frames::parse(frames) {
                None => Some("a wrong frame"),
                Some(frames) => match self.take_frames(now, at, from, number, &frames, len) {
                    Verdict::Taken => None,
                    Verdict::Refused => return false,
                    Verdict::Violation(what) => Some(what),
                },
            };
            // Without encryption it may be anybody's.
            if let Some(what) = violation
                && is_authentic
                && !self.is_over()
            {
                let error = Error::Violation(what);
                self.close_with(now, CloseReason::Violation, Some(error));
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
        frames: &Frames<'_>,
        len: usize,
    ) -> Verdict {
        if let Stage::Closing(closing) = &mut self.stage {
            closing.is_due |= now >= closing.next_at;
            if frames.clone().any(|frame| matches!(frame, Frame::Close(_))) {
                self.stage = Stage::Over;
            }
            return Verdict::Taken;
        }
        if let Stage::Lingering(closing) = &mut self.stage {
            closing.is_due |= now >= closing.next_at;
        }
        let is_newest = self.receiving.is_newest(number);
        let verdict = self.receiving.handle_packet(number, at, len, frames);
        if verdict != Verdict::Taken {
            return verdict;
        }
        if let Stage::Answering(server) = &self.stage {
            let round_trip = server.round_trip(at);
            self.sending.handle_first_round_trip(round_trip);
            self.stage = Stage::Open;
        }
        if self.is_abandoned {
            self.receiving.discard(now);
        }
        self.heard_at = now;
        self.ping_at = now + self.config.silence_timeout / 3;
        self.paths.handle_packet(now, from, is_newest);
        for frame in frames.clone() {
            match frame {
                Frame::Ack(ack) => {
                    let (paths, report) = (&mut self.paths, &mut self.report);
                    let is_right = self.sending.handle_ack(now, &ack, |content| match content {
                        Content::MtuProbe(probe) => paths.handle_probe(now, probe),
                        Content::TrainReport => report.next_at = None,
                        _ => {}
                    });
                    if !is_right {
                        return Verdict::Violation("an acknowledgement of what was not sent");
                    }
                }
                Frame::Challenge(challenge) => {
                    if self.paths.handle_challenge(from, challenge) {
                        self.sending.change_path(now);
                    }
                }
                Frame::Response(challenge) => {
                    if self.paths.handle_response(from, challenge) {
                        self.sending.change_path(now);
                    }
                }
                Frame::Close(reason) => {
                    self.handle_close(reason);
                    return Verdict::Taken;
                }
                #[allow(clippy::cast_precision_loss, reason = "a rate")]
                Frame::TrainReport { rate, longest } => {
                    if rate > 0
                        && let Some(rate) = self.start_rate(Some(rate as f64))
                    {
                        self.sending.handle_train(rate);
                    }
                    self.paths.set_longest(longest.into());
                }
                Frame::Ping | Frame::Repair(_) | Frame::Stream(_) => {}
            }
        }
        verdict
    }

    /// The peer has closed the connection.
    fn handle_close(&mut self, reason: CloseReason) {
        if reason == CloseReason::Done {
            self.sending.handle_done();
        }
        let has_sent = self.sending.is_finished() && self.sending.is_flushed();
        self.error = match reason {
            CloseReason::Violation => Some(Error::Accused),
            _ if has_sent && self.receiving.is_complete() => None,
            _ => Some(Error::Closed),
        };
        self.stage = Stage::Over;
    }
}

impl Closing {
    /// Whether a close is sent now.
    pub(super) fn poll(&mut self, now: Duration) -> bool {
        if !self.is_due {
            return false;
        }
        self.next_at = now + CLOSE_INTERVAL;
        self.is_due = false;
        true
    }
}

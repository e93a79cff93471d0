//! Chooses and writes the next packet.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::frame;
use super::super::handshake::{BurstPacketCipher, IP_OVERHEAD};
use super::super::packet::{HEADER_LEN, write_packet_header};
use super::super::sending::BurstPacketContent;
use super::{BurstCloseState, BurstConnection, BurstConnectionStage};

/// How often the rate of a train is reported at most.
const MAX_REPORTS: u32 = 5;

impl BurstConnection {
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        match &self.stage {
            BurstConnectionStage::Connecting(client) => Some(client.poll_timeout()),
            BurstConnectionStage::Answering(server) => Some(server.poll_timeout()),
            BurstConnectionStage::Closing(BurstCloseState { is_due: true, .. })
            | BurstConnectionStage::Lingering(BurstCloseState { is_due: true, .. }) => {
                Some(Duration::ZERO)
            }
            BurstConnectionStage::Closing(closing) => Some(closing.until),
            BurstConnectionStage::Over => None,
            BurstConnectionStage::Open if self.is_held => {
                Some(self.last_received_at + self.config.silence_timeout)
            }
            BurstConnectionStage::Open | BurstConnectionStage::Lingering(_) => {
                let ends_at = match &self.stage {
                    BurstConnectionStage::Lingering(closing) => closing.until,
                    _ => self.last_received_at + self.config.silence_timeout,
                };
                let stalls_at = self.sending.stalled_since();
                let stalls_at = stalls_at.map(|since| since + self.config.stall_timeout);
                let others = [
                    self.paths.due_at(),
                    self.paths.probe_at(),
                    self.receiving.poll_timeout(self.sending.round_trip().expected()),
                    self.sending.poll_timeout(),
                    self.report.next_at,
                    Some(self.ping_at),
                    stalls_at,
                ];
                others.into_iter().flatten().min().map(|at| at.min(ends_at))
            }
        }
    }

    pub(super) fn next_datagram(
        &mut self,
        now: Duration,
        datagram: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let peer = self.paths.peer();
        match &mut self.stage {
            BurstConnectionStage::Connecting(client) => {
                return client.poll_transmit(now, datagram).then_some(peer);
            }
            BurstConnectionStage::Answering(server) => {
                let established = server.poll_answer(now);
                let is_sent = server.poll_transmit(datagram);
                if let Some(established) = established {
                    self.establish(now, established);
                }
                return is_sent.then_some(peer);
            }
            BurstConnectionStage::Closing(closing) | BurstConnectionStage::Lingering(closing) => {
                let reason = closing.reason;
                if closing.poll(now) {
                    let mut frames = self.take_frames_buffer();
                    self.receiving.write_ack(now, self.max_frames_len() - 16, &mut frames);
                    frame::write_close(reason, &mut frames);
                    return self.send(now, peer, frames, BurstPacketContent::Nothing, datagram);
                }
                if matches!(self.stage, BurstConnectionStage::Closing(_)) {
                    return None;
                }
            }
            BurstConnectionStage::Over => return None,
            BurstConnectionStage::Open if self.is_held => return None,
            BurstConnectionStage::Open => {}
        }
        let mut frames = self.take_frames_buffer();
        let max_len = self.max_frames_len();
        let (to, content) = if let Some((challenge, to)) = self.paths.poll_response() {
            frame::write_response(challenge, &mut frames);
            (to, BurstPacketContent::Control)
        } else if let Some((challenge, to)) = self.paths.poll_challenge(now) {
            frame::write_challenge(challenge, &mut frames);
            (to, BurstPacketContent::Control)
        } else if let Some(content) = self.write_control(now, max_len, &mut frames) {
            (peer, content)
        } else if let Some(probe) = self.paths.poll_probe(now) {
            let overhead = HEADER_LEN + self.crypt.as_ref().map_or(0, BurstPacketCipher::overhead);
            frame::write_ping(&mut frames);
            frames.resize(usize::from(probe.length).saturating_sub(overhead).max(1), 0);
            (peer, BurstPacketContent::MtuProbe(probe))
        } else if let Some(content) = self.sending.poll_transmit(now, max_len, &mut frames) {
            (peer, content)
        } else {
            self.frames = frames;
            return None;
        };
        self.send(now, to, frames, content, datagram)
    }

    /// Writes frames that concern neither the stream nor the path: an acknowledgement, a train
    /// report, a ping.
    fn write_control(
        &mut self,
        now: Duration,
        max_len: usize,
        frames: &mut Vec<u8>,
    ) -> Option<BurstPacketContent> {
        let mut content = None;
        let round_trip = self.sending.round_trip().expected();
        if self.receiving.poll_timeout(round_trip).is_some_and(|at| now >= at) {
            // Leaves room for a report.
            self.receiving.write_ack(now, max_len - 16, frames);
            content = Some(BurstPacketContent::Nothing).filter(|_| !frames.is_empty());
        }
        if self.report.next_at.is_some_and(|at| now >= at) {
            self.report.sends += 1;
            let next_at = now + self.sending.round_trip().timeout(0);
            self.report.next_at = (self.report.sends < MAX_REPORTS).then_some(next_at);
            if let Some(train) = &self.report.train {
                let rate = train.train.estimate().map_or(0, |it| super::super::to_u64(it.rate));
                frame::write_train_report(rate, train.longest, frames);
                content = Some(BurstPacketContent::TrainReport);
            }
        }
        if now >= self.ping_at {
            self.ping_at = now + self.config.silence_timeout / 3;
            if content.is_none_or(|content| content == BurstPacketContent::Nothing) {
                frame::write_ping(frames);
                content = Some(BurstPacketContent::Control);
            }
        }
        content
    }

    /// The bytes of frames that fit into a packet.
    fn max_frames_len(&self) -> usize {
        let overhead = self.crypt.as_ref().map_or(0, BurstPacketCipher::overhead);
        self.paths.longest() - HEADER_LEN - overhead
    }

    fn take_frames_buffer(&mut self) -> Vec<u8> {
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        frames
    }

    /// Makes a packet from frames.
    pub(super) fn send(
        &mut self,
        now: Duration,
        to: SocketAddr,
        frames: Vec<u8>,
        content: BurstPacketContent,
        datagram: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let number = self.sending.next_number();
        if let Some(crypt) = &mut self.crypt {
            write_packet_header(self.peer_id, number, datagram);
            crypt.seal(number, &frames, datagram);
        }
        self.frames = frames;
        if datagram.is_empty() {
            return None;
        }
        self.sending.on_sent(now, datagram.len() + IP_OVERHEAD, content);
        Some(to)
    }
}

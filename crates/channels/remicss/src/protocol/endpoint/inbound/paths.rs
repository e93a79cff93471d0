//! The paths of the channels: the peer's addresses and their validation, path MTUs, and the
//! datagrams that the receiving half sends itself.

use std::net::SocketAddr;
use std::time::Duration;

use super::{EndpointHandshake, InboundEndpoint};
use crate::protocol::control::peer_address::{
    AddressValidationResult, PeerAddressTracker, PeerMobility,
};
use crate::protocol::endpoint::event::TunnelEvent;
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::wire::control::TunnelChannelState;
use crate::protocol::wire::path::PathDatagramError;

impl InboundEndpoint {
    /// A path datagram has arrived on a channel. Answers are sent to the peer's current address.
    pub(super) fn handle_path_datagram(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
    ) {
        let Some(paths) = &mut self.paths else { return };
        match paths.handle_datagram(channel, bytes, now) {
            Ok(None) | Err(PathDatagramError::Malformed(_)) => {}
            Ok(Some(id)) => {
                let validated = self.peers[channel].handle_answer(from, id, now);
                self.handle_validation(channel, validated);
            }
            Err(PathDatagramError::Token) => self.unverified.count_wrong_token(channel, from, now),
        }
    }

    pub(super) fn handle_validation(
        &mut self,
        channel: usize,
        validated: Option<AddressValidationResult>,
    ) {
        self.events.extend(validated.map(|validated| match validated {
            AddressValidationResult::Moved(to) => {
                if let Some(paths) = &mut self.paths {
                    paths.restart(channel);
                }
                TunnelEvent::Moved { channel, to }
            }
            AddressValidationResult::Refused(to, reason) => {
                TunnelEvent::MoveRejected { channel, to, reason }
            }
        }));
    }

    /// Passes the channels' states and what was sent to the path manager, and what it has found to
    /// `shared`.
    pub(super) fn update_paths(
        &mut self,
        shared: &mut EndpointSharedState,
        has_news: bool,
        now: Duration,
    ) {
        let Some(paths) = &mut self.paths else { return };
        if has_news && let Some(monitor) = &shared.monitor {
            let estimates = monitor.estimates(now);
            let is_up = |channel: &usize| estimates[*channel].state == TunnelChannelState::Up;
            paths.set_up((0..estimates.len()).filter(is_up).collect());
        }
        paths.handle_sent(&shared.long_datagrams);
        let limit = paths.poll_limit();
        self.events.extend(limit.map(TunnelEvent::MaxDatagramLen));
        while let Some(change) = paths.poll_change() {
            self.events.push_back(TunnelEvent::PathMtu(change));
        }
        shared.path_mtus.clear();
        shared.path_mtus.extend(paths.mtus());
    }

    /// The next datagram to send now: the channel's index, the address, and the bytes. Call it
    /// until it returns `None`.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(usize, SocketAddr, Vec<u8>)> {
        if let Some(paths) = &mut self.paths {
            let generator = &mut self.generator;
            let mut random = || generator.array().ok().map(u64::from_be_bytes);
            for (channel, peer) in self.peers.iter_mut().enumerate() {
                if let Some((to, id)) = peer.poll_challenge(now, &mut random) {
                    return Some((channel, to, paths.challenge(channel, id)));
                }
            }
            if let Some((channel, bytes)) = paths.poll_transmit(now) {
                return Some((channel, self.peers[channel].current(), bytes));
            }
        }
        match &mut self.handshake {
            EndpointHandshake::Client(connecting) => loop {
                let (channel, bytes) = connecting.client.as_mut()?.poll_transmit(now)?;
                let to = connecting.servers[channel];
                // The address of a name may be unknown.
                if !to.ip().is_unspecified() {
                    return Some((channel, to, bytes));
                }
            },
            EndpointHandshake::Server(server) => {
                server.poll_transmit().map(|reply| (reply.channel, reply.to, reply.bytes))
            }
        }
    }

    /// The peer's address on each channel; empty without an association.
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.peers.iter().map(PeerAddressTracker::current).collect()
    }

    /// Uses another address of the server on a channel, which does not work at the one before. Does
    /// nothing at a server.
    pub fn set_server(&mut self, channel: usize, to: SocketAddr) {
        let EndpointHandshake::Client(connecting) = &mut self.handshake else { return };
        let Some(server) = connecting.servers.get_mut(channel) else { return };
        *server = to;
        if let Some(peer) = self.peers.get_mut(channel) {
            *peer = PeerAddressTracker::new(to, PeerMobility::Fixed);
            if let Some(paths) = &mut self.paths {
                paths.restart(channel);
            }
            self.events.push_back(TunnelEvent::Moved { channel, to });
        }
    }
}

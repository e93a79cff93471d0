//! The handshake of both ends: from the cookies to the streams.

use std::time::Duration;

use association::{
    AssociationMessage, AssociationServerEvent, COOKIE_LEN, ConnectionCookie, CookieList,
    HEADER_LEN, PendingConnectionId,
};
use random::RandomGenerator;

use super::{StreamSimulation, limit_memory};
use crate::protocol::stream::simulation::wire::SimulatedRead;
use crate::protocol::stream::simulation::{CLIENT, SERVER};
use crate::protocol::stream::{LostChannelTimeouts, StreamEndpoint, StreamRequest};

/// How long an open stream waits for a lost channel.
const LOST_CHANNEL_TIMEOUT: Duration = Duration::from_secs(90);

impl StreamSimulation {
    /// The client reads its cookies. Returns whether anything has come of it.
    pub(super) fn greet(&mut self) -> bool {
        let now = self.now();
        let Some((quorum, greetings)) = &mut self.greetings else { return false };
        let len = HEADER_LEN + COOKIE_LEN;
        let mut done = false;
        greetings.retain(|&channel, greeting| {
            let mut space = vec![0; len - greeting.len()];
            match self.wires.read((CLIENT, channel), &mut space, &mut self.rng) {
                SimulatedRead::Nothing => return true,
                SimulatedRead::Bytes(0) | SimulatedRead::Broken => {
                    quorum.handle_failed(channel);
                    return false;
                }
                SimulatedRead::Bytes(read) => greeting.extend_from_slice(&space[..read]),
            }
            done = true;
            if greeting.len() < len {
                return true;
            }
            match AssociationMessage::parse(greeting) {
                Ok(AssociationMessage::Cookie(cookie)) => {
                    _ = quorum.handle_cookie(channel, cookie, now);
                }
                _ => quorum.handle_failed(channel),
            }
            false
        });
        if !quorum.is_over(now) {
            return done;
        }
        if quorum.poll_timeout() <= now {
            self.seen.insert("cookies".to_owned());
        }
        let cookies = self.greetings.take().and_then(|(quorum, _)| quorum.finish());
        let Some(cookies) = cookies else {
            self.close_all(CLIENT, false);
            return true;
        };
        let (places, cookies): (Vec<usize>, Vec<ConnectionCookie>) = cookies.into_iter().unzip();
        for left_out in (0..self.rests.len()).filter(|channel| !places.contains(channel)) {
            self.close(CLIENT, left_out, false);
        }
        let request = StreamRequest {
            threshold: self.scenario.k,
            cookies: &cookies,
            target: b"service",
            has_records: self.scenario.has_records,
            is_reusable: self.scenario.is_reusable,
            waits_for_answer: self.scenario.waits,
        };
        let lost_channel = LostChannelTimeouts {
            open: LOST_CHANNEL_TIMEOUT,
            opening: self.scenario.opening_timeout,
        };
        let generator = RandomGenerator::seeded().unwrap();
        let mut stream = StreamEndpoint::client(&request, lost_channel, generator, now).unwrap();
        limit_memory(&mut stream, self.scenario.ends[CLIENT].memory);
        (self.ends[CLIENT].stream, self.ends[CLIENT].places) = (Some(stream), places);
        true
    }

    /// The server reads Lists. Returns whether anything has come of it.
    pub(super) fn associate(&mut self) -> bool {
        if self.ends[SERVER].is_over
            || (self.table.pending() == 0 && self.ends[SERVER].stream.is_some())
        {
            return false;
        }
        let now = self.now();
        let mut done = false;
        let mut bytes = [0; 1024];
        for channel in 0..self.rests.len() {
            let id = PendingConnectionId(channel as u64);
            // What follows the List has to wait.
            if self.table.unanswered_message(id).is_none() {
                continue;
            }
            match self.wires.read((SERVER, channel), &mut bytes, &mut self.rng) {
                SimulatedRead::Nothing => continue,
                SimulatedRead::Bytes(0) | SimulatedRead::Broken => self.table.handle_closed(id),
                SimulatedRead::Bytes(len) => {
                    if let Ok(rest) = self.table.handle_bytes(id, &bytes[..len], now) {
                        self.rests[channel] = rest.to_vec();
                    }
                }
            }
            done = true;
        }
        while let Some(event) = self.table.poll_event() {
            done = true;
            match event {
                AssociationServerEvent::Transmit {
                    id,
                    message: message @ AssociationMessage::Cookie(_),
                } => {
                    let place = (SERVER, index(id));
                    self.wires.send(place, &message.encode(), &mut self.network);
                }
                AssociationServerEvent::Transmit { .. } => {}
                AssociationServerEvent::Rejoin { .. } => {
                    unreachable!("connections rejoin elsewhere")
                }
                AssociationServerEvent::Aborted { id, .. } => self.close(SERVER, index(id), false),
                AssociationServerEvent::Associated { list, connections } => {
                    self.serve(list, &connections);
                }
            }
        }
        if self.ends[SERVER].stream.is_none() && self.table.pending() == 0 {
            self.ends[SERVER].is_over = true;
        }
        done
    }

    /// Connections of the server are associated.
    fn serve(&mut self, list: CookieList, connections: &[Option<PendingConnectionId>]) {
        let server = &mut self.ends[SERVER];
        assert!(server.stream.is_none(), "two streams of one client");
        if server.is_over {
            return;
        }
        let known =
            connections.iter().enumerate().filter_map(|(channel, id)| Some((channel, (*id)?)));
        let channels = known.map(|(channel, id)| (channel, &self.rests[index(id)][..]));
        let generator = RandomGenerator::seeded().unwrap();
        let stream = StreamEndpoint::server(
            list,
            channels,
            LOST_CHANNEL_TIMEOUT,
            generator,
            self.network.now(),
        );
        let nowhere = usize::MAX;
        server.places = connections.iter().map(|id| id.map_or(nowhere, index)).collect();
        server.stream = Some(stream.unwrap());
    }
}

fn index(id: PendingConnectionId) -> usize {
    usize::try_from(id.0).expect("few connections")
}

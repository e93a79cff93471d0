//! New connections that take the place of others. What both ends say of it crosses the channel as
//! bytes of other connections do, but in one piece.

use association::{AssociationMessage, ConnectionCookie};

use super::{SimulationAlarm, StreamSimulation};
use crate::protocol::stream::simulation::CLIENT;
use crate::protocol::stream::simulation::scenario::ChannelAttack;

impl StreamSimulation {
    /// The client connects a channel of the stream anew.
    pub(super) fn begin_rejoin(&mut self, channel: usize) {
        let place = self.ends[CLIENT].places[channel];
        let (delay, _) = self.scenario.channels[place].delay;
        self.network.set_timer(self.now() + 3 * delay, SimulationAlarm::Greeted(channel));
    }

    /// The connection has its cookie.
    pub(super) fn handle_greeted(&mut self, channel: usize) {
        let (now, place) = (self.now(), self.ends[CLIENT].places[channel]);
        let is_out = self.wires.is_out(place, now);
        let cookie = ConnectionCookie::new(self.rng.bytes());
        let (delay, _) = self.scenario.channels[place].delay;
        let Some(stream) = &mut self.ends[CLIENT].stream else { return };
        match stream.offer(channel, cookie).filter(|_| !is_out) {
            Some(offer) => {
                self.offers.insert(channel, (cookie, offer));
                self.network.set_timer(now + 2 * delay, SimulationAlarm::Offered(channel));
            }
            None => stream.handle_rejoin_failed(channel, false, now),
        }
    }

    /// The client's offer has arrived. The answer may be lost with the connection, except in a run
    /// in which nothing but outages happens.
    pub(super) fn handle_offered(&mut self, channel: usize) {
        let now = self.now();
        let Some((cookie, offer)) = self.offers.remove(&channel) else { return };
        let place = self.ends[CLIENT].places[channel];
        let is_out = self.wires.is_out(place, now);
        let [client, server] = &mut self.ends;
        let Some(own) = &mut client.stream else { return };
        let Ok(AssociationMessage::Rejoin(rejoin)) = AssociationMessage::parse(&offer) else {
            panic!("the client offers something else");
        };
        let answer =
            server.stream.as_mut().filter(|_| !server.is_over && !is_out).and_then(|peer| {
                assert!(peer.rejoin_keys().is_none_or(|keys| keys.verify(&rejoin, cookie)));
                peer.handle_rejoin(&rejoin, cookie, now)
            });
        let Some(answer) = answer else { return own.handle_rejoin_failed(channel, !is_out, now) };
        server.lost.remove(&channel);
        server.places[channel] = place;
        let mut connection = self.scenario.channels[place].clone();
        if !self.scenario.is_steady && self.rng.chance(10) {
            // The answer is lost, and the server sends into the void.
            connection.attacks = [ChannelAttack::Swallow(0); 2];
            own.handle_rejoin_failed(channel, false, now);
        } else if own.handle_answer(channel, &answer, now) {
            client.lost.remove(&channel);
            self.seen.insert("rejoined".to_owned());
        } else {
            connection.attacks = [ChannelAttack::Swallow(0); 2];
        }
        self.wires.replace(place, &connection, &mut self.network);
    }
}

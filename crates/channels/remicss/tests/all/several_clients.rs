//! Clients of one server, with an attacker that replays and forges datagrams between them.

use std::net::SocketAddr;
use std::time::Duration;

use model::ScheduleObjective;
use sim::SeededRng;
use sunder_remicss::control::handshake::SharedKey;
use sunder_remicss::endpoint::client_demultiplexer::{ClientDemultiplexer, TunnelPeerId};
use sunder_remicss::endpoint::settings::KeyRenewalLimits;
use sunder_remicss::send::bounds::PlanBounds;
use sunder_remicss::send::plan::PlanGoal;
use sunder_remicss::send::shared_fates::SharedFates;
use sunder_remicss::send::spare::PlanPreference;
use sunder_remicss::wire::terms::TunnelTerms;

use crate::scenario::{End, address, packet};

const CHANNELS: u8 = 2;
const TICK: Duration = Duration::from_millis(2);

/// Ends of one server and their clients, without delay or loss between them.
struct SharedServer {
    goal: PlanGoal,
    now: Duration,
    demultiplexer: ClientDemultiplexer,
    /// The server's ends, by client.
    server: Vec<End>,
    clients: Vec<End>,
    /// The port of each client, all behind one address.
    ports: Vec<u16>,
    /// Everything that the clients have sent: client, channel and bytes.
    overheard: Vec<(usize, usize, Vec<u8>)>,
    /// Datagrams of this client arrive from the port of that one.
    spoofed: Option<(usize, usize)>,
    /// The kinds of the datagrams that were sent to ports where no client is.
    stray: Vec<u8>,
    next_packet: u32,
}

fn from(port: u16) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1], port))
}

impl SharedServer {
    fn new(clients: u8) -> Self {
        let terms = TunnelTerms::new(CHANNELS, 2, true).unwrap();
        let end = |end: usize, client: u8| {
            let key = SharedKey::new(&[client; 32]);
            End::with_key(end, key, terms, KeyRenewalLimits::default(), Duration::ZERO)
        };
        let mut demultiplexer = ClientDemultiplexer::new(CHANNELS.into());
        (0..clients).for_each(|client| demultiplexer.add(TunnelPeerId(client.into())));
        Self {
            goal: PlanGoal {
                kappa: 2.0,
                mu: 2.0,
                objective: ScheduleObjective::Risk,
                second_objective: None,
                floor: 2,
                keeps_order: true,
                prefer: PlanPreference::Rate,
                bounds: PlanBounds::default(),
                fates: SharedFates::default(),
            },
            now: Duration::ZERO,
            demultiplexer,
            server: (0..clients).map(|client| end(1, client)).collect(),
            clients: (0..clients).map(|client| end(0, client)).collect(),
            ports: (0..clients).map(|client| 4000 + u16::from(client)).collect(),
            overheard: Vec::new(),
            spoofed: None,
            stray: Vec::new(),
            next_packet: 0,
        }
    }

    /// A datagram arrives at the server. Returns the client that has sent it.
    fn arrive(&mut self, channel: usize, from: SocketAddr, bytes: &[u8]) -> Option<usize> {
        let Self { demultiplexer, server, now, .. } = self;
        let index = |id: TunnelPeerId| usize::try_from(id.0).unwrap();
        let found = demultiplexer.find(channel, from, bytes, *now, |id| {
            server[index(id)].inbound.recognises(channel, bytes)
        });
        let client = index(found?);
        let End { inbound, received, .. } = &mut server[client];
        inbound.handle_datagram(channel, from, bytes, *now, received);
        Some(client)
    }

    /// Runs for a time.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            for client in 0..self.clients.len() {
                for (channel, _, bytes) in self.clients[client].work(self.now, &self.goal) {
                    let port = self.spoofed.filter(|(sender, _)| *sender == client);
                    let port = self.ports[port.map_or(client, |(_, victim)| victim)];
                    self.overheard.push((client, channel, bytes.clone()));
                    self.arrive(channel, from(port), &bytes);
                }
            }
            for client in 0..self.server.len() {
                let sent = self.server[client].work(self.now, &self.goal);
                let id = TunnelPeerId(u32::try_from(client).unwrap());
                let peers = self.server[client].inbound.peers();
                self.demultiplexer.clear_addresses(id);
                self.demultiplexer.set_addresses(id, &peers);
                for (channel, to, bytes) in sent {
                    let at = self.ports.iter().position(|port| from(*port) == to);
                    let Some(at) = at else {
                        self.stray.push(bytes[0] >> 4);
                        continue;
                    };
                    let End { inbound, received, .. } = &mut self.clients[at];
                    inbound.handle_datagram(
                        channel,
                        address(1, channel),
                        &bytes,
                        self.now,
                        received,
                    );
                }
            }
        }
    }

    /// Sends a packet from each client, and checks that it arrives from this client and no other.
    fn check_packets(&mut self) {
        for client in 0..self.clients.len() {
            self.next_packet += 1;
            let sent = packet(self.next_packet, 100);
            self.clients[client].queue.push(sent.clone());
            self.run(Duration::from_millis(300));
            for (end, server) in self.server.iter_mut().enumerate() {
                let received = std::mem::take(&mut server.received.0);
                let expected = if end == client { vec![sent.clone()] } else { Vec::new() };
                assert_eq!(received, expected, "from client {client}, as client {end}");
            }
        }
    }

    fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        self.server.iter().map(|end| end.inbound.peers()).collect()
    }

    fn associations(&self) -> Vec<usize> {
        self.server.iter().map(|end| end.associations).collect()
    }
}

#[test]
fn clients_behind_one_address_are_associated_with_their_own_keys() {
    let mut all = SharedServer::new(3);
    all.run(Duration::from_secs(2));
    assert_eq!(all.associations(), [1, 1, 1]);
    let expected: Vec<_> = all.ports.iter().map(|port| vec![from(*port); 2]).collect();
    assert_eq!(all.addresses(), expected);
    all.check_packets();
}

#[test]
fn replayed_and_forged_datagrams_from_the_address_of_another_client_change_nothing() {
    let mut all = SharedServer::new(2);
    all.run(Duration::from_secs(2));
    all.check_packets();
    let (addresses, overheard) = (all.addresses(), all.overheard.clone());
    let mut rng = SeededRng::new(7);
    for (client, channel, bytes) in overheard {
        let other = from(all.ports[1 - client]);
        let found = all.arrive(channel, other, &bytes);
        assert!(found.is_none_or(|found| found == client), "it is its sender's, or nobody's");
        let mut changed = bytes;
        let place = rng.index(12.min(changed.len()));
        changed[place] ^= 1 << rng.index(8);
        let found = all.arrive(channel, other, &changed);
        assert!(found.is_none_or(|found| found == client));
    }
    all.run(Duration::from_secs(4));
    assert_eq!((all.addresses(), all.associations()), (addresses, vec![1, 1]));
    all.check_packets();
}

#[test]
fn a_client_does_not_take_the_address_of_another() {
    let mut all = SharedServer::new(2);
    all.run(Duration::from_secs(2));
    let addresses = all.addresses();
    // All that client 0 sends comes from the address of client 1.
    all.spoofed = Some((0, 1));
    all.run(Duration::from_secs(2));
    assert_eq!((all.addresses(), all.associations()), (addresses, vec![1, 1]));
    all.spoofed = None;
    all.run(Duration::from_secs(4));
    all.check_packets();
}

#[test]
fn a_client_that_moves_goes_on_within_two_seconds() {
    let mut all = SharedServer::new(3);
    all.run(Duration::from_secs(2));
    let still = [all.addresses()[0].clone(), all.addresses()[2].clone()];
    all.ports[1] = 5000;
    all.run(Duration::from_secs(2));
    assert_eq!(all.addresses()[1], [from(5000); 2]);
    assert_eq!([all.addresses()[0].clone(), all.addresses()[2].clone()], still);
    assert_eq!(all.associations(), [1, 1, 1], "without a new association");
    all.check_packets();
    // The port that it had is another client's now.
    all.ports[2] = 4001;
    all.run(Duration::from_secs(2));
    assert_eq!(all.addresses()[2], [from(4001); 2]);
    all.check_packets();
}

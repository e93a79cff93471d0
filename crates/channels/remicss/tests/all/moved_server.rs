//! A client that learns another address of its server on a channel, as from a name.

use std::net::SocketAddr;
use std::time::Duration;

use model::ScheduleObjective;
use sunder_remicss::control::handshake::SharedKey;
use sunder_remicss::endpoint::settings::KeyRenewalLimits;
use sunder_remicss::send::bounds::PlanBounds;
use sunder_remicss::send::plan::PlanGoal;
use sunder_remicss::send::shared_fates::SharedFates;
use sunder_remicss::send::spare::PlanPreference;
use sunder_remicss::wire::terms::TunnelTerms;

use crate::scenario::{End, address, packet};

const CHANNELS: usize = 2;
const TICK: Duration = Duration::from_millis(2);

/// Both ends, without delay or loss between them.
struct MovingServer {
    goal: PlanGoal,
    now: Duration,
    client: End,
    server: End,
    /// Where the server is on each channel.
    server_at: [SocketAddr; CHANNELS],
    /// The number of datagrams that went elsewhere.
    stray: usize,
}

impl MovingServer {
    fn new() -> Self {
        let terms = TunnelTerms::new(2, 1, true).unwrap().with_min_channels(1).unwrap();
        let end = |end| {
            let key = SharedKey::new(&[7; 32]);
            End::with_key(end, key, terms, KeyRenewalLimits::default(), Duration::ZERO)
        };
        Self {
            goal: PlanGoal {
                kappa: 1.0,
                mu: 2.0,
                objective: ScheduleObjective::Risk,
                second_objective: None,
                floor: 1,
                keeps_order: true,
                prefer: PlanPreference::Redundancy,
                bounds: PlanBounds::default(),
                fates: SharedFates::default(),
            },
            now: Duration::ZERO,
            client: end(0),
            server: end(1),
            server_at: [address(1, 0), address(1, 1)],
            stray: 0,
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            for (channel, to, bytes) in self.client.work(self.now, &self.goal) {
                if to != self.server_at[channel] {
                    self.stray += 1;
                    continue;
                }
                let End { inbound, received, .. } = &mut self.server;
                inbound.handle_datagram(channel, address(0, channel), &bytes, self.now, received);
            }
            for (channel, _, bytes) in self.server.work(self.now, &self.goal) {
                let from = self.server_at[channel];
                let End { inbound, received, .. } = &mut self.client;
                inbound.handle_datagram(channel, from, &bytes, self.now, received);
            }
        }
    }

    fn receives(&mut self, number: u32) -> bool {
        let sent = packet(number, 100);
        self.client.queue.push(sent.clone());
        self.run(Duration::from_secs(1));
        std::mem::take(&mut self.server.received.0) == vec![sent]
    }

    fn associations(&self) -> [usize; 2] {
        [&self.client, &self.server].map(|end| end.associations)
    }
}

#[test]
fn a_server_that_moves_on_a_channel_is_used_there_in_the_same_association() {
    let mut tunnel = MovingServer::new();
    tunnel.run(Duration::from_secs(2));
    assert!(tunnel.receives(1));
    assert_eq!((tunnel.associations(), tunnel.stray), ([1, 1], 0));
    let moved: SocketAddr = "203.0.113.9:7001".parse().unwrap();
    tunnel.server_at[1] = moved;
    tunnel.run(Duration::from_secs(5));
    assert!(tunnel.receives(2), "over the other channel");
    assert!(tunnel.stray > 0);
    tunnel.client.inbound.set_server(1, moved);
    tunnel.run(Duration::from_secs(2));
    assert_eq!(tunnel.client.inbound.peers()[1], moved);
    tunnel.stray = 0;
    // Now over this channel only.
    tunnel.server_at[0] = "203.0.113.8:7000".parse().unwrap();
    tunnel.run(Duration::from_secs(5));
    assert!(tunnel.receives(3));
    assert_eq!(tunnel.associations(), [1, 1]);
}

#[test]
fn nothing_is_sent_to_a_server_whose_address_is_unknown() {
    let mut tunnel = MovingServer::new();
    tunnel.client.inbound.set_server(1, "0.0.0.0:0".parse().unwrap());
    tunnel.run(Duration::from_secs(5));
    assert!(tunnel.receives(1));
    assert_eq!(tunnel.stray, 0);
    let before = tunnel.associations();
    // The name is looked up again.
    tunnel.client.inbound.set_server(1, tunnel.server_at[1]);
    tunnel.run(Duration::from_secs(3));
    assert!(tunnel.receives(2));
    assert_eq!(tunnel.associations(), before.map(|count| count + 1));
}

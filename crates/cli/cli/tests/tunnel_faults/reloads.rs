//! The settings of a running tunnel change, without losing a packet.

use crate::pair::{CLIENT, Pair, SERVER, THREE_LINKS, network, over, until};
use crate::stream::{Stream, StreamRate};

/// The number of reloads under load.
const RELOADS: usize = 100;

/// The settings between which the client changes, and the values that its plan then has.
const DIALS: [(&str, f64, f64); 4] = [
    ("kappa = 2\nmu = 3", 2.0, 3.0),
    ("kappa = 3\nmu = 3", 3.0, 3.0),
    ("kappa = 2\nmu = 2", 2.0, 2.0),
    ("kappa = 2.5\nmu = 2.75\nobjective = \"loss\"\nscheduler = \"dynamic\"", 2.5, 2.75),
];

/// Datagrams in both directions, far below the rate of the channels.
const LOAD: StreamRate = StreamRate { rate: 2000.0, length: 600 };

pub(crate) fn a_hundred_reloads_under_load_lose_no_packet() {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let settings = DIALS[0].0;
    let pair = Pair::start(network, settings, &channels);
    for channel in 0..3 {
        pair.wait_for_states("client", channel, ["up", "up"]);
    }
    let (client, server) = (pair.host("client"), pair.host("server"));
    let there = Stream::start(client, server, SERVER, LOAD);
    let back = Stream::start(server, client, CLIENT, LOAD);
    there.wait_for(500);
    back.wait_for(500);
    let begins = [there.now(), back.now()];
    for (number, (settings, kappa, mu)) in DIALS.iter().cycle().skip(1).take(RELOADS).enumerate() {
        pair.configure("client", settings, &channels);
        pair.hang_up("client");
        let is_in_force = || {
            let predicted = pair.status("client").predicted;
            let is = |value: f64, wanted: f64| (value - wanted).abs() < 1e-6;
            predicted.is_some_and(|it| is(it.kappa, *kappa) && is(it.mu, *mu))
        };
        until(&format!("reload {number} is in force: {settings}"), is_in_force);
        there.wait_for(20);
    }
    for (stream, begin) in [there, back].iter().zip(begins) {
        let end = stream.now();
        let (sent, lost) = stream.lost(begin, end);
        println!("{sent} sent in {:?}, {lost} lost", end.saturating_sub(begin));
        assert_eq!((lost, stream.wrong()), (0, 0), "of {sent}");
    }
    assert_eq!(pair.status("client").dropped.below_floor, 0);

    // A bound that cannot be kept is reported.
    pair.configure("client", "kappa = 2\nmu = 3\nmin_rate_mbit = 5000", &channels);
    pair.hang_up("client");
    let expected = "min_rate_mbit = 5000 cannot be kept: the highest rate is";
    until(expected, || {
        pair.status("client").unmet_bound.is_some_and(|unmet| unmet.starts_with(expected))
    });

    // What cannot change while it runs is refused, and so is a lower floor.
    for (settings, expected) in [
        ("kappa = 2\nmu = 3\nmtu = 1300", "`mtu` has changed, which needs a restart of the tunnel"),
        ("kappa = 1\nmu = 3", "min_threshold = 1 is below 2"),
        ("kappa = 9\nmu = 3", "kappa = 9"),
    ] {
        pair.configure("client", settings, &channels);
        pair.hang_up("client");
        until(expected, || pair.log("client").contains(expected));
    }
    assert!(pair.status("client").associated);
}

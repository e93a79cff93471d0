//! The settings of a running tunnel change, without losing a packet.

use lab::{EmulatedLinkConditions, LinkDirection};

use crate::pair::{CLIENT, Pair, SERVER, THREE_LINKS, in_one_of_three, network, over, until};
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
    let streams = [there, back];
    // A busy machine loses packets also without reloads.
    in_one_of_three(|| {
        let begins = streams.each_ref().map(Stream::now);
        let dials = DIALS.iter().cycle().skip(1).take(RELOADS);
        for (number, (settings, kappa, mu)) in dials.enumerate() {
            pair.configure("client", settings, &channels);
            pair.hang_up("client");
            let is_in_force = || {
                let predicted = pair.status("client").predicted;
                let is = |value: f64, wanted: f64| (value - wanted).abs() < 1e-6;
                predicted.is_some_and(|it| is(it.kappa, *kappa) && is(it.mu, *mu))
            };
            until(&format!("reload {number} is in force: {settings}"), is_in_force);
            streams[0].wait_for(20);
        }
        for (stream, begin) in streams.iter().zip(begins) {
            let end = stream.now();
            let (sent, lost) = stream.lost(begin, end);
            println!("{sent} sent in {:?}, {lost} lost", end.saturating_sub(begin));
            assert_eq!(stream.wrong(), 0);
            if lost > 0 {
                let (later, now) = (end + end.saturating_sub(begin), stream.now());
                while stream.now() < later {
                    stream.wait_for(20);
                }
                let (without, also_lost) = stream.lost(now, stream.now());
                let without = format!("without reloads {also_lost} of {without}");
                assert!(also_lost > 0, "of {sent} {lost} lost, {without}");
                return Err(format!("of {sent} {lost} lost, {without}"));
            }
        }
        Ok(())
    });
    drop(streams);
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

/// A floor that a reload has raised holds at once, even when a channel goes down: nothing is sent
/// with a lower threshold, until a reload lowers it again.
pub(crate) fn a_raised_floor_holds_when_a_channel_goes_down() {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let pair = Pair::start(network, "kappa = 2\nmu = 3", &channels);
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, LOAD);
    stream.wait_for(500);
    pair.configure("client", "kappa = 3\nmu = 3", &channels);
    pair.hang_up("client");
    let kappa = || pair.status("client").predicted.map(|predicted| predicted.kappa);
    until("the floor is raised", || kappa().is_some_and(|kappa| kappa > 2.9));
    stream.wait_for(100);
    // The number of packets, and the sum of their thresholds.
    let sent = || {
        let achieved = pair.status("client").achieved;
        let packets = achieved.sent_symbols as f64;
        (packets, packets * achieved.kappa.unwrap())
    };
    let before = sent();

    set_loss(&pair, "b", 1.0);
    pair.wait_for_line("client", "WARN", "2 channels are up, and the privacy floor is 3");
    until("packets are dropped", || pair.status("client").dropped.below_floor > 0);
    let after = sent();
    let mean = (after.1 - before.1) / (after.0 - before.0);
    assert!((mean - 3.0).abs() < 1e-6, "the mean threshold was {mean}");

    pair.configure("client", "kappa = 2\nmu = 3", &channels);
    pair.hang_up("client");
    stream.wait_for(300);
}

fn set_loss(pair: &Pair, link: &str, loss: f64) {
    for direction in LinkDirection::BOTH {
        let usual = pair.network().conditions(link, direction).unwrap();
        let now = EmulatedLinkConditions { loss, ..usual };
        pair.network().link(link).unwrap().set(direction, now).unwrap();
    }
}

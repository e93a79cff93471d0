//! A channel is cut and recovers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lab::{EmulatedLink, EmulatedLinkConditions, EmulatedNetwork, LinkDirection, LinkOptions};

use crate::pair::{
    Channel, PORT, Pair, SERVER, THREE_LINKS, in_one_of_three, network, over, until,
};
use crate::stream::{Stream, StreamRate};

/// The maximum duration of the effects of an outage and of its end.
const MAX_OUTAGE_EFFECT: Duration = Duration::from_secs(1);

pub(crate) fn a_lost_channel_costs_packets_only_briefly() {
    // The channel's half of the packets is lost until the outage is detected.
    cut_and_restore("kappa = 1\nmu = 1", 500);
}

pub(crate) fn a_lost_channel_costs_no_packets_if_two_are_enough() {
    cut_and_restore("kappa = 2\nmu = 3", 20);
}

/// The log names the channel and the direction, and states that packets have a lower threshold than
/// configured.
pub(crate) fn a_lost_channel_is_logged() {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let pair = Pair::start(network, "kappa = 3\nmu = 3\nmin_threshold = 2", &channels);
    pair.wait_for_states("client", 1, ["up", "up"]);
    set_loss(&pair, Some(1.0));
    for end in ["client", "server"] {
        pair.wait_for_line(end, "WARN", "channel 2: nothing arrives from the peer");
        pair.wait_for_line(end, "WARN", "channel 2: the peer receives nothing");
        pair.wait_for_line(end, "WARN", "only 2 of 3 channels are up, too few for kappa = 3");
    }
    set_loss(&pair, None);
    for end in ["client", "server"] {
        pair.wait_for_line(end, "INFO", "channel 2: the peer's datagrams arrive again");
        pair.wait_for_line(end, "INFO", "channel 2: the peer receives again");
    }
}

/// A device that exists only at times.
const MODEM: &str = "modem";

/// The addresses of the hosts on it.
const MODEM_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// Connects the modem.
fn plug_in(network: &EmulatedNetwork) -> EmulatedLink {
    let hosts = ["client", "server"].map(|name| network.host(name).unwrap());
    let options = LinkOptions {
        name: MODEM,
        addresses: MODEM_ADDRESSES,
        mtu: 1500,
        congestion: None,
        conditions: [EmulatedLinkConditions::default(); 2],
        seed: 1,
        tap: None,
    };
    EmulatedLink::new(hosts, &options).unwrap()
}

/// A modem is removed and connected again: a new device with the same name.
pub(crate) fn a_device_that_comes_back_is_used_again() {
    let network = network(THREE_LINKS);
    let modem = plug_in(&network);
    let server = SocketAddr::new(MODEM_ADDRESSES[1].into(), PORT);
    let channel = Channel { device: Some(MODEM), ..Channel::new(server, server) };
    let channels = [over(&network, &["a"]), vec![channel]].concat();
    let pair = Pair::start(network, "kappa = 1\nmu = 2", &channels);
    pair.wait_for_states("client", 1, ["up", "up"]);
    modem.remove().unwrap();
    pair.wait_for_states("client", 1, ["down", "down"]);
    let _modem = plug_in(pair.network());
    pair.wait_for_states("client", 1, ["up", "up"]);
    pair.wait_for_line(
        "client",
        "INFO",
        "channel 2: modem was replaced by another device, which is used now",
    );
}

/// The same at a server that has no client meanwhile, and so sends nothing: no error shows that its
/// socket is deaf.
pub(crate) fn a_server_without_a_client_uses_a_device_that_comes_back() {
    let network = network(THREE_LINKS);
    let modem = plug_in(&network);
    let server = SocketAddr::new(MODEM_ADDRESSES[1].into(), PORT);
    let channel = Channel { server_device: Some(MODEM), ..Channel::new(server, server) };
    let channels = [over(&network, &["a"]), vec![channel]].concat();
    let mut pair = Pair::start(network, "kappa = 1\nmu = 2", &channels);
    pair.wait_for_states("server", 1, ["up", "up"]);
    pair.kill_end("client");
    until("the server has no client", || !pair.status("server").associated);
    modem.remove().unwrap();
    let _modem = plug_in(pair.network());
    pair.wait_for_line(
        "server",
        "INFO",
        "channel 2: modem was replaced by another device, which is used now",
    );
    pair.start_end("client");
    pair.wait_for_states("server", 1, ["up", "up"]);
}

/// Cuts a channel and restores it. At a rate of a thousand packets per second, at most `max_lost`
/// may be lost.
fn cut_and_restore(settings: &str, max_lost: usize) {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let pair = Pair::start(network, settings, &channels);
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    stream.wait_for(300);
    in_one_of_three(|| {
        let begin = stream.now();
        set_loss(&pair, Some(1.0));
        pair.wait_for_states("client", 1, ["down", "down"]);
        stream.wait_for(300);

        set_loss(&pair, None);
        let mended = stream.now();
        // More than the control messages of a second, which were sent all the time.
        let delivered =
            || pair.network().link("b").unwrap().counts(LinkDirection::Forward).delivered;
        let before = delivered();
        until("the channel is used again", || delivered() > before + 50);
        let unused = stream.now().saturating_sub(mended);
        pair.wait_for_states("client", 1, ["up", "up"]);
        stream.wait_for(300);

        let end = stream.now();
        let gap = stream.longest_gap(begin, end);
        let (sent, lost) = stream.lost(begin, end);
        let seen =
            format!("of {sent} {lost} lost, a gap of {gap:?}, unused for another {unused:?}");
        let is_good = lost <= max_lost && gap < MAX_OUTAGE_EFFECT && unused < MAX_OUTAGE_EFFECT;
        if is_good { Ok(()) } else { Err(seen) }
    });
    assert_eq!(stream.wrong(), 0);
}

/// Makes the second channel lose packets in both directions, or restores its original loss.
fn set_loss(pair: &Pair, loss: Option<f64>) {
    for direction in LinkDirection::BOTH {
        let usual = pair.network().conditions("b", direction).unwrap();
        let now = EmulatedLinkConditions { loss: loss.unwrap_or(usual.loss), ..usual };
        pair.network().link("b").unwrap().set(direction, now).unwrap();
    }
}

//! A channel is cut, and comes back.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lab::{Conditions, Direction, Link, LinkOptions, Network};

use crate::pair::{
    Channel, PORT, Pair, SERVER, THREE_LINKS, in_one_of_three, network, over, until,
};
use crate::stream::{Pace, Stream};

/// How long an outage and its end may be felt.
const NOTICEABLE: Duration = Duration::from_secs(1);

pub(crate) fn a_lost_channel_is_not_missed_for_long() {
    // The channel's half of the packets is lost until that is noticed.
    cut_and_mend("kappa = 1\nmu = 1", 500);
}

pub(crate) fn a_lost_channel_is_not_missed_where_two_are_enough() {
    cut_and_mend("kappa = 2\nmu = 3", 20);
}

/// The log names the channel, each way, and says that packets need fewer shares than were asked
/// for.
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

/// A device that is there only at times.
const MODEM: &str = "modem";

/// A modem is pulled out and put in again: another device of the same name.
pub(crate) fn a_device_that_comes_back_is_used_again() {
    let addresses = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
    let plug_in = |network: &Network| {
        let hosts = ["client", "server"].map(|name| network.host(name).unwrap());
        let options = LinkOptions {
            name: MODEM,
            addresses,
            mtu: 1500,
            congestion: None,
            conditions: [Conditions::default(); 2],
            seed: 1,
            tap: None,
        };
        Link::new(hosts, &options).unwrap()
    };
    let network = network(THREE_LINKS);
    let modem = plug_in(&network);
    let server = SocketAddr::new(addresses[1].into(), PORT);
    let channel = Channel { device: Some(MODEM), ..Channel::new(server, server) };
    let channels = [over(&network, &["a"]), vec![channel]].concat();
    let pair = Pair::start(network, "kappa = 1\nmu = 2", &channels);
    pair.wait_for_states("client", 1, ["up", "up"]);
    modem.remove().unwrap();
    pair.wait_for_states("client", 1, ["down", "down"]);
    let _modem = plug_in(pair.network());
    pair.wait_for_states("client", 1, ["up", "up"]);
}

/// Cuts a channel and mends it. Packets go on; of a thousand a second so many may be lost.
fn cut_and_mend(settings: &str, most_lost: usize) {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let pair = Pair::start(network, settings, &channels);
    let stream =
        Stream::start(pair.host("client"), pair.host("server"), (SERVER, 9000), Pace::LIGHT);
    stream.wait_for(300);
    in_one_of_three(|| {
        let begin = stream.now();
        set_loss(&pair, Some(1.0));
        pair.wait_for_states("client", 1, ["down", "down"]);
        stream.wait_for(300);

        set_loss(&pair, None);
        let mended = stream.now();
        // More than the control messages of a second, which were sent all the time.
        let delivered = || pair.network().link("b").unwrap().counts(Direction::Forward).delivered;
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
        let is_good = lost <= most_lost && gap < NOTICEABLE && unused < NOTICEABLE;
        if is_good { Ok(()) } else { Err(seen) }
    });
    assert_eq!(stream.wrong(), 0);
}

/// Has the second channel lose packets both ways, or only as many as it was to.
fn set_loss(pair: &Pair, loss: Option<f64>) {
    for direction in Direction::BOTH {
        let usual = pair.network().conditions("b", direction).unwrap();
        let now = Conditions { loss: loss.unwrap_or(usual.loss), ..usual };
        pair.network().link("b").unwrap().set(direction, now).unwrap();
    }
}

//! A tunnel that starts while a link is down, and the recovery of the link.

use std::time::Duration;

use lab::{EmulatedLinkConditions, EmulatedNetwork, LinkDirection};

use crate::pair::{Pair, SERVER, THREE_LINKS, in_one_of_three, network, over, until};
use crate::stream::{Stream, StreamRate};

/// Any two of the three channels are enough to start.
const TWO_OF_THREE: &str = "kappa = 2\nmu = 3\nmin_channels = 2";

/// The time for a client to detect that a server was restarted (3 s), to wait for the third channel
/// (1 s), and to associate.
const REASSOCIATION_TIMEOUT: Duration = Duration::from_secs(6);

/// The time within which a recovered channel must be used.
const REUSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn a_server_that_restarts_while_a_link_is_down_is_found_again() {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let mut pair = Pair::start(network, TWO_OF_THREE, &channels);
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    stream.wait_for(300);
    in_one_of_three(|| {
        set_loss(pair.network(), "c", Some(1.0));
        pair.kill_end("server");
        pair.start_end("server");
        let started = stream.now();
        stream.wait_for(300);
        let gap = stream.longest_gap(started, stream.now());
        for end in ["client", "server"] {
            is_without(&pair, end, 2);
        }
        joins(&pair, &stream, "c", 2)?;
        if gap < REASSOCIATION_TIMEOUT { Ok(()) } else { Err(format!("{gap:?} without packets")) }
    });
    assert_eq!(stream.wrong(), 0);
}

pub(crate) fn a_tunnel_starts_with_two_of_three_channels() {
    for (missing, link) in ["a", "b", "c"].into_iter().enumerate() {
        in_one_of_three(|| {
            let network = network(THREE_LINKS);
            let channels = over(&network, &["a", "b", "c"]);
            set_loss(&network, link, Some(1.0));
            let pair = Pair::start(network, TWO_OF_THREE, &channels);
            until("the ends are associated", || pair.status("server").associated);
            for end in ["client", "server"] {
                is_without(&pair, end, missing);
            }
            let hosts = (pair.host("client"), pair.host("server"));
            let stream = Stream::start(hosts.0, hosts.1, SERVER, StreamRate::LIGHT);
            stream.wait_for(300);
            let joined = joins(&pair, &stream, link, missing);
            assert_eq!(stream.wrong(), 0);
            joined
        });
    }
}

/// Checks that an end reports the missing channel.
fn is_without(pair: &Pair, end: &'static str, channel: usize) {
    let line = format!(
        "associated over 2 of 3 channels: channel {} did not answer, and will be used as soon as it does",
        channel + 1
    );
    pair.wait_for_line(end, "WARN", &line);
    pair.wait_for_states(end, channel, ["missing", "missing"]);
    assert!(pair.status(end).channels[channel].missing_s.is_some());
}

/// A link recovers, and its channel must be used soon, without losing packets.
fn joins(pair: &Pair, stream: &Stream, link: &str, channel: usize) -> Result<(), String> {
    let begin = stream.now();
    stream.wait_for(100);
    let delivered = || pair.network().link(link).unwrap().counts(LinkDirection::Forward).delivered;
    set_loss(pair.network(), link, None);
    let (mended, before) = (stream.now(), delivered());
    // More datagrams than the messages for joining.
    until("the channel is used", || delivered() > before + 50);
    let unused = stream.now().saturating_sub(mended);
    for end in ["client", "server"] {
        pair.wait_for_states(end, channel, ["up", "up"]);
        pair.wait_for_line(end, "INFO", "associated over 3 channels");
        assert_eq!(pair.status(end).channels[channel].missing_s, None);
    }
    stream.wait_for(300);
    let (sent, lost) = stream.lost(begin, stream.now());
    println!("channel {}: used after {unused:.3?}, {lost} of {sent} packets lost", channel + 1);
    if unused < REUSE_TIMEOUT && lost == 0 {
        return Ok(());
    }
    Err(format!("of {sent} {lost} lost, unused for another {unused:?}"))
}

/// Makes a link lose packets in both directions, or restores its original loss.
fn set_loss(network: &EmulatedNetwork, link: &str, loss: Option<f64>) {
    for direction in LinkDirection::BOTH {
        let usual = network.conditions(link, direction).unwrap();
        let now = EmulatedLinkConditions { loss: loss.unwrap_or(usual.loss), ..usual };
        network.link(link).unwrap().set(direction, now).unwrap();
    }
}

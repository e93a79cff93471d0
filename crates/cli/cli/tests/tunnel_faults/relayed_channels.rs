//! A relay on the path of a channel changes datagrams or their source address.

use std::net::SocketAddr;

use crate::pair::{
    CLIENT, Channel, PORT, Pair, SERVER, THREE_LINKS, few_lost, in_one_of_three, network, over,
    until,
};
use crate::relay::Relay;
use crate::stream::{Stream, StreamRate};

/// A third host with a link to both ends.
const BESIDE: &str = r#"
[hosts.relay]
[links.d]
hosts = ["client", "relay"]
[links.e]
hosts = ["relay", "server"]
"#;

/// A tunnel whose third channel passes a relay.
fn with_relay(settings: &str) -> (Pair, Relay) {
    let network = network(&format!("{THREE_LINKS}{BESIDE}"));
    let address =
        |host: &str, link: &str| SocketAddr::new(network.address(host, link).unwrap().into(), PORT);
    let channel = Channel::new(address("server", "e"), address("relay", "d"));
    let relay = Relay::start(network.host("relay").unwrap(), channel.server, channel.listen);
    let channels = [over(&network, &["a", "b"]), vec![channel]].concat();
    (Pair::start(network, settings, &channels), relay)
}

pub(crate) fn a_tampering_channel_is_identified() {
    in_one_of_three(tampering_is_identified);
}

fn tampering_is_identified() -> Result<(), String> {
    let (pair, relay) = with_relay("kappa = 2\nmu = 3");
    let (client, server) = (pair.host("client"), pair.host("server"));
    let there = Stream::start(client, server, SERVER, StreamRate::LIGHT);
    let back = Stream::start(server, client, CLIENT, StreamRate::LIGHT);
    there.wait_for(300);
    back.wait_for(300);

    let begins = [there.now(), back.now()];
    // The end that receives the changed shares detects it, and reports it to the other.
    relay.tamper_there();
    pair.wait_for_states("server", 2, ["up", "quarantine"]);
    pair.wait_for_states("client", 2, ["quarantine", "up"]);
    relay.tamper_back();
    for end in ["client", "server"] {
        pair.wait_for_states(end, 2, ["quarantine", "quarantine"]);
        until("its wrong shares are counted", || pair.status(end).channels[2].wrong > 16);
    }
    for (stream, begin) in [there, back].iter().zip(begins) {
        stream.wait_for(500);
        let (sent, lost) = stream.lost(begin, stream.now());
        assert_eq!(stream.wrong(), 0);
        few_lost(sent, lost, 20)?;
    }
    for end in ["client", "server"] {
        pair.wait_for_states(end, 0, ["up", "up"]);
        pair.wait_for_states(end, 1, ["up", "up"]);
        let log = pair.log(end);
        for what in ["in quarantine, as shares were changed", "in quarantine at the peer"] {
            let lines: Vec<&str> = log.lines().filter(|line| line.contains(what)).collect();
            let [line] = lines[..] else { panic!("not once: {what}: {log}") };
            assert!(line.contains("WARN") && line.contains("channel 3: "), "{line}");
        }
    }
    Ok(())
}

pub(crate) fn a_client_may_change_its_address() {
    // Every share is needed.
    let (pair, relay) = with_relay("kappa = 3\nmu = 3");
    let (client, server) = (pair.host("client"), pair.host("server"));
    let back = Stream::start(server, client, CLIENT, StreamRate::LIGHT);
    back.wait_for(300);
    in_one_of_three(|| {
        let begin = back.now();
        relay.change_port(pair.host("relay"));
        back.wait_for(300);
        let gap = back.longest_gap(begin, back.now());
        if gap.as_secs() < 1 { Ok(()) } else { Err(format!("{gap:?} without packets")) }
    });
    assert!(pair.log("server").contains("channel 3: the peer is at"), "{}", pair.log("server"));
}

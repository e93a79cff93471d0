//! Small packets share a symbol if channels are the bottleneck.

use lab::{EmulatedLinkConditions, LinkDirection};

use crate::pair::{Channel, Pair, SERVER, in_one_of_three, network, over};
use crate::stream::{Stream, StreamRate};

/// A channel that carries 2,232 such datagrams per second if each has its own symbol of 112 bytes:
/// IP and UDP headers inside and outside, a header and a tag. 21 of them in one symbol take 1,500
/// bytes.
const ONE_LINK: &str = r#"
measure = { driver = "accuracy", values = {} }
[hosts.client]
[hosts.server]
[links.a]
hosts = ["client", "server"]
both = { rate_mbit = 2, delay_ms = 2 }
"#;
const SMALL: StreamRate = StreamRate { rate: 3000.0, length: 40 };

pub(crate) fn small_packets_share_a_symbol() {
    share_symbols("", None, SMALL, 4000);
}

/// The tunnel's MTU is less than half of the path's, so the path does not lower it.
pub(crate) fn fragments_share_a_symbol_no_longer_than_the_mtu() {
    share_symbols("mtu = 700", Some(1400), StreamRate { rate: 7.0, length: 24_000 }, 28);
}

/// Datagrams pass a link, which loses longer packets than `max_len`.
fn share_symbols(settings: &str, max_len: Option<usize>, rate: StreamRate, count: usize) {
    let network = network(ONE_LINK);
    for direction in LinkDirection::BOTH {
        let usual = network.conditions("a", direction).unwrap();
        network
            .link("a")
            .unwrap()
            .set(direction, EmulatedLinkConditions { max_len, ..usual })
            .unwrap();
    }
    let channels: Vec<Channel> = over(&network, &["a"])
        .into_iter()
        .map(|channel| Channel { rate_mbit: Some(2), ..channel })
        .collect();
    let pair = Pair::start(network, &format!("kappa = 1\nmu = 1\n{settings}"), &channels);
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, rate);
    stream.wait_for(count / 4);
    in_one_of_three(|| {
        let begin = stream.now();
        stream.wait_for(count);
        let (sent, lost) = stream.lost(begin, stream.now());
        if lost <= sent / 20 { Ok(()) } else { Err(format!("of {sent} {lost} lost")) }
    });
    assert_eq!(stream.wrong(), 0);
}

//! Small packets share a symbol where channels are the bottleneck.

use crate::pair::{Channel, Pair, SERVER, in_one_of_three, network, over};
use crate::stream::{Pace, Stream};

/// One channel that carries 2,232 such datagrams a second if each has a symbol of its own: with
/// headers of IP and UDP, inside and outside, a header and a tag it has 112 bytes. 21 in a symbol
/// take 1,500.
const ONE_LINK: &str = r#"
measure = { driver = "accuracy", values = {} }
[hosts.client]
[hosts.server]
[links.a]
hosts = ["client", "server"]
both = { rate_mbit = 2, delay_ms = 2 }
"#;
const SMALL: Pace = Pace { rate: 3000.0, length: 40 };

pub(crate) fn small_packets_share_the_headers() {
    let network = network(ONE_LINK);
    let channels: Vec<Channel> = over(&network, &["a"])
        .into_iter()
        .map(|channel| Channel { rate_mbit: 2, ..channel })
        .collect();
    let pair = Pair::start(network, "kappa = 1\nmu = 1", &channels);
    let stream = Stream::start(pair.host("client"), pair.host("server"), (SERVER, 9000), SMALL);
    stream.wait_for(1000);
    in_one_of_three(|| {
        let begin = stream.now();
        stream.wait_for(4000);
        let (sent, lost) = stream.lost(begin, stream.now());
        if lost <= sent / 20 { Ok(()) } else { Err(format!("of {sent} {lost} lost")) }
    });
    assert_eq!(stream.wrong(), 0);
}

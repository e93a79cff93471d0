//! A channel whose quota is used up.

use remicss::status::TunnelStatus;

use crate::pair::{Pair, SERVER, THREE_LINKS, network, over, until};
use crate::stream::{Stream, StreamRate};

/// The datagrams during which channels are compared.
const COMPARED: usize = 1000;

/// A channel carries no more packets once its quota is used up, in either direction, also after the
/// client was killed. The others carry the packets.
pub(crate) fn a_channel_without_quota_is_left_out_over_a_restart() {
    let network = network(THREE_LINKS);
    let channels = over(&network, &["a", "b", "c"]);
    let settings = "kappa = 2\nmu = 2";
    let with_file = format!("{settings}\nquota_file = \"quota\"");
    let mut pair = Pair::prepare(network, [with_file.as_str(), settings], &channels);
    pair.add_to_channel("client", channels[2].server, "quota_gb = 0.001");
    pair.start_end("server");
    pair.start_end("client");
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    let is_used_up = |pair: &Pair| {
        let quota = pair.status("client").channels[2].quota;
        quota.is_some_and(|it| it.used_up_s.is_some() && it.used_bytes >= 1_000_000)
    };
    until("the quota is used up", || is_used_up(&pair));
    for _ in 0..2 {
        until("the server does not use the channel", || {
            let state = pair.status("server").channels[2].state_out.clone();
            state.as_deref() == Some("down")
        });
        let before = carried(&pair.status("client"));
        stream.wait_for(COMPARED);
        let after = carried(&pair.status("client"));
        let [a, _, c] = [0, 1, 2].map(|channel| after[channel] - before[channel]);
        assert!(c * 4 < a, "{before:?}, {after:?}");

        // Again after a restart.
        pair.kill_end("client");
        pair.start_end("client");
        until("the ends are associated", || pair.status("client").associated);
        until("the quota is still used up", || is_used_up(&pair));
    }
    assert_eq!(stream.wrong(), 0);
    drop(stream);
    pair.remove();
}

/// The bytes that each channel has carried in both directions.
fn carried(status: &TunnelStatus) -> Vec<u64> {
    status.channels.iter().map(|channel| channel.sent_bytes + channel.received_bytes).collect()
}

//! An attacker sends arbitrary datagrams to one of the server's ports, at the rate of the channel.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use crate::flood::{Capture, Flood};
use crate::pair::{
    Channel, Pair, SERVER, THREE_LINKS, few_lost, in_one_of_three, network, over, until,
};
use crate::stream::{Stream, StreamRate};

/// A third host with a link to the server.
const STRANGER: &str = r#"
[hosts.stranger]
[links.d]
hosts = ["stranger", "server"]
"#;

/// The ports of the three channels; the attacker uses the first.
const PORTS: [u16; 3] = [6521, 6522, 6523];

/// The rate of a flood in Mbit/s, which is that of a channel.
const RATE: f64 = 100.0;

/// The maximum number of distinct datagrams in a flood.
const MAX_DISTINCT: usize = 1024;

/// Nine tenths of the tunnel's capacity.
const HEAVY_LOAD: StreamRate = StreamRate { rate: 8800.0, length: 1200 };

/// The forged datagrams with the highest cost for the server.
const FORGED_HELLOS: &str = "forged Hellos";

/// The replayed datagrams with the highest cost for the client.
const REPLAYED_HELLOS: &str = "replayed Hellos";

/// A kind of flood.
struct Kind {
    name: &'static str,
    datagrams: Vec<Vec<u8>>,
}

pub(crate) fn a_flood_does_not_change_the_tunnel() {
    let (pair, kinds) = with_stranger();
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    stream.wait_for(300);
    in_one_of_three(|| {
        let begin = stream.now();
        for kind in &kinds {
            let flood = kind.start(&pair);
            stream.wait_for(150);
            assert!(flood.sent() > 0, "{}", kind.name);
        }
        let (sent, lost) = stream.lost(begin, stream.now());
        // A loose bound, because other tests may be running.
        few_lost(sent, lost, 2)
    });
    in_one_of_three(|| {
        let begin = stream.now();
        stream.wait_for(300);
        let (sent, lost) = stream.lost(begin, stream.now());
        if lost <= sent / 20 { Ok(()) } else { Err(format!("then of {sent} {lost} lost")) }
    });
    assert_eq!(stream.wrong(), 0);
    for channel in 0..pair.status("server").channels.len() {
        pair.wait_for_states("server", channel, ["up", "up"]);
    }
    let status = pair.status("server");
    for channel in &status.channels {
        assert_eq!(channel.wrong, 0);
    }
    let dropped = status.dropped;
    // The source address is not the client's, so nothing else in the datagrams is examined.
    assert!(dropped.wrong_source > 1000, "{dropped:?}");
    assert_eq!(dropped.wrong_source, status.channels[0].wrong_source);
    assert_eq!((dropped.malformed, dropped.duplicate, dropped.tampered), (0, 0, 0));
    pair.wait_for_line("server", "WARN", "address has changed (see `roaming`)");
    assert_eq!(pair.log("server").matches("associated").count(), 1, "{}", pair.log("server"));
}

/// Attackers without the key do not use up handshakes, and replays leave some for the client.
pub(crate) fn a_client_connects_during_a_flood() {
    let (mut pair, kinds) = with_stranger();
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    for (name, most_s) in [(FORGED_HELLOS, 1), (REPLAYED_HELLOS, 4)] {
        let hellos = kinds.iter().find(|kind| kind.name == name).unwrap();
        let _flood = hellos.start(&pair);
        in_one_of_three(|| {
            pair.kill_end("client");
            pair.start_end("client");
            let started = stream.now();
            stream.wait_for(300);
            let gap = stream.longest_gap(started, stream.now());
            let is_short = gap.as_secs() < most_s;
            if is_short { Ok(()) } else { Err(format!("{name}: {gap:?} without packets")) }
        });
    }
}

/// The fraction that arrives during each flood and without one. The honest load is nine tenths of
/// the tunnel's capacity.
pub(crate) fn a_flood_costs_less_than_a_tenth() {
    let (pair, kinds) = with_stranger();
    let stream = Stream::start(pair.host("client"), pair.host("server"), SERVER, HEAVY_LOAD);
    stream.wait_for(8800);
    println!(
        "Without a flood and with one: what arrives of the stream, and how much of a processor"
    );
    println!("the server takes. The flood's datagrams a second, and those that found no room.");
    let mut failures = Vec::new();
    for kind in &kinds {
        let quiet = Measurement::when(&pair, &stream, || None);
        let flooded = Measurement::when(&pair, &stream, || Some(kind.start(&pair)));
        println!(
            "{:45} {:.4} {:.4}  {:.2} {:.2} {:8.0} {:6}",
            kind.name,
            quiet.arrived,
            flooded.arrived,
            quiet.busy,
            flooded.busy,
            flooded.flood,
            flooded.refused,
        );
        if flooded.arrived < 0.9 * quiet.arrived {
            failures.push(kind.name);
        }
    }
    assert_eq!(stream.wrong(), 0);
    assert!(failures.is_empty(), "{failures:?}");
}

/// A tunnel that needs every share, so that losses of one channel show, and the floods.
fn with_stranger() -> (Pair, Vec<Kind>) {
    let network = network(&format!("{THREE_LINKS}{STRANGER}"));
    let channel = |(channel, port): (Channel, u16)| {
        let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        Channel::new(listen, SocketAddr::new(channel.server.ip(), port))
    };
    let channels: Vec<Channel> =
        over(&network, &["a", "b", "c"]).into_iter().zip(PORTS).map(channel).collect();
    let mut capture = Capture::start(network.host("server").unwrap()).unwrap();
    let pair = Pair::start(network, "kappa = 3\nmu = 3", &channels);
    let kinds = kinds(&captured(&pair, &mut capture));
    (pair, kinds)
}

/// The datagrams that arrived on the first channel, from the first Hello on.
fn captured(pair: &Pair, capture: &mut Capture) -> Vec<Vec<u8>> {
    let _stream =
        Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
    let mut captured = Vec::new();
    until("there are shares", || {
        captured.extend(capture.take(PORTS[0]));
        captured.iter().filter(|datagram| is_share(datagram)).count() >= MAX_DISTINCT
    });
    captured
}

/// Whether it is a share of one of the stream's packets.
fn is_share(datagram: &[u8]) -> bool {
    datagram.len() > StreamRate::LIGHT.length && datagram[0] >> 4 <= 1
}

/// The floods of an attacker who has captured these datagrams.
fn kinds(captured: &[Vec<u8>]) -> Vec<Kind> {
    let one = |kind: u8| captured.iter().find(|datagram| datagram[0] >> 4 == kind).unwrap();
    let (hello, list) = (one(8), one(10));
    let shares: Vec<Vec<u8>> =
        captured.iter().filter(|datagram| is_share(datagram)).cloned().collect();
    let resized = |length: usize| {
        let resize = |mut share: Vec<u8>| {
            share.resize(length, 0);
            share
        };
        shares.iter().cloned().map(resize).collect()
    };
    let mut dice = fastrand::Rng::with_seed(1);
    let mut forged = |first: u8, length: usize| {
        let mut datagram = vec![0; length];
        let forged = std::iter::repeat_with(|| {
            dice.fill(&mut datagram);
            datagram[0] = first;
            datagram.clone()
        });
        forged.take(MAX_DISTINCT).collect::<Vec<_>>()
    };
    // A share's first byte has k - 1; a handshake's has the version, 2.
    let (share, long) = (0x02, 1400);
    let uneven = forged(share, 60).into_iter().zip(forged(share, 61));
    [
        ("forged shares of 60 bytes", forged(share, 60)),
        (
            "forged shares of 60 and 61 bytes, one by one",
            uneven.flat_map(|(a, b)| [a, b]).collect(),
        ),
        ("forged shares of 1400 bytes", forged(share, long)),
        (FORGED_HELLOS, forged(0x82, hello.len())),
        ("forged Lists", forged(0xA2, list.len())),
        ("forged probes of 1400 bytes", forged(0x30, long)),
        ("replayed shares", shares.clone()),
        (REPLAYED_HELLOS, vec![hello.clone(); MAX_DISTINCT]),
        ("replayed Lists", vec![list.clone(); MAX_DISTINCT]),
        ("shares cut to a byte", resized(1)),
        ("shares cut to 12 bytes", resized(12)),
        ("shares cut to 60 bytes", resized(60)),
        ("shares of 60,000 bytes", resized(60_000)),
    ]
    .map(|(name, datagrams)| Kind { name, datagrams })
    .into()
}

impl Kind {
    /// Sends the flood to the first channel's port.
    fn start(&self, pair: &Pair) -> Flood {
        let server = pair.network().address("server", "d").unwrap();
        let to = SocketAddr::new(server.into(), PORTS[0]);
        Flood::start(pair.host("stranger"), to, &self.datagrams, RATE).unwrap()
    }
}

/// The measurements of one second.
struct Measurement {
    /// The fraction of the stream that arrived.
    arrived: f64,
    /// The number of datagrams of the flood per second.
    flood: f64,
    /// The processor time of the server, as a fraction of one processor.
    busy: f64,
    /// Datagrams that exceeded a socket's buffer.
    refused: u64,
}

impl Measurement {
    fn when(pair: &Pair, stream: &Stream, start: impl FnOnce() -> Option<Flood>) -> Self {
        let (begin, busy_before, refused_before) = (stream.now(), processor_s(pair), refused(pair));
        let flood = start();
        stream.wait_for(8800);
        let end = stream.now();
        let seconds = end.saturating_sub(begin).as_secs_f64();
        let (busy, refused) = (processor_s(pair) - busy_before, refused(pair) - refused_before);
        let sent = flood.map_or(0, |flood| flood.sent());
        let (all, lost) = stream.lost(begin, end);
        Self {
            arrived: 1.0 - lost as f64 / all as f64,
            flood: sent as f64 / seconds,
            busy: busy / seconds,
            refused,
        }
    }
}

/// The processor time of the server's threads so far, in seconds.
fn processor_s(pair: &Pair) -> f64 {
    let threads = fs::read_dir(format!("/proc/{}/task", pair.process("server"))).unwrap().flatten();
    // The first number is the processor time in ns.
    let time = |stat: String| stat.split_whitespace().next()?.parse::<f64>().ok();
    let times = threads.filter_map(|thread| {
        time(fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default())
    });
    times.sum::<f64>() / 1e9
}

/// The number of datagrams that exceeded the buffers of the server's host.
fn refused(pair: &Pair) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let counts = pair.host("server").run(read).unwrap();
    let mut lines = counts.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(name, _)| *name == "RcvbufErrors").unwrap().1.parse().unwrap()
}

//! Links that lose long packets without an ICMP message, from the start, or from some time on.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lab::{EmulatedLinkConditions, LinkDirection};

use crate::pair::{
    CLIENT, Channel, PORT, Pair, SERVER, THREE_LINKS, in_one_of_three, network, over, until,
};
use crate::stream::{Stream, StreamRate};
use crate::transfer::Transfer;

/// The time within which packets pass again, and a tunnel knows its paths' MTUs.
const RECOVERY_TIME: Duration = Duration::from_secs(3);
const SEARCH_TIME: Duration = Duration::from_secs(5);

/// The time within which an MTU that is larger again is used.
const RAISE_TIME: Duration = Duration::from_secs(45);

/// The overhead of a datagram over IPv4, headers included.
const OVERHEAD: usize = 49;

/// The lengths of UDP datagrams, the last of which is sent in fragments.
const LENGTHS: [usize; 4] = [100, 1200, 1400, 2000];

/// Few datagrams of a length.
const fn few(length: usize) -> StreamRate {
    StreamRate { rate: 50.0, length }
}

/// Where packets longer than an MTU are lost.
#[derive(Clone, Copy, Debug)]
struct Hole {
    mtu: usize,
    links: &'static [&'static str],
    directions: &'static [LinkDirection],
}

/// On one channel, and on all.
const ON_ONE: Hole = Hole { mtu: 1372, links: &["a"], directions: &LinkDirection::BOTH };
const ON_ALL: Hole = Hole { mtu: 1280, links: &["a", "b"], directions: &LinkDirection::BOTH };

impl Hole {
    fn set(self, pair_network: &lab::EmulatedNetwork, max_len: Option<usize>) {
        for link in self.links {
            for direction in self.directions {
                let usual = pair_network.conditions(link, *direction).unwrap();
                let now = EmulatedLinkConditions { max_len, ..usual };
                pair_network.link(link).unwrap().set(*direction, now).unwrap();
            }
        }
    }

    fn open(self, pair: &Pair) {
        self.set(pair.network(), Some(self.mtu));
    }

    fn close(self, pair: &Pair) {
        self.set(pair.network(), None);
    }

    /// Whether an end sends on a channel into the hole.
    fn is_of(self, end: &str, channel: usize) -> bool {
        let direction = if end == "client" { LinkDirection::Forward } else { LinkDirection::Back };
        self.links.contains(&["a", "b"][channel]) && self.directions.contains(&direction)
    }

    /// The MTU of a channel from an end.
    fn mtu_of(self, end: &str, channel: usize) -> usize {
        if self.is_of(end, channel) { self.mtu } else { 1500 }
    }

    /// Waits until both ends know the MTUs, and checks what they say.
    fn is_known(self, pair: &Pair, was_larger: bool) {
        for end in ["client", "server"] {
            until("the MTUs are known", || {
                let channels = pair.status(end).channels;
                (0..2).all(|channel| {
                    channels[channel].mtu.map(usize::from) == Some(self.mtu_of(end, channel))
                })
            });
            let status = pair.status(end);
            let smallest = (0..2).map(|channel| self.mtu_of(end, channel)).min().unwrap();
            assert_eq!(status.mtu, smallest - OVERHEAD, "the device's MTU");
            for (channel, status) in status.channels.iter().enumerate() {
                let is_hole = was_larger && self.is_of(end, channel);
                assert_eq!(status.former_mtu, is_hole.then_some(1500));
                assert_eq!(status.black_hole_s.is_some(), is_hole);
                let line = format!(
                    "channel {}: packets of 1500 bytes no longer arrive, but shorter ones do: \
                     searching for the path's MTU, using 1280 meanwhile",
                    channel + 1
                );
                assert_eq!(pair.log(end).contains(&line), is_hole, "{}", pair.log(end));
                let number = channel + 1;
                let in_doctor = format!("channel {number}: packets of 1500 bytes");
                let in_status = format!("channel {number} loses packets of 1500 bytes");
                for (arguments, named) in [
                    (&["doctor", "--config", "tunnel.toml"][..], in_doctor),
                    (&["status"], in_status),
                ] {
                    let shown = pair.ask(end, arguments);
                    assert_eq!(shown.contains(&named), is_hole, "{shown}");
                }
                let metrics = pair.ask(end, &["status", "--metrics"]);
                let value = |name: &str| {
                    let label = format!("channel=\"{number}\"");
                    let is_it = |line: &&str| line.starts_with(name) && line.contains(&label);
                    let line = metrics.lines().find(is_it).unwrap();
                    line.rsplit_once(' ').unwrap().1
                };
                let mtu = self.mtu_of(end, channel).to_string();
                assert_eq!(value("sunder_tunnel_channel_mtu_bytes"), mtu);
                assert_eq!(value("sunder_tunnel_channel_black_hole_seconds") != "0", is_hole);
            }
        }
    }
}

/// A tunnel over two channels of 20 Mbit/s.
fn start(settings: &str, hole: Option<Hole>) -> Pair {
    let network = network(THREE_LINKS);
    if let Some(hole) = hole {
        hole.set(&network, Some(hole.mtu));
    }
    let channels: Vec<Channel> = over(&network, &["a", "b"])
        .into_iter()
        .map(|channel| Channel { rate_mbit: Some(20), ..channel })
        .collect();
    let pair = Pair::start(network, settings, &channels);
    for end in ["client", "server"] {
        until("the ends are associated", || pair.status(end).associated);
    }
    pair
}

/// The same over IPv6, with IPv6 inside.
fn start_with_ipv6(hole: Hole) -> Pair {
    let with = |host: &str, text: &str| text.replace(host, &format!("{host}\nipv6 = true"));
    let network = network(&with("[hosts.client]", &with("[hosts.server]", THREE_LINKS)));
    hole.set(&network, Some(hole.mtu));
    let channel = |link: &str| {
        let address = format!("[fd00::{}]:{PORT}", network.address("server", link).unwrap());
        let server = address.parse().unwrap();
        Channel { rate_mbit: Some(20), ..Channel::new(server, server) }
    };
    let channels = ["a", "b"].map(channel);
    let pair = Pair::start(network, "kappa = 2\nmu = 2", &channels);
    until("the ends are associated", || pair.status("client").associated);
    pair
}

/// A stream of each length in each direction.
fn streams(pair: &Pair) -> Vec<(String, Stream)> {
    let (client, server) = (pair.host("client"), pair.host("server"));
    let of_length = |length| {
        [
            (
                format!("to the server, {length}"),
                Stream::start(client, server, SERVER, few(length)),
            ),
            (
                format!("to the client, {length}"),
                Stream::start(server, client, CLIENT, few(length)),
            ),
        ]
    };
    LENGTHS.into_iter().flat_map(of_length).collect()
}

/// Fails if a stream loses datagrams from now on, for a time.
fn lose_nothing(streams: &[(String, Stream)], time: Duration) -> Result<(), String> {
    let begins: Vec<Duration> = streams.iter().map(|(_, stream)| stream.now()).collect();
    thread::sleep(time);
    for ((name, stream), begin) in streams.iter().zip(begins) {
        let (sent, lost) = stream.lost(begin, begin + time);
        if lost > 0 {
            return Err(format!("{name}: of {sent} {lost} lost"));
        }
    }
    Ok(())
}

/// Datagrams of all lengths pass again.
fn udp_recovers(settings: &str, hole: Hole) {
    in_one_of_three(|| {
        let pair = start(settings, None);
        let streams = streams(&pair);
        thread::sleep(Duration::from_secs(1));
        lose_nothing(&streams, Duration::from_secs(1))?;
        hole.open(&pair);
        thread::sleep(RECOVERY_TIME);
        lose_nothing(&streams, Duration::from_secs(2))?;
        hole.is_known(&pair, true);
        Ok(())
    });
}

pub(crate) fn udp_recovers_when_an_mtu_shrinks() {
    udp_recovers("kappa = 2\nmu = 2", ON_ONE);
    udp_recovers("kappa = 1\nmu = 2", ON_ALL);
}

/// A TCP connection gets nine tenths of its rate again, in a direction.
fn tcp_recovers(settings: &str, hole: Hole, from: &str, grows: bool) {
    let (to, address) = if from == "client" { ("server", SERVER) } else { ("client", CLIENT) };
    in_one_of_three(|| {
        let pair = start(settings, None);
        let transfer = Transfer::start(pair.host(from), pair.host(to), address);
        thread::sleep(Duration::from_secs(2));
        let before = transfer.rate_for(Duration::from_secs(3));
        hole.open(&pair);
        let opened = Instant::now();
        let mut rates = Vec::new();
        while rates.last().is_none_or(|rate| *rate < 0.9 * before) {
            if opened.elapsed() > RECOVERY_TIME {
                return Err(format!("{before} Mbit/s before, then {rates:.1?} in half seconds"));
            }
            rates.push(transfer.rate_for(Duration::from_millis(500)));
        }
        println!("{settings:?}, {hole:?}, from the {from}: {before:.1} Mbit/s, then {rates:.1?}");
        if !grows {
            return Ok(());
        }
        hole.close(&pair);
        thread::sleep(RAISE_TIME);
        let channels = pair.status(from).channels;
        if channels.iter().any(|channel| channel.mtu != Some(1500)) {
            return Err(format!("not found again: {channels:?}"));
        }
        assert!(channels.iter().all(|channel| channel.black_hole_s.is_none()));
        assert_eq!(pair.status(from).mtu, 1500 - OVERHEAD);
        let again = transfer.rate_for(Duration::from_secs(3));
        println!("and when it is whole again {again:.1} Mbit/s");
        if again < 0.9 * before {
            return Err(format!("{before} Mbit/s before, {again} at the end"));
        }
        Ok(())
    });
}

pub(crate) fn tcp_recovers_when_an_mtu_shrinks() {
    tcp_recovers("kappa = 2\nmu = 2", ON_ONE, "client", false);
    tcp_recovers("kappa = 1\nmu = 2", ON_ALL, "server", false);
}

pub(crate) fn an_mtu_that_grows_again_is_used() {
    tcp_recovers("kappa = 2\nmu = 2", Hole { mtu: 1400, ..ON_ALL }, "client", true);
}

/// A tunnel whose device has IPv6, which needs packets of 1280 bytes inside, keeps it.
pub(crate) fn ipv6_passes_a_path_of_1280_bytes() {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        eprintln!("skipped: this kernel has no IPv6");
        return;
    }
    in_one_of_three(|| {
        let pair =
            start_with_ipv6(Hole { mtu: 1280, links: &["a"], directions: &LinkDirection::BOTH });
        let (client, server) = (pair.host("client"), pair.host("server"));
        // Of 1280 bytes inside, and fragments of as many.
        let streams = [1232, 1400].map(|length| {
            let stream = Stream::start(client, server, "fd09::1", few(length));
            (format!("{length}"), stream)
        });
        lose_nothing(&streams, SEARCH_TIME)?;
        let status = pair.status("client");
        assert_eq!((status.mtu, status.channels[0].mtu), (1280, Some(1280)));
        lose_nothing(&streams, Duration::from_secs(1))
    });
}

/// Every threshold, MTU, number of channels and direction.
pub(crate) fn every_black_hole_is_left() {
    for settings in ["kappa = 2\nmu = 2", "kappa = 1\nmu = 2"] {
        for mtu in [1400, 1372, 1280] {
            for links in [&["a"][..], &["a", "b"]] {
                for directions in
                    [&LinkDirection::BOTH[..], &[LinkDirection::Forward], &[LinkDirection::Back]]
                {
                    let hole = Hole { mtu, links, directions };
                    udp_recovers(settings, hole);
                    let grows = directions.len() == 2 && settings.contains("kappa = 2");
                    tcp_recovers(settings, hole, "client", grows);
                    tcp_recovers(settings, hole, "server", false);
                }
            }
        }
    }
}

pub(crate) fn a_tunnel_over_short_paths_loses_nothing() {
    // Also if the device's MTU is set, and packets of one flow share datagrams.
    for (settings, hole) in [("", ON_ONE), ("\nmtu = 1323", ON_ONE), ("", ON_ALL)] {
        in_one_of_three(|| {
            let pair = start(&format!("kappa = 2\nmu = 2{settings}"), Some(hole));
            let streams = streams(&pair);
            lose_nothing(&streams, SEARCH_TIME)?;
            hole.is_known(&pair, false);
            lose_nothing(&streams, Duration::from_secs(1))
        });
    }
}

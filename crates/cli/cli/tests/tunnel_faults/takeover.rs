//! An attacker who reads one channel, or learns all tokens and sequence numbers so far, tries to
//! redirect the datagrams of another channel to themselves.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use lab::EmulatedHost;

use crate::flood::Capture;
use crate::pair::{
    CLIENT, Channel, PORT, Pair, SERVER, THREE_LINKS, few_lost, in_one_of_three, network, over,
    until,
};
use crate::relay::Relay;
use crate::stream::{Stream, StreamRate};

/// A third host with a link to both ends, and another one to the server.
const ATTACKER: &str = r#"
[hosts.attacker]
[links.d]
hosts = ["client", "attacker"]
[links.e]
hosts = ["attacker", "server"]
[links.f]
hosts = ["attacker", "server"]
"#;

/// The ports of the server's channels.
const PORTS: [u16; 3] = [6521, 6522, 6523];

/// The settings of both ends, without and with roaming.
const SETTINGS: &str = "kappa = 2\nmu = 3";
const ROAMING: &str = "kappa = 2\nmu = 3\nroaming = true";

/// A datagram's kind.
const CONTROL: u8 = 2;
const CHALLENGE: u8 = 5;

/// The maximum distance of the next control symbol's sequence number.
const AHEAD: u32 = 64;

/// The minimum number of datagrams that it sends.
const MANY: usize = 5000;

/// The positions of the sequence number and of the token in a header.
const NUMBER: std::ops::Range<usize> = 1..4;
const TOKEN: std::ops::Range<usize> = 4..12;
const HEADER: usize = 12;

/// A tunnel whose server is reachable at the address of every link, with a port for each channel.
fn start(roaming: bool) -> Pair {
    let network = network(&format!("{THREE_LINKS}{ATTACKER}"));
    let channel = |(channel, port): (Channel, u16)| {
        let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        Channel::new(listen, SocketAddr::new(channel.server.ip(), port))
    };
    let channels: Vec<Channel> =
        over(&network, &["a", "b", "c"]).into_iter().zip(PORTS).map(channel).collect();
    Pair::start_unlike(network, [SETTINGS, if roaming { ROAMING } else { SETTINGS }], &channels)
}

/// Datagrams of an attacker who learns the tokens and sequence numbers of the second channel, and
/// reads the first: shares of control symbols up to `ahead` numbers ahead, with an earlier token.
fn next(first: &[Vec<u8>], second: &[Vec<u8>], ahead: u32) -> Vec<Vec<u8>> {
    let (Some(newest), Some(last)) = (first.last(), second.last()) else { return Vec::new() };
    let [a, b, c]: [u8; 3] = newest[NUMBER].try_into().unwrap();
    let newest = u32::from_be_bytes([0, a, b, c]);
    let next = |ahead: u32| {
        let mut next = vec![CONTROL << 4 | 1; HEADER + 1];
        next[NUMBER].copy_from_slice(&(newest + ahead).to_be_bytes()[1..]);
        next[TOKEN].copy_from_slice(&last[TOKEN]);
        next
    };
    (1..=ahead).map(next).collect()
}

/// Replays, unchanged and with other shares.
fn again(second: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let changed = |datagram: &Vec<u8>| {
        let mut changed = datagram.clone();
        changed[HEADER] ^= 1;
        changed
    };
    second.iter().flat_map(|datagram| [changed(datagram), datagram.clone()]).collect()
}

/// The kinds of the datagrams that arrived at a socket.
fn kinds(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 2048];
    let came = std::iter::from_fn(|| socket.recv(&mut bytes).ok().map(|_| bytes[0] >> 4));
    came.collect()
}

fn socket(host: &EmulatedHost) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Attacks the second channel at one of its ends: from the attacker's own address and, at the
/// server, from another port of the client.
struct Attacker<'a> {
    pair: &'a Pair,
    capture: Capture,
    sockets: Vec<(UdpSocket, Ipv4Addr)>,
    /// The source address and the destination port of the second channel's datagrams.
    second: Option<(SocketAddr, u16)>,
    /// Shares of the first and of the second channel since the last check.
    seen: [Vec<Vec<u8>>; 2],
    sent: usize,
    /// The kinds of the datagrams that it received.
    stolen: Vec<u8>,
}

impl<'a> Attacker<'a> {
    fn new(pair: &'a Pair, end: &str) -> Self {
        let address = |link: &str| pair.network().address(end, link).unwrap();
        let sockets = if end == "server" {
            vec![
                (socket(pair.host("attacker")), address("e")),
                (socket(pair.host("client")), address("b")),
            ]
        } else {
            vec![(socket(pair.host("attacker")), address("d"))]
        };
        let capture = Capture::start(pair.host(end)).unwrap();
        let (second, seen, stolen) = (None, [vec![], vec![]], Vec::new());
        Self { pair, capture, sockets, second, seen, sent: 0, stolen }
    }

    /// Reads what has arrived at the end.
    fn look(&mut self) {
        let came = self.capture.take_all();
        // The client may use any port.
        let is_of =
            |place: usize, from: &SocketAddr, to: u16| [from.port(), to].contains(&PORTS[place]);
        let second = came.iter().find(|(from, to, _)| is_of(1, from, *to));
        self.second = self.second.or(second.map(|(from, to, _)| (*from, *to)));
        for (place, seen) in self.seen.iter_mut().enumerate() {
            let own = came.iter().filter(|(from, to, datagram)| {
                let is_share = datagram.len() > HEADER && datagram[0] >> 4 <= CONTROL;
                let is_peers = place == 0 || self.second.is_some_and(|(peer, _)| peer == *from);
                is_share && is_peers && is_of(place, from, *to)
            });
            let mut own: Vec<Vec<u8>> = own.map(|(.., datagram)| datagram.clone()).collect();
            if own.is_empty() {
                own.extend(seen.pop());
            }
            *seen = own;
        }
    }

    /// Sends datagrams to the second channel, and reads the answers.
    fn send(&mut self, datagrams: &[Vec<u8>]) {
        let Some((_, port)) = self.second else { return };
        for (socket, address) in &self.sockets {
            for datagram in datagrams {
                self.sent += usize::from(socket.send_to(datagram, (*address, port)).is_ok());
            }
            self.stolen.extend(kinds(socket));
        }
    }

    /// Attacks, and returns the kinds of the datagrams that it received. An error if packets of the
    /// tunnel are lost meanwhile.
    fn attack(mut self) -> Result<Vec<u8>, String> {
        let (client, server) = (self.pair.host("client"), self.pair.host("server"));
        // While no packets cross, the next control symbol's sequence number is known.
        let mut forged = HashSet::new();
        until("control symbols have come", || {
            self.look();
            let next = next(&self.seen[0], &self.seen[1], 1);
            if self.seen[0].len() == 1
                && next.iter().all(|datagram| forged.insert(datagram.clone()))
            {
                self.send(&next);
            }
            self.send(&[]);
            forged.len() > 30
        });
        let there = Stream::start(client, server, SERVER, StreamRate::LIGHT);
        let back = Stream::start(server, client, CLIENT, StreamRate::LIGHT);
        until("it has sent much", || {
            self.look();
            self.send(&again(&self.seen[1]));
            self.send(&next(&self.seen[0], &self.seen[1], AHEAD));
            self.sent > MANY
        });
        for stream in [there, back] {
            stream.wait_for(300);
            let (sent, lost) = stream.lost(Duration::ZERO, stream.now());
            assert_eq!(stream.wrong(), 0);
            few_lost(sent, lost, 20)?;
        }
        self.send(&[]);
        Ok(self.stolen)
    }
}

/// Checks that no address and no state of a channel has changed.
fn nothing_has_changed(pair: &Pair, end: &str, before: &remicss::status::TunnelStatus) {
    for channel in 0..before.channels.len() {
        pair.wait_for_states(end, channel, ["up", "up"]);
    }
    let status = pair.status(end);
    for (channel, before) in status.channels.iter().zip(&before.channels) {
        assert_eq!((&channel.peer, channel.wrong), (&before.peer, 0));
    }
    assert_eq!(status.dropped.tampered, 0);
}

pub(crate) fn tokens_and_sequence_numbers_do_not_redirect_a_channel() {
    for roaming in [false, true] {
        in_one_of_three(|| learnt_tokens_do_not_redirect(roaming));
    }
}

fn learnt_tokens_do_not_redirect(roaming: bool) -> Result<(), String> {
    let pair = start(roaming);
    for end in ["server", "client"] {
        pair.wait_for_states(end, 1, ["up", "up"]);
        let before = pair.status(end);
        let stolen = Attacker::new(&pair, end).attack()?;
        assert_eq!(stolen, [0_u8; 0], "sent to the attacker; at the {end}, roaming: {roaming}");
        nothing_has_changed(&pair, end, &before);
        let channel = &pair.status(end).channels[1];
        let (source, token) = (channel.wrong_source, channel.wrong_token);
        // The client's other port may have been assigned by its address translator.
        match (end, roaming) {
            ("client", _) => assert!(source > 1000 && token == 0, "{source}, {token}"),
            (_, false) => assert!(source > 1000 && token > 100, "{source}, {token}"),
            (_, true) => assert!(source == 0 && token > 1000, "{source}, {token}"),
        }
    }
    Ok(())
}

/// A tunnel whose third channel passes the attacker's host.
fn start_over_attacker(roaming: bool) -> (Pair, Relay, SocketAddr) {
    let network = network(&format!("{THREE_LINKS}{ATTACKER}"));
    let address =
        |host: &str, link: &str| SocketAddr::new(network.address(host, link).unwrap().into(), PORT);
    let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT + 1);
    let at = |link: &str| SocketAddr::new(address("server", link).ip(), PORT + 1);
    let channel = Channel::new(listen, address("attacker", "d"));
    let relay = Relay::start(network.host("attacker").unwrap(), channel.server, at("e"));
    let other = at("f");
    let channels = [over(&network, &["a", "b"]), vec![channel]].concat();
    let settings = [SETTINGS, if roaming { ROAMING } else { SETTINGS }];
    (Pair::start_unlike(network, settings, &channels), relay, other)
}

/// The attacker reads the third channel, and makes copies of all its datagrams arrive first from
/// its own address. It forwards challenges and their answers, and does not block the channel.
pub(crate) fn faster_copies_do_not_redirect_a_channel() {
    for (roaming, is_far) in [(false, false), (false, true), (true, false), (true, true)] {
        in_one_of_three(|| faster_copies_do_not_redirect(roaming, is_far));
    }
}

fn faster_copies_do_not_redirect(roaming: bool, is_far: bool) -> Result<(), String> {
    let (pair, relay, other) = start_over_attacker(roaming);
    let (client, server) = (pair.host("client"), pair.host("server"));
    let there = Stream::start(client, server, SERVER, StreamRate::LIGHT);
    let back = Stream::start(server, client, CLIENT, StreamRate::LIGHT);
    there.wait_for(300);
    back.wait_for(300);
    let before = ["client", "server"].map(|end| pair.status(end));
    let (begins, near) = ([there.now(), back.now()], before[1].channels[2].peer.clone().unwrap());
    let near: SocketAddr = near.parse().unwrap();
    let link = if is_far { "f" } else { "e" };
    let own = pair.network().address("attacker", link).unwrap();
    let to = if is_far { other } else { SocketAddr::new(server_of(&pair, "e"), PORT + 1) };
    assert_eq!(is_far, near.ip() != own);
    relay.copy_from(pair.host("attacker"), SocketAddr::new(own.into(), 0), to);
    let is_looked_at = roaming || !is_far;
    if is_looked_at {
        pair.wait_for_line(
            "server",
            "WARN",
            "somebody reads this channel and resends captured datagrams",
        );
        until("it is challenged", || !relay.received_copies().is_empty());
    } else {
        until("it is counted", || pair.status("server").channels[2].wrong_source > 1000);
    }
    until("at the client, too", || pair.status("client").channels[2].wrong_source > 1000);
    there.wait_for(300);
    let stolen = relay.received_copies();
    let is_challenge = |first: &u8| first >> 4 == CHALLENGE;
    assert!(stolen.iter().all(is_challenge), "sent to the attacker: {stolen:x?}");
    assert_eq!(stolen.is_empty(), !is_looked_at);
    for (stream, begin) in [there, back].iter().zip(begins) {
        let (sent, lost) = stream.lost(begin, stream.now());
        assert_eq!(stream.wrong(), 0);
        few_lost(sent, lost, 20)?;
    }
    nothing_has_changed(&pair, "client", &before[0]);
    nothing_has_changed(&pair, "server", &before[1]);
    Ok(())
}

fn server_of(pair: &Pair, link: &str) -> std::net::IpAddr {
    pair.network().address("server", link).unwrap().into()
}

/// If the client's address has changed, the server accepts it only with roaming.
pub(crate) fn only_a_roaming_client_may_change_its_address() {
    for roaming in [true, false] {
        in_one_of_three(|| an_address_changes(roaming));
    }
}

fn an_address_changes(roaming: bool) -> Result<(), String> {
    let (pair, relay, other) = start_over_attacker(roaming);
    let back = Stream::start(pair.host("server"), pair.host("client"), CLIENT, StreamRate::LIGHT);
    back.wait_for(300);
    let begin = back.now();
    relay.change_address(pair.host("attacker"), other);
    if roaming {
        pair.wait_for_line("server", "INFO", " now");
        in_one_of_three(|| {
            let states = ["up", "up"].map(Some);
            let channel = &pair.status("server").channels[2];
            let is_up = [&channel.state_out, &channel.state_in].map(Option::as_deref) == states;
            back.wait_for(300);
            if is_up { Ok(()) } else { Err(format!("{channel:?}")) }
        });
    } else {
        pair.wait_for_states("server", 2, ["down", "down"]);
        assert!(pair.status("server").channels[2].wrong_source > 0);
        pair.wait_for_line("server", "WARN", "address has changed (see `roaming`)");
    }
    let own = pair.network().address("attacker", "f").unwrap();
    let peer = pair.status("server").channels[2].peer.clone().unwrap();
    assert_eq!(peer.starts_with(&format!("{own}:")), roaming, "{peer}");
    back.wait_for(300);
    let (sent, lost) = back.lost(begin, back.now());
    few_lost(sent, lost, 10)
}

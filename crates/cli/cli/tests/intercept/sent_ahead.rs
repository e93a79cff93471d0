//! An attacker sends packets before a connection from its future destination. The kernel then takes
//! the connection's packets for answers, and does not redirect them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::captures::opened;
use crate::topology::Topology;

/// The destination port of the connections.
const TO: u16 = 80;

/// The flags of the earlier packets, which belong to an open and to a new connection, and the
/// source port of the later connection.
const AHEAD: [(u8, u16); 2] = [(ACK, 40_000), (SYN, 40_001)];

const SYN: u8 = 2;
const ACK: u8 = 16;

pub(crate) fn packets_sent_ahead_prevent_no_interception() {
    let topology = Topology::new();
    let (by_v4, by_v6) = (topology.v4("client", "lan"), topology.v6("client", "lan"));
    topology.ask("user", "ip", &["route", "add", "default", "via", &by_v4.to_string()]);
    topology.ask("user", "ip", &["-6", "route", "add", "default", "via", &by_v6.to_string()]);
    let lan = format!("{}/24", Ipv4Addr::from_bits(by_v4.to_bits() & !0xFF));
    topology.ask(
        "server",
        "ip",
        &["route", "add", &lan, "via", &topology.v4("client", "a").to_string()],
    );
    let lan = format!("{}/120", Ipv6Addr::from_bits(by_v6.to_bits() & !0xFF));
    let router = topology.v6("client", "a").to_string();
    topology.ask("server", "ip", &["-6", "route", "add", &lan, "via", &router]);
    let _server = topology.serve("[]");
    let _proxy = topology.proxy("intercept = \"tcp dport 80\"\nintercept_from = [\"lan\"]");
    // Neither host resets the unknown connection, so the kernel keeps its state.
    let silent = "table inet silent {\n\
                  chain out { type filter hook output priority -300; tcp flags & rst == rst drop; }\n\
                  }\n";
    let silent = topology.write("silent", silent);
    for host in ["client", "user"] {
        topology.ask(host, "nft", &["-f", silent.to_str().unwrap()]);
    }
    let server: [IpAddr; 2] =
        [topology.v4("server", "a").into(), topology.v6("server", "a").into()];
    for (host, link) in [("client", "a"), ("user", "lan")] {
        let victim: [IpAddr; 2] = [topology.v4(host, link).into(), topology.v6(host, link).into()];
        for (server, victim) in server.into_iter().zip(victim) {
            for (flags, port) in AHEAD {
                let (from, to) = ((server, TO).into(), (victim, port).into());
                topology.host("server").run(|| send(flags, from, to)).unwrap();
                // The capture takes some milliseconds.
                thread::sleep(Duration::from_millis(50));
                let connected = topology.host(host).run(|| {
                    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
                    socket.bind(&to.into())?;
                    socket.connect_timeout(&from.into(), Duration::from_millis(500))
                });
                // It may be refused, or carried and then reset, because no service is allowed.
                let _ = connected.unwrap();
            }
        }
    }
    let opened = opened(&topology.captures(), TO);
    assert!(opened.is_empty(), "opened in the clear: {opened:?}");
}

/// Sends a TCP packet of a connection that does not exist.
fn send(flags: u8, from: SocketAddr, to: SocketAddr) {
    let mut packet = Vec::new();
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend([0, 0, 0, 1, 0, 0, 0, 1]);
    // A header of five words, a window; no checksum yet, no urgent data.
    packet.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
    let mut summed = address_bytes(from.ip());
    summed.extend(address_bytes(to.ip()));
    summed.extend([0, 6, 0, 20]);
    summed.extend(&packet);
    let words = summed.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap();
    packet[16..18].copy_from_slice(&checksum.to_be_bytes());
    let socket = Socket::new(Domain::for_address(to), Type::RAW, Some(Protocol::TCP)).unwrap();
    socket.bind(&SocketAddr::new(from.ip(), 0).into()).unwrap();
    socket.send_to(&packet, &SocketAddr::new(to.ip(), 0).into()).unwrap();
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

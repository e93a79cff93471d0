//! Resets connections that are older than the rules, even while they are silent.
//!
//! The rules see a connection when it sends a packet. So each of this host's connections, and each
//! that it forwards and tracks, is challenged. A SYN with the server's source address makes the
//! application's end send an ACK (RFC 5961, 4.2). If the rules match, they refuse it, which resets
//! that end. Then a SYN to the server makes the server send an ACK, which the application's host
//! answers with a reset, because the connection no longer exists (RFC 9293, 3.5.1). Connections
//! that do not match are not affected: an ACK with the sequence numbers that both ends have already
//! changes nothing.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};
use tracing::debug;

use super::rules::CHALLENGE_MARK;

/// The delays of the checks which connections are closed, the first after the challenges and each
/// other after the one before. An application's end on this host is reset at once, unless its
/// socket is in use at the time.
const CHECKS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(100), Duration::from_millis(450)];

/// How often connections are challenged. An end answers once in half a second (Linux). The answer
/// of an end on another host is lost if it arrives before the challenge's socket is closed.
const ROUNDS: usize = 2;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TcpEndpoints {
    /// The end on this host, or on a host whose packets it forwards.
    application: SocketAddr,
    server: SocketAddr,
}

/// Connections to other hosts that existed before the rules.
pub(super) struct PreexistingConnections {
    /// The connections of this host.
    own: HashSet<TcpEndpoints>,
    /// Those that this host forwards and the kernel tracks; `None` if they are not intercepted.
    forwarded: Option<HashSet<TcpEndpoints>>,
}

impl PreexistingConnections {
    /// Lists the open connections. `serves_others` includes those of other hosts.
    pub(super) fn list(serves_others: bool) -> Self {
        let read = |path, parse: fn(&str) -> Option<TcpEndpoints>| -> Vec<TcpEndpoints> {
            // A table may be missing, for example the connection tracking table.
            let table = fs::read_to_string(path).unwrap_or_default();
            table.lines().filter_map(parse).filter(TcpEndpoints::can_be_challenged).collect()
        };
        let own = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| read(path, own_connection));
        let own: HashSet<TcpEndpoints> = own.into_iter().flatten().collect();
        let forwarded = serves_others.then(|| {
            let tracked = read("/proc/net/nf_conntrack", tracked_connection).into_iter();
            tracked.filter(|ends| !own.contains(ends) && !own.contains(&ends.reversed())).collect()
        });
        Self { own, forwarded }
    }

    /// Challenges them in a separate thread. The rules must be in force.
    pub(super) fn challenge(self) {
        let challenger = thread::Builder::new().name("challenge".into()).spawn(move || {
            let Self { mut own, forwarded } = self;
            let serves_others = forwarded.is_some();
            let mut forwarded = forwarded.unwrap_or_default();
            for _ in 0..ROUNDS {
                for TcpEndpoints { application, server } in own.iter().chain(&forwarded) {
                    send_syn(*server, *application);
                }
                for pause in CHECKS {
                    thread::sleep(pause);
                    let left = Self::list(serves_others);
                    let left = (left.own, left.forwarded.unwrap_or_default());
                    let gone = own.difference(&left.0).chain(forwarded.difference(&left.1));
                    for TcpEndpoints { application, server } in gone {
                        send_syn(*application, *server);
                    }
                    own.retain(|ends| left.0.contains(ends));
                    forwarded.retain(|ends| left.1.contains(ends));
                }
            }
        });
        if let Err(error) = challenger {
            debug!(%error, "older connections are reset when they send a packet");
        }
    }
}

/// Sends a SYN that opens no connection. It is not sent if a program listens at `from`, or the
/// kernel refuses it for another reason. Then the connection is reset when it sends a packet.
fn send_syn(from: SocketAddr, to: SocketAddr) {
    let sent = || -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None)?;
        match to {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
        }
        socket.set_reuse_address(true)?;
        socket.set_mark(CHALLENGE_MARK)?;
        socket.bind(&from.into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(()),
            connected => connected,
        }
    };
    if let Err(error) = sent() {
        debug!(%error, %from, %to, "a connection is not challenged");
    }
}

impl TcpEndpoints {
    fn reversed(&self) -> Self {
        Self { application: self.server, server: self.application }
    }

    /// False for link-local addresses, which need an interface that is not known here.
    fn can_be_challenged(&self) -> bool {
        let is_link_local =
            |ip| matches!(ip, IpAddr::V6(address) if Ipv6Addr::is_unicast_link_local(&address));
        let (application, server) = (self.application.ip(), self.server.ip());
        !server.is_loopback() && server != application && !is_link_local(server)
    }
}

/// The connection of a line of the table of sockets, if it is established or half-closed.
fn own_connection(line: &str) -> Option<TcpEndpoints> {
    let mut words = line.split_whitespace().skip(1);
    let (own, peer, state) = (words.next()?, words.next()?, words.next()?);
    let is_open = ["01", "04", "05", "08"].contains(&state);
    let ends = TcpEndpoints { application: address(own)?, server: address(peer)? };
    is_open.then_some(ends)
}

/// The connection of a line of the connection tracking table, under the same condition. `None` if
/// its addresses are translated: then its ends have different addresses.
fn tracked_connection(line: &str) -> Option<TcpEndpoints> {
    const OPEN: [&str; 4] = ["ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK"];
    line.split_whitespace().find(|word| OPEN.contains(word))?;
    // Each value occurs twice: in the direction of the first packet, and in the other.
    let values = |key: &str| {
        let mut values = line.split_whitespace().filter_map(move |word| word.strip_prefix(key));
        Some((values.next()?, values.next()?))
    };
    let ends = |source: &str, source_port: &str, target: &str, target_port: &str| {
        let end = |ip: &str, port: &str| {
            Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port.parse().ok()?))
        };
        Some(TcpEndpoints {
            application: end(source, source_port)?,
            server: end(target, target_port)?,
        })
    };
    let (source, target) = (values("src=")?, values("dst=")?);
    let (source_port, target_port) = (values("sport=")?, values("dport=")?);
    let first = ends(source.0, source_port.0, target.0, target_port.0)?;
    let other = ends(source.1, source_port.1, target.1, target_port.1)?;
    (first == other.reversed()).then_some(first)
}

/// An address as `/proc/net/tcp` shows it: words of 32 bits in native byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(application: &str, server: &str) -> TcpEndpoints {
        TcpEndpoints { application: application.parse().unwrap(), server: server.parse().unwrap() }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn connections_are_read_from_the_table_of_sockets() {
        let line = |own: &str, peer: &str, state: &str| {
            own_connection(&format!("   0: {own} {peer} {state} 00000000:00000000 00:00000000 0 0"))
        };
        let expected = Some(ends("192.0.2.1:40000", "198.51.100.2:443"));
        assert_eq!(line("010200C0:9C40", "026433C6:01BB", "01"), expected);
        let mapped =
            ("0000000000000000FFFF0000010200C0:9C40", "0000000000000000FFFF0000026433C6:01BB");
        assert_eq!(line(mapped.0, mapped.1, "08"), expected);
        let v6 = ("B80D0120000000000000000001000000:9C40", "B80D0120000000000000000002000000:0050");
        let expected = Some(ends("[2001:db8::1]:40000", "[2001:db8::2]:80"));
        assert_eq!(line(v6.0, v6.1, "01"), expected);
        for (own, peer, state) in [
            ("010200C0:9C40", "026433C6:01BB", "0A"),
            ("010200C0:9C40", "026433C6:01BB", "06"),
            ("010200C0", "026433C6:01BB", "01"),
            ("", "", ""),
        ] {
            assert_eq!(line(own, peer, state), None, "{own} {peer} {state}");
        }
    }

    #[test]
    fn connections_are_read_from_the_table_of_tracked_ones() {
        let line = "ipv4     2 tcp      6 431978 ESTABLISHED src=192.0.2.1 dst=198.51.100.2 \
                    sport=40000 dport=443 src=198.51.100.2 dst=192.0.2.1 sport=443 dport=40000 \
                    [ASSURED] mark=0 zone=0 use=2";
        let expected = Some(ends("192.0.2.1:40000", "198.51.100.2:443"));
        assert_eq!(tracked_connection(line), expected);
        for (from, to) in [
            ("ESTABLISHED", "CLOSE"),
            // Its source is translated.
            ("dst=192.0.2.1", "dst=203.0.113.7"),
            ("src=192.0.2.1", "src=x"),
            ("dport=40000", ""),
        ] {
            assert_eq!(tracked_connection(&line.replace(from, to)), None, "{from} {to}");
        }
        assert_eq!(tracked_connection(""), None);
    }

    #[test]
    fn only_connections_to_other_hosts_are_challenged() {
        for (application, server, expected) in [
            ("192.0.2.1:40000", "198.51.100.2:443", true),
            ("127.0.0.1:40000", "127.0.0.1:443", false),
            ("192.0.2.1:40000", "192.0.2.1:443", false),
            ("[2001:db8::1]:40000", "[fe80::2]:80", false),
        ] {
            let ends = ends(application, server);
            assert_eq!(ends.can_be_challenged(), expected, "{ends:?}");
        }
    }
}

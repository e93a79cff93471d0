//! Resets connections that are older than the rules, even while they are silent.
//!
//! The rules see a connection when it sends a packet. So each of this host's connections is
//! challenged: a SYN that seems to come from its other end makes the kernel send an ACK (RFC 5961,
//! 4.2), which the rules refuse if they match, and so reset the application's end. Then a SYN to
//! the other end makes that one send an ACK, which this host's kernel answers with a reset, because
//! the connection is gone (RFC 9293, 3.5.1). Connections that do not match are not affected: an ACK
//! with the numbers that both ends have already changes nothing.

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

/// How long after the challenges it is checked twice which connections are gone. An application's
/// end is reset at once, unless its socket is in use at the time.
const CHECKS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// The two ends of a connection of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ends {
    own: SocketAddr,
    peer: SocketAddr,
}

/// This host's connections to others, from before the rules.
pub(super) struct OlderConnections(HashSet<Ends>);

impl OlderConnections {
    /// Those that are open.
    pub(super) fn list() -> Self {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
        Self(tables.iter().flatten().flat_map(|text| text.lines().filter_map(connection)).collect())
    }

    /// Challenges them, in a thread of its own. The rules are in force.
    pub(super) fn challenge(mut self) {
        let challenger = thread::Builder::new().name("challenge".into()).spawn(move || {
            for Ends { own, peer } in &self.0 {
                send_syn(*peer, *own);
            }
            for pause in CHECKS {
                thread::sleep(pause);
                let Self(left) = Self::list();
                for Ends { own, peer } in self.0.difference(&left) {
                    send_syn(*own, *peer);
                }
                self.0.retain(|ends| left.contains(ends));
            }
        });
        if let Err(error) = challenger {
            debug!(%error, "older connections are reset when they send a packet");
        }
    }
}

/// Sends a SYN, which opens no connection. It is not sent if a program listens at `from`, or the
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

/// The connection of a line of the table of sockets, if it is established or half-closed.
fn connection(line: &str) -> Option<Ends> {
    let mut words = line.split_whitespace().skip(1);
    let (own, peer, state) = (words.next()?, words.next()?, words.next()?);
    let is_open = ["01", "04", "05", "08"].contains(&state);
    let ends = Ends { own: address(own)?, peer: address(peer)? };
    let is_local = ends.peer.ip().is_loopback() || ends.peer.ip() == ends.own.ip();
    (is_open && !is_local && !is_link_local(ends.peer.ip())).then_some(ends)
}

/// An address without its interface leads nowhere.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// An address as `/proc/net/tcp` shows it: words of 32 bits in the order of this machine's memory.
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

    #[test]
    #[cfg(target_endian = "little")]
    fn connections_are_read_from_the_kernels_table() {
        let line = |own: &str, peer: &str, state: &str| {
            connection(&format!("   0: {own} {peer} {state} 00000000:00000000 00:00000000 0 0"))
        };
        let ends = |own: &str, peer: &str| {
            Some(Ends { own: own.parse().unwrap(), peer: peer.parse().unwrap() })
        };
        let expected = ends("192.0.2.1:40000", "198.51.100.2:443");
        assert_eq!(line("010200C0:9C40", "026433C6:01BB", "01"), expected);
        let mapped =
            ("0000000000000000FFFF0000010200C0:9C40", "0000000000000000FFFF0000026433C6:01BB");
        assert_eq!(line(mapped.0, mapped.1, "08"), expected);
        let v6 = ("B80D0120000000000000000001000000:9C40", "B80D0120000000000000000002000000:0050");
        assert_eq!(line(v6.0, v6.1, "01"), ends("[2001:db8::1]:40000", "[2001:db8::2]:80"));
        for (own, peer, state) in [
            ("010200C0:9C40", "026433C6:01BB", "0A"),
            ("010200C0:9C40", "026433C6:01BB", "06"),
            ("0100007F:9C40", "0100007F:01BB", "01"),
            ("010200C0:9C40", "010200C0:01BB", "01"),
            ("010200C0", "026433C6:01BB", "01"),
            ("", "", ""),
        ] {
            assert_eq!(line(own, peer, state), None, "{own} {peer} {state}");
        }
    }
}

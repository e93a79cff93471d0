//! TCP connections that other hosts have opened to this one, as the kernel lists them.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::read;

/// The states in the kernel's lists.
const ESTABLISHED: &str = "01";
const LISTENING: &str = "0A";

/// The other hosts that have a connection to a port on which this host listens.
pub(crate) fn clients() -> BTreeSet<IpAddr> {
    clients_in(&[read("/proc/net/tcp"), read("/proc/net/tcp6")])
}

fn clients_in(lists: &[String]) -> BTreeSet<IpAddr> {
    let lines = || lists.iter().flat_map(|list| list.lines().skip(1)).filter_map(ends);
    let listening = lines().filter(|(.., state)| *state == LISTENING);
    let listening: HashSet<&str> = listening.map(|(port, ..)| port).collect();
    let clients = lines()
        .filter(|(port, _, state)| *state == ESTABLISHED && listening.contains(port))
        .filter_map(|(_, remote, _)| address(remote));
    clients.filter(|client| !client.is_loopback()).collect()
}

/// The local port, the remote address and the state in a line.
fn ends(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    Some((local.split_once(':')?.1, remote.split_once(':')?.0, state))
}

/// An address as the kernel writes it: words of four bytes, each in the processor's byte order.
fn address(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    if digits.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let words = [word(0)?, word(8)?, word(16)?, word(24)?];
    let bytes: [u8; 16] = words.concat().try_into().ok()?;
    Some(Ipv6Addr::from(bytes).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn only_connections_that_others_opened_count() {
        let head = "  sl  local_address rem_address   st\n";
        let v4 = format!(
            "{head}   0: 00000000:0016 00000000:0000 0A 0\n   1: 0A0200C0:0016 076433C6:D2F0 01 0\n   \
             2: 0A0200C0:D2F0 086433C6:0016 01 0\n   3: 0100007F:0016 0100007F:0001 01 0\n"
        );
        let mapped = "0000000000000000FFFF0000097100CB";
        let v6 = format!("{head}   0: {mapped}:0016 {mapped}:8000 01 0\nbroken\n");
        let clients = clients_in(&[v4, v6]);
        let expected = ["198.51.100.7", "203.0.113.9"].map(|it| it.parse().unwrap());
        assert_eq!(clients, BTreeSet::from(expected));
        assert_eq!(clients_in(&[String::new()]), BTreeSet::new());
    }
}

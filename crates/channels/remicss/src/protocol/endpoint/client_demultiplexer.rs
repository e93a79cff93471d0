//! Finds the client of a datagram, at a server with several clients.
//!
//! A client is found by a recognition check of the datagram: its token or its proof. A table from
//! channels and source addresses to clients only says which client is checked first, so a wrong
//! entry costs time and cannot give a datagram to another client. The checks of all other clients
//! are limited on each channel, so that datagrams that are nobody's cost a bounded time, however
//! many clients there are.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use crate::protocol::control::rate_limiter::DatagramRateLimiter;
use crate::protocol::wire::datagram::DatagramClass;

/// The limits of checks of all clients, on each channel. A token takes about 20 ns, a proof 150 to
/// 700 ns.
const TOKEN_CHECKS_PER_SECOND: u32 = 500_000;
const PROOF_CHECKS_PER_SECOND: u32 = 100_000;

/// The limit of recognised datagrams of handshakes of all clients, on each channel. Anyone can
/// replay them, and each may be answered.
const HANDSHAKES_PER_SECOND: u32 = 20_000;

/// The number of recent addresses of a client on a channel that are remembered.
const MAX_RECENT_ADDRESSES: usize = 4;

/// Identifies a peer of an end while it runs: the only one, or a client of a server. It is not used
/// for another client later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelPeerId(pub u32);

/// Finds the client of a datagram.
#[derive(Debug)]
pub struct ClientDemultiplexer {
    clients: BTreeMap<TunnelPeerId, ClientAddresses>,
    table: HashMap<(usize, SocketAddr), TunnelPeerId>,
    channels: Vec<DemultiplexedChannel>,
}

/// The addresses of a client, for each channel.
#[derive(Debug)]
struct ClientAddresses {
    current: Vec<Option<SocketAddr>>,
    recent: Vec<VecDeque<SocketAddr>>,
}

#[derive(Debug, Default)]
struct DemultiplexedChannel {
    counts: UnrecognisedCounts,
    /// The source of the last datagram that was found by the table, and its client.
    last: Option<(SocketAddr, TunnelPeerId)>,
    tokens: DatagramRateLimiter,
    proofs: DatagramRateLimiter,
    handshakes: DatagramRateLimiter,
}

/// Counts of datagrams on a channel that are of no client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnrecognisedCounts {
    /// Datagrams that no client recognised.
    pub unrecognised: u64,
    /// Datagrams that were dropped because too many checks were needed, or because there were too
    /// many handshakes.
    pub unchecked: u64,
}

impl ClientDemultiplexer {
    /// Without clients, for this number of channels.
    pub fn new(channels: usize) -> Self {
        Self {
            clients: BTreeMap::new(),
            table: HashMap::new(),
            channels: (0..channels).map(|_| DemultiplexedChannel::default()).collect(),
        }
    }

    /// Adds a client without addresses.
    pub fn add(&mut self, client: TunnelPeerId) {
        let channels = self.channels.len();
        let addresses = ClientAddresses {
            current: vec![None; channels],
            recent: vec![VecDeque::new(); channels],
        };
        self.clients.insert(client, addresses);
    }

    /// Removes a client and its addresses.
    pub fn remove(&mut self, client: TunnelPeerId) {
        self.clients.remove(&client);
        self.table.retain(|_, known| *known != client);
        self.forget_last();
    }

    /// A client's association has these addresses now, one for each channel.
    pub fn set_addresses(&mut self, client: TunnelPeerId, addresses: &[SocketAddr]) {
        for (channel, address) in addresses.iter().enumerate() {
            self.set_address(client, channel, Some(*address));
        }
    }

    /// A client's association has ended.
    pub fn clear_addresses(&mut self, client: TunnelPeerId) {
        (0..self.channels.len()).for_each(|channel| self.set_address(client, channel, None));
    }

    /// A client's association has this address on a channel now, or none. While it is also the
    /// current address of another client, the table keeps that client.
    pub fn set_address(
        &mut self,
        client: TunnelPeerId,
        channel: usize,
        address: Option<SocketAddr>,
    ) {
        // Channels that are not members have no address.
        let address = address.filter(|address| !address.ip().is_unspecified());
        let known = self.clients.get_mut(&client);
        let Some(current) = known.and_then(|known| known.current.get_mut(channel)) else { return };
        let before = std::mem::replace(current, address);
        self.forget_last();
        if let Some(before) = before {
            self.remove_entry(channel, before, client);
        }
        if let Some(address) = address.filter(|it| !self.is_of_another(client, channel, *it)) {
            self.table.insert((channel, address), client);
        }
    }

    /// The client whose peer has sent a datagram, which arrived on a channel. `recognises` checks
    /// it for one client.
    pub fn find(
        &mut self,
        channel: usize,
        from: SocketAddr,
        bytes: &[u8],
        now: Duration,
        recognises: impl FnMut(TunnelPeerId) -> bool,
    ) -> Option<TunnelPeerId> {
        let class = DatagramClass::of(bytes);
        let found = self.search(channel, from, class, now, recognises)?;
        let here = &mut self.channels[channel];
        let cost = Duration::from_secs(1) / HANDSHAKES_PER_SECOND;
        if class == Some(DatagramClass::Handshake) && !here.handshakes.take(cost, now) {
            here.counts.unchecked += 1;
            return None;
        }
        Some(found)
    }

    fn search(
        &mut self,
        channel: usize,
        from: SocketAddr,
        class: Option<DatagramClass>,
        now: Duration,
        mut recognises: impl FnMut(TunnelPeerId) -> bool,
    ) -> Option<TunnelPeerId> {
        let here = self.channels.get_mut(channel)?;
        let first = match here.last {
            Some((last, client)) if last == from => Some(client),
            _ => self.table.get(&(channel, from)).copied(),
        };
        if let Some(first) = first.filter(|first| recognises(*first)) {
            here.last = Some((from, first));
            return Some(first);
        }
        let (limiter, per_second) = match class {
            Some(DatagramClass::Handshake) => (&mut here.proofs, PROOF_CHECKS_PER_SECOND),
            Some(DatagramClass::Share | DatagramClass::Path) => {
                (&mut here.tokens, TOKEN_CHECKS_PER_SECOND)
            }
            None => {
                here.counts.unrecognised += 1;
                return None;
            }
        };
        let checks = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
        if !limiter.take(Duration::from_secs(1) / per_second * checks, now) {
            here.counts.unchecked += 1;
            return None;
        }
        let mut others = self.clients.keys().copied().filter(|client| Some(*client) != first);
        let Some(found) = others.find(|client| recognises(*client)) else {
            here.counts.unrecognised += 1;
            return None;
        };
        self.remember(channel, from, found);
        Some(found)
    }

    /// Counts of datagrams that are of no client, for each channel.
    pub fn counts(&self) -> Vec<UnrecognisedCounts> {
        self.channels.iter().map(|channel| channel.counts).collect()
    }

    /// Remembers an address from which a client was recognised, unless it is the current one of
    /// another client.
    fn remember(&mut self, channel: usize, from: SocketAddr, client: TunnelPeerId) {
        let owner = self.table.get(&(channel, from)).and_then(|owner| self.clients.get(owner));
        if owner.is_some_and(|owner| owner.current[channel] == Some(from)) {
            return;
        }
        let Some(known) = self.clients.get_mut(&client) else { return };
        let recent = &mut known.recent[channel];
        recent.retain(|address| *address != from);
        recent.push_back(from);
        let evicted = if recent.len() > MAX_RECENT_ADDRESSES { recent.pop_front() } else { None };
        self.channels[channel].last = None;
        self.table.insert((channel, from), client);
        if let Some(evicted) = evicted {
            self.remove_entry(channel, evicted, client);
        }
    }

    /// Whether the table has another client at an address, and it is that client's current one.
    fn is_of_another(&self, client: TunnelPeerId, channel: usize, address: SocketAddr) -> bool {
        let owner = self.table.get(&(channel, address)).filter(|owner| **owner != client);
        let owner = owner.and_then(|owner| self.clients.get(owner));
        owner.is_some_and(|owner| owner.current[channel] == Some(address))
    }

    /// Removes an address of a client from the table, unless it is another client's meanwhile, or
    /// also its current one.
    fn remove_entry(&mut self, channel: usize, address: SocketAddr, client: TunnelPeerId) {
        let known = self.clients.get(&client);
        let is_current = known.is_some_and(|known| known.current[channel] == Some(address));
        if !is_current && self.table.get(&(channel, address)) == Some(&client) {
            self.table.remove(&(channel, address));
        }
    }

    fn forget_last(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.last = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TunnelPeerId = TunnelPeerId(1);
    const B: TunnelPeerId = TunnelPeerId(2);

    /// A share; whose it is, is up to the check.
    const SHARE: [u8; 20] = [0; 20];
    const HELLO: [u8; 65] = [0x82; 65];

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, 9], port))
    }

    fn two_clients() -> ClientDemultiplexer {
        let mut clients = ClientDemultiplexer::new(2);
        for client in [A, B] {
            clients.add(client);
        }
        clients
    }

    /// Finds the client of a datagram of `sender`, and counts the checks.
    fn find(
        clients: &mut ClientDemultiplexer,
        from: SocketAddr,
        bytes: &[u8],
        sender: Option<TunnelPeerId>,
        now: Duration,
    ) -> (Option<TunnelPeerId>, usize) {
        let mut checks = 0;
        let found = clients.find(1, from, bytes, now, |client| {
            checks += 1;
            Some(client) == sender
        });
        (found, checks)
    }

    #[test]
    fn clients_behind_one_address_are_found_by_their_ports() {
        let mut clients = two_clients();
        clients.set_addresses(A, &[address(1), address(1)]);
        clients.set_addresses(B, &[address(2), address(2)]);
        for _ in 0..3 {
            for (port, client) in [(1, A), (2, B)] {
                let found = find(&mut clients, address(port), &SHARE, Some(client), Duration::ZERO);
                assert_eq!(found, (Some(client), 1));
            }
        }
    }

    #[test]
    fn a_datagram_from_the_address_of_another_client_is_its_senders() {
        let mut clients = two_clients();
        clients.set_addresses(A, &[address(1), address(1)]);
        clients.set_addresses(B, &[address(2), address(2)]);
        let now = Duration::from_secs(1);
        for second in 1..10 {
            let now = second * now;
            assert_eq!(find(&mut clients, address(2), &SHARE, Some(A), now), (Some(A), 2));
            let found = find(&mut clients, address(2), &SHARE, Some(B), now);
            assert_eq!(found, (Some(B), 1), "its own entry has stayed");
        }
    }

    #[test]
    fn a_client_at_the_current_address_of_another_does_not_replace_it() {
        let mut clients = two_clients();
        clients.set_addresses(B, &[address(2), address(2)]);
        clients.set_addresses(A, &[address(2), address(2)]);
        let now = Duration::from_secs(1);
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(B), now), (Some(B), 1));
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(A), now), (Some(A), 2));
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(B), now), (Some(B), 1));
        // When B leaves, the address is A's.
        clients.clear_addresses(B);
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(A), 2 * now), (Some(A), 1));
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(A), 2 * now), (Some(A), 1));
    }

    #[test]
    fn a_client_at_a_new_address_is_searched_once() {
        let mut clients = two_clients();
        clients.set_addresses(B, &[address(2), address(2)]);
        let now = Duration::from_secs(1);
        assert_eq!(find(&mut clients, address(3), &SHARE, Some(B), now), (Some(B), 2));
        assert_eq!(find(&mut clients, address(3), &SHARE, Some(B), now), (Some(B), 1));
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(B), now), (Some(B), 1));
        // More addresses than are remembered: the oldest is searched again, the current one not.
        for port in 4..8 {
            let now = u32::from(port) * now;
            assert_eq!(find(&mut clients, address(port), &SHARE, Some(B), now), (Some(B), 2));
        }
        let now = 10 * now;
        assert_eq!(find(&mut clients, address(3), &SHARE, Some(B), now), (Some(B), 2));
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(B), now), (Some(B), 1));
        assert!(clients.table.len() <= 2 + MAX_RECENT_ADDRESSES, "{:?}", clients.table);
        clients.remove(B);
        assert!(clients.table.is_empty());
        assert_eq!(find(&mut clients, address(2), &SHARE, Some(B), now), (None, 1));
    }

    #[test]
    fn datagrams_of_nobody_cost_a_bounded_number_of_checks() {
        for (bytes, per_second) in
            [(&SHARE[..], TOKEN_CHECKS_PER_SECOND), (&HELLO[..], PROOF_CHECKS_PER_SECOND)]
        {
            let mut clients = ClientDemultiplexer::new(2);
            (0..256).for_each(|number| clients.add(TunnelPeerId(number)));
            let (mut checks, mut datagrams) = (0, 0);
            // A million a second, from as many addresses.
            for us in 0..200_000_u64 {
                let from = address(u16::try_from(us % 60_000).unwrap());
                let now = Duration::from_secs(5) + Duration::from_micros(us);
                checks += find(&mut clients, from, bytes, None, now).1;
                datagrams += 1;
            }
            let most = usize::try_from(per_second).unwrap() * (200 + 10) / 1000 + 256;
            assert!(checks <= most, "{checks} checks, at most {most}");
            assert!(checks > most / 2, "{checks}");
            let UnrecognisedCounts { unrecognised, unchecked } = clients.counts()[1];
            assert_eq!(unrecognised + unchecked, datagrams);
            assert_eq!(clients.counts()[0], UnrecognisedCounts::default());
            assert!(clients.table.is_empty(), "nothing is remembered");
            // The other channel, and clients with an address, are not affected.
            clients.set_address(TunnelPeerId(7), 1, Some(address(9)));
            let now = Duration::from_millis(5_200);
            let found = find(&mut clients, address(9), bytes, Some(TunnelPeerId(7)), now);
            assert_eq!(found, (Some(TunnelPeerId(7)), 1));
            let found = clients.find(0, address(9), bytes, now, |client| client == TunnelPeerId(9));
            assert_eq!(found, Some(TunnelPeerId(9)));
        }
    }

    #[test]
    fn replayed_handshakes_of_all_clients_are_limited_together() {
        let mut clients = ClientDemultiplexer::new(2);
        (0..100).for_each(|number| clients.add(TunnelPeerId(number)));
        (0..100).for_each(|number| {
            let port = u16::try_from(number).unwrap();
            clients.set_address(TunnelPeerId(number), 1, Some(address(port)));
        });
        let mut found = 0;
        for us in 0..100_000_u64 {
            let number = u32::try_from(us % 100).unwrap();
            let from = address(u16::try_from(number).unwrap());
            let now = Duration::from_secs(5) + Duration::from_micros(us);
            let sender = Some(TunnelPeerId(number));
            found += u32::from(find(&mut clients, from, &HELLO, sender, now).0.is_some());
        }
        let most = HANDSHAKES_PER_SECOND * (100 + 10) / 1000 + 1;
        assert!((most / 2..=most).contains(&found), "{found}, at most {most}");
    }

    #[test]
    fn datagrams_of_no_kind_are_checked_by_nobody() {
        let mut clients = two_clients();
        for bytes in [&[][..], &[0xF0; 40]] {
            let found = find(&mut clients, address(1), bytes, Some(A), Duration::ZERO);
            assert_eq!(found, (None, 0), "{bytes:?}");
        }
    }
}

//! Two parties behind NATs, their relay, and attackers, on a simulated network.

use std::collections::HashMap;

use random::RandomGenerator;
use sim::{
    SeededRng, SimulatedLinkId, SimulatedNat, SimulatedNatKind, SimulatedNetwork, SimulationEvent,
    run_seeds,
};

use super::*;
use crate::protocol::datagram_relay::{DatagramRelay, RelayDatagramAction};
use crate::protocol::relay_binding::RelayBinding;

/// One way between any two hosts.
const DELAY: Duration = Duration::from_millis(40);

/// The time at which simulations begin.
const LIMIT: Duration = Duration::from_secs(20);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn relay_address() -> SocketAddr {
    address("192.0.2.1:7100")
}

/// The inner address of a party, and the outer one of its NAT.
fn inner_address(index: usize) -> SocketAddr {
    [address("10.0.0.2:5000"), address("10.0.1.2:6000")][index]
}

fn nat_address(index: usize) -> IpAddr {
    [address("198.51.100.1:1"), address("203.0.113.1:1")][index].ip()
}

/// A party, as its driver runs it.
struct SimulatedParty {
    binding: RelayBinding,
    puncher: Option<HolePuncher>,
    nat: Option<SimulatedNat>,
    outcome: PunchingOutcome,
}

/// Both parties, and the relay.
struct Simulation {
    network: SimulatedNetwork<()>,
    /// To the hosts with these outer addresses. The port does not matter.
    links: HashMap<IpAddr, SimulatedLinkId>,
    /// The source and the destination are in the first bytes of a datagram.
    parties: [SimulatedParty; 2],
    relay: DatagramRelay,
    /// Addresses that the relay or a party names besides the real ones.
    lies: [Vec<SocketAddr>; 2],
    is_relay_silent: bool,
    is_direct_blocked: bool,
    /// What was sent to addresses that belong to nobody.
    strays: HashMap<SocketAddr, u32>,
    /// Every datagram that was delivered to a party.
    delivered: Vec<(usize, SocketAddr, Vec<u8>)>,
}

impl Simulation {
    fn new(seed: u64, kinds: [Option<SimulatedNatKind>; 2], loss_permille: u64) -> Self {
        let mut network = SimulatedNetwork::new(seed);
        let mut generator = RandomGenerator::system();
        let mut relay = DatagramRelay::new(&mut generator).unwrap();
        let grants = relay.add_pair(Duration::ZERO, &mut generator).unwrap();
        let mut links = HashMap::new();
        let mut index = 0;
        let parties = grants.map(|grant| {
            let nat = kinds[index].map(|kind| SimulatedNat::new(kind, nat_address(index)));
            let ip = if nat.is_some() { nat_address(index) } else { inner_address(index).ip() };
            links.insert(ip, network.add_link(DELAY, DELAY * 5 / 4));
            index += 1;
            let binding = RelayBinding::new(&grant, Duration::ZERO);
            SimulatedParty { binding, puncher: None, nat, outcome: PunchingOutcome::Searching }
        });
        links.insert(relay_address().ip(), network.add_link(DELAY, DELAY * 5 / 4));
        for link in links.values() {
            network.conditions_mut(*link).loss_permille = loss_permille;
            network.conditions_mut(*link).duplication_permille = loss_permille;
        }
        Self {
            network,
            links,
            parties,
            relay,
            lies: [Vec::new(), Vec::new()],
            is_relay_silent: false,
            is_direct_blocked: false,
            strays: HashMap::new(),
            delivered: Vec::new(),
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let is_relay = [from, to].contains(&relay_address());
        if is_relay && self.is_relay_silent || !is_relay && self.is_direct_blocked {
            return;
        }
        let Some(link) = self.links.get(&to.ip()) else {
            *self.strays.entry(to).or_default() += 1;
            return;
        };
        let text = format!("{from} {to} ");
        self.network.send_datagram(*link, [text.as_bytes(), bytes].concat());
    }

    fn send_from(&mut self, index: usize, to: SocketAddr, bytes: &[u8]) {
        let inner = inner_address(index);
        let nat = &mut self.parties[index].nat;
        let from = nat.as_mut().map_or(inner, |nat| nat.outbound(inner, to));
        self.send(from, to, bytes);
    }

    /// Sends what is due.
    fn transmit(&mut self) {
        let now = self.network.now();
        for index in 0..2 {
            while let Some(request) = self.parties[index].binding.poll_transmit(now) {
                self.send_from(index, relay_address(), &request);
            }
            while let Some((to, ping)) =
                self.parties[index].puncher.as_mut().and_then(|it| it.poll_transmit(now))
            {
                self.send_from(index, to, &ping);
            }
        }
    }

    fn arrived(&mut self, bytes: &[u8]) {
        let now = self.network.now();
        let mut parts = bytes.splitn(3, |byte| *byte == b' ');
        let mut next = || parts.next().unwrap();
        let text = |bytes: &[u8]| address(std::str::from_utf8(bytes).unwrap());
        let (from, to, bytes) = (text(next()), text(next()), next());
        if to.ip() == relay_address().ip() {
            match self.relay.handle_datagram(now, from, bytes) {
                RelayDatagramAction::Drop => {}
                RelayDatagramAction::Answer(answer) => self.send(relay_address(), from, &answer),
                RelayDatagramAction::Forward(to) => self.send(relay_address(), to, bytes),
            }
            return;
        }
        for index in 0..2 {
            let inner = match &self.parties[index].nat {
                Some(nat) => nat.inbound(from, to),
                None => Some(to).filter(|to| *to == inner_address(index)),
            };
            if inner == Some(inner_address(index)) {
                self.deliver(index, from, bytes);
            }
        }
    }

    fn deliver(&mut self, index: usize, from: SocketAddr, bytes: &[u8]) {
        let now = self.network.now();
        self.delivered.push((index, from, bytes.to_vec()));
        let party = &mut self.parties[index];
        if from == relay_address() {
            party.binding.handle_datagram(now, bytes);
        }
        let answer = party.puncher.as_mut().and_then(|it| it.handle_datagram(now, from, bytes).1);
        if let Some(answer) = answer {
            self.send_from(index, from, &answer);
        }
    }

    /// Lets both parties search as soon as they know their addresses, which they tell each other
    /// over TCP.
    fn begin(&mut self) {
        let now = self.network.now();
        let observed = [0, 1].map(|index| self.parties[index].binding.observed());
        if self.parties[0].puncher.is_some() || observed.contains(&None) && !self.is_relay_silent {
            return;
        }
        for (index, role) in [(0, PunchingRole::Connecting), (1, PunchingRole::Waiting)] {
            let other = 1 - index;
            let mut candidates = vec![inner_address(other)];
            candidates.extend(observed[other]);
            candidates.extend(&self.lies[other]);
            let key = Zeroizing::new([7; KEY_LEN]);
            let relay = Some(relay_address());
            let puncher = HolePuncher::new(role, &key, &candidates, relay, now);
            self.parties[index].puncher = Some(puncher);
        }
    }

    fn outcome(&mut self) -> PunchingOutcome {
        let deadline = self.network.now() + LIMIT;
        while self.network.now() < deadline {
            self.begin();
            self.transmit();
            let now = self.network.now();
            for party in &mut self.parties {
                if let Some(puncher) = &party.puncher {
                    party.outcome = puncher.outcome(now);
                }
            }
            if self.parties[0].outcome != PunchingOutcome::Searching {
                return self.parties[0].outcome;
            }
            if let Some(SimulationEvent::Arrived { bytes, .. }) =
                self.network.next_event_until(now + Duration::from_millis(5))
            {
                self.arrived(&bytes);
            }
        }
        PunchingOutcome::Searching
    }

    /// What a party has sent so far to one address.
    fn most_strays(&self) -> u32 {
        self.strays.values().copied().max().unwrap_or(0)
    }
}

use SimulatedNatKind::{FullCone, PortRestricted, Symmetric};

const KINDS: [Option<SimulatedNatKind>; 4] =
    [None, Some(FullCone), Some(PortRestricted), Some(Symmetric)];

#[test]
fn nats_let_the_parties_through_unless_both_choose_ports_by_destination() {
    let outcomes = run_seeds(200, |seed| {
        let mut rng = SeededRng::new(seed);
        let kinds = [KINDS[rng.index(4)], KINDS[rng.index(4)]];
        let loss = [0, 50, 200][rng.index(3)];
        let mut simulation = Simulation::new(seed, kinds, loss);
        let outcome = simulation.outcome();
        // A port that is open for one destination only is reached by its own pings if the other
        // NAT lets them in.
        let is_possible = !matches!(
            kinds,
            [Some(Symmetric), Some(Symmetric | PortRestricted)]
                | [Some(PortRestricted), Some(Symmetric)]
        );
        match outcome {
            PunchingOutcome::Found(DatagramPath::Direct(_)) => assert!(is_possible, "{kinds:?}"),
            PunchingOutcome::Found(DatagramPath::Relayed(to)) => {
                assert_eq!(to, relay_address());
                assert!(!is_possible || loss > 0, "{kinds:?}");
            }
            outcome => panic!("{kinds:?}, {loss}: {outcome:?}"),
        }
        (is_possible, loss, matches!(outcome, PunchingOutcome::Found(DatagramPath::Direct(_))))
    });
    let lossy = outcomes.iter().filter(|(is_possible, loss, _)| *is_possible && *loss == 200);
    let (all, direct) = lossy.fold((0, 0), |(all, direct), it| (all + 1, direct + u32::from(it.2)));
    assert!(direct * 10 >= all * 8, "{direct} of {all} with 20 % loss");
}

#[test]
fn a_silent_relay_or_a_blocked_path_is_not_waited_for_long() {
    let kinds = [Some(PortRestricted); 2];
    let mut blocked = Simulation::new(1, kinds, 0);
    blocked.is_direct_blocked = true;
    let relayed = PunchingOutcome::Found(DatagramPath::Relayed(relay_address()));
    assert_eq!(blocked.outcome(), relayed);
    assert!(blocked.network.now() < Duration::from_millis(1200), "{:?}", blocked.network.now());
    let mut silent = Simulation::new(1, kinds, 0);
    silent.is_relay_silent = true;
    silent.is_direct_blocked = true;
    assert_eq!(silent.outcome(), PunchingOutcome::NoPath);
    assert!(silent.network.now() <= PUNCHING_TIMEOUT + Duration::from_millis(10));
}

/// The relay or the other party names addresses of a victim: it gets few, short datagrams.
#[test]
fn false_addresses_get_few_pings() {
    let mut simulation = Simulation::new(1, [Some(Symmetric); 2], 0);
    simulation.is_direct_blocked = false;
    let victims = ["192.0.2.9:53", "192.0.2.10:53", "192.0.2.11:53", "192.0.2.12:53"];
    simulation.lies = [victims.map(address).to_vec(), victims.map(address).to_vec()];
    simulation.outcome();
    let end = simulation.network.now() + LIMIT;
    while simulation.network.now() < end {
        simulation.transmit();
        let now = simulation.network.now();
        if let Some(SimulationEvent::Arrived { bytes, .. }) =
            simulation.network.next_event_until(now + Duration::from_millis(5))
        {
            simulation.arrived(&bytes);
        }
    }
    // Two of each party's four addresses are its own.
    assert_eq!(simulation.strays.len(), 2 + 2, "with the inner addresses");
    assert_eq!(simulation.most_strays(), 2 * MAX_PINGS);
}

fn puncher(role: PunchingRole, candidates: &[&str]) -> HolePuncher {
    let candidates: Vec<SocketAddr> = candidates.iter().map(|text| address(text)).collect();
    let key = Zeroizing::new([7; KEY_LEN]);
    HolePuncher::new(role, &key, &candidates, Some(relay_address()), Duration::ZERO)
}

fn all_pings(puncher: &mut HolePuncher) -> Vec<(SocketAddr, [u8; PUNCH_MESSAGE_LEN])> {
    let pings = (0..1000).filter_map(|ms| puncher.poll_transmit(Duration::from_millis(20 * ms)));
    pings.collect()
}

#[test]
fn addresses_that_are_no_hosts_get_no_pings() {
    for candidate in
        ["127.0.0.1:7", "0.0.0.0:7", "224.0.0.1:7", "255.255.255.255:7", "[::1]:7", "[fe80::1]:7"]
    {
        let mut searching = puncher(PunchingRole::Connecting, &[candidate]);
        let sent = all_pings(&mut searching);
        assert!(sent.iter().all(|(to, _)| *to == relay_address()), "{candidate}");
        assert_eq!(sent.len(), usize::try_from(MAX_PINGS).unwrap());
    }
}

/// What a stranger sends, or an attacker on the path changes, repeats or reflects, is not answered
/// and changes nothing.
#[test]
fn datagrams_without_the_other_party_s_tag_change_nothing() {
    let mut one = puncher(PunchingRole::Connecting, &["198.51.100.9:9"]);
    let mut two = puncher(PunchingRole::Waiting, &[]);
    let (to, ping) = one.poll_transmit(Duration::ZERO).unwrap();
    let from = address("203.0.113.7:7");
    for at in 0..PUNCH_MESSAGE_LEN {
        let mut changed = ping;
        changed[at] ^= 1;
        assert_eq!(two.handle_datagram(Duration::ZERO, from, &changed).1, None, "byte {at}");
    }
    // Reflected to its sender.
    assert_eq!(one.handle_datagram(Duration::ZERO, to, &ping), (true, None));
    let mut other = HolePuncher::new(
        PunchingRole::Connecting,
        &Zeroizing::new([8; KEY_LEN]),
        &[to],
        None,
        Duration::ZERO,
    );
    let (_, of_other_key) = other.poll_transmit(Duration::ZERO).unwrap();
    assert_eq!(two.handle_datagram(Duration::ZERO, from, &of_other_key), (true, None));
    assert_eq!((two.paths.len(), two.learned, two.pongs), (1, 0, 0));
    // The genuine ping is answered once. Repeated from a victim's address, it is not.
    let pong = two.handle_datagram(Duration::ZERO, from, &ping).1.unwrap();
    assert_eq!(two.handle_datagram(Duration::ZERO, address("192.0.2.99:1"), &ping).1, None);
    assert_eq!(two.handle_datagram(Duration::ZERO, from, &ping).1, None);
    assert_eq!((two.paths.len(), two.learned), (2, 1));
    // A pong that does not come from where the ping was sent verifies nothing.
    one.handle_datagram(Duration::ZERO, from, &pong);
    assert_eq!(one.outcome(Duration::ZERO), PunchingOutcome::Searching);
    one.handle_datagram(Duration::ZERO, to, &pong);
    let found = PunchingOutcome::Found(DatagramPath::Direct(to));
    assert_eq!(one.outcome(Duration::ZERO), found);
}

/// A party with the key, or one that replays from many addresses, cannot make this end send without
/// limits.
#[test]
fn a_hostile_party_gets_a_bounded_number_of_answers() {
    let mut two = puncher(PunchingRole::Waiting, &[]);
    let key = SharedKey::new(&[7; KEY_LEN]);
    let mut answers = 0;
    for number in 0..10_000_u16 {
        let ping = encode(&key, PunchingRole::Connecting, PING, number.into());
        let from = SocketAddr::from(([203, 0, 113, 7], 1 + number));
        answers += u32::from(two.handle_datagram(Duration::ZERO, from, &ping).1.is_some());
    }
    assert_eq!(answers, MAX_PONGS);
    assert_eq!(two.paths.len(), 1 + MAX_LEARNED);
    let pings = all_pings(&mut two).len();
    assert_eq!(pings, (1 + MAX_LEARNED) * usize::try_from(MAX_PINGS).unwrap());
}

#[test]
fn numbers_are_new_once() {
    let mut seen = SeenNumbers::default();
    for number in [0, 5, 3, 200, 100, 201, 74] {
        assert!(seen.insert(number), "{number}");
        assert!(!seen.insert(number), "{number}");
    }
    assert!(!seen.insert(0) && !seen.insert(73) && !seen.insert(u64::MAX));
    assert!(seen.insert(u64::MAX - 1) && !seen.insert(201));
}

//! Correct ends on a simulated network that the adversary controls in part.
//!
//! Client 0 is the victim: the adversary controls all its channels but one. The other clients share
//! the server with it and are not attacked.

use std::time::Duration;

use sim::{SeededRng, SimulatedLinkId, SimulatedNetwork, SimulationEvent};
use sunder_association::{
    AssociationMessage, AssociationProtocol, AssociationServerEvent, AssociationTerms,
    ConnectionCookie, CookieList, HandshakeServer, HandshakeServerConfig, PendingConnectionId,
    SharingScheme,
};

use super::adversary::Adversary;
use crate::driver::{Client, ClientEvent};
use crate::handshake::pair::{self, TIMEOUT};

/// A deliberate mistake in one end, to show that the checks find it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// The victim accepts the first confirm and does not wait for the others.
    OneConfirmIsEnough,
    /// The server accepts the first list and does not wait for the other channels'.
    OneListIsEnough,
}

/// The two directions of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) up: SimulatedLinkId,
    pub(crate) down: SimulatedLinkId,
}

/// The outcome of a run for the victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Completed, and the adversary changed nothing.
    Untouched,
    /// Completed in spite of the adversary's changes.
    Completed,
    /// The server associated the victim's honest channel, but the victim did not complete.
    ServerOnly,
    /// The adversary has only associated its own connections.
    Excluded,
    /// None of the victim's connections was associated.
    Neither,
}

struct HonestClient {
    client: Client,
    /// The connection of each channel.
    connections: Vec<usize>,
    sent: Option<CookieList>,
    completed: Option<CookieList>,
}

struct Association {
    list: CookieList,
    connections: Vec<PendingConnectionId>,
}

enum Timer {
    Open(usize),
    ServerDeadline,
    ClientDeadline(usize),
}

pub(crate) struct TestBed {
    net: SimulatedNetwork<Timer>,
    rng: SeededRng,
    server: HandshakeServer,
    clients: Vec<HonestClient>,
    wires: Vec<Wire>,
    /// The client and channel at the near end of each connection; `None` for the adversary's own.
    owners: Vec<Option<(usize, usize)>>,
    cookies: Vec<Option<ConnectionCookie>>,
    associations: Vec<Association>,
    adversary: Option<Adversary>,
    honest_channel: usize,
    flaw: Flaw,
}

impl TestBed {
    /// A test bed of one victim with `n` channels, up to two other clients and, if `attacked`, an
    /// adversary on all the victim's channels but one.
    pub(crate) fn new(seed: u64, n: u8, attacked: bool, flaw: Flaw) -> Self {
        let mut rng = SeededRng::new(seed);
        let mut test_bed = Self {
            net: SimulatedNetwork::new(rng.next_u64()),
            server: HandshakeServer::new(config()),
            clients: Vec::new(),
            wires: Vec::new(),
            owners: Vec::new(),
            cookies: Vec::new(),
            associations: Vec::new(),
            adversary: None,
            honest_channel: rng.index(usize::from(n)),
            flaw,
            rng,
        };
        test_bed.add_client(n);
        for _ in 0..test_bed.rng.below(3) {
            let channels = 1 + u8::try_from(test_bed.rng.below(3)).unwrap();
            test_bed.add_client(channels);
        }
        test_bed.connect_clients();
        if attacked {
            test_bed.add_adversary();
        }
        test_bed
    }

    /// Runs until there are no more events, and checks the outcome.
    pub(crate) fn run(mut self) -> Result<Outcome, String> {
        while let Some(event) = self.net.next_event() {
            self.handle(event);
            self.settle_server();
            self.settle_clients();
        }
        self.check()
    }

    fn add_client(&mut self, n: u8) {
        let index = self.clients.len();
        let terms = random_terms(&mut self.rng, n);
        self.clients.push(HonestClient {
            client: Client::new(terms, TIMEOUT),
            connections: vec![usize::MAX; usize::from(n)],
            sent: None,
            completed: None,
        });
        self.net.set_timer(TIMEOUT, Timer::ClientDeadline(index));
    }

    /// Connects all channels of all clients in an order that is independent of the clients.
    fn connect_clients(&mut self) {
        let channels_of = |(index, client): (usize, &HonestClient)| {
            (0..client.connections.len()).map(move |channel| (index, channel))
        };
        let mut ends: Vec<_> = self.clients.iter().enumerate().flat_map(channels_of).collect();
        self.rng.shuffle(&mut ends);
        for (client, channel) in ends {
            let connection = self.connect(Some((client, channel)));
            self.clients[client].connections[channel] = connection;
        }
    }

    fn add_adversary(&mut self) {
        let mut legs = self.clients[0].connections.clone();
        legs.remove(self.honest_channel);
        let own: Vec<usize> = (0..self.rng.below(4)).map(|_| self.connect(None)).collect();
        for &connection in legs.iter().chain(&own) {
            self.net.seize(self.wires[connection].up);
            self.net.seize(self.wires[connection].down);
        }
        let seed = self.rng.next_u64();
        let victim = self.clients[0].connections.clone();
        let honest = victim[self.honest_channel];
        self.adversary = Some(Adversary::new(seed, self.wires.clone(), victim, honest, own));
    }

    fn connect(&mut self, owner: Option<(usize, usize)>) -> usize {
        let connection = self.wires.len();
        let mut link = || {
            let max_delay = Duration::from_millis(1 + self.rng.below(80));
            self.net.add_link(Duration::from_micros(100), max_delay)
        };
        let (up, down) = (link(), link());
        self.wires.push(Wire { up, down });
        self.owners.push(owner);
        self.cookies.push(None);
        let at = self.rng.duration_between(Duration::ZERO, Duration::from_millis(40));
        self.net.set_timer(at, Timer::Open(connection));
        connection
    }

    fn handle(&mut self, event: SimulationEvent<Timer>) {
        let now = self.net.now();
        match event {
            SimulationEvent::Arrived { link, bytes } => match self.place(link) {
                (connection, true) => self.bytes_at_server(connection, &bytes),
                (connection, false) => self.bytes_at_client(connection, &bytes),
            },
            SimulationEvent::Closed { link } => match self.place(link) {
                (connection, true) => self.server.handle_closed(id(connection)),
                (connection, false) => self.closed_at_client(connection),
            },
            SimulationEvent::Intercepted { link, bytes } => {
                let (connection, up) = self.place(link);
                if let Some(adversary) = &mut self.adversary {
                    adversary.intercept(&mut self.net, connection, up, &bytes);
                }
            }
            SimulationEvent::InterceptedClose { link } => {
                let (connection, up) = self.place(link);
                if let Some(adversary) = &mut self.adversary {
                    adversary.intercept_close(&mut self.net, connection, up);
                }
            }
            SimulationEvent::Timer(Timer::Open(connection)) => self.open(connection),
            SimulationEvent::Timer(Timer::ServerDeadline) => self.server.handle_timeout(now),
            SimulationEvent::Timer(Timer::ClientDeadline(client)) => {
                self.clients[client].client.handle_timeout(now);
            }
        }
    }

    /// The connection of a link, and whether the link leads to the server.
    fn place(&self, link: SimulatedLinkId) -> (usize, bool) {
        let connection = link.index() / 2;
        (connection, self.wires[connection].up == link)
    }

    fn open(&mut self, connection: usize) {
        let cookie = ConnectionCookie::new(self.rng.bytes());
        self.cookies[connection] = Some(cookie);
        let now = self.net.now();
        self.server.open(id(connection), cookie, now).expect("the table has room");
        self.net.set_timer(now + TIMEOUT, Timer::ServerDeadline);
    }

    fn bytes_at_server(&mut self, connection: usize, bytes: &[u8]) {
        if self.flaw == Flaw::OneListIsEnough
            && let Ok(AssociationMessage::List(list)) = AssociationMessage::parse(bytes)
        {
            let connections = self.named_in(&list);
            self.associations.push(Association { list, connections });
        }
        // Bytes of a connection that is not waiting belong to the transport, or to a connection
        // that was given up: neither matters here.
        let _ = self.server.handle_bytes(id(connection), bytes, self.net.now());
    }

    fn bytes_at_client(&mut self, connection: usize, bytes: &[u8]) {
        let Some((client, channel)) = self.owners[connection] else {
            return;
        };
        let client = &mut self.clients[client];
        client.client.handle_bytes(channel, bytes, self.net.now());
        if self.flaw == Flaw::OneConfirmIsEnough
            && let Ok(AssociationMessage::Confirm(confirmed)) = AssociationMessage::parse(bytes)
            && client.sent.as_ref().is_some_and(|sent| sent.ct_matches(&confirmed))
        {
            client.completed = Some(confirmed);
        }
    }

    fn closed_at_client(&mut self, connection: usize) {
        if let Some((client, channel)) = self.owners[connection] {
            self.clients[client].client.handle_closed(channel);
        }
    }

    fn settle_server(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                AssociationServerEvent::Transmit { id, message } => {
                    let connection = usize::try_from(id.0).unwrap();
                    self.send(connection, self.wires[connection].down, &message);
                }
                AssociationServerEvent::Associated { list, connections } => {
                    let connections = connections.into_iter().flatten().collect();
                    self.associations.push(Association { list, connections });
                }
                // The transport has no association that it could be for.
                AssociationServerEvent::Rejoin { id, .. }
                | AssociationServerEvent::Aborted { id, .. } => {
                    let connection = usize::try_from(id.0).unwrap();
                    self.net.close_stream(self.wires[connection].down);
                }
            }
        }
    }

    fn settle_clients(&mut self) {
        for index in 0..self.clients.len() {
            while let Some(event) = self.clients[index].client.poll_event() {
                self.settle_client(index, event);
            }
        }
    }

    fn settle_client(&mut self, index: usize, event: ClientEvent) {
        match event {
            ClientEvent::Transmit { channel, message } => {
                let connection = self.clients[index].connections[channel];
                self.send(connection, self.wires[connection].up, &message);
                if let AssociationMessage::List(list) = message {
                    self.clients[index].sent = Some(list);
                }
            }
            ClientEvent::Associated { list } => self.clients[index].completed = Some(list),
            ClientEvent::Aborted { .. } => {
                for &connection in &self.clients[index].connections {
                    self.net.close_stream(self.wires[connection].up);
                }
            }
        }
    }

    /// Sends a message. The adversary can read it even on links that it does not control, which is
    /// more than the threat model allows: the handshake's promises do not depend on secrets.
    fn send(&mut self, connection: usize, link: SimulatedLinkId, message: &AssociationMessage) {
        if let Some(adversary) = &mut self.adversary {
            adversary.overhear(connection, message);
        }
        self.net.send_stream(link, &message.encode());
    }

    fn named_in(&self, list: &CookieList) -> Vec<PendingConnectionId> {
        let cookies = self.cookies.iter().enumerate();
        let named = cookies
            .filter(|(_, cookie)| cookie.is_some_and(|cookie| list.position(&cookie).is_some()));
        named.map(|(connection, _)| id(connection)).collect()
    }

    fn check(&self) -> Result<Outcome, String> {
        let outcome = self.check_victim()?;
        self.check_associations()?;
        self.check_bystanders()?;
        if self.server.pending() != 0 {
            let left = self.server.pending();
            return Err(format!("{left} connections left in the table"));
        }
        Ok(outcome)
    }

    /// In every association, every connection is at the position of its cookie, and in no other
    /// association.
    fn check_associations(&self) -> Result<(), String> {
        let mut seen = std::collections::BTreeSet::new();
        for association in &self.associations {
            if association.connections.len() != association.list.cookies().len() {
                return Err("an association has not as many connections as cookies".into());
            }
            for (position, &PendingConnectionId(connection)) in
                association.connections.iter().enumerate()
            {
                let cookie = self.cookies[usize::try_from(connection).unwrap()].unwrap();
                if association.list.position(&cookie) != Some(position) {
                    return Err(format!("connection {connection} is not at its cookie's place"));
                }
                if !seen.insert(connection) {
                    return Err(format!("connection {connection} is associated twice"));
                }
            }
        }
        Ok(())
    }

    /// Clients that are not attacked always complete, whatever else happens.
    fn check_bystanders(&self) -> Result<(), String> {
        let attacked = usize::from(self.adversary.is_some());
        for (index, client) in self.clients.iter().enumerate().skip(attacked) {
            let list = client.completed.as_ref();
            let list = list.ok_or(format!("client {index}, not attacked, did not complete"))?;
            let connections: Vec<_> = client.connections.iter().copied().map(id).collect();
            let same = |association: &Association| {
                association.list.ct_matches(list) && association.connections == connections
            };
            if !self.associations.iter().any(same) {
                return Err(format!("the server disagrees with client {index}"));
            }
        }
        Ok(())
    }

    /// The handshake's promises to a client with one honest channel.
    fn check_victim(&self) -> Result<Outcome, String> {
        let victim = &self.clients[0];
        let honest = id(victim.connections[self.honest_channel]);
        let mut holding = None;
        for association in &self.associations {
            if association.connections.contains(&honest) {
                self.check_holding(association)?;
                holding = Some(association);
            } else if self.names_honest_cookie(association) {
                return Err("an association names the honest cookie without its connection".into());
            }
        }
        match (holding, &victim.completed) {
            (Some(association), Some(completed)) if association.list.ct_matches(completed) => {
                let acted = self.adversary.as_ref().is_some_and(Adversary::has_acted);
                Ok(if acted { Outcome::Completed } else { Outcome::Untouched })
            }
            (Some(_), Some(_)) => Err("the ends disagree about the list".into()),
            (None, Some(_)) => Err("the victim completed without its honest channel".into()),
            (Some(_), None) => Ok(Outcome::ServerOnly),
            (None, None) if self.adversary_is_associated() => Ok(Outcome::Excluded),
            (None, None) => Ok(Outcome::Neither),
        }
    }

    /// An association with the honest connection is the one that the victim requested.
    fn check_holding(&self, association: &Association) -> Result<(), String> {
        let victim = &self.clients[0];
        let sent = victim.sent.as_ref().ok_or("associated with no list sent")?;
        if !association.list.ct_matches(sent) {
            return Err("the server's list is not the one the victim sent".into());
        }
        let honest = id(victim.connections[self.honest_channel]);
        if association.connections.get(self.honest_channel) != Some(&honest) {
            return Err("the honest connection is not at its channel's place".into());
        }
        Ok(())
    }

    fn names_honest_cookie(&self, association: &Association) -> bool {
        let cookie = self.cookies[self.clients[0].connections[self.honest_channel]];
        cookie.is_some_and(|cookie| association.list.position(&cookie).is_some())
    }

    fn adversary_is_associated(&self) -> bool {
        let owned_by_bystander = |&PendingConnectionId(connection): &PendingConnectionId| {
            let owner = self.owners[usize::try_from(connection).unwrap()];
            owner.is_some_and(|(client, _)| client > 0)
        };
        self.associations
            .iter()
            .any(|association| !association.connections.iter().any(owned_by_bystander))
    }
}

fn id(connection: usize) -> PendingConnectionId {
    PendingConnectionId(connection as u64)
}

fn config() -> HandshakeServerConfig {
    let mut config = pair::config();
    config.max_pending = 64;
    config.policy.options = 0xff;
    config
}

fn random_terms(rng: &mut SeededRng, n: u8) -> AssociationTerms {
    let options = u32::try_from(rng.below(256)).unwrap();
    if rng.chance(50) {
        return AssociationTerms::new(
            AssociationProtocol::MicssStream,
            SharingScheme::Xor,
            n,
            n,
            options,
        )
        .unwrap();
    }
    let k = 1 + u8::try_from(rng.below(u64::from(n))).unwrap();
    AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, k, n, options)
        .unwrap()
}

impl Wire {
    /// The direction to the server, or the other.
    pub(crate) fn link(self, up: bool) -> SimulatedLinkId {
        if up { self.up } else { self.down }
    }
}

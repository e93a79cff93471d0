//! A server whose quorum has a timeout: missing lists, and the clients that must not be affected.

use std::collections::BTreeSet;
use std::time::Duration;

use sim::SeededRng;
use sunder_association::{
    AssociationMessage, AssociationProtocol, AssociationServerEvent, AssociationTerms, COOKIE_LEN,
    ConnectionCookie, CookieList, HandshakeServer, HandshakeServerConfig, PendingConnectionId,
    ServerHandshakeAbort, SharingScheme,
};

use super::pair::{NOW, config, cookie, id};
use super::server::{Did, did};

const QUORUM_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(90);

fn quorum_server() -> HandshakeServer {
    HandshakeServer::new(HandshakeServerConfig {
        quorum_timeout: Some(QUORUM_TIMEOUT),
        timeout: TIMEOUT,
        ..config()
    })
}

fn open(connections: u8) -> HandshakeServer {
    let mut server = quorum_server();
    for number in 0..connections {
        server.open(id(number.into()), cookie(number), NOW).unwrap();
    }
    server
}

/// The list of the connections that have these cookies.
fn shamir(k: u8, cookies: &[u8]) -> CookieList {
    let n = u8::try_from(cookies.len()).unwrap();
    let terms =
        AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, k, n, 0)
            .unwrap();
    CookieList::new(terms, cookies.iter().copied().map(cookie).collect()).unwrap()
}

/// Delivers a list so many milliseconds after the start.
fn deliver(server: &mut HandshakeServer, connection: u64, list: &CookieList, ms: u64) -> Vec<Did> {
    let bytes = AssociationMessage::List(list.clone()).encode();
    server.handle_bytes(id(connection), &bytes, NOW + Duration::from_millis(ms)).unwrap();
    did(server)
}

fn at(server: &mut HandshakeServer, ms: u64) -> Vec<Did> {
    server.handle_timeout(NOW + Duration::from_millis(ms));
    did(server)
}

fn associated(connections: &[u64]) -> Vec<Did> {
    let confirms = connections.iter().map(|&id| Did::Confirm(id));
    confirms.chain([Did::Associate(connections.to_vec())]).collect()
}

/// The timeout counts from the list that completes the quorum, not from the first.
#[test]
fn a_quorum_associates_without_a_missing_list_after_its_timeout() {
    let mut server = open(3);
    let list = shamir(2, &[2, 0, 1]);
    assert_eq!(deliver(&mut server, 2, &list, 0), []);
    assert_eq!(deliver(&mut server, 1, &list, 1900), []);
    assert_eq!(server.poll_timeout(), Some(NOW + QUORUM_TIMEOUT));
    assert_eq!(at(&mut server, 2000), []);
    assert_eq!(server.poll_timeout(), Some(NOW + Duration::from_millis(3900)));
    assert_eq!(at(&mut server, 3899), []);
    server.handle_timeout(NOW + Duration::from_millis(3900));
    let last = std::iter::from_fn(|| server.poll_event()).last();
    let Some(AssociationServerEvent::Associated { connections, .. }) = last else {
        panic!("{last:?}")
    };
    assert_eq!(connections, [Some(id(2)), None, Some(id(1))]);
    // Then it is too late.
    let late = [Did::Abort(0, ServerHandshakeAbort::UnknownCookie)];
    assert_eq!(deliver(&mut server, 0, &list, 4000), late);
}

#[test]
fn a_quorum_does_not_wait_for_a_connection_that_can_no_longer_deliver() {
    let list = shamir(2, &[0, 1, 2]);
    let mut server = open(3);
    assert_eq!(deliver(&mut server, 0, &list, 0), []);
    assert_eq!(deliver(&mut server, 1, &list, 0), []);
    server.handle_closed(id(2));
    let closed = [Did::Abort(2, ServerHandshakeAbort::Closed)];
    assert_eq!(did(&mut server), closed.into_iter().chain(associated(&[0, 1])).collect::<Vec<_>>());

    let mut server = open(3);
    assert_eq!(deliver(&mut server, 2, &shamir(2, &[1, 0, 2]), 0), []);
    assert_eq!(deliver(&mut server, 0, &list, 0), []);
    let refuted = Did::Abort(2, ServerHandshakeAbort::PeerDisagrees { peer: id(1) });
    let all: Vec<_> = [refuted].into_iter().chain(associated(&[0, 1])).collect();
    assert_eq!(deliver(&mut server, 1, &list, 0), all);

    // A cookie of no connection.
    let mut server = open(2);
    assert_eq!(deliver(&mut server, 0, &list, 0), []);
    assert_eq!(deliver(&mut server, 1, &list, 0), associated(&[0, 1]));
}

#[test]
fn a_quorum_is_all_connections_if_the_threshold_is_n() {
    let mut server = open(3);
    let list = shamir(3, &[0, 1, 2]);
    assert_eq!(deliver(&mut server, 0, &list, 0), []);
    assert_eq!(deliver(&mut server, 1, &list, 0), []);
    assert_eq!(at(&mut server, 80_000), []);
    assert_eq!(deliver(&mut server, 2, &list, 80_000), associated(&[0, 1, 2]));
}

/// Otherwise a client could get two associations: with 2 of 4 channels, and then with the other
/// two.
#[test]
fn no_list_is_associated_twice() {
    let mut server = open(4);
    let list = shamir(2, &[0, 1, 2, 3]);
    assert_eq!(deliver(&mut server, 0, &list, 0), []);
    assert_eq!(deliver(&mut server, 1, &list, 0), []);
    assert_eq!(at(&mut server, 10_000), []);
    assert_eq!(deliver(&mut server, 2, &list, 10_000), []);
    assert_eq!(at(&mut server, 12_000), associated(&[0, 1, 2]));
    let late = [Did::Abort(3, ServerHandshakeAbort::UnknownCookie)];
    assert_eq!(deliver(&mut server, 3, &list, 12_000), late);
}

/// Advances the time.
fn wait(server: &mut HandshakeServer, until: Duration) {
    while let Some(at) = server.poll_timeout().filter(|at| *at <= until) {
        server.handle_timeout(at);
    }
}

/// An attacker's action on a connection.
#[derive(Clone, Debug)]
enum Act {
    Deliver(CookieList),
    Garbage,
    Close,
}

/// A client with n channels. The attacker, who reads all channels, controls as many as the quorum
/// does not need, and has connections of its own.
struct Siege {
    rng: SeededRng,
    list: CookieList,
    honest: BTreeSet<u64>,
    cookies: Vec<ConnectionCookie>,
    acts: Vec<(Duration, u64, Act)>,
}

impl Siege {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let n = 2 + u8::try_from(rng.below(5)).unwrap();
        let k = 1 + u8::try_from(rng.below(n.into())).unwrap();
        let terms =
            AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, k, n, 0)
                .unwrap();
        let connections = n + u8::try_from(rng.below(5)).unwrap();
        let cookies: Vec<ConnectionCookie> =
            (0..connections).map(|_| ConnectionCookie::new(rng.bytes::<COOKIE_LEN>())).collect();
        let list = CookieList::new(terms, cookies[..n.into()].to_vec()).unwrap();
        let held = rng.below(u64::from(n - terms.quorum()) + 1);
        let mut victim: Vec<u64> = (0..n.into()).collect();
        rng.shuffle(&mut victim);
        let honest: BTreeSet<u64> =
            victim.split_off(usize::try_from(held).unwrap()).into_iter().collect();
        let mut siege = Self { rng, list, honest, cookies, acts: Vec::new() };
        for &connection in &siege.honest.clone() {
            siege.plan(connection, Act::Deliver(siege.list.clone()));
        }
        let own = u64::from(n)..u64::from(connections);
        for connection in victim.into_iter().chain(own) {
            for _ in 0..siege.rng.below(3) {
                let act = siege.act();
                siege.plan(connection, act);
            }
        }
        siege.acts.sort_by_key(|(at, ..)| *at);
        siege
    }

    /// Each action has a time, and honest lists are at most the timeout apart.
    fn plan(&mut self, connection: u64, act: Act) {
        let at = NOW + Duration::from_millis(self.rng.below(1999));
        self.acts.push((at, connection, act));
    }

    fn act(&mut self) -> Act {
        match self.rng.below(8) {
            0 => Act::Close,
            1 => Act::Garbage,
            2 | 3 => Act::Deliver(self.list.clone()),
            _ => Act::Deliver(self.forged()),
        }
    }

    /// A list of cookies that the attacker knows, which are all, possibly with other terms.
    fn forged(&mut self) -> CookieList {
        let mut cookies = self.cookies.clone();
        self.rng.shuffle(&mut cookies);
        let n = 1 + self.rng.below(cookies.len() as u64);
        cookies.truncate(usize::try_from(n).unwrap());
        if self.rng.chance(30) {
            cookies[0] = ConnectionCookie::new(self.rng.bytes());
        }
        let k = 1 + u8::try_from(self.rng.below(n)).unwrap();
        let n = u8::try_from(n).unwrap();
        let terms =
            AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, k, n, 0)
                .unwrap();
        CookieList::new(terms, cookies).unwrap()
    }

    /// Runs until the quorum's timeout has passed. Returns the number of missing channels.
    fn run(&self) -> usize {
        let mut server = quorum_server();
        for (number, cookie) in self.cookies.iter().enumerate() {
            server.open(id(number as u64), *cookie, NOW).unwrap();
        }
        for (at, connection, act) in &self.acts {
            wait(&mut server, *at);
            let _ = match act {
                Act::Deliver(list) => {
                    let bytes = AssociationMessage::List(list.clone()).encode();
                    server.handle_bytes(id(*connection), &bytes, *at).map(drop)
                }
                Act::Garbage => server.handle_bytes(id(*connection), b"garbage!", *at).map(drop),
                Act::Close => {
                    server.handle_closed(id(*connection));
                    Ok(())
                }
            };
        }
        let last = self.acts.iter().filter(|(_, connection, _)| self.honest.contains(connection));
        let last = last.map(|(at, ..)| *at).max().unwrap();
        wait(&mut server, last + QUORUM_TIMEOUT);
        let missing = self.check(std::iter::from_fn(|| server.poll_event()));
        wait(&mut server, NOW + TIMEOUT);
        assert_eq!(server.pending(), 0, "connections are left in the table");
        missing
    }

    /// The honest connections are associated together, once, with their list, whatever the attacker
    /// does.
    fn check(&self, events: impl Iterator<Item = AssociationServerEvent>) -> usize {
        let (mut used, mut missing) = (BTreeSet::new(), None);
        for event in events {
            match event {
                AssociationServerEvent::Associated { list, connections } => {
                    let places = connections.iter().enumerate();
                    for (place, &PendingConnectionId(connection)) in
                        places.filter_map(|(place, id)| Some((place, id.as_ref()?)))
                    {
                        assert!(used.insert(connection), "{connection} is associated twice");
                        let cookie = &self.cookies[usize::try_from(connection).unwrap()];
                        assert_eq!(list.position(cookie), Some(place));
                        let is_honest = self.honest.contains(&connection);
                        assert!(!is_honest || list.ct_matches(&self.list), "under another list");
                    }
                    if list.ct_matches(&self.list) {
                        let here: BTreeSet<u64> =
                            connections.iter().flatten().map(|id| id.0).collect();
                        assert!(here.is_superset(&self.honest), "{here:?}");
                        let first = missing.replace(connections.len() - here.len());
                        assert_eq!(first, None, "the list is associated twice");
                    }
                }
                AssociationServerEvent::Aborted { id, reason } => {
                    assert!(!self.honest.contains(&id.0), "{id:?}: {reason}");
                }
                AssociationServerEvent::Rejoin { .. } => panic!("nobody rejoins"),
                AssociationServerEvent::Transmit { .. } => {}
            }
        }
        missing.expect("the honest connections are associated")
    }
}

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn an_attacker_on_dispensable_channels_excludes_no_honest_channel() {
    let missing = sim::run_seeds(10_000, |seed| Siege::new(seed).run());
    let runs = |count: usize| missing.iter().filter(|it| **it == count).count();
    let tally = [0, 1, 2].map(runs);
    // With two missing there are at least five channels.
    assert!(tally.iter().all(|runs| 50 * runs > missing.len()), "{tally:?}");
}

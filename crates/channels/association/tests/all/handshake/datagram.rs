//! The handshake with whole messages lost, repeated and delayed, but not changed.

use sim::SeededRng;
use sunder_association::{
    AssociationMessage, AssociationServerEvent, ClientHandshakeAbort, CookieList, HandshakeServer,
    ServerHandshakeAbort,
};

use super::pair::{NOW, TIMEOUT, cookie, id, list, server, xor};
use crate::driver::{Client, ClientEvent};

const N: u8 = 3;

/// A driver that only sends again what was not answered.
struct Lossy {
    rng: SeededRng,
    client: Client,
    server: HandshakeServer,
    associated: Option<CookieList>,
    completed: bool,
}

impl Lossy {
    fn new(seed: u64) -> Self {
        let mut server = server();
        for channel in 0..N {
            server.open(id(channel.into()), cookie(channel), NOW).unwrap();
        }
        let client = Client::new(xor(N), NOW + TIMEOUT);
        Self { rng: SeededRng::new(seed), client, server, associated: None, completed: false }
    }

    fn round(&mut self) {
        for channel in 0..N.into() {
            if let Some(message) = self.client.unanswered(channel) {
                self.send_to_server(channel, &message);
            }
            if let Some(message) = self.server.unanswered_message(id(channel as u64)) {
                self.send_to_client(channel, &message);
            }
        }
        self.settle();
    }

    fn send_to_server(&mut self, channel: usize, message: &AssociationMessage) {
        for _ in 0..self.rng.below(3) {
            let waiting = self.server.handle_message(id(channel as u64), message, NOW);
            if let (Err(_), Some(list)) = (waiting, self.associated.clone()) {
                self.send_to_client(channel, &AssociationMessage::Confirm(list));
            }
            self.settle();
        }
    }

    fn send_to_client(&mut self, channel: usize, message: &AssociationMessage) {
        for _ in 0..self.rng.below(3) {
            self.client.handle_message(channel, message, NOW);
        }
    }

    /// Drops what either end sends: `outgoing` returns all of it again.
    fn settle(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                AssociationServerEvent::Associated { list, .. } => self.associated = Some(list),
                AssociationServerEvent::Aborted { reason, .. } => panic!("{reason}"),
                AssociationServerEvent::Rejoin { .. } => panic!("nobody rejoins"),
                AssociationServerEvent::Transmit { .. } => {}
            }
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Associated { .. } => self.completed = true,
                ClientEvent::Aborted { reason } => panic!("{reason}"),
                ClientEvent::Transmit { .. } => {}
            }
        }
    }
}

#[test]
fn loss_and_repetition_only_take_longer() {
    for seed in 0..1_000 {
        let mut lossy = Lossy::new(seed);
        let rounds = (0..200).take_while(|_| {
            lossy.round();
            !lossy.completed
        });
        assert!(rounds.count() < 200, "seed {seed}");
    }
}

#[test]
fn a_second_different_cookie_aborts() {
    let mut client = Client::new(xor(N), NOW + TIMEOUT);
    client.handle_message(0, &AssociationMessage::Cookie(cookie(0)), NOW);
    client.handle_message(0, &AssociationMessage::Cookie(cookie(0)), NOW);
    assert!(client.poll_event().is_none());
    client.handle_message(0, &AssociationMessage::Cookie(cookie(1)), NOW);
    let expected = ClientHandshakeAbort::ChangedCookie { channel: 0 };
    let event = client.poll_event();
    assert!(matches!(event, Some(ClientEvent::Aborted { reason }) if reason == expected));
}

#[test]
fn a_second_different_list_aborts() {
    let mut server = server();
    for channel in 0..N {
        server.open(id(channel.into()), cookie(channel), NOW).unwrap();
        server.poll_event();
    }
    for _ in 0..2 {
        server.handle_message(id(0), &AssociationMessage::List(list(&[0, 1, 2])), NOW).unwrap();
        assert!(server.poll_event().is_none());
    }
    server.handle_message(id(0), &AssociationMessage::List(list(&[0, 2, 1])), NOW).unwrap();
    let event = server.poll_event();
    let expected = ServerHandshakeAbort::ChangedList;
    assert!(
        matches!(event, Some(AssociationServerEvent::Aborted { reason, .. }) if reason == expected)
    );
}

//! A server's table with several connections, and a client: arbitrary bytes, and real messages with
//! changes.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sunder_association::{
    AssociationMessage, AssociationProtocol, AssociationServerEvent, AssociationTerms, COOKIE_LEN,
    ConnectionCookie, CookieList, HandshakeServer, HandshakeServerConfig, PendingConnectionId,
    SharingScheme, TermsPolicy,
};

#[path = "../../crates/channels/association/tests/all/driver.rs"]
mod driver;
use driver::{Client, ClientEvent};

#[derive(Arbitrary, Debug)]
enum Step {
    /// To the server: arbitrary bytes.
    Bytes { id: u8, bytes: Vec<u8> },
    /// To the server: the list of these connections' cookies, with one byte changed.
    List { id: u8, named: Vec<u8>, k: u8, options: u8, change: Option<(u16, u8)> },
    /// A new connection to the server.
    Open { id: u8 },
    /// A connection to the server ends.
    Close { id: u8 },
    /// To the client: arbitrary bytes.
    Answer { channel: u8, bytes: Vec<u8> },
    /// To the client: a cookie.
    Cookie { channel: u8, cookie: u8 },
    /// To the client: a confirm of its own list, with one byte changed.
    Confirm { channel: u8, change: Option<(u16, u8)> },
    /// Time passes.
    Wait { seconds: u8 },
}

const N: u8 = 3;

fuzz_target!(|steps: Vec<Step>| {
    let mut harness = Harness::new();
    for step in steps {
        harness.take(step);
        harness.check();
    }
});

struct Harness {
    now: Duration,
    server: HandshakeServer,
    client: Client,
    /// The list that the client sent.
    sent: Option<CookieList>,
    /// What the client received on each channel after that.
    answers: [Vec<u8>; N as usize],
}

impl Harness {
    fn new() -> Self {
        let policy = TermsPolicy {
            protocols: vec![AssociationProtocol::MicssStream],
            schemes: vec![SharingScheme::Xor, SharingScheme::Shamir],
            min_threshold: 2,
            max_channels: 5,
            options: 1,
        };
        let timeout = Duration::from_secs(10);
        let terms =
            AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Xor, N, N, 0)
                .unwrap();
        Self {
            now: Duration::ZERO,
            server: HandshakeServer::new(HandshakeServerConfig {
                max_pending: 16,
                timeout,
                quorum_timeout: Some(Duration::from_secs(2)),
                policy,
            }),
            client: Client::new(terms, Duration::from_secs(100)),
            sent: None,
            answers: Default::default(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Bytes { id, bytes } => self.to_server(id, &bytes),
            Step::List { id, named, k, options, change } => {
                let n = named.len() as u8;
                let terms = AssociationTerms::new(
                    AssociationProtocol::MicssStream,
                    SharingScheme::Shamir,
                    k,
                    n,
                    options.into(),
                );
                let cookies = named.into_iter().map(cookie).collect();
                if let Ok(list) = terms.map(|terms| CookieList::new(terms, cookies))
                    && let Ok(list) = list
                {
                    self.to_server(id, &changed(AssociationMessage::List(list).encode(), change));
                }
            }
            Step::Open { id } => {
                let _ = self.server.open(PendingConnectionId(id.into()), cookie(id), self.now);
            }
            Step::Close { id } => self.server.handle_closed(PendingConnectionId(id.into())),
            Step::Answer { channel, bytes } => self.to_client(channel, &bytes),
            Step::Cookie { channel, cookie: number } => {
                self.to_client(channel, &AssociationMessage::Cookie(cookie(number)).encode());
            }
            Step::Confirm { channel, change } => {
                if let Some(list) = &self.sent {
                    let bytes = changed(AssociationMessage::Confirm(list.clone()).encode(), change);
                    self.to_client(channel, &bytes);
                }
            }
            Step::Wait { seconds } => self.now += Duration::from_secs(seconds.into()),
        }
    }

    fn to_server(&mut self, id: u8, bytes: &[u8]) {
        let _ = self.server.handle_bytes(PendingConnectionId(id.into()), bytes, self.now);
    }

    fn to_client(&mut self, channel: u8, bytes: &[u8]) {
        let channel = usize::from(channel % N);
        if self.sent.is_some() {
            self.answers[channel].extend_from_slice(bytes);
        }
        self.client.handle_bytes(channel, bytes, self.now);
    }

    /// Every completion has its cause.
    fn check(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Transmit { message: AssociationMessage::List(list), .. } => {
                    self.sent = Some(list);
                }
                ClientEvent::Transmit { message, .. } => panic!("sent {:?}", message.kind()),
                ClientEvent::Associated { list } => {
                    assert!(self.sent.as_ref().is_some_and(|sent| sent.ct_matches(&list)));
                    let confirm = AssociationMessage::Confirm(list).encode();
                    assert!(self.answers.iter().all(|answer| answer.starts_with(&confirm)));
                }
                ClientEvent::Aborted { .. } => {}
            }
        }
        while let Some(event) = self.server.poll_event() {
            if let AssociationServerEvent::Associated { list, connections } = event {
                assert_eq!(list.cookies().len(), connections.len());
                let here = connections.iter().flatten().count();
                assert!(here >= list.terms().quorum().into());
                for (index, id) in connections.into_iter().enumerate() {
                    let place = id.map(|id| list.position(&cookie(id.0 as u8)));
                    assert!(place.is_none_or(|place| place == Some(index)));
                }
            }
        }
        assert!(self.server.pending() <= 16);
    }
}

fn cookie(number: u8) -> ConnectionCookie {
    ConnectionCookie::new([number; COOKIE_LEN])
}

fn changed(mut bytes: Vec<u8>, change: Option<(u16, u8)>) -> Vec<u8> {
    if let Some((place, difference)) = change {
        let place = usize::from(place) % bytes.len();
        bytes[place] ^= difference;
    }
    bytes
}

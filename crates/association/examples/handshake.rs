//! Three connections of one client, and one of another, are associated by a server, in memory.
//!
//! `cargo run --package sunder-association --example handshake`

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use sunder_association::{
    ClientEvent, Collected, ConnectionId, Cookie, CookieCollector, HandshakeConfig,
    HandshakeServer, Message, Protocol, ServerEvent, SharingScheme, Terms, TermsPolicy,
};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (now, timeout) = (Duration::ZERO, Duration::from_secs(10));
    let policy = TermsPolicy {
        protocols: vec![Protocol::MicssStream],
        schemes: vec![SharingScheme::Shamir],
        min_threshold: 2,
        max_channels: 8,
        options: 0,
    };
    let config = HandshakeConfig { max_pending: 64, timeout, quorum_timeout: None, policy };
    let mut server = HandshakeServer::new(config);

    // Connection 3 is another client's. Real cookies are random.
    for number in 0..4 {
        server.open(ConnectionId(number.into()), Cookie::new([number; 16]), now)?;
    }

    // The client's connection on channel i has the number i.
    let terms = Terms::new(Protocol::MicssStream, SharingScheme::Shamir, 2, 3, 0)?;
    let mut client = CookieCollector::new(terms, timeout);
    let mut confirms = None;
    while let Some(event) = server.poll_event() {
        if let ServerEvent::Transmit { id: ConnectionId(channel @ 0..3), message } = event {
            match client.handle_bytes(usize::try_from(channel)?, &message.encode(), now)? {
                Collected::Some(more) => client = more,
                Collected::All(all) => {
                    confirms = Some(all);
                    break;
                }
            }
        }
    }
    let mut client = confirms.ok_or("cookies are missing")?;

    let list = Message::List(client.list().clone()).encode();
    for channel in 0..3 {
        server.handle_bytes(ConnectionId(channel), &list, now)?;
    }
    while let Some(event) = server.poll_event() {
        match event {
            ServerEvent::Transmit { id: ConnectionId(channel @ 0..3), message } => {
                client.handle_bytes(usize::try_from(channel)?, &message.encode(), now);
            }
            ServerEvent::Associated { connections, .. } => {
                writeln!(out, "the server associated {connections:?}")?;
            }
            _ => {}
        }
    }
    match client.poll_event() {
        Some(ClientEvent::Associated { list }) => {
            writeln!(out, "the client has {} channels", list.terms().channels())?;
        }
        other => writeln!(out, "the client has no association: {other:?}")?,
    }
    Ok(())
}

#[test]
fn the_output_is_as_expected() {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    let expected = "the server associated [Some(ConnectionId(0)), Some(ConnectionId(1)), Some(ConnectionId(2))]
the client has 3 channels
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

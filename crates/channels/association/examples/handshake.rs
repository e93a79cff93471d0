//! Three connections of one client, and one of another, are associated by a server, in memory.
//!
//! `cargo run --package sunder-association --example handshake`

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use sunder_association::{
    AssociationClientEvent, AssociationMessage, AssociationProtocol, AssociationServerEvent,
    AssociationTerms, ConnectionCookie, CookieCollector, CookieProgress, HandshakeServer,
    HandshakeServerConfig, PendingConnectionId, SharingScheme, TermsPolicy,
};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (now, timeout) = (Duration::ZERO, Duration::from_secs(10));
    let policy = TermsPolicy {
        protocols: vec![AssociationProtocol::MicssStream],
        schemes: vec![SharingScheme::Shamir],
        min_threshold: 2,
        max_channels: 8,
        options: 0,
    };
    let config = HandshakeServerConfig { max_pending: 64, timeout, quorum_timeout: None, policy };
    let mut server = HandshakeServer::new(config);

    // Connection 3 is another client's. Real cookies are random.
    for number in 0..4 {
        server.open(
            PendingConnectionId(number.into()),
            ConnectionCookie::new([number; 16]),
            now,
        )?;
    }

    // The client's connection on channel i has the number i.
    let terms =
        AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, 2, 3, 0)?;
    let mut client = CookieCollector::new(terms, timeout);
    let mut confirms = None;
    while let Some(event) = server.poll_event() {
        if let AssociationServerEvent::Transmit {
            id: PendingConnectionId(channel @ 0..3),
            message,
        } = event
        {
            match client.handle_bytes(usize::try_from(channel)?, &message.encode(), now)? {
                CookieProgress::Some(more) => client = more,
                CookieProgress::All(all) => {
                    confirms = Some(all);
                    break;
                }
            }
        }
    }
    let mut client = confirms.ok_or("cookies are missing")?;

    let list = AssociationMessage::List(client.list().clone()).encode();
    for channel in 0..3 {
        server.handle_bytes(PendingConnectionId(channel), &list, now)?;
    }
    while let Some(event) = server.poll_event() {
        match event {
            AssociationServerEvent::Transmit {
                id: PendingConnectionId(channel @ 0..3),
                message,
            } => {
                client.handle_bytes(usize::try_from(channel)?, &message.encode(), now);
            }
            AssociationServerEvent::Associated { connections, .. } => {
                writeln!(out, "the server associated {connections:?}")?;
            }
            _ => {}
        }
    }
    match client.poll_event() {
        Some(AssociationClientEvent::Associated { list }) => {
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
    let expected = "the server associated [Some(PendingConnectionId(0)), Some(PendingConnectionId(1)), Some(PendingConnectionId(2))]
the client has 3 channels
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

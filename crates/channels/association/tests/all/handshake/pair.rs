//! One client and one server that are connected directly.

use std::time::Duration;

use sunder_association::{
    AssociationMessage, AssociationProtocol, AssociationServerEvent, AssociationTerms, COOKIE_LEN,
    ClientHandshakeAbort, ConnectionCookie, CookieList, HandshakeServer, HandshakeServerConfig,
    PendingConnectionId, ServerHandshakeAbort, SharingScheme, TermsPolicy,
};

use crate::driver::{Client, ClientEvent};

pub(crate) const NOW: Duration = Duration::from_secs(1000);
/// The time limit of both ends. The longest delay of the simulated adversary is longer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// The outcome of a handshake. The server's connection number is the channel's.
pub(crate) struct Ended {
    pub(crate) client: Result<CookieList, ClientHandshakeAbort>,
    pub(crate) server: Option<CookieList>,
    pub(crate) server_aborts: Vec<ServerHandshakeAbort>,
}

/// Runs one handshake over n streams. `tamper` gets every message before its receiver.
pub(crate) fn run(
    terms: AssociationTerms,
    mut tamper: impl FnMut(usize, &AssociationMessage, &mut Vec<u8>),
) -> Ended {
    let mut client = Client::new(terms, NOW + TIMEOUT);
    let mut server = server();
    for channel in 0..terms.channels() {
        server.open(id(channel.into()), cookie(channel), NOW).unwrap();
    }
    let mut ended = Ended {
        client: Err(ClientHandshakeAbort::TimedOut),
        server: None,
        server_aborts: Vec::new(),
    };
    for now in [NOW, NOW + TIMEOUT] {
        client.handle_timeout(now);
        server.handle_timeout(now);
        while exchange(&mut client, &mut server, &mut tamper, &mut ended, now) {}
    }
    ended
}

/// Handles all pending events; false if there was none.
fn exchange(
    client: &mut Client,
    server: &mut HandshakeServer,
    tamper: &mut impl FnMut(usize, &AssociationMessage, &mut Vec<u8>),
    ended: &mut Ended,
    now: Duration,
) -> bool {
    let mut busy = false;
    while let Some(event) = server.poll_event() {
        busy = true;
        match event {
            AssociationServerEvent::Transmit { id, message } => {
                let channel = usize::try_from(id.0).unwrap();
                let mut bytes = message.encode();
                tamper(channel, &message, &mut bytes);
                client.handle_bytes(channel, &bytes, now);
            }
            AssociationServerEvent::Associated { list, .. } => ended.server = Some(list),
            AssociationServerEvent::Rejoin { .. } => panic!("nobody rejoins"),
            AssociationServerEvent::Aborted { id, reason } => {
                ended.server_aborts.push(reason);
                client.handle_closed(usize::try_from(id.0).unwrap());
            }
        }
    }
    while let Some(event) = client.poll_event() {
        busy = true;
        match event {
            ClientEvent::Transmit { channel, message } => {
                let mut bytes = message.encode();
                tamper(channel, &message, &mut bytes);
                // A connection may have been given up in the meantime.
                let _ = server.handle_bytes(id(channel as u64), &bytes, now);
            }
            ClientEvent::Associated { list } => ended.client = Ok(list),
            ClientEvent::Aborted { reason } => {
                ended.client = Err(reason);
                (0..=u8::MAX).for_each(|channel| server.handle_closed(id(channel.into())));
            }
        }
    }
    busy
}

pub(crate) fn server() -> HandshakeServer {
    HandshakeServer::new(config())
}

pub(crate) fn config() -> HandshakeServerConfig {
    HandshakeServerConfig {
        max_pending: 20_000,
        timeout: TIMEOUT,
        quorum_timeout: None,
        policy: TermsPolicy {
            protocols: vec![AssociationProtocol::MicssStream],
            schemes: vec![SharingScheme::Xor, SharingScheme::Shamir],
            min_threshold: 1,
            max_channels: 8,
            options: 0xffff,
        },
    }
}

pub(crate) fn id(number: u64) -> PendingConnectionId {
    PendingConnectionId(number)
}

pub(crate) fn cookie(number: u8) -> ConnectionCookie {
    ConnectionCookie::new([number; COOKIE_LEN])
}

pub(crate) fn xor(n: u8) -> AssociationTerms {
    AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Xor, n, n, 0).unwrap()
}

/// The list of the connections that have these cookies.
pub(crate) fn list(cookies: &[u8]) -> CookieList {
    let n = u8::try_from(cookies.len()).unwrap();
    CookieList::new(xor(n), cookies.iter().copied().map(cookie).collect()).unwrap()
}

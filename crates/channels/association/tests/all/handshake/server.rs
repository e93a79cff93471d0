//! The server's decisions, one by one. Connection i has the cookie i.

use sunder_association::{
    AssociationMessage, AssociationMessageError, AssociationMessageKind, AssociationOpenError,
    AssociationProtocol, AssociationServerEvent, AssociationTerms, COOKIE_LEN, ChannelPositions,
    ConnectionCookie, CookieList, HandshakeServer, NotPendingError, PROOF_LEN, PendingConnectionId,
    Rejoin, ServerHandshakeAbort, SharingScheme,
};

use super::pair::{NOW, TIMEOUT, config, cookie, id, list, server, xor};

/// A server's events except greetings: confirms, associations and aborts, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Confirm(u64),
    Associate(Vec<u64>),
    Abort(u64, ServerHandshakeAbort),
    Rejoin(u64, Rejoin),
}

pub(crate) fn did(server: &mut HandshakeServer) -> Vec<Did> {
    let number = |id: PendingConnectionId| id.0;
    let events = std::iter::from_fn(|| server.poll_event());
    let done = events.filter_map(|event| match event {
        AssociationServerEvent::Transmit { id, message: AssociationMessage::Confirm(_) } => {
            Some(Did::Confirm(id.0))
        }
        AssociationServerEvent::Transmit { .. } => None,
        AssociationServerEvent::Associated { connections, .. } => {
            Some(Did::Associate(connections.into_iter().flatten().map(number).collect()))
        }
        AssociationServerEvent::Rejoin { id, rejoin, .. } => Some(Did::Rejoin(id.0, rejoin)),
        AssociationServerEvent::Aborted { id, reason } => Some(Did::Abort(id.0, reason)),
    });
    done.collect()
}

fn open(connections: u8) -> HandshakeServer {
    let mut server = server();
    for number in 0..connections {
        server.open(id(number.into()), cookie(number), NOW).unwrap();
    }
    server
}

fn deliver(server: &mut HandshakeServer, connection: u64, list: &CookieList) -> Vec<Did> {
    let bytes = AssociationMessage::List(list.clone()).encode();
    server.handle_bytes(id(connection), &bytes, NOW).unwrap();
    did(server)
}

fn feed(server: &mut HandshakeServer, connection: u64, bytes: &[u8]) -> Vec<Did> {
    server.handle_bytes(id(connection), bytes, NOW).unwrap();
    did(server)
}

fn disagrees(connection: u64, peer: u64) -> Did {
    Did::Abort(connection, ServerHandshakeAbort::PeerDisagrees { peer: id(peer) })
}

fn gone(connection: u64, peer: u64) -> Did {
    Did::Abort(connection, ServerHandshakeAbort::PeerGone { peer: id(peer) })
}

#[test]
fn associates_in_the_clients_order_once_all_have_delivered() {
    let mut server = open(5);
    let list = list(&[4, 0, 2]);
    assert_eq!(deliver(&mut server, 2, &list), []);
    assert_eq!(deliver(&mut server, 4, &list), []);
    let confirms = [Did::Confirm(4), Did::Confirm(0), Did::Confirm(2)];
    let associated = confirms.into_iter().chain([Did::Associate(vec![4, 0, 2])]);
    assert_eq!(deliver(&mut server, 0, &list), associated.collect::<Vec<_>>());
    assert_eq!(server.pending(), 2);
    let after = server.handle_bytes(id(0), b"transport", NOW);
    assert_eq!(after, Err(NotPendingError(id(0))));
}

#[test]
fn naming_anothers_cookie_before_its_list_costs_only_the_liar() {
    let mut server = open(3);
    assert_eq!(deliver(&mut server, 2, &list(&[0, 2])), []);
    assert_eq!(deliver(&mut server, 0, &list(&[0, 1])), [disagrees(2, 0)]);
    let associated = [Did::Confirm(0), Did::Confirm(1), Did::Associate(vec![0, 1])];
    assert_eq!(deliver(&mut server, 1, &list(&[0, 1])), associated);
}

#[test]
fn naming_anothers_cookie_after_its_list_costs_only_the_liar() {
    let mut server = open(3);
    assert_eq!(deliver(&mut server, 0, &list(&[0, 1])), []);
    assert_eq!(deliver(&mut server, 2, &list(&[2, 0])), [disagrees(2, 0)]);
    assert_eq!(deliver(&mut server, 1, &list(&[0, 1])).len(), 3);
}

#[test]
fn repeating_anothers_list_costs_only_the_liar() {
    let mut server = open(3);
    assert_eq!(deliver(&mut server, 0, &list(&[0, 1])), []);
    let not_named = [Did::Abort(2, ServerHandshakeAbort::NotNamed)];
    assert_eq!(deliver(&mut server, 2, &list(&[0, 1])), not_named);
    assert_eq!(deliver(&mut server, 1, &list(&[0, 1])).len(), 3);
}

#[test]
fn lists_that_differ_in_order_or_terms_disagree() {
    let mut server = open(2);
    assert_eq!(deliver(&mut server, 0, &list(&[0, 1])), []);
    let both = [disagrees(1, 0), gone(0, 1)];
    assert_eq!(deliver(&mut server, 1, &list(&[1, 0])), both);

    let mut server = open(2);
    let other_terms =
        AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Xor, 2, 2, 1)
            .unwrap();
    let other = CookieList::new(other_terms, vec![cookie(0), cookie(1)]).unwrap();
    assert_eq!(deliver(&mut server, 0, &list(&[0, 1])), []);
    assert_eq!(deliver(&mut server, 1, &other), both);
}

#[test]
fn unknown_and_associated_cookies_are_refused() {
    let unknown = |number| Did::Abort(number, ServerHandshakeAbort::UnknownCookie);
    let mut server = open(3);
    assert_eq!(deliver(&mut server, 0, &list(&[0, 9])), [unknown(0)]);
    assert_eq!(deliver(&mut server, 1, &list(&[1])).len(), 2);
    assert_eq!(deliver(&mut server, 2, &list(&[1, 2])), [unknown(2)]);
}

#[test]
fn unacceptable_terms_are_refused() {
    let terms = |scheme, k, n, options| {
        AssociationTerms::new(AssociationProtocol::MicssStream, scheme, k, n, options)
    };
    let refused = [
        terms(SharingScheme::Xor, 3, 3, 0),
        terms(SharingScheme::Shamir, 1, 3, 0),
        terms(SharingScheme::Shamir, 2, 5, 0),
        terms(SharingScheme::Shamir, 2, 3, 0x100),
    ];
    let mut config = config();
    config.policy.schemes = vec![SharingScheme::Shamir];
    config.policy.min_threshold = 2;
    config.policy.max_channels = 4;
    config.policy.options = 0xff;
    for terms in refused.map(Result::unwrap) {
        let mut server = HandshakeServer::new(config.clone());
        server.open(id(0), cookie(0), NOW).unwrap();
        let list = CookieList::new(terms, (0..terms.channels()).map(cookie).collect()).unwrap();
        server.handle_message(id(0), &AssociationMessage::List(list), NOW).unwrap();
        assert_eq!(did(&mut server), [Did::Abort(0, ServerHandshakeAbort::Terms)], "{terms:?}");
    }
}

#[test]
fn longer_lists_than_allowed_are_refused_by_their_header() {
    let mut server = open(1);
    let header = b"SNDR\x01\x02\x01\x28";
    let error =
        AssociationMessageError::BodyLength { kind: AssociationMessageKind::List, body_len: 0x128 };
    assert_eq!(feed(&mut server, 0, header), [Did::Abort(0, ServerHandshakeAbort::Message(error))]);
}

/// A connection that takes a place in an association leaves the table, and others whose list
/// names it are aborted as if it had closed. It can neither do so after a list, nor over datagrams.
#[test]
fn a_connection_rejoins_before_it_has_sent_a_list() {
    let state = ChannelPositions { received: 1 << 40, kept_from: 7 };
    let rejoin =
        Rejoin { association: [5; 16], channel: 1, positions: state, proof: [9; PROOF_LEN] };
    let message = AssociationMessage::Rejoin(rejoin).encode();
    assert!(
        matches!(AssociationMessage::parse(&message), Ok(AssociationMessage::Rejoin(parsed)) if parsed == rejoin)
    );
    let mut server = open(2);
    assert_eq!(feed(&mut server, 1, &AssociationMessage::List(list(&[0, 1])).encode()), []);
    let others = Did::Abort(1, ServerHandshakeAbort::PeerGone { peer: id(0) });
    assert_eq!(feed(&mut server, 0, &message), [Did::Rejoin(0, rejoin), others]);
    assert_eq!(server.pending(), 0);

    let mut server = open(2);
    feed(&mut server, 0, &AssociationMessage::List(list(&[0, 1])).encode());
    let unexpected = ServerHandshakeAbort::Unexpected(AssociationMessageKind::Rejoin);
    server.handle_message(id(0), &AssociationMessage::Rejoin(rejoin), NOW).unwrap();
    assert_eq!(did(&mut server), [Did::Abort(0, unexpected)]);
}

#[test]
fn clients_send_lists_only() {
    for (message, kind) in [
        (AssociationMessage::Cookie(cookie(0)), AssociationMessageKind::Cookie),
        (AssociationMessage::Confirm(list(&[0])), AssociationMessageKind::Confirm),
    ] {
        let mut server = open(1);
        let unexpected = [Did::Abort(0, ServerHandshakeAbort::Unexpected(kind))];
        assert_eq!(feed(&mut server, 0, &message.encode()), unexpected);
    }
}

#[test]
fn bytes_after_a_list_belong_to_the_transport() {
    let list = list(&[0, 1]);
    let bytes = [&AssociationMessage::List(list.clone()).encode()[..], b"first"].concat();
    let mut server = open(2);
    let (start, end) = bytes.split_at(20);
    assert_eq!(server.handle_bytes(id(0), start, NOW), Ok(&b""[..]));
    assert_eq!(server.handle_bytes(id(0), end, NOW), Ok(&b"first"[..]));
    assert_eq!(server.handle_bytes(id(0), b"more", NOW), Ok(&b"more"[..]));
    assert_eq!(did(&mut server), []);

    // A repetition of the list belongs to the transport, too, and so do the bytes behind the last
    // one.
    assert_eq!(server.handle_bytes(id(0), &bytes, NOW), Ok(&bytes[..]));
    assert_eq!(server.handle_bytes(id(1), &bytes, NOW), Ok(&b"first"[..]));
    let associated = [Did::Confirm(0), Did::Confirm(1), Did::Associate(vec![0, 1])];
    assert_eq!(did(&mut server), associated);
}

#[test]
fn closing_a_connection_aborts_those_that_name_it() {
    let mut server = open(5);
    assert_eq!(deliver(&mut server, 0, &list(&[0, 1, 2])), []);
    assert_eq!(deliver(&mut server, 1, &list(&[0, 1, 2])), []);
    assert_eq!(deliver(&mut server, 3, &list(&[3, 2])), []);
    server.handle_closed(id(2));
    let closed = Did::Abort(2, ServerHandshakeAbort::Closed);
    assert_eq!(did(&mut server), [closed, gone(0, 2), gone(1, 2), gone(3, 2)]);
    assert_eq!(server.pending(), 1);
}

#[test]
fn every_connection_has_its_own_deadline() {
    let mut server = server();
    let later = NOW + TIMEOUT / 2;
    server.open(id(0), cookie(0), NOW).unwrap();
    server.open(id(1), cookie(1), later).unwrap();
    assert_eq!(server.poll_timeout(), Some(NOW + TIMEOUT));
    server.handle_timeout(NOW + TIMEOUT);
    assert_eq!(did(&mut server), [Did::Abort(0, ServerHandshakeAbort::TimedOut)]);
    assert_eq!(server.poll_timeout(), Some(later + TIMEOUT));
    // A list that arrives too late is too late, even without a call for the timeout.
    let late = server.handle_message(id(1), &AssociationMessage::List(list(&[1])), later + TIMEOUT);
    assert_eq!(late, Err(NotPendingError(id(1))));
    assert_eq!(did(&mut server), [Did::Abort(1, ServerHandshakeAbort::TimedOut)]);
    assert_eq!(server.poll_timeout(), None);
}

#[test]
fn the_table_is_bounded() {
    let mut config = config();
    config.max_pending = 1;
    let mut server = HandshakeServer::new(config);
    server.open(id(0), cookie(0), NOW).unwrap();
    let full = AssociationOpenError::TableFull { max_pending: 1 };
    assert_eq!(server.open(id(1), cookie(1), NOW), Err(full));
    assert_eq!(server.open(id(1), cookie(1), NOW + TIMEOUT), Ok(()));
}

#[test]
fn duplicate_ids_and_cookies_are_rejected() {
    let mut server = open(1);
    assert_eq!(server.open(id(0), cookie(1), NOW), Err(AssociationOpenError::IdInUse(id(0))));
    assert_eq!(server.open(id(1), cookie(0), NOW), Err(AssociationOpenError::CookieInUse));
    assert_eq!(server.pending(), 1);
}

#[test]
fn many_lists_naming_one_cookie_are_aborted_with_it() {
    let mut server = server();
    let numbered = |number: u64| {
        let mut bytes = [0; COOKIE_LEN];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        ConnectionCookie::new(bytes)
    };
    for number in 0..10_000 {
        server.open(id(number), numbered(number), NOW).unwrap();
    }
    for number in 1..10_000 {
        let list = CookieList::new(xor(2), vec![numbered(0), numbered(number)]).unwrap();
        server.handle_message(id(number), &AssociationMessage::List(list), NOW).unwrap();
    }
    assert_eq!((did(&mut server).len(), server.pending()), (0, 10_000));
    server.handle_closed(id(0));
    assert_eq!((did(&mut server).len(), server.pending()), (10_000, 0));
}

//! The client's decisions, one by one, over two channels whose cookies are 0 and 1.

use sunder_association::{
    AssociationMessage, AssociationMessageError, AssociationMessageKind, AssociationProtocol,
    AssociationTerms, ClientHandshakeAbort, CookieList, CookieListError, SharingScheme,
};

use super::pair::{NOW, TIMEOUT, cookie, list, xor};
use crate::driver::{Client, ClientEvent};

fn client() -> Client {
    Client::new(xor(2), NOW + TIMEOUT)
}

/// A client that has sent its lists.
fn listed() -> Client {
    let mut client = client();
    for channel in 0..2 {
        greet(&mut client, channel.into(), channel);
    }
    for expected in 0..2 {
        let event = client.poll_event();
        let Some(ClientEvent::Transmit { channel, message: AssociationMessage::List(sent) }) =
            event
        else {
            panic!("{event:?}");
        };
        assert_eq!(channel, expected);
        assert!(sent.ct_matches(&list(&[0, 1])));
    }
    assert!(client.poll_event().is_none());
    client
}

fn greet(client: &mut Client, channel: usize, number: u8) {
    client.handle_bytes(channel, &AssociationMessage::Cookie(cookie(number)).encode(), NOW);
}

fn confirm() -> Vec<u8> {
    AssociationMessage::Confirm(list(&[0, 1])).encode()
}

fn expect_abort(mut client: Client, expected: ClientHandshakeAbort) {
    match client.poll_event() {
        Some(ClientEvent::Aborted { reason }) => assert_eq!(reason, expected),
        other => panic!("{other:?} and not {expected:?}"),
    }
    assert!(client.poll_event().is_none());
    assert_eq!(client.poll_timeout(), None);
    assert_eq!(client.handle_bytes(0, &confirm(), NOW), b"");
    assert!(client.poll_event().is_none());
}

#[test]
fn completes_and_returns_bytes_after_the_confirm() {
    let mut client = listed();
    let early = [&confirm()[..], b"server speaks first"].concat();
    assert_eq!(client.handle_bytes(0, &early, NOW), b"server speaks first");
    assert_eq!(client.handle_bytes(0, b"and on", NOW), b"and on");
    assert!(client.poll_event().is_none());
    assert_eq!(client.handle_bytes(1, &confirm()[..30], NOW), b"");
    assert_eq!(client.handle_bytes(1, &confirm()[30..], NOW), b"");
    assert!(matches!(client.poll_event(), Some(ClientEvent::Associated { .. })));
    // From here on all bytes belong to the transport.
    client.handle_timeout(NOW + TIMEOUT);
    client.handle_closed(1);
    assert!(client.poll_event().is_none());
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn cookies_must_be_distinct() {
    let mut client = client();
    greet(&mut client, 0, 7);
    greet(&mut client, 1, 7);
    expect_abort(client, ClientHandshakeAbort::Cookies(CookieListError::RepeatedCookie));
}

#[test]
fn nothing_may_follow_a_cookie_before_the_list() {
    let mut later = client();
    greet(&mut later, 0, 0);
    later.handle_bytes(0, b"", NOW);
    assert!(later.poll_event().is_none());
    later.handle_bytes(0, b"x", NOW);
    expect_abort(later, ClientHandshakeAbort::ExtraBytes { channel: 0 });

    // With the last cookie, which would release the lists.
    let mut at_once = client();
    greet(&mut at_once, 0, 0);
    let bytes = [&AssociationMessage::Cookie(cookie(1)).encode()[..], b"S"].concat();
    at_once.handle_bytes(1, &bytes, NOW);
    expect_abort(at_once, ClientHandshakeAbort::ExtraBytes { channel: 1 });
}

#[test]
fn an_abort_takes_back_lists_not_yet_sent() {
    let mut client = client();
    greet(&mut client, 0, 0);
    greet(&mut client, 1, 1);
    client.handle_closed(0);
    expect_abort(client, ClientHandshakeAbort::Closed { channel: 0 });
}

#[test]
fn messages_out_of_place_abort() {
    let mut early = client();
    early.handle_bytes(1, &confirm(), NOW);
    expect_abort(
        early,
        ClientHandshakeAbort::Unexpected { channel: 1, kind: AssociationMessageKind::Confirm },
    );

    let mut repeated = listed();
    greet(&mut repeated, 1, 1);
    expect_abort(
        repeated,
        ClientHandshakeAbort::Unexpected { channel: 1, kind: AssociationMessageKind::Cookie },
    );

    let mut reflected = listed();
    reflected.handle_bytes(0, &AssociationMessage::List(list(&[0, 1])).encode(), NOW);
    expect_abort(
        reflected,
        ClientHandshakeAbort::Unexpected { channel: 0, kind: AssociationMessageKind::List },
    );
}

#[test]
fn another_list_confirmed_aborts_even_after_a_right_one() {
    for wrong in [&[1, 0], &[0, 2]] {
        let mut client = listed();
        client.handle_bytes(1, &confirm(), NOW);
        client.handle_bytes(0, &AssociationMessage::Confirm(list(wrong)).encode(), NOW);
        expect_abort(client, ClientHandshakeAbort::DifferentConfirm { channel: 0 });
    }
}

#[test]
fn a_longer_confirm_than_the_list_is_refused_by_its_header() {
    let mut client = listed();
    client.handle_bytes(0, b"SNDR\x01\x03\x00\x68", NOW);
    let source = AssociationMessageError::BodyLength {
        kind: AssociationMessageKind::Confirm,
        body_len: 0x68,
    };
    expect_abort(client, ClientHandshakeAbort::Message { channel: 0, source });
}

#[test]
fn a_confirmed_channel_that_closes_early_aborts() {
    let mut client = listed();
    client.handle_bytes(1, &confirm(), NOW);
    client.handle_closed(1);
    expect_abort(client, ClientHandshakeAbort::Closed { channel: 1 });
}

#[test]
fn the_deadline_aborts() {
    let mut waiting = listed();
    assert_eq!(waiting.poll_timeout(), Some(NOW + TIMEOUT));
    waiting.handle_timeout(NOW + TIMEOUT);
    expect_abort(waiting, ClientHandshakeAbort::TimedOut);

    let mut late = listed();
    late.handle_bytes(0, &confirm(), NOW);
    late.handle_bytes(1, &confirm(), NOW + TIMEOUT);
    expect_abort(late, ClientHandshakeAbort::TimedOut);
}

#[test]
fn an_unknown_channel_index_aborts() {
    let mut client = client();
    greet(&mut client, 2, 0);
    expect_abort(client, ClientHandshakeAbort::NoSuchChannel { channel: 2 });
}

/// If two of three are enough, one may be given up, and no more; and none before the list is sent.
#[test]
fn channels_that_are_not_needed_may_be_given_up() {
    let terms =
        AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, 2, 3, 0)
            .unwrap();
    let list = CookieList::new(terms, [0, 1, 2].map(cookie).into()).unwrap();
    let confirm = AssociationMessage::Confirm(list).encode();
    let mut client = Client::new(terms, NOW + TIMEOUT);
    for number in 0..3 {
        assert!(!client.exclude(1), "the list is not out");
        greet(&mut client, number.into(), number);
    }
    while client.poll_event().is_some() {}
    client.handle_bytes(2, &confirm, NOW);
    assert!(!client.exclude(3), "there is none");
    assert!(client.exclude(1));
    assert!(!client.exclude(1) && !client.exclude(0), "two are needed");
    assert!(client.poll_event().is_none());
    client.handle_bytes(0, &confirm, NOW);
    assert!(matches!(client.poll_event(), Some(ClientEvent::Associated { .. })));
    assert!(!listed().exclude(0), "both are needed");
}

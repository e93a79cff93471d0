//! Changed bytes, all of them, and arbitrary bytes.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use sunder_association::{
    AssociationMessage, AssociationMessageError, AssociationMessageKind, AssociationProtocol,
    AssociationTerms, COOKIE_LEN, ConnectionCookie, CookieList, HEADER_LEN, SharingScheme,
};

use super::pair::{NOW, TIMEOUT, cookie, id, list, run, server, xor};
use crate::driver::Client;

#[test]
fn nothing_changed_completes() {
    for n in 1..=8 {
        let ended = run(xor(n), |_, _, _| {});
        assert!(ended.client.unwrap().ct_matches(&ended.server.unwrap()));
        assert_eq!(ended.server_aborts, []);
    }
}

/// Every other value of every byte of every message on every channel.
#[test]
fn any_changed_byte_aborts() {
    for n in 1..=3 {
        for kind in [
            AssociationMessageKind::Cookie,
            AssociationMessageKind::List,
            AssociationMessageKind::Confirm,
        ] {
            let cookies = if kind == AssociationMessageKind::Cookie { 1 } else { usize::from(n) };
            let terms = if kind == AssociationMessageKind::Cookie { 0 } else { 8 };
            for place in 0..HEADER_LEN + terms + COOKIE_LEN * cookies {
                for channel in 0..n.into() {
                    (1..=u8::MAX).for_each(|flip| change_one_byte(n, kind, channel, place, flip));
                }
            }
        }
    }
}

fn change_one_byte(n: u8, kind: AssociationMessageKind, channel: usize, place: usize, flip: u8) {
    let what = format_args!("n = {n}, {kind:?} on {channel}, byte {place} ^ {flip}").to_string();
    let mut changed = 0;
    let ended = run(xor(n), |on, message, bytes| {
        if on == channel && message.kind() == kind {
            bytes[place] ^= flip;
            changed += 1;
        }
    });
    assert_eq!(changed, 1, "{what}");
    assert!(ended.client.is_err(), "the client completed: {what}");
    // The server cannot detect a change after its part is done, or on the only channel.
    let unseen = kind == AssociationMessageKind::Confirm || n == 1;
    assert!(unseen || ended.server.is_none(), "the server associated: {what}");
}

#[test]
fn an_extra_byte_belongs_to_the_transport_except_after_the_cookie() {
    for (kind, completes) in [
        (AssociationMessageKind::Cookie, false),
        (AssociationMessageKind::List, true),
        (AssociationMessageKind::Confirm, true),
    ] {
        for channel in 0..3 {
            let ended = run(xor(3), |on, message, bytes| {
                if on == channel && message.kind() == kind {
                    bytes.push(0);
                }
            });
            assert_eq!(ended.client.is_ok(), completes, "{kind:?} on {channel}");
            assert_eq!(ended.server.is_some(), completes, "{kind:?} on {channel}");
        }
    }
}

fn terms() -> impl Strategy<Value = AssociationTerms> {
    (1..=u8::MAX, any::<u8>(), any::<bool>(), any::<u32>()).prop_map(|(n, k, xor, options)| {
        let (scheme, k) =
            if xor { (SharingScheme::Xor, n) } else { (SharingScheme::Shamir, 1 + k % n) };
        AssociationTerms::new(AssociationProtocol::MicssStream, scheme, k, n, options).unwrap()
    })
}

fn any_list() -> impl Strategy<Value = CookieList> {
    (terms(), any::<[u8; COOKIE_LEN - 1]>()).prop_map(|(terms, salt)| {
        let cookie = |place: u8| {
            let mut bytes = [place; COOKIE_LEN];
            bytes[1..].copy_from_slice(&salt);
            ConnectionCookie::new(bytes)
        };
        CookieList::new(terms, (0..terms.channels()).map(cookie).collect()).unwrap()
    })
}

fn any_message() -> impl Strategy<Value = AssociationMessage> {
    prop_oneof![
        any::<[u8; COOKIE_LEN]>()
            .prop_map(|bytes| AssociationMessage::Cookie(ConnectionCookie::new(bytes))),
        any_list().prop_map(AssociationMessage::List),
        any_list().prop_map(AssociationMessage::Confirm),
    ]
}

/// Bytes that often pass the first checks, so that they reach the later ones.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let small = (0..4u8, vec(0..3u8, 1..4)).prop_map(|(kind, cookies)| {
        let distinct: std::collections::BTreeSet<u8> = cookies.iter().copied().collect();
        let list = list(&distinct.into_iter().collect::<Vec<_>>());
        match kind {
            0 => AssociationMessage::Cookie(cookie(cookies[0])).encode(),
            1 => AssociationMessage::Confirm(list).encode(),
            _ => AssociationMessage::List(list).encode(),
        }
    });
    let headed = (0..5u8, vec(any::<u8>(), 0..200)).prop_map(|(kind, body)| {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [b"SNDR\x01", &[kind][..], &len, &body].concat()
    });
    prop_oneof![4 => small, 2 => headed, 1 => vec(any::<u8>(), 0..100)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsing_undoes_encoding(message in any_message()) {
        let bytes = message.encode();
        let parsed = AssociationMessage::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.kind(), message.kind());
        prop_assert_eq!(parsed.encode(), bytes);
    }

    #[test]
    fn a_truncated_message_does_not_parse(message in any_message(), cut in any::<prop::sample::Index>()) {
        let bytes = message.encode();
        let part = &bytes[..cut.index(bytes.len())];
        let error = AssociationMessage::parse(part).unwrap_err();
        prop_assert_eq!(error, AssociationMessageError::Length { got: part.len() });
    }

    #[test]
    fn parsed_messages_have_one_encoding(bytes in likely_bytes()) {
        if let Ok(message) = AssociationMessage::parse(&bytes) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }

    #[test]
    fn a_client_does_not_panic_on_arbitrary_bytes(
        steps in vec((0..4usize, likely_bytes(), any::<bool>()), 0..12),
    ) {
        let mut client = Client::new(xor(3), NOW + TIMEOUT);
        for (channel, bytes, cut) in steps {
            let middle = if cut { bytes.len() / 2 } else { 0 };
            for piece in [&bytes[..middle], &bytes[middle..]] {
                let rest = client.handle_bytes(channel, piece, NOW);
                prop_assert!(piece.ends_with(rest));
            }
            while client.poll_event().is_some() {}
        }
    }

    #[test]
    fn a_server_survives_arbitrary_bytes_and_removes_all_connections_by_the_deadline(
        steps in vec((0..6u8, likely_bytes(), 0..2000u64), 0..24),
    ) {
        let mut server = server();
        let mut now = NOW;
        for (number, bytes, millis) in steps {
            let connection = id(number.into());
            match number {
                5 => server.handle_closed(id(u64::from(bytes.first().copied().unwrap_or(0) % 5))),
                _ if server.handle_bytes(connection, &bytes, now).is_ok() => {}
                _ => server.open(connection, cookie(number), now).unwrap(),
            }
            now += Duration::from_millis(millis);
            while server.poll_event().is_some() {}
        }
        server.handle_timeout(now + TIMEOUT);
        prop_assert_eq!((server.pending(), server.poll_timeout()), (0, None));
    }
}

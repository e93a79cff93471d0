//! The handshake with datagrams lost, repeated, late and forged, with restarts of ends, and with
//! unverified datagrams.

mod adversary;
mod quorum;
mod scenario;

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use random::RandomGenerator;
use sim::SeededRng;
use sunder_remicss::control::handshake::{
    ANSWERS_PER_SECOND, ClientIdentity, HANDSHAKE_TIMEOUT, RETRY_INTERVAL, SharedKey,
    TermsMismatch, TunnelClientEvent, TunnelClientFailure, TunnelClientRefusal,
    TunnelHandshakeClient, TunnelHandshakeServer, TunnelServerEvent,
};
use sunder_remicss::wire::handshake::HandshakeDatagram;
use sunder_remicss::wire::keys::TunnelKeys;
use sunder_remicss::wire::terms::TunnelTerms;

use adversary::Adversary;
use scenario::{Outcome, Scenario, address, keys_agree};

const NOW: Duration = Duration::from_secs(1000);

fn terms(n: u8) -> TunnelTerms {
    TunnelTerms::new(n, 1, true).unwrap()
}

fn key(byte: u8) -> SharedKey {
    SharedKey::new(&[byte; 32])
}

fn peer(n: u8) -> ClientIdentity {
    ClientIdentity::Addresses((0..n.into()).map(|channel| address(0, channel)).collect())
}

fn client(terms: TunnelTerms, key: Option<SharedKey>, now: Duration) -> TunnelHandshakeClient {
    TunnelHandshakeClient::new(terms, key, &mut RandomGenerator::seeded().unwrap(), now).unwrap()
}

fn server(terms: TunnelTerms, peer: ClientIdentity) -> TunnelHandshakeServer {
    TunnelHandshakeServer::new(terms, peer, &mut RandomGenerator::seeded().unwrap()).unwrap()
}

/// Delivers everything at once, in order, except the datagrams that `lost` selects; the time does
/// not advance.
fn exchange(
    client: &mut TunnelHandshakeClient,
    server: &mut TunnelHandshakeServer,
    now: Duration,
    mut lost: impl FnMut(usize, &[u8]) -> bool,
) {
    loop {
        let mut busy = false;
        while let Some((channel, bytes)) = client.poll_transmit(now) {
            busy = true;
            if !lost(channel, &bytes) {
                server.handle_datagram(channel, address(0, channel), &bytes, now);
            }
        }
        while let Some(reply) = server.poll_transmit() {
            busy = true;
            if !lost(reply.channel, &reply.bytes) {
                client.handle_datagram(reply.channel, &reply.bytes, now);
            }
        }
        if !busy {
            return;
        }
    }
}

/// Runs until the client's event.
fn finish(
    client: &mut TunnelHandshakeClient,
    server: &mut TunnelHandshakeServer,
    mut now: Duration,
) -> TunnelClientEvent {
    loop {
        client.handle_timeout(now);
        exchange(client, server, now, |_, _| false);
        if let Some(event) = client.poll_event() {
            return event;
        }
        now = client.poll_timeout().unwrap();
    }
}

fn failure(event: &TunnelClientEvent) -> &TunnelClientFailure {
    match event {
        TunnelClientEvent::Failed(failure) => failure,
        TunnelClientEvent::Associated(_) => panic!("associated"),
    }
}

fn associated(server: &mut TunnelHandshakeServer) -> Option<(TunnelKeys, Vec<SocketAddr>)> {
    std::iter::from_fn(|| server.poll_event()).find_map(|event| match event {
        TunnelServerEvent::Associated { keys, addresses } => Some((keys, addresses)),
        TunnelServerEvent::Refused { .. } => None,
    })
}

fn refusals(server: &mut TunnelHandshakeServer) -> Vec<TunnelClientRefusal> {
    let events = std::iter::from_fn(|| server.poll_event());
    let refusals = events.filter_map(|event| match event {
        TunnelServerEvent::Refused { reason, .. } => Some(reason),
        TunnelServerEvent::Associated { .. } => None,
    });
    refusals.collect()
}

#[test]
fn both_ends_get_the_same_in_two_round_trips() {
    let peers = |n| [peer(n), ClientIdentity::Key(key(1))];
    for n in [1, 2, 5, 16] {
        for (peer, key) in peers(n).into_iter().zip([None, Some(key(1))]) {
            let terms = TunnelTerms::new(n, n.div_ceil(2), true).unwrap();
            let (mut client, mut server) = (client(terms, key, NOW), server(terms, peer));
            exchange(&mut client, &mut server, NOW, |_, _| false);
            let Some(TunnelClientEvent::Associated(ours)) = client.poll_event() else {
                panic!("not associated");
            };
            let (theirs, addresses) = associated(&mut server).unwrap();
            assert!(keys_agree(&ours, &theirs));
            assert_eq!((ours.floor, theirs.floor), (n.div_ceil(2), n.div_ceil(2)));
            let expected: Vec<_> = (0..n.into()).map(|channel| address(0, channel)).collect();
            assert_eq!(addresses, expected);
            assert_eq!(client.poll_timeout(), None);
        }
    }
}

#[test]
fn without_tags_there_are_no_points() {
    let terms = TunnelTerms::new(2, 1, false).unwrap();
    let (mut client, mut server) = (client(terms, None, NOW), server(terms, peer(2)));
    let TunnelClientEvent::Associated(ours) = finish(&mut client, &mut server, NOW) else {
        panic!()
    };
    let (theirs, _) = associated(&mut server).unwrap();
    assert!(ours.outgoing.points.is_none() && ours.incoming.points.is_none());
    assert!(theirs.outgoing.points.is_none() && theirs.incoming.points.is_none());
}

#[test]
fn loss_duplication_and_delay_only_prolong_the_handshake() {
    for seed in 0..2_000 {
        let n = 1 + u8::try_from(seed % 5).unwrap();
        let mut scenario = Scenario::new(seed, n, None);
        assert_eq!(scenario.run(), Outcome::Completed, "seed {seed}");
    }
}

/// `SUNDER_SEEDS=N` runs as many seeds.
#[test]
fn an_attacker_on_all_channels_but_one_excludes_nothing() {
    let runs = sim::run_seeds(2_000, |seed| {
        let n = 2 + u8::try_from(seed % 4).unwrap();
        let mut scenario = Scenario::new(seed, n, Some(Adversary::new(seed ^ 0x5eed, n)));
        (scenario.run(), scenario.saw(TunnelClientRefusal::KeyShares))
    });
    let count = |outcome: Outcome| runs.iter().filter(|run| run.0 == outcome).count();
    let [completed, server_only, neither] =
        [Outcome::Completed, Outcome::ServerOnly, Outcome::Neither].map(count);
    let changed = runs.iter().filter(|run| run.1).count();
    println!("{completed} completed, {server_only} at the server only, {neither} neither");
    println!("changed key shares were noticed in {changed}");
    // An attack that always fails at the first step would show nothing.
    assert!(50 * completed.min(server_only).min(neither).min(changed) > runs.len());
}

#[test]
fn a_restarted_client_gets_new_keys() {
    let (terms, mut server) = (terms(3), server(terms(3), peer(3)));
    let mut first = client(terms, None, NOW);
    let TunnelClientEvent::Associated(old) = finish(&mut first, &mut server, NOW) else { panic!() };
    associated(&mut server).unwrap();
    let later = NOW + Duration::from_secs(1);
    let mut second = client(terms, None, later);
    let TunnelClientEvent::Associated(new) = finish(&mut second, &mut server, later) else {
        panic!()
    };
    let (theirs, _) = associated(&mut server).unwrap();
    assert!(keys_agree(&new, &theirs) && !keys_agree(&old, &theirs));
}

#[test]
fn a_replayed_handshake_is_only_confirmed() {
    let (mut client, mut server) = (client(terms(2), None, NOW), server(terms(2), peer(2)));
    let mut datagrams = Vec::new();
    exchange(&mut client, &mut server, NOW, |channel, bytes| {
        datagrams.push((channel, bytes.to_vec()));
        false
    });
    associated(&mut server).unwrap();
    let mut confirms = 0;
    for second in 0..40 {
        let now = NOW + Duration::from_secs(second);
        for (channel, bytes) in &datagrams {
            server.handle_datagram(*channel, address(0, *channel), bytes, now);
        }
        let replies: Vec<_> = std::iter::from_fn(|| server.poll_transmit()).collect();
        confirms += replies.iter().filter(|reply| reply.bytes[0] >> 4 == 11).count();
        assert!(associated(&mut server).is_none(), "again after {second} s");
    }
    // As long as the client may still ask, but not forever.
    assert!((2 * 10..=2 * 20).contains(&confirms), "{confirms}");
    assert_eq!(server.poll_timeout(), None, "nothing is kept");
}

#[test]
fn datagrams_of_another_handshake_are_ignored() {
    let (terms, mut server) = (terms(2), server(terms(2), peer(2)));
    let mut datagrams = Vec::new();
    exchange(&mut client(terms, None, NOW), &mut server, NOW, |channel, bytes| {
        datagrams.push((channel, bytes.to_vec()));
        false
    });
    let mut second = client(terms, None, NOW);
    for (channel, bytes) in &datagrams {
        second.handle_datagram(*channel, bytes, NOW);
    }
    assert!(matches!(finish(&mut second, &mut server, NOW), TunnelClientEvent::Associated(_)));
}

#[test]
fn a_restarted_server_makes_the_client_restart() {
    let (mut first, mut old) = (client(terms(3), None, NOW), server(terms(3), peer(3)));
    exchange(&mut first, &mut old, NOW, |_, bytes| bytes[0] >> 4 == 10);
    let mut new = server(terms(3), peer(3));
    let event = finish(&mut first, &mut new, NOW + Duration::from_secs(1));
    assert_eq!(
        failure(&event),
        &TunnelClientFailure::NoConfirm { channels: vec![0, 1, 2], members: 3 }
    );
    let later = NOW + HANDSHAKE_TIMEOUT;
    let event = finish(&mut client(terms(3), None, later), &mut new, later);
    assert!(matches!(event, TunnelClientEvent::Associated(_)));
}

#[test]
fn a_failure_names_the_channels() {
    let (mut client, mut server) = (client(terms(3), None, NOW), server(terms(3), peer(3)));
    let mut now = NOW;
    let event = loop {
        client.handle_timeout(now);
        exchange(&mut client, &mut server, now, |channel, _| channel == 1);
        if let Some(event) = client.poll_event() {
            break event;
        }
        now = client.poll_timeout().unwrap();
    };
    assert_eq!(now, NOW + HANDSHAKE_TIMEOUT);
    assert_eq!(
        failure(&event),
        &TunnelClientFailure::NoAnswer { channels: vec![1], min_channels: 3, all: 3 }
    );
    let message = failure(&event).to_string();
    assert!(message.starts_with("the server does not answer on channel 2: "), "{message}");
}

#[test]
fn ends_with_different_settings_do_not_associate() {
    let differ = |ours, theirs| {
        let (mut client, mut server) = (client(ours, None, NOW), server(theirs, peer(3)));
        let event = finish(&mut client, &mut server, NOW);
        assert!(matches!(failure(&event), TunnelClientFailure::NoConfirm { .. }));
        refusals(&mut server)[0]
    };
    let three = |floor, tags| TunnelTerms::new(3, floor, tags).unwrap();
    assert_eq!(
        differ(three(1, true), three(2, true)),
        TunnelClientRefusal::Terms(TermsMismatch::Floor(1))
    );
    assert_eq!(
        differ(three(1, true), three(1, false)),
        TunnelClientRefusal::Terms(TermsMismatch::Tags)
    );
    assert_eq!(
        differ(three(1, false), three(1, true)),
        TunnelClientRefusal::Terms(TermsMismatch::Tags)
    );
    assert_eq!(differ(terms(2), terms(3)), TunnelClientRefusal::Terms(TermsMismatch::Channels(2)));
    // The server accepts more privacy than it requires.
    let (mut client, mut server) = (client(three(3, true), None, NOW), server(terms(3), peer(3)));
    assert!(matches!(finish(&mut client, &mut server, NOW), TunnelClientEvent::Associated(_)));
    assert_eq!(associated(&mut server).unwrap().0.floor, 3);
}

#[test]
fn only_holders_of_the_key_are_answered() {
    for (theirs, ours) in [
        (ClientIdentity::Key(key(1)), Some(key(2))),
        (ClientIdentity::Key(key(1)), None),
        (peer(2), Some(key(1))),
    ] {
        let (mut client, mut server) = (client(terms(2), ours, NOW), server(terms(2), theirs));
        let (channel, hello) = client.poll_transmit(NOW).unwrap();
        server.handle_datagram(channel, address(0, channel), &hello, NOW);
        assert_eq!(server.poll_transmit(), None);
        let event = finish(&mut client, &mut server, NOW);
        assert_eq!(failure(&event), &TunnelClientFailure::Silent);
    }
}

#[test]
fn only_the_configured_addresses_are_answered() {
    let mut server =
        server(terms(2), ClientIdentity::Both(vec![address(0, 0), address(0, 1)], key(1)));
    let mut client = client(terms(2), Some(key(1)), NOW);
    let (channel, hello) = client.poll_transmit(NOW).unwrap();
    for from in [address(1, channel), address(0, 1 - channel)] {
        server.handle_datagram(channel, from, &hello, NOW);
        assert_eq!(server.poll_transmit(), None);
    }
    server.handle_datagram(channel, address(0, channel), &hello, NOW);
    let reply = server.poll_transmit().unwrap();
    assert!(reply.bytes.len() <= hello.len(), "no more than was sent");
    assert!(TunnelHandshakeServer::new(terms(3), peer(2), &mut RandomGenerator::system()).is_err());
}

#[test]
fn no_state_is_kept_for_unverified_senders() {
    let mut rng = SeededRng::new(1);
    let mut server = server(terms(2), ClientIdentity::Key(key(1)));
    let mut honest = client(terms(2), Some(key(1)), NOW);
    // One valid Hello, overheard, from many addresses: more than the server examines.
    let (channel, hello) = honest.poll_transmit(NOW).unwrap();
    let flood = ANSWERS_PER_SECOND;
    let mut answers = 0;
    for _ in 0..flood {
        let from = SocketAddr::from((rng.bytes::<4>(), 1 + u16::from(rng.bytes::<1>()[0])));
        server.handle_datagram(channel, from, &hello, NOW);
        answers += std::iter::from_fn(|| server.poll_transmit()).count();
    }
    assert_eq!(answers, 1 + usize::try_from(ANSWERS_PER_SECOND / 100).unwrap());
    assert_eq!(server.poll_timeout(), None, "nothing is kept");
    // The client is answered as soon as the flood leaves capacity. One without the key uses none.
    let later = NOW + Duration::from_millis(100);
    let mut forged = hello;
    forged[9] ^= 1;
    (0..flood).for_each(|_| server.handle_datagram(channel, address(0, channel), &forged, later));
    let event = finish(&mut honest, &mut server, later);
    assert!(matches!(event, TunnelClientEvent::Associated(_)));
}

#[test]
fn during_a_flood_a_client_is_answered_at_any_time() {
    let mut rng = SeededRng::new(1);
    let mut server = server(terms(2), ClientIdentity::Key(key(1)));
    let (channel, hello) = client(terms(2), Some(key(1)), NOW).poll_transmit(NOW).unwrap();
    // Five times as many as the server examines; the client's requests are as regular as its timer.
    let mut answered = 0;
    for ms in 0..10_000 {
        let begin = NOW + Duration::from_millis(ms);
        let mut times: Vec<u64> = (0..50).map(|_| rng.below(1000)).collect();
        times.sort_unstable();
        for us in times {
            server.handle_datagram(
                channel,
                address(1, 0),
                &hello,
                begin + Duration::from_micros(us),
            );
        }
        while server.poll_transmit().is_some() {}
        if ms % 250 == 35 {
            server.handle_datagram(
                channel,
                address(0, 0),
                &hello,
                begin + Duration::from_millis(1),
            );
            answered += u32::from(server.poll_transmit().is_some());
        }
    }
    assert!((2..20).contains(&answered), "of 40 Hellos {answered} were answered");
}

#[test]
fn datagrams_that_are_no_requests_use_up_no_rate_limit() {
    let mut server = server(terms(2), peer(2));
    let mut client = client(terms(2), None, NOW);
    let mut datagrams = Vec::new();
    exchange(&mut client, &mut server, NOW, |_, bytes| {
        datagrams.push(bytes.to_vec());
        bytes[0] >> 4 == 10
    });
    let of_kind = |kind| datagrams.iter().find(|bytes| bytes[0] >> 4 == kind).unwrap();
    let (hello, cookie, list) = (of_kind(8), of_kind(9), of_kind(10));
    let later = NOW + RETRY_INTERVAL;
    for _ in 0..ANSWERS_PER_SECOND {
        for bytes in [&hello[1..], &hello[..64], cookie, &list[..350], &[&list[..], &[0]].concat()]
        {
            server.handle_datagram(0, address(0, 0), bytes, later);
        }
    }
    // The time for requests is not used up.
    server.handle_datagram(0, address(0, 0), hello, later);
    assert_eq!(answers(&mut server).len(), 1);
    exchange(&mut client, &mut server, later, |_, _| false);
    assert!(matches!(client.poll_event(), Some(TunnelClientEvent::Associated(_))));
}

#[test]
fn a_flood_on_one_channel_does_not_suppress_answers_on_others() {
    let mut server = server(terms(2), peer(2));
    let hellos: Vec<_> = step(&mut client(terms(2), None, NOW));
    // The answers are not read for 40 ms.
    for us in 0..40_000 {
        let now = NOW + Duration::from_micros(us);
        server.handle_datagram(0, address(0, 0), &hellos[0].1, now);
    }
    server.handle_datagram(1, address(0, 1), &hellos[1].1, NOW);
    let answered = answers(&mut server);
    assert_eq!(answered.iter().filter(|(channel, _)| *channel == 0).count(), 256);
    assert_eq!(answered.iter().filter(|(channel, _)| *channel == 1).count(), 1);
    // And there is capacity again.
    server.handle_datagram(0, address(0, 0), &hellos[0].1, NOW + Duration::from_secs(1));
    assert_eq!(answers(&mut server).len(), 1);
}

#[test]
fn a_refusal_is_reported_once_a_minute_on_a_channel() {
    let three = |floor, tags| TunnelTerms::new(3, floor, tags).unwrap();
    let mut server = server(three(2, true), peer(3));
    let lists = |server: &mut TunnelHandshakeServer, terms, now| {
        let mut lists = Vec::new();
        exchange(&mut client(terms, None, now), server, now, |_, bytes| {
            let is_list = bytes[0] >> 4 == 10;
            if is_list {
                lists.push(bytes.to_vec());
            }
            is_list
        });
        lists
    };
    let mut reported = Vec::new();
    for minute in 0..5 {
        let now = NOW + Duration::from_secs(60 * minute);
        // Cookies are valid for less than a minute.
        let low = lists(&mut server, three(1, true), now);
        for ms in 0..1_000 {
            server.handle_datagram(0, address(0, 0), &low[0], now + Duration::from_millis(ms));
            reported.extend(refusals(&mut server));
        }
    }
    assert_eq!(reported, [TunnelClientRefusal::Terms(TermsMismatch::Floor(1)); 5]);
    // Others are reported at once.
    let now = NOW + Duration::from_secs(242);
    let low = lists(&mut server, three(1, true), now);
    let untagged = lists(&mut server, three(2, false), now);
    server.handle_datagram(0, address(0, 0), &low[0], now);
    server.handle_datagram(0, address(0, 0), &untagged[0], now);
    server.handle_datagram(1, address(0, 1), &low[1], now);
    let expected = [TermsMismatch::Tags, TermsMismatch::Floor(1)].map(TunnelClientRefusal::Terms);
    assert_eq!(refusals(&mut server), expected);
}

#[test]
fn refusals_do_not_suppress_an_association_event() {
    let mut server = server(terms(2), peer(2));
    let mut now = NOW;
    // The peer is gone for five minutes.
    for _ in 0..300 {
        now += Duration::from_secs(1);
        let mut other = client(TunnelTerms::new(2, 1, false).unwrap(), None, now);
        exchange(&mut other, &mut server, now, |_, _| false);
    }
    let event = finish(&mut client(terms(2), None, now), &mut server, now);
    assert!(matches!(event, TunnelClientEvent::Associated(_)));
    assert!(associated(&mut server).is_some(), "the client is alone");
}

#[test]
fn a_client_that_restarts_repeatedly_is_not_locked_out() {
    let mut server = server(terms(3), peer(3));
    let mut now = NOW;
    // Each attempt gets as far as possible without one channel's List.
    for _ in 0..40 {
        let mut client = client(terms(3), None, now);
        exchange(&mut client, &mut server, now, |channel, bytes| {
            channel == 2 && bytes[0] >> 4 == 10
        });
        now += Duration::from_millis(250);
    }
    let event = finish(&mut client(terms(3), None, now), &mut server, now);
    assert!(matches!(event, TunnelClientEvent::Associated(_)));
    server.handle_timeout(now + HANDSHAKE_TIMEOUT * 2);
    assert_eq!(server.poll_timeout(), None, "nothing is kept");
}

#[test]
fn a_hello_that_is_answered_twice_harms_nothing() {
    // The cookies change every ten seconds, as between these two times.
    let (before, after) = (Duration::from_millis(1_009_900), Duration::from_millis(1_010_100));
    let (mut client, mut server) = (client(terms(2), None, before), server(terms(2), peer(2)));
    let hellos: Vec<_> = std::iter::from_fn(|| client.poll_transmit(before)).collect();
    let mut cookies = Vec::new();
    for now in [before, after] {
        for (channel, hello) in &hellos {
            server.handle_datagram(*channel, address(0, *channel), hello, now);
        }
        let replies: Vec<_> = std::iter::from_fn(|| server.poll_transmit()).collect();
        for reply in &replies {
            client.handle_datagram(reply.channel, &reply.bytes, now);
        }
        cookies.push(replies);
    }
    assert_ne!(cookies[0], cookies[1]);
    assert!(matches!(finish(&mut client, &mut server, after), TunnelClientEvent::Associated(_)));
}

#[test]
fn time_that_goes_backwards_is_harmless() {
    let (mut client, mut server) = (client(terms(2), None, NOW), server(terms(2), peer(2)));
    server.handle_timeout(NOW + HANDSHAKE_TIMEOUT * 100);
    assert!(matches!(finish(&mut client, &mut server, NOW), TunnelClientEvent::Associated(_)));
    server.handle_timeout(Duration::MAX);
    assert_eq!(server.poll_timeout(), None);
}

proptest! {
    #[test]
    fn arbitrary_datagrams_do_not_panic(
        datagrams in prop::collection::vec(
            (0_usize..20, 0_u8..16, prop::collection::vec(any::<u8>(), 0..900)),
            1..20,
        ),
    ) {
        let (mut client, mut server) = (client(terms(2), None, NOW), server(terms(2), peer(2)));
        for (channel, kind, mut bytes) in datagrams {
            if let Some(first) = bytes.first_mut() {
                *first = kind << 4 | 1;
            }
            client.handle_datagram(channel, &bytes, NOW);
            server.handle_datagram(channel, address(0, channel), &bytes, NOW);
        }
        prop_assert!(matches!(finish(&mut client, &mut server, NOW), TunnelClientEvent::Associated(_)));
    }

    /// Every byte on one channel is changed: the ends never have different keys.
    #[test]
    fn a_changed_byte_does_not_leave_one_end_associated(
        seed: u64, victim in 0_usize..2, which in 8_u8..12, change in 1_u8..,
    ) {
        let mut rng = SeededRng::new(seed);
        let (mut client, mut server) = (client(terms(2), None, NOW), server(terms(2), peer(2)));
        for (channel, bytes) in step(&mut client) {
            let bytes = altered(&mut rng, channel == victim && which == 8, bytes, change);
            server.handle_datagram(channel, address(0, channel), &bytes, NOW);
        }
        for kind in [9, 10, 11] {
            let sent = if kind == 10 { step(&mut client) } else { answers(&mut server) };
            for (channel, bytes) in sent {
                let bytes = altered(&mut rng, channel == victim && which == kind, bytes, change);
                if kind == 10 {
                    server.handle_datagram(channel, address(0, channel), &bytes, NOW);
                } else {
                    client.handle_datagram(channel, &bytes, NOW);
                }
            }
        }
        if let Some(TunnelClientEvent::Associated(ours)) = client.poll_event() {
            let (theirs, _) = associated(&mut server).unwrap();
            prop_assert!(keys_agree(&ours, &theirs));
        }
    }
}

fn step(client: &mut TunnelHandshakeClient) -> Vec<(usize, Vec<u8>)> {
    std::iter::from_fn(|| client.poll_transmit(NOW)).collect()
}

fn answers(server: &mut TunnelHandshakeServer) -> Vec<(usize, Vec<u8>)> {
    let replies = std::iter::from_fn(|| server.poll_transmit());
    replies.map(|reply| (reply.channel, reply.bytes)).collect()
}

fn altered(rng: &mut SeededRng, alter: bool, mut bytes: Vec<u8>, change: u8) -> Vec<u8> {
    if alter {
        let place = rng.index(bytes.len());
        bytes[place] ^= change;
    }
    let _ = HandshakeDatagram::parse(&bytes);
    bytes
}

use keys::IdentitySecretKey;

use super::*;
use crate::net::Listener;

fn options(sent: u64) -> ConnectionOptions {
    let exchange = Some(ExchangeProfile { sent, received: 0, rounds: 1 });
    ConnectionOptions { exchange, ..ConnectionOptions::new(ConnectionSecurity::Insecure) }
}

fn listener() -> (Listener, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0", &options(0)).unwrap();
    let address = listener.local_addr();
    (listener, address)
}

#[test]
fn a_path_is_measured_once() {
    // On a busy host, a measurement may find no rates. Then the next connection measures again.
    assert!((0..5).any(|_| is_measured_once()), "each path was measured twice");
}

fn is_measured_once() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let cache = || PathCache::at(directory.path().to_owned());
    let (listener, to) = listener();
    let options = options(100_000_000_000);
    let first = TransportSelector::new(to, &options, cache()).choose();
    // On a busy host, another transport may seem to be faster.
    let is_tcp = first.decision.transport == "tcp";
    assert_eq!(first.stream.is_some(), is_tcp, "it is connected already");
    let path = first.path.unwrap();
    assert!(path.udp_passes);
    drop((first.stream, listener));
    let second = TransportSelector::new(to, &options, cache()).choose();
    second.path.unwrap().round_trip == path.round_trip && second.stream.is_none()
}

#[test]
fn who_loses_the_race_is_not_heard() {
    let secret = |number| IdentitySecretKey::new(&[number; 32]);
    let pinned = |own, peer: u8| {
        ConnectionOptions::new(ConnectionSecurity::pinned(secret(own), vec![secret(peer).public()]))
    };
    let listener = Listener::bind("127.0.0.1:0", &pinned(1, 2)).unwrap();
    let held =
        || transports::SECOND.connect_deferred(listener.local_addr(), &pinned(2, 1)).unwrap();
    drop(held());
    let kept = held();
    assert!(listener.accept_timeout(Duration::from_millis(200)).unwrap().is_none());
    kept.write(&[]).unwrap();
    let accepted = listener.accept_timeout(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!(accepted.transport(), "burst");
}

/// On a path of which only the round-trip time is known.
#[test]
fn without_rates_long_paths_are_for_burst_and_short_ones_for_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let cache = || PathCache::at(directory.path().to_owned());
    let to = "192.0.2.1:7000".parse().unwrap();
    for (round_trip_ms, sent, rounds, expected) in [
        (1, 200_000, 1, "tcp"),
        (1, 10_000, 10, "tcp"),
        (1, 30_000_000, 1, "tcp"),
        (20, 10_000, 10, "burst"),
        (20, 200_000, 1, "burst"),
        (300, 3_000_000, 1, "burst"),
        (300, 100_000, 100, "burst"),
    ] {
        let exchange = Some(ExchangeProfile { sent, received: 0, rounds });
        let options =
            ConnectionOptions { exchange, ..ConnectionOptions::new(ConnectionSecurity::Insecure) };
        let choosing = || TransportSelector::new(to, &options, cache());
        let path = NetworkPath::assumed(Duration::from_millis(round_trip_ms), 1.25e7);
        cache().update(|paths| {
            paths.0.clear();
            paths.record_measurement(&choosing().key, &path, false, PacketLosses::default(), now());
        });
        let times = choosing().times(&path, 1.25e9, 0.0);
        assert!(!choosing().needs_rates(&path), "{round_trip_ms} {sent} {times:?}");
        let decision = choosing().choose().decision;
        assert_eq!(decision.transport, expected, "{round_trip_ms} {sent} {}", decision.reason);
    }
}

#[test]
fn on_a_short_path_tcp_is_used_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (_listener, to) = listener();
    let options = options(30_000_000);
    let choosing =
        || TransportSelector::new(to, &options, PathCache::at(directory.path().to_owned()));
    assert!(choosing().is_short(Duration::from_millis(1)));
    assert!(!choosing().is_short(HEAD_START));
    let chosen = choosing().choose();
    // On a busy host, a connection over loopback may take longer than that.
    if chosen.path.is_none() {
        assert_eq!(chosen.decision.transport, "tcp", "{}", chosen.decision.reason);
        assert!(chosen.stream.is_some(), "it is connected already");
    }
}

#[test]
fn for_tiny_exchanges_nothing_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = options(1000);
    let cache = PathCache::at(directory.path().to_owned());
    let chosen = TransportSelector::new(silent.local_addr().unwrap(), &options, cache).choose();
    assert_eq!((chosen.decision.transport, chosen.path), ("tcp", None));
    silent.set_nonblocking(true).unwrap();
    assert!(silent.recv(&mut [0; 100]).is_err(), "no datagram was sent");
}

#[test]
fn a_wrong_prediction_changes_the_next_choice() {
    let directory = tempfile::tempdir().unwrap();
    let cache = || PathCache::at(directory.path().to_owned());
    let to = "192.0.2.1:7000".parse().unwrap();
    let options = options(3_000_000);
    let mut path = NetworkPath::assumed(Duration::from_millis(300), 1.25e7);
    path.loss = 0.0005;
    let choosing = || TransportSelector::new(to, &options, cache());
    cache().update(|paths| {
        paths.record_measurement(&choosing().key, &path, true, PacketLosses::default(), now());
    });
    let first = choosing().choose();
    let fastest = first.decision.transport;
    assert_ne!(fastest, "tcp", "{}", first.decision.reason);
    // It takes much longer than predicted.
    let predicted = first.predicted(fastest).unwrap();
    first.learn(|known, now| known.record_exchange(fastest, predicted, predicted * 20, now));
    let mut second = choosing().choose();
    assert_ne!(second.decision.transport, fastest);
    // The next connection cannot be opened at all.
    second.record_tcp_fallback(&io::ErrorKind::TimedOut.into());
    assert_eq!(second.decision.transport, "tcp");
    assert_eq!(choosing().choose().decision.transport, "tcp");
}

#[test]
fn where_udp_has_failed_it_is_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let cache = || PathCache::at(directory.path().to_owned());
    let to = "192.0.2.1:7000".parse().unwrap();
    let options = options(3_000_000);
    let path = NetworkPath::assumed(Duration::from_millis(300), 1.25e7);
    let choosing = |options| TransportSelector::new(to, options, cache());
    cache().update(|paths| {
        paths.record_measurement(
            &choosing(&options).key,
            &path,
            true,
            PacketLosses::default(),
            now(),
        );
    });
    let transport = |options| choosing(options).choose().decision.transport;
    assert_eq!(transport(&options), "burst");
    let avoiding = ConnectionOptions { avoids_udp: true, ..options.clone() };
    let chosen = choosing(&avoiding).choose();
    assert_eq!(chosen.decision.transport, "tcp");
    // Until data has arrived over TCP, the whole path may be broken.
    assert_eq!(transport(&options), "burst");
    chosen.udp_was_slower();
    assert_eq!(transport(&options), "tcp");
    // Even if nothing else is known.
    cache().update(|paths| paths.0.clear());
    choosing(&avoiding).choose().udp_was_slower();
    assert_eq!(transport(&options), "tcp");
}

#[test]
fn without_udp_tcp_is_used_soon() {
    // A busy host may delay some.
    let times: Vec<Duration> = (0..3).map(|_| time_of_choice_without_udp()).collect();
    let is_soon = times.iter().any(|time| *time < Duration::from_secs(2));
    assert!(is_soon, "it did not wait 3 s: {times:?}");
}

fn time_of_choice_without_udp() -> Duration {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let silent = UdpSocket::bind(to).unwrap();
    // An exchange so large that even a path as short as this one is measured.
    let options = options(100_000_000_000);
    let start = Instant::now();
    let cache = PathCache::at(directory.path().to_owned());
    let chosen = TransportSelector::new(to, &options, cache).choose();
    let took = start.elapsed();
    assert_eq!(chosen.decision.transport, "tcp");
    assert!(chosen.stream.is_some() && !chosen.path.unwrap().udp_passes);
    drop(silent);
    took
}

//! Two ends over a simulated network.

mod pair;

use std::time::Duration;

use keys::IdentitySecretKey;

use crate::{QuicCongestionControl, QuicPeerPolicy};
use pair::{Pair, Path, config};

fn path(delay_ms: u64, rate_bps: u64, loss_permille: u64) -> Path {
    Path { delay: Duration::from_millis(delay_ms), rate_bps: Some(rate_bps), loss_permille }
}

#[test]
fn a_stream_arrives_on_any_path() {
    let losses = [0, 10, 50, 200];
    for (seed, loss_permille) in (0..12).zip(losses.into_iter().cycle()) {
        let path = path(1 + 70 * (seed % 3), 50_000_000, loss_permille);
        let (client, server) = config();
        let mut pair = Pair::connect(seed, path, &client, &server).unwrap();
        pair.transfer([300_000, 100_000]);
    }
}

/// `quinn-proto` alone fails here: it overshoots, and then has thousands of gaps at a time.
#[test]
fn many_gaps_do_not_end_a_connection() {
    for congestion in [QuicCongestionControl::Bbr, QuicCongestionControl::Cubic] {
        let (mut client, server) = config();
        client.congestion = congestion;
        client.initial_window = Some(40 << 20);
        let mut pair = Pair::connect(3, path(150, 200_000_000, 1), &client, &server).unwrap();
        pair.transfer([24 << 20, 0]);
    }
}

#[test]
fn a_connection_follows_a_peer_whose_address_changes() {
    let (client, server) = config();
    let mut pair = Pair::connect(1, path(20, 50_000_000, 1), &client, &server).unwrap();
    pair.client_moves_at(pair.now() + Duration::from_millis(300));
    pair.transfer([3_000_000, 3_000_000]);
}

#[test]
fn a_peer_that_disappears_is_an_error_in_time() {
    let (client, server) = config();
    let mut pair = Pair::connect(1, path(20, 50_000_000, 0), &client, &server).unwrap();
    pair.cut();
    let latest = pair.now() + Duration::from_secs(20);
    let error = pair.fail();
    assert_eq!(error, "the peer was silent for 15 s");
    assert!(pair.now() < latest);
}

#[test]
fn keys_decide_who_connects() {
    let (client, server) = config();
    let other = IdentitySecretKey::new(&[9; 32]).public();
    let pair = Pair::connect(1, path(1, 50_000_000, 0), &client, &server).unwrap();
    assert_eq!(pair.peer_keys(), [server.identity.public(), client.identity.public()]);

    // A client that expects another key of the listener gets a clear error.
    for listener in [Some(other), None] {
        let stranger = crate::QuicConfig { listener, ..client.clone() };
        let error = Pair::connect(1, path(1, 50_000_000, 0), &stranger, &server).err().unwrap();
        let expected = "another key than the expected one, or bytes were changed on the way";
        assert!(error.contains(expected), "{error}");
    }
    let insecure = crate::QuicConfig { listener: None, ..server.clone() };
    let error = Pair::connect(1, path(1, 50_000_000, 0), &client, &insecure).err().unwrap();
    assert_eq!(error, "the listener there does not encrypt");
    // The client accepts no other listener, and the listener no other client.
    let expects = crate::QuicConfig { peers: QuicPeerPolicy::Only(vec![other]), ..client.clone() };
    let error = Pair::connect(1, path(1, 50_000_000, 0), &expects, &server).err().unwrap();
    assert!(error.starts_with("the peer does not have the key that was expected"), "{error}");
    let expects = crate::QuicConfig { peers: QuicPeerPolicy::Only(vec![other]), ..server };
    let mut pair = match Pair::connect(1, path(1, 50_000_000, 0), &client, &expects) {
        Ok(pair) => pair,
        Err(error) => return assert!(error.starts_with("the peer did not accept"), "{error}"),
    };
    let error = pair.fail();
    assert!(error.starts_with("the peer did not accept this end's key"), "{error}");
}

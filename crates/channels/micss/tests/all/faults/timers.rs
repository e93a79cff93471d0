//! Peers that become silent. The clock stands still until nothing else can happen, and then
//! advances to the next timer. It is paused only after all bytes have been sent.
//!
//! A timer starts while the clock still runs, at an instant that the test does not know. The test
//! knows an instant before it and one after it, and compares the timer's end with both.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use sunder_micss::server::MicssServerHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::avoidance::watched_client;
use super::fault_relay::{Direction, Fault, FaultRelay, Plan};
use super::strangers::list;
use crate::common::{
    Running, ask, client_toml, drain_sink, server_toml, start_client, start_server, start_service,
    start_watched_server,
};
use crate::pattern::pattern;

/// A time from `before` to now has started. Pauses the clock, and returns the instants between
/// which it started.
fn pause_after(before: Instant) -> RangeInclusive<Instant> {
    tokio::time::pause();
    before..=Instant::now()
}

/// Checks that a time of so many seconds ends now, within a second. `started` is when it started.
fn assert_ends(started: &RangeInclusive<Instant>, seconds: u64) {
    let (longest, shortest) = (started.start().elapsed(), started.end().elapsed());
    let expected = Duration::from_secs(seconds);
    assert!(longest >= expected, "{longest:?}, not {seconds} s");
    assert!(shortest < expected + Duration::from_secs(1), "{shortest:?}, not {seconds} s");
}

/// A server for a service that is not used.
async fn unused_server() -> (Running, MicssServerHandle) {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    start_watched_server(&server_toml(1, nowhere, "tamper-code")).await
}

/// Reads a message of the handshake.
async fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// Waits for a connection's end. Nothing arrives before it.
async fn ends(mut stream: TcpStream) {
    assert_eq!(drain_sink(&mut stream).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_client_that_never_lists_its_cookies() {
    let (server, _) = unused_server().await;
    let before = Instant::now();
    let mut stream = TcpStream::connect(server.addresses[0]).await.unwrap();
    read(&mut stream, 24).await;
    let started = pause_after(before);
    ends(stream).await;
    assert_ends(&started, 90);
    server.stop().await;
}

/// Single bytes from time to time do not extend the time.
#[tokio::test]
async fn a_client_that_sends_single_bytes() {
    let (server, _) = unused_server().await;
    let before = Instant::now();
    let mut stream = TcpStream::connect(server.addresses[0]).await.unwrap();
    let cookie = read(&mut stream, 24).await[8..].try_into().unwrap();
    stream.write_all(&list(&[cookie])[..10]).await.unwrap();
    let started = pause_after(before);
    tokio::time::sleep(Duration::from_secs(26)).await;
    stream.write_all(&list(&[cookie])[10..20]).await.unwrap();
    ends(stream).await;
    assert_ends(&started, 90);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_never_sends_its_request() {
    let (server, handle) = unused_server().await;
    let mut stream = TcpStream::connect(server.addresses[0]).await.unwrap();
    let cookie = read(&mut stream, 24).await[8..].try_into().unwrap();
    let before = Instant::now();
    stream.write_all(&list(&[cookie])).await.unwrap();
    // The connection is no longer ready once it is associated.
    while handle.status().channels[0].ready > 0 {
        tokio::task::yield_now().await;
    }
    let started = pause_after(before);
    ends(stream).await;
    assert_ends(&started, 30);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_never_greets() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channels = [silent.local_addr().unwrap()];
    let toml = client_toml(&channels, "tamper-code") + "[pool]\nsize = 0\n";
    let (client, handle) = watched_client(&toml).await;
    let before = Instant::now();
    let asking = tokio::spawn(ask(client[0], channels[0]));
    let _held = silent.accept().await.unwrap();
    let started = pause_after(before);
    assert_eq!(asking.await.unwrap().1, 3);
    assert_ends(&started, 30);
    assert_eq!(handle.status().channels[0].unconnected, 1);
}

#[tokio::test]
async fn an_application_without_a_request() {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let client = start_client(&client_toml(&[nowhere], "tamper-code")).await;
    let before = Instant::now();
    let mut stream = TcpStream::connect(client.addresses[0]).await.unwrap();
    stream.write_all(&[5, 1, 0]).await.unwrap();
    assert_eq!(read(&mut stream, 2).await, [5, 0]);
    let started = pause_after(before);
    ends(stream).await;
    assert_ends(&started, 30);
    client.stop().await;
}

/// One channel becomes silent in the middle of a record. Both ends report an error, and the
/// receiver does not take the silence for an end.
#[tokio::test]
async fn a_channel_that_is_silent() {
    for integrity in ["tamper-code", "none"] {
        let service = start_service(|mut stream: TcpStream| async move {
            // It gets an error as well, or this would not end.
            let _ = stream.write_all(&pattern(100_000)).await;
            assert!(stream.read(&mut [0]).await.is_err());
        })
        .await;
        let server = start_server(&server_toml(3, service, integrity)).await;
        let plan = Plan { direction: Direction::Down, at: 50_000, fault: Fault::Silence };
        let relay = FaultRelay::start(server.addresses[1], plan).await;
        let mut channels = server.addresses.clone();
        channels[1] = relay.address;
        let client = start_client(&client_toml(&channels, integrity)).await;
        let before = Instant::now();
        let (mut application, code) = ask(client.addresses[0], service).await;
        assert_eq!(code, 0);
        relay.done().await;
        let started = pause_after(before);
        drain_sink(&mut application).await.expect_err("a reset, not an end");
        assert_ends(&started, 120);
        tokio::time::resume();
        tokio::join!(client.stop(), server.stop());
    }
}

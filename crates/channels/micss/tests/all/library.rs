//! Streams of a program, without the two proxies.

use std::net::SocketAddr;
use std::time::Duration;

use sunder_micss::config::{MicssServerConfig, RemoteServerConfig, StreamChannelConfig};
use sunder_micss::{MicssListener, MicssStream, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// The time limit for what takes a second on an idle host.
const LIMIT: Duration = Duration::from_secs(90);

/// How long a lost channel is waited for.
const LOST_CHANNEL_TIMEOUT: Duration = Duration::from_secs(1);

async fn listener() -> MicssListener {
    let addresses = ["127.0.0.1:0", "127.0.0.2:0"].map(|address| address.parse().unwrap());
    let lost_channel_timeout = LOST_CHANNEL_TIMEOUT;
    let config =
        MicssServerConfig { lost_channel_timeout, ..MicssServerConfig::new(addresses.to_vec()) };
    MicssListener::bind(config).await.unwrap()
}

async fn open(addresses: &[SocketAddr]) -> MicssStream {
    let channels = addresses.iter().copied().map(StreamChannelConfig::to).collect();
    let server = RemoteServerConfig { channels, threshold: 2 };
    connect(server, &"localhost:1".parse().unwrap(), LOST_CHANNEL_TIMEOUT).await.unwrap()
}

/// Carries one connection to an address until it is aborted.
async fn relay(to: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.3:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let carry = async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(to).await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
    };
    (address, tokio::spawn(carry))
}

async fn exchange(from: &mut MicssStream, to: &mut MicssStream) {
    from.write_all(b"hello").await.unwrap();
    let mut received = [0; 5];
    timeout(LIMIT, to.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"hello");
}

#[tokio::test]
async fn a_broken_stream_is_an_error_that_names_its_channel() {
    let listener = listener().await;
    let [first, second] = *listener.local_addresses() else { panic!("two channels") };
    let (relayed, carrying) = relay(second).await;
    let mut client = open(&[first, relayed]).await;
    let (mut server, _) = listener.accept().await.unwrap();
    exchange(&mut client, &mut server).await;
    assert_eq!((client.end().failure(), server.end().failure()), (None, None));
    carrying.abort();
    for end in [&mut client, &mut server] {
        let error = timeout(LIMIT, end.read(&mut [0])).await.unwrap().unwrap_err();
        assert!(error.to_string().contains("channel 2"), "{error}");
        assert_eq!(end.end().failure(), Some(error.to_string()));
    }
}

#[tokio::test]
async fn streams_that_a_program_does_not_accept_are_refused_above_the_limit() {
    let listener = listener().await;
    let mut reads = JoinSet::new();
    for _ in 0..65 {
        let mut stream = open(listener.local_addresses()).await;
        reads.spawn(async move { stream.read(&mut [0]).await });
    }
    let first = timeout(LIMIT, reads.join_next()).await.unwrap().unwrap().unwrap();
    let error = first.unwrap_err();
    assert!(error.to_string().contains("refuse"), "{error}");
    // The other streams are open.
    for _ in 0..64 {
        drop(timeout(LIMIT, listener.accept()).await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn a_closed_listener_keeps_the_streams_that_it_has_accepted() {
    let listener = listener().await;
    let mut client = open(listener.local_addresses()).await;
    let (mut server, _) = listener.accept().await.unwrap();
    listener.close();
    assert!(listener.accept().await.is_none());
    exchange(&mut client, &mut server).await;
    exchange(&mut server, &mut client).await;
    // An orderly end of both directions is no failure.
    drop(server);
    let mut end = client.end().clone();
    assert_eq!(timeout(LIMIT, client.read(&mut [0])).await.unwrap().unwrap(), 0);
    drop(client);
    timeout(LIMIT, end.wait()).await.unwrap();
    assert_eq!(end.failure(), None);
}

//! Connections that wait for a stream, and are reused after a stream.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fault_relay::{Direction, Fault, FaultRelay, Plan};
use crate::common::{
    Running, ask, client_toml, server_toml, start_client, start_server, start_service,
};
use crate::pattern::pattern;

/// A relay on a channel that counts connections.
struct Counter {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Counter {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    // Either end may break the connection.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, accepted }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// A service that echoes its whole input after its end.
async fn echo() -> SocketAddr {
    start_service(|mut stream: TcpStream| async move {
        let mut bytes = Vec::new();
        if stream.read_to_end(&mut bytes).await.is_ok() {
            assert!(bytes == pattern(bytes.len()), "changed");
            // The other end may be closed.
            let _ = stream.write_all(&bytes).await;
        }
    })
    .await
}

/// One stream, from its request to the end of both directions. Returns an error, or checks the
/// echo.
async fn try_exchange(proxy: SocketAddr, service: SocketAddr, len: usize) -> io::Result<()> {
    let (mut stream, code) = ask(proxy, service).await;
    if code != 0 {
        return Err(io::Error::other("refused"));
    }
    let sent = pattern(len);
    stream.write_all(&sent).await?;
    stream.shutdown().await?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await?;
    assert!(got == sent, "taken for an end, or changed");
    Ok(())
}

async fn exchange(proxy: SocketAddr, service: SocketAddr, len: usize) {
    try_exchange(proxy, service, len).await.unwrap();
}

async fn testbed(service: SocketAddr, pool: &str, integrity: &str) -> (Running, Running, Counter) {
    let server = start_server(&server_toml(2, service, integrity)).await;
    let counter = Counter::start(server.addresses[0]).await;
    let channels = [counter.address, server.addresses[1]];
    let client = start_client(&(client_toml(&channels, integrity) + pool)).await;
    (server, client, counter)
}

#[tokio::test]
async fn connections_carry_one_stream_after_another() {
    let service = echo().await;
    let (server, client, counter) =
        testbed(service, "[pool]\nsize = 0\nkeep = 1\n", "tamper-code").await;
    for len in [0, 1, 50_000, 1_000_000].into_iter().cycle().take(40) {
        exchange(client.addresses[0], service, len).await;
    }
    // A stream that begins before the last one's connections are connect again has its own.
    let accepted = counter.accepted();
    assert!(accepted < 30, "{accepted} connections for 40 streams");
    tokio::join!(client.stop(), server.stop());
}

#[tokio::test]
async fn no_connections_are_kept_without_a_pool_or_records() {
    for (pool, integrity) in
        [("[pool]\nsize = 0\nkeep = 0\n", "tamper-code"), ("[pool]\nsize = 0\n", "none")]
    {
        let service = echo().await;
        let (server, client, counter) = testbed(service, pool, integrity).await;
        for _ in 0..5 {
            exchange(client.addresses[0], service, 1000).await;
        }
        assert_eq!(counter.accepted(), 5, "{integrity}");
        tokio::join!(client.stop(), server.stop());
    }
}

#[tokio::test]
async fn connections_are_made_in_advance() {
    let service = echo().await;
    let (server, client, counter) = testbed(service, "[pool]\nsize = 3\n", "tamper-code").await;
    while counter.accepted() < 3 {
        tokio::task::yield_now().await;
    }
    exchange(client.addresses[0], service, 1000).await;
    tokio::join!(client.stop(), server.stop());
}

/// The server is restarted. The client's ready connections are closed, and no stream uses them.
#[tokio::test]
async fn a_server_that_comes_back() {
    let service = echo().await;
    let toml = server_toml(2, service, "tamper-code");
    let server = start_server(&toml).await;
    let client = start_client(&client_toml(&server.addresses, "tamper-code")).await;
    exchange(client.addresses[0], service, 1000).await;
    let listen = |addresses: &[SocketAddr]| {
        addresses.iter().fold(toml.clone(), |toml, address| {
            toml.replace(&format!("{}:0", address.ip()), &address.to_string())
        })
    };
    let again = listen(&server.addresses);
    server.stop().await;
    let server = start_server(&again).await;
    exchange(client.addresses[0], service, 1000).await;
    tokio::join!(client.stop(), server.stop());
}

/// A relay changes a connection between two streams, or in its second stream.
#[tokio::test]
async fn a_fault_in_a_later_stream() {
    const LEN: usize = 10_000;
    let service = echo().await;
    let server = start_server(&server_toml(2, service, "tamper-code")).await;
    let between = (LEN + 100..LEN + 800).step_by(13).map(|at| (at, [Fault::End, Fault::Reset]));
    let second = [LEN + 2000, 2 * LEN].map(|at| (at, [Fault::Flip, Fault::Reset]));
    for (at, faults) in between.chain(second) {
        for direction in [Direction::Up, Direction::Down] {
            for fault in faults {
                let plan = Plan { direction, at, fault };
                let relay = FaultRelay::start(server.addresses[0], plan).await;
                let channels = [relay.address, server.addresses[1]];
                let toml = client_toml(&channels, "tamper-code") + "[pool]\nsize = 0\nkeep = 1\n";
                let client = start_client(&toml).await;
                let mut done = 0;
                for _ in 0..3 {
                    let result = try_exchange(client.addresses[0], service, LEN).await;
                    done += usize::from(result.is_ok());
                }
                assert!(done > 0 || at < LEN + 1000, "{plan:?}: not even the first");
                client.stop().await;
            }
        }
    }
    server.stop().await;
}

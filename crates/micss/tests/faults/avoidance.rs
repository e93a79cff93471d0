//! Where two of three channels are enough: what one that is bad costs, and whom it is laid to.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use micss::client::{Client, Handle};
use micss::config::ClientConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::common::{Running, ask, client_toml, server_toml, start_server, start_service};
use crate::meddler::{Direction, Fault, Meddler, Plan};

/// Runs a client until the test is over. Returns where it listens, and what tells how it is.
pub(crate) async fn watched_client(toml: &str) -> (SocketAddr, Handle) {
    let client = Client::bind(ClientConfig::from_toml(toml).unwrap()).await.unwrap();
    let told = (client.local_addresses().unwrap()[0], client.handle());
    tokio::spawn(client.run(std::future::pending()));
    told
}

/// A server for `service`, and a client with three channels to it, of which any two are enough.
struct House {
    server: Running,
    client: SocketAddr,
    handle: Handle,
}

impl House {
    /// The middle channel goes where `bad` says, given the server's address there.
    async fn new(service: SocketAddr, bad: impl AsyncFnOnce(SocketAddr) -> SocketAddr) -> Self {
        let server = start_server(&server_toml(3, service, "tamper-code")).await;
        let mut channels = server.addresses.clone();
        channels[1] = bad(channels[1]).await;
        let toml = format!("threshold = 2\n{}", client_toml(&channels, "tamper-code"));
        let (client, handle) = watched_client(&toml).await;
        Self { server, client, handle }
    }

    /// Opens a stream. Returns what the client says to that, and how long it took.
    async fn open(&self, service: SocketAddr) -> (u8, Duration) {
        let start = Instant::now();
        let (_, code) = ask(self.client, service).await;
        (code, start.elapsed())
    }

    /// How often each channel was what a stream broke by, and could not be connected.
    fn blamed(&self) -> Vec<(u64, bool)> {
        let channels = self.handle.status().channels;
        channels.iter().map(|channel| (channel.broken, channel.unconnected > 0)).collect()
    }
}

/// It greets, and swallows what it is told. The first stream finds that out by trying.
#[tokio::test]
async fn a_channel_that_a_stream_could_not_open_with_is_avoided() {
    let service = start_service(async |_| ()).await;
    let plan = Plan { direction: Direction::Up, at: 40, fault: Fault::Silence };
    let house = House::new(service, async |to| Meddler::start(to, plan).await.address).await;
    assert_eq!(house.open(service).await.0, 0);
    for _ in 0..10 {
        let (code, took) = house.open(service).await;
        assert!(code == 0 && took < Duration::from_secs(1), "{code}, {took:?}");
    }
    assert_eq!(house.blamed(), [(0, false), (1, false), (0, false)]);
    house.server.stop().await;
}

#[tokio::test]
async fn a_channel_that_says_nothing_counts_as_not_connected() {
    let service = start_service(async |_| ()).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let house = House::new(service, async |_| silent.local_addr().unwrap()).await;
    assert_eq!(house.open(service).await.0, 0);
    assert_eq!(house.blamed(), [(0, false), (0, true), (0, false)]);
    house.server.stop().await;
}

/// A service that takes its time is no dead channel: the client waits for the answer, and blames nobody.
#[tokio::test]
async fn a_slow_service_is_not_taken_for_a_dead_channel() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let service = full.local_addr().unwrap();
    // The kernel takes no more connections for it then, and answers none.
    let mut waiting = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(500), TcpStream::connect(service)).await
    {
        waiting.push(connected.unwrap());
    }
    let house = House::new(service, async |to| to).await;
    let (code, took) = house.open(service).await;
    assert!(code != 0 && took < Duration::from_secs(15), "{code}, {took:?}");
    assert_eq!(house.blamed(), [(0, false); 3]);
    house.server.stop().await;
}

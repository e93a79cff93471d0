//! Where two of three channels are enough: what one that is bad costs, and whom it is laid to.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use micss::client::{Client, Handle};
use micss::config::ClientConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::common::{Running, ask, client_toml, server_toml, start_server, start_service};
use crate::meddler::{Direction, Fault, Meddler, Plan};

/// The lengths of the messages of the handshake over three channels.
const COOKIE: usize = 24;
const LIST: usize = 16 + 3 * 16;

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
        let toml = client_toml(&channels, "tamper-code");
        let toml = format!("threshold = 2\n{toml}[pool]\nsize = 0\nkeep = 0\n");
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
async fn a_channel_that_a_stream_could_not_open_with_is_soon_done_without() {
    let service = start_service(async |_| ()).await;
    let plan = Plan { direction: Direction::Up, at: 40, fault: Fault::Silence };
    let house = House::new(service, async |to| Meddler::start(to, plan).await.address).await;
    assert_eq!(house.open(service).await.0, 0);
    for _ in 0..2 {
        let (code, took) = house.open(service).await;
        assert!(code == 0 && took < Duration::from_secs(4), "{code}, {took:?}");
    }
    assert_eq!(house.blamed(), [(0, false), (3, false), (0, false)]);
    house.server.stop().await;
}

/// The handshake is let pass, and a share of the request, or of its answer, is not.
#[tokio::test]
async fn a_share_of_the_first_record_that_does_not_come_is_done_without() {
    for (direction, at) in [(Direction::Up, LIST + 5), (Direction::Down, COOKIE + LIST + 5)] {
        let service = start_service(async |_| ()).await;
        let plan = Plan { direction, at, fault: Fault::Silence };
        let house = House::new(service, async |to| Meddler::start(to, plan).await.address).await;
        let (code, took) = house.open(service).await;
        assert!(code == 0 && took < Duration::from_secs(4), "{direction:?}: {code}, {took:?}");
    }
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
    // Also where streams have no more channels than they need.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let blames_nobody = async |bad: Option<SocketAddr>| {
        let house = House::new(service, async |to| bad.unwrap_or(to)).await;
        let (code, took) = house.open(service).await;
        assert!(code != 0 && took < Duration::from_secs(15), "{code}, {took:?}");
        let broken: Vec<u64> = house.blamed().into_iter().map(|(broken, _)| broken).collect();
        assert_eq!(broken, [0; 3]);
        house.server.stop().await;
    };
    tokio::join!(blames_nobody(None), blames_nobody(Some(nobody)));
}

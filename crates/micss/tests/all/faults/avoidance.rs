//! Where two of three channels are enough: what one that is bad costs, and whom it is laid to.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use association::{COOKIE_LEN, Cookie, Message};
use sunder_micss::client::{Client, Handle};
use sunder_micss::config::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::meddler::{Direction, Fault, Meddler, Plan};
use crate::common::{Running, ask, client_toml, server_toml, start_server, start_service};

/// The lengths of the messages of the handshake over three channels.
const COOKIE: usize = 24;
const LIST: usize = 16 + 3 * 16;

/// Runs a client until the test is over. Returns where it listens, and what tells how it is.
pub(crate) async fn watched_client(toml: &str) -> (Vec<SocketAddr>, Handle) {
    let client = Client::bind(ClientConfig::from_toml(toml).unwrap()).await.unwrap();
    let told = (client.local_addresses().unwrap(), client.handle());
    tokio::spawn(client.run(std::future::pending()));
    told
}

/// A server for `service`, and a client with three channels to it, of which any two are enough.
struct House {
    server: Running,
    /// Where the client is a SOCKS5 proxy, and where it forwards to the service.
    proxy: SocketAddr,
    forward: SocketAddr,
    handle: Handle,
}

impl House {
    /// The middle channel goes where `bad` says, given the server's address there.
    async fn new(service: SocketAddr, bad: impl AsyncFnOnce(SocketAddr) -> SocketAddr) -> Self {
        Self::with_pool("size = 0\nkeep = 0\n", service, bad).await
    }

    async fn with_pool(
        pool: &str,
        service: SocketAddr,
        bad: impl AsyncFnOnce(SocketAddr) -> SocketAddr,
    ) -> Self {
        let server = start_server(&server_toml(3, service, "tamper-code")).await;
        let mut channels = server.addresses.clone();
        channels[1] = bad(channels[1]).await;
        let toml = client_toml(&channels, "tamper-code");
        let forward = format!("[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{service}\"\n");
        let toml = format!("threshold = 2\n{toml}{forward}[pool]\n{pool}");
        let (addresses, handle) = watched_client(&toml).await;
        Self { server, proxy: addresses[0], forward: addresses[1], handle }
    }

    /// Opens a stream. Returns what the client says to that, and how long it took.
    async fn open(&self, service: SocketAddr) -> (u8, Duration) {
        let start = Instant::now();
        let (_, code) = ask(self.proxy, service).await;
        (code, start.elapsed())
    }

    /// Waits until so many sets of connections are kept ready.
    async fn is_ready(&self, sets: u64) {
        while self.handle.status().channels[0].ready != sets {
            tokio::task::yield_now().await;
        }
    }

    /// How often each channel was what a stream broke by, and could not be connected.
    fn blamed(&self) -> Vec<(u64, bool)> {
        let channels = self.handle.status().channels;
        channels.iter().map(|channel| (channel.broken, channel.unconnected > 0)).collect()
    }
}

/// It greets, and swallows what it is told: the server waits for its list, and the client for its confirm.
#[tokio::test]
async fn a_list_that_does_not_come_is_done_without() {
    let service = start_service(async |_| ()).await;
    let plan = Plan { direction: Direction::Up, at: 40, fault: Fault::Silence };
    let house = House::new(service, async |to| Meddler::start(to, plan).await.address).await;
    for opened in 1..=2 {
        let (code, took) = house.open(service).await;
        assert!(code == 0 && took < Duration::from_secs(6), "{code}, {took:?}");
        assert_eq!(house.blamed(), [(0, false), (opened, false), (0, false)]);
    }
    house.server.stop().await;
}

/// The server has brought it to the association, and the client does not wait for ever to hear so.
#[tokio::test]
async fn a_confirm_that_does_not_come_or_is_another_is_done_without() {
    for (fault, most) in [(Fault::Silence, 4), (Fault::Flip, 1), (Fault::End, 1)] {
        let service = start_service(async |_| ()).await;
        let plan = Plan { direction: Direction::Down, at: COOKIE + 20, fault };
        let house = House::new(service, async |to| Meddler::start(to, plan).await.address).await;
        let (code, took) = house.open(service).await;
        assert!(code == 0 && took < Duration::from_secs(most), "{fault:?}: {code}, {took:?}");
        let tampered = house.handle.status().channels[1].tampered;
        assert_eq!(tampered, u64::from(fault == Fault::Flip));
    }
}

/// Where it hears what was said with the list, that is said once, to one service.
#[tokio::test]
async fn what_is_said_at_once_is_said_once() {
    for (direction, at) in [(Direction::Up, 40), (Direction::Down, COOKIE + 20)] {
        let (heard, mut hears) = mpsc::unbounded_channel();
        let service = start_service(move |mut stream: TcpStream| {
            let heard = heard.clone();
            async move {
                let mut said = Vec::new();
                stream.read_to_end(&mut said).await.unwrap();
                stream.write_all(b"thanks").await.unwrap();
                heard.send(said).unwrap();
            }
        })
        .await;
        let plan = Plan { direction, at, fault: Fault::Silence };
        let house = House::new(service, async |to| Meddler::start(to, plan).await.address).await;
        let mut application = TcpStream::connect(house.forward).await.unwrap();
        application.write_all(b"please").await.unwrap();
        application.shutdown().await.unwrap();
        let mut answer = Vec::new();
        application.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"thanks");
        assert_eq!(hears.recv().await.unwrap(), b"please");
        house.server.stop().await;
        assert!(hears.try_recv().is_err(), "{direction:?}: said twice");
    }
}

/// Sets that were made before may be as dead as the stream's: they are not used any more.
#[tokio::test]
async fn what_is_kept_is_not_used_after_a_channel_fell_silent() {
    let service = start_service(async |_| ()).await;
    let plan = Plan { direction: Direction::Up, at: 40, fault: Fault::Silence };
    let meddled = async |to| Meddler::start(to, plan).await.address;
    let house = House::with_pool("size = 3\n", service, meddled).await;
    house.is_ready(3).await;
    assert_eq!(house.open(service).await.0, 0);
    assert_eq!(house.handle.status().channels[0].connected, 4, "one for the one that was taken");
    assert_eq!(house.open(service).await.0, 0);
    house.is_ready(3).await;
    // The three were of no use, so one was made for the stream, and three for later.
    assert_eq!(house.handle.status().channels[0].connected, 8);
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

/// Two channels of five greet with one cookie. Any three are enough, and the other three are honest.
#[tokio::test]
async fn cookies_that_are_copied_are_done_without() {
    let service = start_service(async |_| ()).await;
    let server = start_server(&server_toml(5, service, "tamper-code")).await;
    let mut channels = server.addresses.clone();
    for channel in [1, 3] {
        let liar = TcpListener::bind("127.0.0.1:0").await.unwrap();
        channels[channel] = liar.local_addr().unwrap();
        tokio::spawn(async move {
            let mut deceived = Vec::new();
            while let Ok((mut stream, _)) = liar.accept().await {
                let greeting = Message::Cookie(Cookie::new([7; COOKIE_LEN])).encode();
                stream.write_all(&greeting).await.unwrap();
                deceived.push(stream);
            }
        });
    }
    let toml = client_toml(&channels, "tamper-code");
    let (addresses, handle) =
        watched_client(&format!("threshold = 3\n{toml}[pool]\nsize = 0\n")).await;
    assert_eq!(ask(addresses[0], service).await.1, 0);
    let status = handle.status();
    assert_eq!(status.channels.iter().map(|channel| channel.tampered).sum::<u64>(), 1);
    server.stop().await;
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
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let blames_nobody = async |bad: Option<SocketAddr>| {
        let house = House::new(service, async |to| bad.unwrap_or(to)).await;
        let (code, took) = house.open(service).await;
        assert!(code != 0 && took < Duration::from_secs(15), "{code}, {took:?}");
        let broken: Vec<u64> = house.blamed().into_iter().map(|(broken, _)| broken).collect();
        assert_eq!((broken, house.handle.status().streams.refused), (vec![0; 3], 1));
        house.server.stop().await;
    };
    tokio::join!(blames_nobody(None), blames_nobody(Some(nobody)));
}

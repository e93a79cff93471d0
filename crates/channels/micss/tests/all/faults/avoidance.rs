//! With two of three channels needed: the cost of a faulty channel, and which channel is reported.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use association::{AssociationMessage, COOKIE_LEN, ConnectionCookie};
use sunder_micss::client::{MicssClient, MicssClientHandle};
use sunder_micss::config::MicssClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::fault_relay::{Direction, Fault, FaultRelay, Plan};
use crate::common::{Running, ask, client_toml, server_toml, start_server, start_service};

/// The lengths of the handshake's messages over three channels.
const COOKIE: usize = 24;
const LIST: usize = 16 + 3 * 16;

/// Runs a client until the end of the test. Returns its addresses and its handle.
pub(crate) async fn watched_client(toml: &str) -> (Vec<SocketAddr>, MicssClientHandle) {
    let client = MicssClient::bind(MicssClientConfig::from_toml(toml).unwrap()).await.unwrap();
    let bound = (client.local_addresses().unwrap(), client.handle());
    tokio::spawn(client.run(std::future::pending()));
    bound
}

/// A server for `service`, and a client with three channels to it, of which two are needed.
struct Testbed {
    server: Running,
    /// The client's SOCKS5 listener, and its forward to the service.
    proxy: SocketAddr,
    forward: SocketAddr,
    handle: MicssClientHandle,
}

impl Testbed {
    /// `bad` maps the server's address on the middle channel to the one that the client uses.
    async fn new(service: SocketAddr, bad: impl AsyncFnOnce(SocketAddr) -> SocketAddr) -> Self {
        Self::with_pool("size = 0\nkeep = 0\n", service, bad).await
    }

    /// With a fault on the middle channel.
    async fn with_fault(service: SocketAddr, plan: Plan) -> Self {
        Self::new(service, async |to| FaultRelay::start(to, plan).await.address).await
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

    /// Opens a stream. Returns the client's reply code and the time until it arrived.
    async fn open(&self, service: SocketAddr) -> (u8, Duration) {
        let start = Instant::now();
        let (_, code) = ask(self.proxy, service).await;
        (code, start.elapsed())
    }

    /// Waits until so many sets of connections are ready.
    async fn is_ready(&self, sets: u64) {
        while self.handle.status().channels[0].ready != sets {
            tokio::task::yield_now().await;
        }
    }

    /// For each channel, how often it broke a stream, and whether connecting to it failed.
    fn broken(&self) -> Vec<(u64, bool)> {
        let channels = self.handle.status().channels;
        channels.iter().map(|channel| (channel.broken, channel.unconnected > 0)).collect()
    }
}

/// Checks that a measurement takes less than a limit: one of up to three, because a busy machine
/// may delay some.
async fn assert_within(limit: Duration, what: &str, measure: impl AsyncFn() -> Duration) {
    let mut late = Vec::new();
    for _ in 0..3 {
        let took = measure().await;
        if took < limit {
            return;
        }
        late.push(took);
    }
    panic!("{what}, three times: {late:?}");
}

/// Checks that a stream opens in time despite a fault on the middle channel, which is reported as
/// tampering if bytes are changed.
async fn assert_opens_within(limit: Duration, plan: Plan) {
    let measure = async || {
        let service = start_service(async |_| ()).await;
        let testbed = Testbed::with_fault(service, plan).await;
        let (code, took) = testbed.open(service).await;
        assert_eq!(code, 0, "{plan:?}");
        let tampered = testbed.handle.status().channels[1].tampered;
        assert_eq!(tampered, u64::from(plan.fault == Fault::Flip), "{plan:?}");
        took
    };
    assert_within(limit, &format!("{plan:?}"), measure).await;
}

/// It greets and discards the list: the server waits for the list, and the client for the confirm.
#[tokio::test]
async fn a_missing_list_is_not_needed() {
    let plan = Plan { direction: Direction::Up, at: 40, fault: Fault::Silence };
    let measure = async || {
        let service = start_service(async |_| ()).await;
        let testbed = Testbed::with_fault(service, plan).await;
        let mut longest = Duration::ZERO;
        for opened in 1..=2 {
            let (code, took) = testbed.open(service).await;
            assert_eq!(code, 0);
            assert_eq!(testbed.broken(), [(0, false), (opened, false), (0, false)]);
            longest = longest.max(took);
        }
        testbed.server.stop().await;
        longest
    };
    assert_within(Duration::from_secs(6), "no list", measure).await;
}

/// The server has associated, and the client's wait for the confirm is bounded.
#[tokio::test]
async fn a_missing_or_changed_confirm_is_not_needed() {
    for (fault, most) in [(Fault::Silence, 4), (Fault::Flip, 1), (Fault::End, 1)] {
        let plan = Plan { direction: Direction::Down, at: COOKIE + 20, fault };
        assert_opens_within(Duration::from_secs(most), plan).await;
    }
}

/// If the list arrives, the request in it is carried out once, with one service.
#[tokio::test]
async fn early_data_is_delivered_once() {
    for (direction, at) in [(Direction::Up, 40), (Direction::Down, COOKIE + 20)] {
        let (heard, mut hears) = mpsc::unbounded_channel();
        let service = start_service(move |mut stream: TcpStream| {
            let heard = heard.clone();
            async move {
                let mut received = Vec::new();
                stream.read_to_end(&mut received).await.unwrap();
                stream.write_all(b"thanks").await.unwrap();
                heard.send(received).unwrap();
            }
        })
        .await;
        let plan = Plan { direction, at, fault: Fault::Silence };
        let testbed = Testbed::with_fault(service, plan).await;
        let mut application = TcpStream::connect(testbed.forward).await.unwrap();
        application.write_all(b"please").await.unwrap();
        application.shutdown().await.unwrap();
        let mut answer = Vec::new();
        application.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"thanks");
        assert_eq!(hears.recv().await.unwrap(), b"please");
        testbed.server.stop().await;
        assert!(hears.try_recv().is_err(), "{direction:?}: said twice");
    }
}

/// Ready sets may have the same fault as the stream's, so they are no longer used. How many are
/// connected in their place, and when, depends on timers; which one a stream uses does not.
#[tokio::test]
async fn ready_connections_are_not_used_after_a_silent_channel() {
    let service = start_service(async |_| ()).await;
    let plan = Plan { direction: Direction::Up, at: 40, fault: Fault::Silence };
    let mut relay = None;
    let meddled = async |to| relay.insert(FaultRelay::start(to, plan).await).address;
    let testbed = Testbed::with_pool("size = 3\n", service, meddled).await;
    let relay = relay.unwrap();
    testbed.is_ready(3).await;
    // Those that were connected before the silence was noticed: the three, and one for the one
    // that was taken, unless that was slow.
    let mut before = relay.accepted();
    let watching = async {
        loop {
            let accepted = relay.accepted();
            if testbed.broken()[1].0 > 0 {
                break;
            }
            before = accepted;
            tokio::task::yield_now().await;
        }
    };
    let ((code, _), ()) = tokio::join!(testbed.open(service), watching);
    assert_eq!(code, 0);
    assert!(before >= 3, "{before} connections before the silence");
    assert!(relay.faulty()[0] < 3, "the first stream uses a ready set");
    assert_eq!(testbed.open(service).await.0, 0);
    let faulty = relay.faulty();
    assert!(faulty.len() == 2 && faulty[1] >= before, "{faulty:?} of {before}");
    // The pool is filled again.
    testbed.is_ready(3).await;
}

/// The handshake passes, but a share of the request or of its answer does not.
#[tokio::test]
async fn a_missing_share_of_the_first_record_is_not_needed() {
    for (direction, at) in [(Direction::Up, LIST + 5), (Direction::Down, COOKIE + LIST + 5)] {
        let plan = Plan { direction, at, fault: Fault::Silence };
        assert_opens_within(Duration::from_secs(4), plan).await;
    }
}

#[tokio::test]
async fn a_silent_channel_counts_as_not_connected() {
    let service = start_service(async |_| ()).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let testbed = Testbed::new(service, async |_| silent.local_addr().unwrap()).await;
    assert_eq!(testbed.open(service).await.0, 0);
    assert_eq!(testbed.broken(), [(0, false), (0, true), (0, false)]);
    testbed.server.stop().await;
}

/// Two of five channels greet with the same cookie. Three channels are needed, and three are
/// honest.
#[tokio::test]
async fn copied_cookies_are_not_needed() {
    let service = start_service(async |_| ()).await;
    let server = start_server(&server_toml(5, service, "tamper-code")).await;
    let mut channels = server.addresses.clone();
    for channel in [1, 3] {
        let liar = TcpListener::bind("127.0.0.1:0").await.unwrap();
        channels[channel] = liar.local_addr().unwrap();
        tokio::spawn(async move {
            let mut deceived = Vec::new();
            while let Ok((mut stream, _)) = liar.accept().await {
                let greeting =
                    AssociationMessage::Cookie(ConnectionCookie::new([7; COOKIE_LEN])).encode();
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

/// A slow service is not a faulty channel: the client waits for the answer and reports no channel.
#[tokio::test]
async fn a_slow_service_is_not_a_lost_channel() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let service = full.local_addr().unwrap();
    // The kernel accepts no more connections for it then, and answers no SYN.
    let mut waiting = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(500), TcpStream::connect(service)).await
    {
        waiting.push(connected.unwrap());
    }
    // Also for streams without spare channels.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let blames_nobody = async |bad: Option<SocketAddr>| {
        let testbed = Testbed::new(service, async |to| bad.unwrap_or(to)).await;
        let (code, took) = testbed.open(service).await;
        assert_ne!(code, 0);
        let broken: Vec<u64> = testbed.broken().into_iter().map(|(broken, _)| broken).collect();
        assert_eq!((broken, testbed.handle.status().streams.refused), (vec![0; 3], 1));
        testbed.server.stop().await;
        took
    };
    let measure = async || {
        let (one, other) = tokio::join!(blames_nobody(None), blames_nobody(Some(nobody)));
        one.max(other)
    };
    assert_within(Duration::from_secs(15), "a slow service", measure).await;
}

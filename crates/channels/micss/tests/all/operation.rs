//! An operator's actions on a running client and server: reading their status, and changing their
//! configuration.

use std::net::SocketAddr;

use crate::common::{
    ask, client_toml, drain_sink, server_toml, start_client, start_server, start_service,
};
use sunder_micss::client::{MicssClient, MicssClientHandle};
use sunder_micss::config::{MicssClientConfig, MicssServerConfig};
use sunder_micss::server::MicssServer;
use sunder_micss::status::StreamCounts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A service that echoes its input.
async fn echo() -> SocketAddr {
    start_service(|mut stream: TcpStream| async move {
        let (mut reader, mut writer) = stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    })
    .await
}

/// A running client.
struct RunningClient {
    addresses: Vec<SocketAddr>,
    handle: MicssClientHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RunningClient {
    async fn start(toml: &str) -> Self {
        Self::with(MicssClientConfig::from_toml(toml).unwrap()).await
    }

    async fn with(config: MicssClientConfig) -> Self {
        let client = MicssClient::bind(config).await.unwrap();
        let (addresses, handle) = (client.local_addresses().unwrap(), client.handle());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(client.run(async { _ = stopped.await }));
        Self { addresses, handle, stop, task }
    }

    async fn reload(&self, toml: &str) -> Result<Vec<SocketAddr>, String> {
        let config = MicssClientConfig::from_toml(toml).unwrap();
        self.handle.reload(config).await.map_err(|error| error.to_string())
    }

    fn streams(&self) -> StreamCounts {
        self.handle.status().streams
    }

    /// Waits until a condition holds.
    async fn until(&self, what: &str, is: impl Fn(&StreamCounts) -> bool) {
        let wait = async {
            while !is(&self.streams()) {
                tokio::task::yield_now().await;
            }
        };
        let timeout = std::time::Duration::from_secs(30);
        assert!(tokio::time::timeout(timeout, wait).await.is_ok(), "{what}: {:?}", self.streams());
    }

    async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }
}

/// Checks that both directions of a stream work.
async fn check_both_directions(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).await.unwrap();
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, text);
}

/// Ends both directions of a stream.
async fn ends(mut stream: TcpStream) {
    stream.shutdown().await.unwrap();
    assert_eq!(drain_sink(&mut stream).await.unwrap(), 0);
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn streams_and_bytes_are_counted() {
    let service = echo().await;
    let server = start_server(&server_toml(2, service, "tamper-code")).await;
    let client = RunningClient::start(&client_toml(&server.addresses, "tamper-code")).await;
    let (mut stream, code) = ask(client.addresses[0], service).await;
    assert_eq!(code, 0);
    check_both_directions(&mut stream, &[7; 10_000]).await;
    let status = client.handle.status();
    assert_eq!(status.streams, StreamCounts { under_way: 1, ..StreamCounts::default() });
    for (channel, address) in status.channels.iter().zip(&server.addresses) {
        assert_eq!(channel.server, address.to_string());
        for bytes in [channel.sent_bytes, channel.received_bytes] {
            assert!((10_000..12_000).contains(&bytes), "{channel:?}");
        }
        assert!(channel.connected >= 1 && channel.rtt_ms.is_some(), "{channel:?}");
        assert_eq!((channel.unconnected, channel.broken, channel.tampered), (0, 0, 0));
    }
    ends(stream).await;
    client.until("finished", |streams| streams.finished == 1 && streams.under_way == 0).await;
    // Not allowed.
    assert_ne!(ask(client.addresses[0], free_address()).await.1, 0);
    client.until("refused", |streams| streams.refused == 1).await;
    client.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn failed_connections_are_counted() {
    let nobody = free_address();
    let client = RunningClient::start(&client_toml(&[nobody], "tamper-code")).await;
    assert_ne!(ask(client.addresses[0], nobody).await.1, 0);
    client.until("broken", |streams| streams.broken == 1).await;
    let channel = &client.handle.status().channels[0];
    assert!(channel.unconnected >= 1 && channel.connected == 0, "{channel:?}");
    client.stop().await;
}

#[tokio::test]
async fn a_limit_of_streams_is_counted() {
    let service = echo().await;
    let server = start_server(&server_toml(2, service, "tamper-code")).await;
    let toml = format!("max_streams = 1\n{}", client_toml(&server.addresses, "tamper-code"));
    let client = RunningClient::start(&toml).await;
    let (stream, code) = ask(client.addresses[0], service).await;
    assert_eq!(code, 0);
    let mut second = TcpStream::connect(client.addresses[0]).await.unwrap();
    assert!(second.read_u8().await.is_err(), "one too many");
    client.until("over the limit", |streams| streams.over_limit == 1).await;
    // There is room for a stream again.
    ends(stream).await;
    client.until("finished", |streams| streams.finished == 1).await;
    client.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_reloads_with_open_streams() {
    let service = echo().await;
    let servers = [
        start_server(&server_toml(2, service, "tamper-code")).await,
        start_server(&server_toml(3, service, "tamper-code")).await,
    ];
    let client = RunningClient::start(&client_toml(&servers[0].addresses, "tamper-code")).await;
    let proxy = client.addresses[0];
    let (mut stream, code) = ask(proxy, service).await;
    assert_eq!(code, 0);
    check_both_directions(&mut stream, b"before").await;

    let toml = format!(
        "{}[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{service}\"\n",
        client_toml(&servers[1].addresses, "tamper-code")
    );
    let addresses = client.reload(&toml).await.unwrap();
    assert_eq!(addresses[0], proxy);
    let forward = addresses[1];
    assert_eq!(client.handle.status().channels.len(), 3);
    check_both_directions(&mut stream, b"the stream goes on").await;
    // The same listener still exists, with a new one.
    let (mut second, code) = ask(proxy, service).await;
    assert_eq!(code, 0);
    check_both_directions(&mut second, b"over three channels").await;
    let mut third = TcpStream::connect(forward).await.unwrap();
    check_both_directions(&mut third, b"by the forward").await;
    let StreamCounts { under_way, broken, .. } = client.streams();
    assert_eq!((under_way, broken), (3, 0));

    // And it is removed again.
    client.reload(&client_toml(&servers[0].addresses, "tamper-code")).await.unwrap();
    assert!(TcpStream::connect(forward).await.is_err(), "nobody listens");
    for stream in [&mut stream, &mut second, &mut third] {
        check_both_directions(stream, b"all go on").await;
    }
    for stream in [stream, second, third] {
        ends(stream).await;
    }
    client.until("finished", |streams| streams.finished == 3).await;
    client.stop().await;
    for server in servers {
        server.stop().await;
    }
}

#[tokio::test]
async fn a_failed_reload_changes_nothing() {
    let service = echo().await;
    let server = start_server(&server_toml(2, service, "tamper-code")).await;
    let client = RunningClient::start(&client_toml(&server.addresses, "tamper-code")).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let toml = format!(
        "{}[[forward]]\nlisten = \"{address}\"\ntarget = \"{service}\"\n",
        client_toml(&[free_address()], "tamper-code")
    );
    let error = client.reload(&toml).await.unwrap_err();
    assert!(error.contains(&address.to_string()), "{error}");
    assert_eq!(client.handle.status().channels.len(), 2);
    let (stream, code) = ask(client.addresses[0], service).await;
    assert_eq!(code, 0);
    ends(stream).await;
    client.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_server_reloads_with_open_streams() {
    let services = [echo().await, echo().await];
    let config =
        |allow: SocketAddr| MicssServerConfig::from_toml(&server_toml(2, allow, "tamper-code"));
    let server = MicssServer::bind(config(services[0]).unwrap()).await.unwrap();
    let (addresses, handle) = (server.local_addresses().unwrap(), server.handle());
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async { _ = stopped.await }));
    let client = RunningClient::start(&client_toml(&addresses, "tamper-code")).await;
    let (mut stream, code) = ask(client.addresses[0], services[0]).await;
    assert_eq!(code, 0);
    assert_ne!(ask(client.addresses[0], services[1]).await.1, 0, "not allowed yet");

    handle.reload(config(services[1]).unwrap()).await.unwrap();
    check_both_directions(&mut stream, b"allowed when it began").await;
    assert_ne!(ask(client.addresses[0], services[0]).await.1, 0, "not allowed any more");
    let (second, code) = ask(client.addresses[0], services[1]).await;
    assert_eq!(code, 0);
    let counted = || (handle.status().streams.under_way, handle.status().streams.refused);
    let wait = async {
        // A refusal is counted after the client has disconnected.
        while counted() != (2, 2) {
            tokio::task::yield_now().await;
        }
    };
    let timeout = std::time::Duration::from_secs(30);
    assert!(tokio::time::timeout(timeout, wait).await.is_ok(), "{:?}", counted());
    let status = handle.status();
    assert!(status.channels.iter().all(|channel| channel.received_bytes > 0), "counts go on");
    for stream in [stream, second] {
        ends(stream).await;
    }
    client.stop().await;
    drop(stop);
    task.await.unwrap();
    assert!(handle.reload(config(services[0]).unwrap()).await.is_err(), "it has stopped");
}

/// Two servers, selected by the service's address.
#[tokio::test]
async fn peers_have_channels_of_their_own() {
    let service = echo().await;
    let own = start_server(&server_toml(2, service, "tamper-code")).await;
    let nobody = free_address();
    let channels = |servers: &[SocketAddr]| {
        let channel = |server| format!("[[peer.channel]]\nserver = \"{server}\"\n");
        servers.iter().map(channel).collect::<String>()
    };
    let head = "socks = \"127.0.0.1:0\"\n[[peer]]\naddresses = [\"127.0.0.1\"]\n";
    let peer = format!("{head}{}", channels(&own.addresses));
    let first_server = format!("[[channel]]\nserver = \"{nobody}\"\n");
    for toml in [peer.clone(), format!("{peer}{first_server}")] {
        let client = RunningClient::start(&toml).await;
        let (mut stream, code) = ask(client.addresses[0], service).await;
        assert_eq!(code, 0);
        check_both_directions(&mut stream, b"to the peer").await;
        ends(stream).await;
        // Everything else goes to the first server, which does not run, or is refused.
        let elsewhere = SocketAddr::from(([127, 0, 0, 2], service.port()));
        assert_ne!(ask(client.addresses[0], elsewhere).await.1, 0);
        client.until("broken", |streams| streams.broken == 1).await;
        client.stop().await;
    }
    own.stop().await;
}

/// An attacker opens connections and leaves them idle. Idle connections do not exclude others.
#[tokio::test]
async fn idle_connections_do_not_exclude_others() {
    let service = echo().await;
    let toml = format!("max_waiting = 64\n{}", server_toml(2, service, "tamper-code"));
    let server = MicssServer::bind(MicssServerConfig::from_toml(&toml).unwrap()).await.unwrap();
    let (addresses, handle) = (server.local_addresses().unwrap(), server.handle());
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async { _ = stopped.await }));
    let mut left = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(addresses[0]).await.unwrap();
        let mut cookie = [0; 24];
        stream.read_exact(&mut cookie).await.unwrap();
        left.push(stream);
    }
    // The oldest are closed, the newest remain.
    for stream in &mut left[..36] {
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    }
    let limits = handle.status().limits.unwrap();
    assert_eq!((limits.waiting, limits.max_waiting, limits.waiting_evicted), (64, 64, 36));
    let newest = left.last().unwrap();
    assert!(newest.try_read(&mut [0]).is_err(), "it waits");
    let others = client_toml(&addresses, "tamper-code");
    let others = others.replace("[[channel]]\n", "[[channel]]\nsource = \"127.0.0.9\"\n");
    let client = start_client(&others).await;
    let (stream, code) = ask(client.addresses[0], service).await;
    assert_eq!(code, 0);
    ends(stream).await;
    client.stop().await;
    drop(stop);
    task.await.unwrap();
}

/// The client knows one address, and learns the channels from that host.
#[tokio::test]
async fn channels_are_learnt_from_the_peer() {
    let service = echo().await;
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("key"), "5a".repeat(32)).unwrap();
    let (first, mut second, directory) = (free_address(), free_address(), free_address());
    second.set_ip([127, 0, 0, 2].into());
    let server = format!(
        "listen = [\"{first}\", \"{second}\"]\nallow = [\"{service}\"]\n\
         [directory]\nlisten = [\"{directory}\"]\nshared_key = \"key\"\n"
    );
    let mut server = MicssServerConfig::from_toml(&server).unwrap();
    server.config_dir = place.path().to_owned();
    let running = MicssServer::bind(server.clone()).await.unwrap();
    let handle = running.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(running.run(async { _ = stopped.await }));
    let client = |key: &str| {
        let toml = format!(
            "socks = \"127.0.0.1:0\"\n[directory]\nfile = \"{key}.sqlite\"\nport = {}\n\
             [[directory.trust]]\nnetwork = \"127.0.0.0/8\"\nshared_key = \"{key}\"\n",
            directory.port()
        );
        let mut config = MicssClientConfig::from_toml(&toml).unwrap();
        config.config_dir = place.path().to_owned();
        RunningClient::with(config)
    };
    let one = client("key").await;
    for _ in 0..2 {
        let (mut stream, code) = ask(one.addresses[0], service).await;
        assert_eq!(code, 0);
        check_both_directions(&mut stream, b"over two channels").await;
        ends(stream).await;
        // The server is reloaded with the same configuration and the same listener.
        handle.reload(server.clone()).await.unwrap();
    }
    let status = one.handle.status();
    let channels: Vec<&str> = status.channels.iter().map(|c| c.server.as_str()).collect();
    assert_eq!(channels, [first.to_string(), second.to_string()]);
    one.stop().await;

    // A client with another key learns nothing, and uses no other route.
    std::fs::write(place.path().join("other"), "a5".repeat(32)).unwrap();
    let other = client("other").await;
    assert_ne!(ask(other.addresses[0], service).await.1, 0);
    other.until("not proven", |streams| streams.tampered == 1).await;
    other.stop().await;
    drop(stop);
    task.await.unwrap();
}

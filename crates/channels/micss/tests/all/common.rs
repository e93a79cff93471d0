//! Services, servers and clients on loopback, and connections of applications through them.

use std::io;
use std::net::SocketAddr;

use sunder_micss::client::{MicssClient, MicssClientHandle};
use sunder_micss::config::{MicssClientConfig, MicssServerConfig};
use sunder_micss::server::{MicssServer, MicssServerHandle};
use sunder_micss::target::ServiceTarget;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running client or server.
pub(crate) struct Running {
    /// The addresses on which it listens.
    pub(crate) addresses: Vec<SocketAddr>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Stops it, and waits until it has stopped.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }
}

/// A service on a port of its own.
pub(crate) async fn start_service<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// The common configuration of a server on `n` loopback addresses.
pub(crate) fn server_toml(n: usize, allow: SocketAddr, integrity: &str) -> String {
    let listen: Vec<String> = (1..=n).map(|i| format!("\"127.0.0.{i}:0\"")).collect();
    format!(
        "listen = [{}]\nallow = [\"{allow}\"]\nintegrity = \"{integrity}\"\nmin_channels = 1\n",
        listen.join(", ")
    )
}

/// The configuration of a client with these channels.
pub(crate) fn client_toml(servers: &[SocketAddr], integrity: &str) -> String {
    let channels: Vec<String> =
        servers.iter().map(|server| format!("[[channel]]\nserver = \"{server}\"\n")).collect();
    format!("socks = \"127.0.0.1:0\"\nintegrity = \"{integrity}\"\n{}", channels.concat())
}

/// Runs a server.
pub(crate) async fn start_server(toml: &str) -> Running {
    start_watched_server(toml).await.0
}

/// Runs a server. Returns its handle, too.
pub(crate) async fn start_watched_server(toml: &str) -> (Running, MicssServerHandle) {
    let server = MicssServer::bind(MicssServerConfig::from_toml(toml).unwrap()).await.unwrap();
    let handle = server.handle();
    let addresses = server.local_addresses().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async { _ = stopped.await }));
    (Running { addresses, stop, task }, handle)
}

/// Runs a client.
pub(crate) async fn start_client(toml: &str) -> Running {
    start_watched_client(toml).await.0
}

/// Runs a client, and returns the handle that has its status as well.
pub(crate) async fn start_watched_client(toml: &str) -> (Running, MicssClientHandle) {
    let client = MicssClient::bind(MicssClientConfig::from_toml(toml).unwrap()).await.unwrap();
    let handle = client.handle();
    let addresses = client.local_addresses().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(client.run(async { _ = stopped.await }));
    (Running { addresses, stop, task }, handle)
}

/// Requests a connection from a SOCKS5 proxy. Returns it, and the reply code.
pub(crate) async fn ask(proxy: SocketAddr, service: SocketAddr) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).await.unwrap();
    assert_eq!(method, [5, 0]);
    let mut request = vec![5, 1, 0];
    request.extend(ServiceTarget::address(service).encode());
    stream.write_all(&request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    (stream, reply[1])
}

/// Reads until the end or an error.
pub(crate) async fn drain_sink(stream: &mut TcpStream) -> io::Result<u64> {
    let mut bytes = vec![0; 65536];
    let mut total = 0;
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(total),
            len => total += len as u64,
        }
    }
}

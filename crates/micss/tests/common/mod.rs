//! A client, a server and a service on loopback, ready to connect to.

use std::io;
use std::net::SocketAddr;

use micss::client::Client;
use micss::config::{ClientConfig, ServerConfig};
use micss::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A service behind a server, and a client in front of it.
pub struct House {
    /// Where the client listens for SOCKS5.
    pub socks: SocketAddr,
    /// Where the service listens.
    pub service: SocketAddr,
    stops: Vec<oneshot::Sender<()>>,
    tasks: Vec<JoinHandle<()>>,
}

impl House {
    /// Builds it with `n` channels; every connection to the service is given to `serve`.
    pub async fn new<F: Future<Output = ()> + Send + 'static>(
        n: usize,
        integrity: &str,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = listener.local_addr().unwrap();
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        let listen: Vec<String> = (1..=n).map(|i| format!("\"127.0.0.{i}:0\"")).collect();
        let server = Server::bind(
            ServerConfig::from_toml(&format!(
                "listen = [{}]\nallow = [\"{service}\"]\nintegrity = \"{integrity}\"\nmin_channels = 1",
                listen.join(", ")
            ))
            .unwrap(),
        )
        .await
        .unwrap();
        let channels: Vec<String> = server
            .local_addresses()
            .unwrap()
            .iter()
            .map(|address| format!("[[channel]]\nserver = \"{address}\"\n"))
            .collect();
        let client = Client::bind(
            ClientConfig::from_toml(&format!(
                "socks = \"127.0.0.1:0\"\nintegrity = \"{integrity}\"\n{}",
                channels.concat()
            ))
            .unwrap(),
        )
        .await
        .unwrap();
        let socks = client.local_addresses().unwrap()[0];
        let (stop_server, server_stop) = oneshot::channel();
        let (stop_client, client_stop) = oneshot::channel();
        let tasks = vec![
            accept,
            tokio::spawn(server.run(async { _ = server_stop.await })),
            tokio::spawn(client.run(async { _ = client_stop.await })),
        ];
        Self { socks, service, stops: vec![stop_server, stop_client], tasks }
    }

    /// Connects to the service, as an application does.
    pub async fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.socks).await.unwrap();
        stream.write_all(&[5, 1, 0]).await.unwrap();
        let mut reply = [0; 2];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply, [5, 0]);
        let mut request = vec![5, 1, 0];
        request.extend(micss::target::Target::address(self.service).encode());
        stream.write_all(&request).await.unwrap();
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[..2], [5, 0], "connected");
        stream
    }

    /// Stops all of it.
    pub async fn stop(self) {
        drop(self.stops);
        self.tasks[0].abort();
        for task in self.tasks.into_iter().skip(1) {
            task.await.unwrap();
        }
    }
}

/// Bytes that are easily told from noise, and from each other at any distance.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).flat_map(|i| (i * 0x9E37_79B9).to_be_bytes()).take(len).collect()
}

/// Reads until the end, or the error.
pub async fn drain_sink(stream: &mut TcpStream) -> io::Result<u64> {
    let mut bytes = vec![0; 65536];
    let mut total = 0;
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(total),
            len => total += len as u64,
        }
    }
}

//! A complete setup on loopback.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::common::{
    Running, ask, client_toml, server_toml, start_client, start_server, start_service,
};

/// A service behind a server, and a client in front of it.
pub(crate) struct Testbed {
    service: SocketAddr,
    server: Running,
    client: Running,
}

impl Testbed {
    /// Starts it with `n` channels. Every connection to the service is passed to `serve`.
    pub(crate) async fn new<F: Future<Output = ()> + Send + 'static>(
        n: usize,
        integrity: &str,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let service = start_service(serve).await;
        let server = start_server(&server_toml(n, service, integrity)).await;
        let client = start_client(&client_toml(&server.addresses, integrity)).await;
        Self { service, server, client }
    }

    /// Connects to the service, as an application does.
    pub(crate) async fn connect(&self) -> TcpStream {
        let (stream, code) = ask(self.client.addresses[0], self.service).await;
        assert_eq!(code, 0, "connected");
        stream
    }

    /// Stops everything. Waits for open streams.
    pub(crate) async fn stop(self) {
        tokio::join!(self.client.stop(), self.server.stop());
    }
}

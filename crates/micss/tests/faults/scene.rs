//! One stream, one meddler, and what both applications make of it.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{ask, client_toml, server_toml, start_client, start_server};
use crate::meddler::{Meddler, Plan};
use crate::pattern::pattern;

/// How many bytes each application sends.
pub(crate) const LEN: usize = 100_000;

/// What both applications got.
pub(crate) struct Outcome {
    /// The client's: what it received, if the stream ended well. A refusal is an error.
    pub(crate) application: io::Result<Vec<u8>>,
    /// The server's; `None` if it was never connected.
    pub(crate) service: Option<io::Result<Vec<u8>>>,
}

/// Sends the pattern while receiving, and ends well only if both directions do.
async fn exchange(mut stream: TcpStream) -> io::Result<Vec<u8>> {
    let sent = pattern(LEN);
    let (mut read, mut write) = stream.split();
    let send = async {
        write.write_all(&sent).await?;
        write.shutdown().await
    };
    let mut got = Vec::new();
    tokio::try_join!(send, read.read_to_end(&mut got))?;
    Ok(got)
}

async fn apply(proxy: SocketAddr, service: SocketAddr) -> io::Result<Vec<u8>> {
    match ask(proxy, service).await {
        (stream, 0) => exchange(stream).await,
        (_, code) => Err(io::Error::other(format!("refused with {code}"))),
    }
}

/// Plays it: `n` channels, of which one is meddled with.
pub(crate) async fn play(n: usize, integrity: &str, channel: usize, plan: Plan) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = listener.local_addr().unwrap();
    let server = start_server(&server_toml(n, service, integrity)).await;
    let mut addresses = server.addresses.clone();
    addresses[channel] = Meddler::start(addresses[channel], plan).await.address;
    let client = start_client(&client_toml(&addresses, integrity)).await;

    let serving = tokio::spawn(async move {
        let (stream, peer) = listener.accept().await.unwrap();
        (peer, exchange(stream).await)
    });
    let application = apply(client.addresses[0], service).await;
    tokio::join!(client.stop(), server.stop());
    // Should the server never have connected, somebody must, for the service to come to an end.
    let stranger = TcpStream::connect(service).await.and_then(|stream| stream.local_addr()).ok();
    let (peer, got) = serving.await.unwrap();
    Outcome { application, service: (stranger != Some(peer)).then_some(got) }
}

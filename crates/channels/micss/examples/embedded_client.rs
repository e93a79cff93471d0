//! A program with a MICSS client inside: it sends a line to a service that is behind a server, over
//! two channels of which neither alone tells anything. Here the server and the service are in the
//! same program.
//!
//! `cargo run --package sunder-micss --example embedded_client`

use std::error::Error;
use std::io::Write;

use sunder_micss::client::MicssClient;
use sunder_micss::config::{MicssClientConfig, MicssServerConfig};
use sunder_micss::server::MicssServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // A service on an address that only the server reaches: it sends back what it gets.
    let service = TcpListener::bind("127.0.0.1:0").await?;
    let service_address = service.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = service.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });

    // The server listens on an address of each channel's network.
    let server = format!("listen = ['127.0.0.1:0', '127.0.0.2:0']\nallow = ['{service_address}']");
    let server = MicssServer::bind(MicssServerConfig::from_toml(&server)?).await?;
    let channels: Vec<String> = server
        .local_addresses()?
        .iter()
        .map(|address| format!("[[channel]]\nserver = '{address}'\n"))
        .collect();
    let (stop_server, server_stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run(async { _ = server_stopped.await }));

    // The client: connections to its forward go to the service.
    let forward = format!("[[forward]]\nlisten = '127.0.0.1:0'\ntarget = '{service_address}'\n");
    let client =
        MicssClient::bind(MicssClientConfig::from_toml(&(forward + &channels.concat()))?).await?;
    let (address, handle) = (client.local_addresses()?[0], client.handle());
    let (stop_client, client_stopped) = oneshot::channel::<()>();
    let client = tokio::spawn(client.run(async { _ = client_stopped.await }));

    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"attack at dawn").await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    writeln!(out, "the service sent back: {answer}")?;
    drop(stream);

    // Dropping a sender is as good as sending: the future that `run` was given ends.
    drop((stop_client, stop_server));
    client.await?;
    server.await?;
    let status = handle.status();
    writeln!(out, "{} stream over {} channels", status.streams.finished, status.channels.len())?;
    Ok(())
}

#[tokio::test]
async fn the_output_is_as_expected() {
    let mut out = Vec::new();
    run(&mut out).await.unwrap();
    let expected = "the service sent back: attack at dawn
1 stream over 2 channels
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

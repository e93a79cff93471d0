//! A program with a MICSS client inside: it sends a line to a service that is behind a server, over
//! two channels of which neither alone tells anything. Here the server and the service are in the
//! same program.
//!
//! `cargo run --package sunder-micss --example embedded_client`

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use sunder_micss::config::{MicssServerConfig, RemoteServerConfig, StreamChannelConfig};
use sunder_micss::server::MicssServer;
use sunder_micss::target::ServiceTarget;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How long a channel may be silent before the stream breaks.
const LOST_CHANNEL_TIMEOUT: Duration = Duration::from_secs(30);

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
    let (addresses, handle) = (server.local_addresses()?, server.handle());
    let (stop_server, server_stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run(async { _ = server_stopped.await }));

    // The client.
    let channels: Vec<_> = addresses.into_iter().map(StreamChannelConfig::to).collect();
    let remote = RemoteServerConfig { channels, threshold: 2 };
    let target = ServiceTarget::address(service_address);
    let mut stream = sunder_micss::connect(remote, &target, LOST_CHANNEL_TIMEOUT).await?;
    stream.write_all(b"attack at dawn").await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    writeln!(out, "the service sent back: {answer}")?;
    drop(stream);

    // Dropping the sender is as good as sending: the future that `run` was given ends.
    drop(stop_server);
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

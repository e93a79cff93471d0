//! The demo's topology: three channels on this machine, the programs at their ends, and a tap on
//! each.
//!
//! ```text
//! fetch -> SOCKS5, MICSS client -> three taps -> MICSS server -> file server
//! ```

use std::fs::File;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use console::CommandFailure;
use console::CommandProgress;
use micss::client::MicssClient;
use micss::config::{MicssClientConfig, MicssServerConfig};
use micss::server::MicssServer;
use service::config::ConfigProblems;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::http::{self, FetchedFile, SecretPath};
use super::scratch;
use super::source::DemoSourceFile;
use super::tap::ChannelTap;

/// The number of channels. Channel i is at the loopback address 127.0.0.(i + 1).
pub(super) const CHANNELS: u8 = 3;

/// A file's transfer over the channels, and the captures of the taps.
pub(super) struct DemoTransfer {
    /// The data that arrived.
    pub(super) fetched: FetchedFile,
    /// The time from the request to the last byte.
    pub(super) duration: Duration,
    /// What the server sent on each channel.
    pub(super) captures: Vec<File>,
}

/// Starts the topology and fetches the file through it.
///
/// # Errors
/// If a part of it cannot be started, or the file arrives incomplete.
pub(super) async fn transfer(source: Arc<DemoSourceFile>) -> Result<DemoTransfer, CommandFailure> {
    let len = source.len;
    let files = TcpListener::bind("127.0.0.1:0").await.map_err(|error| starting(&error))?;
    let service = files.local_addr().map_err(|error| starting(&error))?;
    let server = bind_server(service).await.map_err(|error| starting(&error))?;
    let taps = bind_taps(&server).await.map_err(|error| starting(&error))?;
    let client = bind_client(&taps).await.map_err(|error| starting(&error))?;
    let proxy = client.local_addresses().map_err(|error| starting(&error))?[0];
    let progress = CommandProgress::new(Some(len));

    // They end when the set is dropped.
    let mut ends = JoinSet::new();
    ends.spawn(server.run(pending()));
    ends.spawn(client.run(pending()));
    let path = SecretPath::new().map_err(|error| CommandFailure::Failed(error.to_string()))?;
    let path = Arc::new(path);
    let known = Arc::clone(&path);
    ends.spawn(async { _ = http::serve(files, source, known).await });

    let start = Instant::now();
    let fetch = async {
        let fetched = http::fetch(proxy, service, &path, |bytes| progress.advance(bytes)).await;
        let fetched = fetched
            .map_err(|error| CommandFailure::Failed(format!("the file did not arrive: {error}")))?;
        Ok((fetched, start.elapsed()))
    };
    let ((fetched, duration), captures) = tokio::try_join!(fetch, capture(taps))?;
    Ok(DemoTransfer { fetched, duration, captures })
}

async fn bind_server(service: SocketAddr) -> io::Result<MicssServer> {
    let listen: Vec<String> =
        (1..=CHANNELS).map(|channel| format!("\"127.0.0.{channel}:0\"")).collect();
    let config = format!(
        "listen = [{}]\nallow = [\"{service}\"]\nmin_channels = {CHANNELS}",
        listen.join(", ")
    );
    MicssServer::bind(parsed(MicssServerConfig::from_toml(&config))).await
}

async fn bind_taps(server: &MicssServer) -> io::Result<Vec<(ChannelTap, SocketAddr)>> {
    let mut taps = Vec::new();
    for address in server.local_addresses()? {
        let tap = ChannelTap::bind(address).await?;
        let address = tap.address()?;
        taps.push((tap, address));
    }
    Ok(taps)
}

async fn bind_client(taps: &[(ChannelTap, SocketAddr)]) -> io::Result<MicssClient> {
    let channels = taps.iter().map(|(_, address)| format!("[[channel]]\nserver = \"{address}\"\n"));
    // The demo needs only one connection on each channel, for one stream.
    let config = format!(
        "pool = {{ size = 0, keep = 0 }}\nsocks = \"127.0.0.1:0\"\n{}",
        channels.collect::<String>()
    );
    MicssClient::bind(parsed(MicssClientConfig::from_toml(&config))).await
}

fn parsed<T>(config: Result<T, ConfigProblems>) -> T {
    config.expect("nothing in it depends on the machine but ports")
}

/// Runs the taps until all channels have ended.
async fn capture(taps: Vec<(ChannelTap, SocketAddr)>) -> Result<Vec<File>, CommandFailure> {
    let mut running = JoinSet::new();
    for (index, (tap, _)) in taps.into_iter().enumerate() {
        let file = scratch::file()?;
        running.spawn(async move { (index, tap.run(file).await) });
    }
    let mut captures: Vec<Option<File>> = (0..CHANNELS).map(|_| None).collect();
    while let Some(ended) = running.join_next().await {
        let (index, capture) = ended.map_err(|error| tapping(&error))?;
        captures[index] = Some(capture.map_err(|error| tapping(&error))?);
    }
    Ok(captures.into_iter().flatten().collect())
}

fn tapping(error: &dyn std::error::Error) -> CommandFailure {
    CommandFailure::Failed(format!("the eavesdropper's capture: {error}"))
}

fn starting(error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(format!(
        "{error}; the demo needs the addresses 127.0.0.1 to 127.0.0.{CHANNELS}"
    ))
}

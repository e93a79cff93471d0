//! One stream with one fault, and its outcome for both applications.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::fault_relay::{FaultRelay, Plan};
use crate::common::{ask, client_toml, server_toml, start_client, start_server};
use crate::pattern::pattern;

/// How many bytes each application sends.
pub(crate) const LEN: usize = 100_000;

/// The outcome for both applications.
pub(crate) struct Outcome {
    /// What the client's application received, if the stream ended regularly. A refusal is an
    /// error.
    pub(crate) application: io::Result<Vec<u8>>,
    /// What the service received, for each of its connections.
    pub(crate) service: Vec<io::Result<Vec<u8>>>,
    /// The time from the fault until both were finished. `None` if the fault did not occur.
    pub(crate) took: Option<Duration>,
}

/// Sends the pattern while receiving, and succeeds only if both directions end regularly.
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

/// Runs a stream over `n` channels with a fault on one of them.
pub(crate) async fn run(n: usize, integrity: &str, channel: usize, plan: Plan) -> Outcome {
    run_with_settings("", n, integrity, channel, plan).await
}

/// The same with these client settings.
pub(crate) async fn run_with_settings(
    settings: &str,
    n: usize,
    integrity: &str,
    channel: usize,
    plan: Plan,
) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = listener.local_addr().unwrap();
    let server = start_server(&server_toml(n, service, integrity)).await;
    let mut addresses = server.addresses.clone();
    let relay = FaultRelay::start(addresses[channel], plan).await;
    addresses[channel] = relay.address;
    let fault = tokio::spawn(async move {
        relay.done().await;
        Instant::now()
    });
    let client = start_client(&(settings.to_owned() + &client_toml(&addresses, integrity))).await;

    let over = Arc::new(Notify::new());
    let (served, mut serves) = watch::channel(0);
    let serving = tokio::spawn(serve(listener, served, Arc::clone(&over)));
    let application = apply(client.addresses[0], service).await;
    // One direction may end before the other, and a stop would not wait for long.
    serves.wait_for(|streams| *streams == 0).await.unwrap();
    let end = Instant::now();
    tokio::join!(client.stop(), server.stop());
    over.notify_one();
    fault.abort();
    let took = fault.await.ok().map(|fault| end.duration_since(fault));
    Outcome { application, service: serving.await.unwrap(), took }
}

/// Exchanges bytes on every connection until the listener stops, and publishes their number.
/// Returns the results.
async fn serve(
    listener: TcpListener,
    served: watch::Sender<usize>,
    over: Arc<Notify>,
) -> Vec<io::Result<Vec<u8>>> {
    let mut exchanges = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                served.send_modify(|streams| *streams += 1);
                let served = served.clone();
                exchanges.spawn(async move {
                    let result = exchange(accepted.unwrap().0).await;
                    served.send_modify(|streams| *streams -= 1);
                    result
                });
            }
            () = over.notified() => return exchanges.join_all().await,
        }
    }
}

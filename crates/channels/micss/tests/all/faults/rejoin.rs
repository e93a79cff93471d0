//! Channels are cut one after another while a stream is open, and each works again before the next
//! is cut: the stream uses it again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;
use sunder_micss::client::MicssClientHandle;
use sunder_micss::server::MicssServerHandle;
use sunder_micss::status::MicssStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::common::{
    Running, ask, client_toml, server_toml, start_service, start_watched_client,
    start_watched_server,
};

/// The time within which an echo must be back.
const MAX_ECHO: Duration = Duration::from_secs(3);

/// A relay of a channel, which is cut and restored.
struct Switch {
    address: SocketAddr,
    is_on: Arc<watch::Sender<bool>>,
}

impl Switch {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_on = Arc::new(watch::Sender::new(true));
        let switch = Arc::clone(&is_on);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let is_on = switch.subscribe();
                tokio::spawn(carry(client, server, is_on));
            }
        });
        Self { address, is_on }
    }

    /// Resets all connections, and those that are made from now on.
    fn cut(&self) {
        self.is_on.send_replace(false);
    }

    fn restore(&self) {
        self.is_on.send_replace(true);
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut is_on: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    tokio::select! {
        biased;
        _ = is_on.wait_for(|is_on| !is_on) => {}
        _ = copy_bidirectional(&mut client, &mut server) => {}
    }
}

/// A stream over three channels of which two are needed, and an echo behind it.
struct Testbed {
    switches: Vec<Switch>,
    at_server: MicssServerHandle,
    at_client: MicssClientHandle,
    server: Running,
    client: Running,
    stream: TcpStream,
    sent: u8,
}

impl Testbed {
    async fn start(channels: usize, threshold: usize) -> Self {
        let echo = |mut stream: TcpStream| async move {
            let (mut reader, mut writer) = stream.split();
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        };
        let service = start_service(echo).await;
        let (server, at_server) =
            start_watched_server(&server_toml(channels, service, "tamper-code")).await;
        let mut switches = Vec::new();
        for address in &server.addresses {
            switches.push(Switch::start(*address).await);
        }
        let addresses: Vec<_> = switches.iter().map(|switch| switch.address).collect();
        let settings = format!("threshold = {threshold}\n");
        let toml = settings + &client_toml(&addresses, "tamper-code");
        let (client, at_client) = start_watched_client(&toml).await;
        let (stream, code) = ask(client.addresses[0], service).await;
        assert_eq!(code, 0);
        Self { switches, at_server, at_client, server, client, stream, sent: 0 }
    }

    /// Sends some bytes through the stream and back. Returns how long that takes.
    async fn echo(&mut self, len: usize) -> Duration {
        let begin = Instant::now();
        self.sent = self.sent.wrapping_add(1);
        let sent = vec![self.sent; len];
        let (mut reader, mut writer) = self.stream.split();
        let mut received = vec![0; len];
        tokio::try_join!(writer.write_all(&sent), reader.read_exact(&mut received)).unwrap();
        assert!(received == sent);
        begin.elapsed()
    }

    /// Waits until the channel that was cut carries the stream again, at both ends: the client may
    /// not know yet that it does, and would end the stream when the next channel is cut.
    async fn wait_for(&self, rejoined: u64) {
        let can_lose_one = |status: &MicssStatus| status.redundancy.spare == [0, 1];
        until("it rejoins", || {
            let server = self.at_server.status();
            server.channels.iter().map(|channel| channel.rejoined).sum::<u64>() == rejoined
                && can_lose_one(&server)
                && can_lose_one(&self.at_client.status())
        })
        .await;
    }

    /// How many open streams can lose one channel, as the server knows.
    fn spare(&self) -> Vec<u64> {
        self.at_server.status().redundancy.spare
    }

    async fn stop(self) {
        drop(self.stream);
        tokio::join!(self.client.stop(), self.server.stop());
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Whether an echo was back in time. A busy machine may delay some, but it must not be late for the
/// third time.
fn is_prompt(took: Duration, late: &mut Vec<Duration>) -> bool {
    if took < MAX_ECHO {
        return true;
    }
    late.push(took);
    assert!(late.len() < 3, "three times: {late:?}");
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_was_cut_rejoins() {
    for len in [100, 300_000] {
        let (mut testbed, mut rejoined) = (Testbed::start(3, 2).await, 0);
        testbed.echo(len).await;
        for round in 0..6 {
            let (channel, mut late) = (round % 3, Vec::new());
            loop {
                testbed.switches[channel].cut();
                until("a stream can lose none", || testbed.spare() == [1, 0]).await;
                let took = testbed.echo(len).await;
                testbed.switches[channel].restore();
                rejoined += 1;
                testbed.wait_for(rejoined).await;
                testbed.echo(len).await;
                if is_prompt(took, &mut late) {
                    break;
                }
            }
        }
        testbed.stop().await;
    }
}

/// With one channel less than there are it goes on all the time, and with those that have rejoined.
#[tokio::test(flavor = "multi_thread")]
async fn ten_channels_fail_in_turn() {
    let (mut testbed, mut rejoined) = (Testbed::start(10, 9).await, 0);
    for channel in 0..10 {
        let mut late = Vec::new();
        loop {
            testbed.switches[channel].cut();
            testbed.echo(5_000).await;
            testbed.switches[channel].restore();
            rejoined += 1;
            testbed.wait_for(rejoined).await;
            let took = testbed.echo(5_000).await;
            if is_prompt(took, &mut late) {
                break;
            }
        }
    }
    testbed.stop().await;
}

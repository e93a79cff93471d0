//! Streams that open and close all the time, some of them with errors, over channels that break.
//! Afterwards no resources remain in use. `SUNDER_SOAK_S=1200` runs this for twenty minutes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use micss::target::ServiceTarget;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::processes::Service;

/// The default duration, in seconds.
const DEFAULT_SECONDS: u64 = 6;

/// The number of concurrent applications.
const APPLICATIONS: u64 = 24;

/// The maximum number of bytes that an application sends.
const MAX_LEN: u64 = 200_000;

/// One in this many connections on the middle channel has a fault.
const FAULT_INTERVAL: u64 = 10;

/// The time limit until all streams have ended after the applications.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// The least numbers of streams that end regularly, and that are broken.
const MIN_ENDS: [u64; 2] = [51, 6];

/// The resources of a process.
#[derive(Clone, Copy, Debug)]
struct Resources {
    resident_kib: u64,
    files: u64,
}

impl Resources {
    fn by(service: &Service) -> Self {
        let process = format!("/proc/{}", service.id());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident_kib = line.trim().trim_end_matches(" kB").parse().unwrap();
        // The process is not dumpable, so only root can count its files.
        let files = fs::read_dir(format!("{process}/fd")).map_or(0, |files| files.count() as u64);
        if files == 0 {
            eprintln!("SKIPPED: only root can count a service's open files");
        }
        Self { resident_kib, files }
    }
}

/// The outcomes of streams.
#[derive(Default)]
struct Ends {
    whole: AtomicU64,
    broken: AtomicU64,
}

impl Ends {
    fn counts(&self) -> [u64; 2] {
        [&self.whole, &self.broken].map(|count| count.load(Ordering::Relaxed))
    }

    fn are_enough(&self) -> bool {
        self.counts().into_iter().zip(MIN_ENDS).all(|(count, least)| count >= least)
    }
}

/// A relay to a server that breaks some connections.
async fn relay(server: SocketAddr, random: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut random = fastrand::Rng::with_seed(random);
        while let Ok((client, _)) = listener.accept().await {
            let fault = (random.u64(..FAULT_INTERVAL) == 0)
                .then(|| (random.u64(1..MAX_LEN), random.u8(..3)));
            tokio::spawn(async move {
                // Either end may break the connection.
                let _ = carry(client, server, fault).await;
            });
        }
    });
    address
}

/// Relays a connection, in one direction up to a fault: a reset, an end, or a changed byte.
async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    fault: Option<(u64, u8)>,
) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let Some((at, fault)) = fault else {
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    };
    {
        let (from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let up = async {
            let mut before = from_client.take(at);
            tokio::io::copy(&mut before, &mut to_server).await?;
            let mut from_client = before.into_inner();
            if fault == 2
                && let Ok(byte) = from_client.read_u8().await
            {
                to_server.write_u8(byte ^ 1).await?;
                tokio::io::copy(&mut from_client, &mut to_server).await?;
            }
            to_server.shutdown().await
        };
        let down = async {
            tokio::io::copy(&mut from_server, &mut to_client).await?;
            to_client.shutdown().await
        };
        if fault == 0 {
            // The end of one direction ends the other.
            tokio::select! { result = up => result, result = down => result }?;
        } else {
            tokio::try_join!(up, down)?;
        }
    }
    for stream in [&client, &server] {
        SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

/// A service that echoes its input.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}

/// One stream: sends bytes, receives them back, and ends, or is aborted in the middle.
async fn stream(
    socks: SocketAddr,
    service: SocketAddr,
    random: &mut fastrand::Rng,
) -> io::Result<()> {
    let mut stream = TcpStream::connect(socks).await?;
    let request = [&[5, 1, 0, 5, 1, 0][..], &ServiceTarget::address(service).encode()].concat();
    stream.write_all(&request).await?;
    let mut replies = [0; 12];
    stream.read_exact(&mut replies).await?;
    if replies[..4] != [5, 0, 5, 0] {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let len = usize::try_from(random.u64(..MAX_LEN)).unwrap();
    let (message, mut heard) = (vec![random.u8(..); len], Vec::new());
    if random.u8(..20) == 0 {
        stream.write_all(&message).await?;
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        return Err(io::ErrorKind::Interrupted.into());
    }
    let (mut reader, mut writer) = stream.split();
    let say = async {
        writer.write_all(&message).await?;
        writer.shutdown().await
    };
    tokio::try_join!(say, reader.read_to_end(&mut heard))?;
    assert!(heard == message, "an end that is none, or another byte");
    Ok(())
}

/// The maximum resources in a part of the time.
fn max_in(held: &[[Resources; 2]], process: usize, part: std::ops::Range<usize>) -> Resources {
    let held = &held[held.len() * part.start / 4..held.len() * part.end / 4];
    let most =
        |of: fn(&Resources) -> u64| held.iter().map(|held| of(&held[process])).max().unwrap();
    Resources { resident_kib: most(|held| held.resident_kib), files: most(|held| held.files) }
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_streams_leave_no_resources_in_use() {
    let seconds = std::env::var("SUNDER_SOAK_S").ok().map(|text| text.parse().unwrap());
    let time = Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS));
    let service = echo().await;
    let server = Service::server(3, &service.to_string());
    let channels = [server.address(0), relay(server.address(1), 1).await, server.address(2)];
    let channels = channels.map(|address| format!("[[channel]]\nserver = \"{address}\"\n"));
    let config = format!("socks = \"127.0.0.1:0\"\n{}", channels.concat());
    let proxy = Service::start("proxy", &config, 1);
    let (socks, processes) = (proxy.address(0), [&server, &proxy]);

    let (ends, started) = (Arc::new(Ends::default()), Instant::now());
    let mut applications = JoinSet::new();
    for seed in 0..APPLICATIONS {
        let ends = Arc::clone(&ends);
        applications.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            // On a busy machine, until there were enough streams.
            while started.elapsed() < time
                || !ends.are_enough() && started.elapsed() < time + WAIT_TIMEOUT
            {
                let end = stream(socks, service, &mut random).await;
                let count = if end.is_ok() { &ends.whole } else { &ends.broken };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut held = Vec::new();
    while started.elapsed() < time {
        tokio::time::sleep(time / 40).await;
        held.push(processes.map(Resources::by));
    }
    while let Some(ended) = applications.join_next().await {
        ended.unwrap();
    }
    let [whole, broken] = ends.counts();
    assert!(ends.are_enough(), "{whole} whole and {broken} broken");
    for (process, name) in ["serve", "proxy"].into_iter().enumerate() {
        let (second, last) = (max_in(&held, process, 1..2), max_in(&held, process, 3..4));
        println!("{name}: {whole} streams whole, {broken} broken: {second:?}, later {last:?}");
        assert!(last.files < second.files + 64, "{name}: {held:?}");
        assert!(last.resident_kib < second.resident_kib * 5 / 4 + 8192, "{name}: {held:?}");
    }
    // What remains are ready connections, up to the maximum of the pool: 64 sets.
    let (bound, since) = (64 * 3 + 40, Instant::now());
    while processes.iter().any(|process| Resources::by(process).files > bound) {
        assert!(since.elapsed() < WAIT_TIMEOUT, "{:?}", processes.map(Resources::by));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

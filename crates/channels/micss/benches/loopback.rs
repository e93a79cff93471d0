//! The speed of one stream and of 64 streams over n channels on loopback, compared with a plain TCP
//! relay that moves the same n-fold bytes. The relay has the same hops in front and the same number
//! of connections between its two halves, but each carries a plain copy. The difference is the cost
//! of sharing, joining and the tamper code.
//!
//! Both run alternately in this process on two worker threads, and the ratio is taken for each
//! pair.
//!
//! `cargo bench -p sunder-micss -- "64 3"` runs only the rows of 64 streams over three channels.

#[path = "../tests/all/common.rs"]
mod common;
#[path = "../tests/all/testbed.rs"]
mod testbed;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::drain_sink;
use testbed::Testbed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The number of bytes that all streams of one run carry together.
const BYTES: usize = 512 << 20;

/// The number of pairs of runs. Each row shows their median.
const PAIRS: usize = 5;

/// The relay's buffers, in bytes. Larger ones do not make it faster.
const RELAY_BUFFER: usize = 64 << 10;

fn main() {
    // Cargo also passes `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    println!("{BYTES} bytes a run, median of {PAIRS} pairs; GB/s of the stream's own bytes");
    println!("streams  n  integrity    MICSS   relay   MICSS/relay");
    for streams in [1, 64] {
        for n in 1..=5 {
            for integrity in ["tamper-code", "none"] {
                let name = format!("{streams} {n} {integrity}");
                if wanted.iter().all(|wanted| name.starts_with(wanted)) {
                    runtime.block_on(row(streams, n, integrity));
                }
            }
        }
    }
}

async fn row(streams: usize, n: usize, integrity: &str) {
    let testbed = Testbed::new(n, integrity, sink).await;
    let relay = relay(n).await;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first pair is a warm-up.
    for pair in 0..=PAIRS {
        let micss = transfer(streams, || testbed.connect()).await.as_secs_f64();
        let plain = transfer(streams, || async { TcpStream::connect(relay).await.unwrap() }).await;
        if pair > 0 {
            let gigabytes = f64::from(u32::try_from(BYTES).expect("less than 4 GiB")) / 1e9;
            ours.push(gigabytes / micss);
            theirs.push(gigabytes / plain.as_secs_f64());
            ratios.push(plain.as_secs_f64() / micss);
        }
    }
    let [ours, theirs, ratio] = [ours, theirs, ratios].map(median);
    println!("{streams:7}  {n}  {integrity:11}  {ours:5.2}   {theirs:5.2}   {ratio:11.2}");
    testbed.stop().await;
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Sends [`BYTES`] over so many concurrent connections, and waits for the final answers of the
/// receivers.
async fn transfer<F: Future<Output = TcpStream>>(
    streams: usize,
    connect: impl Fn() -> F,
) -> Duration {
    let mut connected = Vec::new();
    for _ in 0..streams {
        connected.push(connect().await);
    }
    let start = Instant::now();
    let mut sending = tokio::task::JoinSet::new();
    for mut stream in connected {
        sending.spawn(async move {
            let bytes = vec![0x5A; 256 << 10];
            let mut left = BYTES / streams;
            while left > 0 {
                let len = left.min(bytes.len());
                stream.write_all(&bytes[..len]).await.unwrap();
                left -= len;
            }
            stream.shutdown().await.unwrap();
            assert_eq!(stream.read_u64().await.unwrap(), (BYTES / streams) as u64);
        });
    }
    while let Some(result) = sending.join_next().await {
        result.unwrap();
    }
    start.elapsed()
}

/// The service: counts its input, and reports the number at the end.
async fn sink(mut stream: TcpStream) {
    let total = drain_sink(&mut stream).await.unwrap();
    stream.write_u64(total).await.unwrap();
}

/// Starts the two halves of a plain relay with `n` connections between them.
async fn relay(n: usize) -> SocketAddr {
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let middle = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = front.local_addr().unwrap();
    let (middle_at, service_at) = (middle.local_addr().unwrap(), service.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (application, _) = front.accept().await.unwrap();
            let mut channels = Vec::new();
            for i in 0..n {
                let mut channel = TcpStream::connect(middle_at).await.unwrap();
                channel.set_nodelay(true).unwrap();
                // Only the first copy is forwarded.
                channel.write_u8(u8::from(i == 0)).await.unwrap();
                channels.push(channel);
            }
            tokio::spawn(fan_out(application, channels));
        }
    });
    tokio::spawn(async move {
        loop {
            let (mut channel, _) = middle.accept().await.unwrap();
            tokio::spawn(async move {
                if channel.read_u8().await.unwrap() == 1 {
                    let service = TcpStream::connect(service_at).await.unwrap();
                    pass_on(channel, service).await;
                } else {
                    drain_sink(&mut channel).await.unwrap();
                }
            });
        }
    });
    tokio::spawn(async move {
        loop {
            let (stream, _) = service.accept().await.unwrap();
            tokio::spawn(sink(stream));
        }
    });
    address
}

/// Copies the application's bytes to every channel, and the first channel's answer back.
async fn fan_out(mut application: TcpStream, mut channels: Vec<TcpStream>) {
    let mut buffer = vec![0; RELAY_BUFFER];
    loop {
        let len = application.read(&mut buffer).await.unwrap();
        if len == 0 {
            break;
        }
        for channel in &mut channels {
            channel.write_all(&buffer[..len]).await.unwrap();
        }
    }
    for channel in &mut channels {
        channel.shutdown().await.unwrap();
    }
    tokio::io::copy(&mut channels[0], &mut application).await.unwrap();
}

/// Copies a channel's bytes to the service, and its answer back.
async fn pass_on(mut channel: TcpStream, mut service: TcpStream) {
    let mut buffer = vec![0; RELAY_BUFFER];
    loop {
        let len = channel.read(&mut buffer).await.unwrap();
        if len == 0 {
            break;
        }
        service.write_all(&buffer[..len]).await.unwrap();
    }
    service.shutdown().await.unwrap();
    tokio::io::copy(&mut service, &mut channel).await.unwrap();
}

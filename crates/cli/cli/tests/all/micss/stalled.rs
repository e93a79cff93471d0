//! Applications that download and read nothing: what they hold of the kernel's memory, and what
//! they leave to others. It needs an idle host:
//! `cargo test --release -p sunder-cli --test all -- micss::stalled --ignored --nocapture`

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::memory::{allow_files, open};
use super::processes::Service;

/// The number of applications that read nothing.
const STALLED: u64 = 500;

/// The queue of the service's own connections, in bytes: the kernel keeps up to 4 MiB there for any
/// reader that stalls, which is not measured.
const OWN_QUEUE: usize = 64 << 10;

/// The most that they may hold together, at all sockets on the way, in MiB.
const MAX_MIB: u64 = 1024;

/// The least rate of others beside them, relative to that without them.
const MIN_RATE: f64 = 0.5;

/// The time in which a rate is measured, and its repetitions, of which the median counts.
const MEASURED: Duration = Duration::from_secs(3);
const REPETITIONS: usize = 3;

/// The memory of all TCP sockets, in MiB.
fn kernel_mib() -> u64 {
    let text = fs::read_to_string("/proc/net/sockstat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap();
    let pages: u64 = line.split("mem").nth(1).unwrap().trim().parse().unwrap();
    (pages * rustix::param::page_size() as u64) >> 20
}

/// A service that sends as much as it can, over connections with a short queue.
async fn send_all(listener: TcpListener) {
    let mut open = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        SockRef::from(&stream).set_send_buffer_size(OWN_QUEUE).unwrap();
        open.spawn(async move {
            let bytes = vec![0x5A; 64 << 10];
            while stream.write_all(&bytes).await.is_ok() {}
        });
    }
}

/// The rate of one more download, in Gbit/s.
#[expect(clippy::cast_precision_loss, reason = "gigabytes")]
async fn rate(socks: SocketAddr, service: SocketAddr) -> f64 {
    let mut rates = Vec::new();
    for _ in 0..REPETITIONS {
        let mut stream = open(socks, service).await;
        let (mut bytes, mut read, began) = (vec![0; 256 << 10], 0, Instant::now());
        while began.elapsed() < MEASURED {
            read += stream.read(&mut bytes).await.unwrap();
        }
        rates.push(8e-9 * read as f64 / began.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    rates[REPETITIONS / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an idle host"]
async fn stalled_readers_hold_little_and_slow_nobody() {
    allow_files();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = listener.local_addr().unwrap();
    let _service = tokio::spawn(send_all(listener));
    let listen = "listen = [\"127.0.0.1:0\", \"127.0.0.2:0\", \"127.0.0.3:0\"]";
    let server = Service::start("serve", &format!("{listen}\nallow = [\"{service}\"]\n"), 3);
    let config = format!("socks = \"127.0.0.1:0\"\n{}", server.channels());
    let proxy = Service::start("proxy", &config, 1);
    let socks = proxy.address(0);

    let (before, idle_mib) = (rate(socks, service).await, kernel_mib());
    let mut stalled: Vec<TcpStream> = Vec::new();
    for _ in 0..STALLED {
        stalled.push(open(socks, service).await);
    }
    // Buffers fill as long as something moves.
    let mut held = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = kernel_mib().saturating_sub(idle_mib);
        if now <= held {
            break;
        }
        held = now;
    }
    let beside = rate(socks, service).await;
    println!(
        "{STALLED} stalled readers hold {held} MiB; another stream has {beside:.2} Gbit/s, and \
         {before:.2} without them"
    );
    drop(stalled);
    assert!(held <= MAX_MIB, "{held} MiB");
    assert!(beside >= MIN_RATE * before, "{beside:.2} Gbit/s, and {before:.2} without them");
}

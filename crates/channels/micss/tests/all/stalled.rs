//! Applications that request much and read nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use crate::testbed::Testbed;

const STREAMS: u64 = 100;

/// What buffers may hold of a stream on loopback, in bytes, with many streams. Without limits it is
/// 20 MB.
const MAX_HELD: u64 = 4 << 20;

/// Nothing more is taken after such a pause.
const PAUSE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn streams_of_stalled_readers_use_little_memory() {
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let testbed = Testbed::new(3, "tamper-code", move |mut service| {
        let count = Arc::clone(&count);
        async move {
            // What the service's own kernel holds is not measured.
            SockRef::from(&service).set_send_buffer_size(16 << 10).unwrap();
            while let Ok(len) = service.write(&[0x5A; 16 << 10]).await {
                count.fetch_add(len as u64, Ordering::Relaxed);
            }
        }
    })
    .await;
    let mut stalled = Vec::new();
    for _ in 0..STREAMS {
        stalled.push(testbed.connect().await);
    }
    let (mut held, mut since) = (0, Instant::now());
    while held == 0 || since.elapsed() < PAUSE {
        sleep(Duration::from_millis(10)).await;
        let now = sent.load(Ordering::Relaxed);
        if now != held {
            (held, since) = (now, Instant::now());
        }
    }
    println!("each stalled stream holds {} bytes", held / STREAMS);
    assert!(held / STREAMS <= MAX_HELD, "{} bytes each", held / STREAMS);
    drop(stalled);
    testbed.stop().await;
}

//! A TCP connection between two hosts that always has something to send.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::EmulatedHost;

/// A transfer. It ends when this is dropped.
pub(crate) struct Transfer {
    received: Arc<AtomicU64>,
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The time after which threads check whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Transfer {
    /// Connects to an address of the host `to`, and starts to send.
    pub(crate) fn start(from: &EmulatedHost, to: &EmulatedHost, address: &str) -> Self {
        let listener = to.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut out = from.run(|| TcpStream::connect((address, port))).unwrap().unwrap();
        let (mut arriving, _) = listener.accept().unwrap();
        arriving.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        out.set_write_timeout(Some(POLL_INTERVAL)).unwrap();
        let (received, stops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let sending = thread::spawn({
            let stops = Arc::clone(&stops);
            move || {
                while !stops.load(Ordering::Relaxed) {
                    let _ = out.write(&[0x55; 1 << 14]);
                }
            }
        });
        let receiving = thread::spawn({
            let (received, stops) = (Arc::clone(&received), Arc::clone(&stops));
            move || {
                let mut buffer = vec![0; 1 << 16];
                while !stops.load(Ordering::Relaxed) {
                    let length = arriving.read(&mut buffer).unwrap_or(0);
                    received.fetch_add(length as u64, Ordering::Relaxed);
                }
            }
        });
        Self { received, stops, threads: vec![sending, receiving] }
    }

    /// The mean rate in Mbit/s from now on, in this time.
    pub(crate) fn rate_for(&self, time: Duration) -> f64 {
        let (begin, before) = (Instant::now(), self.received.load(Ordering::Relaxed));
        thread::sleep(time);
        let bytes = self.received.load(Ordering::Relaxed) - before;
        bytes as f64 * 8e-6 / begin.elapsed().as_secs_f64()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

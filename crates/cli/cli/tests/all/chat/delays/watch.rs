//! A relay on the path of one member that measures its delays.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a block of rounds may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The relay, without any key.
pub(super) struct Watch {
    pub(super) address: String,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    held_us: Arc<AtomicU64>,
}

#[derive(Default)]
struct Seen {
    /// When something went to the member last, if nothing has come from the member since.
    told: Option<Instant>,
    /// In microseconds.
    delays: Vec<f64>,
}

impl Watch {
    pub(super) fn start(proxy: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<(Mutex<Seen>, Condvar)>::default();
        let held_us = Arc::<AtomicU64>::default();
        let (proxy, shared, held) = (proxy.to_owned(), seen.clone(), held_us.clone());
        thread::spawn(move || {
            for member in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&proxy) else { return };
                for stream in [&member, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let (from, to) = (server.try_clone().unwrap(), member.try_clone().unwrap());
                let (told, held) = (shared.clone(), held.clone());
                thread::spawn(move || {
                    pass(from, to, || {
                        thread::sleep(Duration::from_micros(held.load(Ordering::Relaxed)));
                        told.0.lock().unwrap().told = Some(Instant::now());
                    });
                });
                let answered = shared.clone();
                thread::spawn(move || pass(member, server, || answer(&answered)));
            }
        });
        Self { address, seen, held_us }
    }

    /// Holds what comes from the proxy for this time.
    pub(super) fn hold(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap();
        self.held_us.store(micros, Ordering::Relaxed);
    }

    /// Forgets the delays until now.
    pub(super) fn clear(&self) {
        self.seen.0.lock().unwrap().delays.clear();
    }

    /// Waits for the next delays.
    pub(super) fn wait_for(&self, count: usize) -> Vec<f64> {
        let (seen, changed) = &*self.seen;
        let is_short = |seen: &mut Seen| seen.delays.len() < count;
        let guard = seen.lock().unwrap();
        let (mut seen, ended) = changed.wait_timeout_while(guard, TIMEOUT, is_short).unwrap();
        assert!(!ended.timed_out(), "{} rounds of {count}", seen.delays.len());
        seen.delays.truncate(count);
        seen.delays.clone()
    }
}

/// Something has come from the member.
fn answer(seen: &(Mutex<Seen>, Condvar)) {
    let now = Instant::now();
    let mut guard = seen.0.lock().unwrap();
    if let Some(told) = guard.told.take() {
        guard.delays.push((now - told).as_secs_f64() * 1e6);
        seen.1.notify_all();
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, note: impl Fn()) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        note();
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

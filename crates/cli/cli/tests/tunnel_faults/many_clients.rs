//! The rate of one server with fifty clients, and how it is divided among them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};

use crate::clients::{Clients, address, name};
use crate::load::is_timeout;
use crate::pair::{SERVER, in_one_of_three, until};

const CLIENTS: usize = 50;
const PERIOD: Duration = Duration::from_secs(10);

/// The rates have settled when the sum of this many seconds in a row has not exceeded the highest
/// one before by this factor.
const SETTLED_SECONDS: usize = 3;
const SETTLED_GROWTH: f64 = 1.05;

/// The interval at which blocked threads check whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Threads of connections, one for each client, and the bytes that each has received.
struct Transfers {
    stops: Arc<AtomicBool>,
    received: Vec<Arc<AtomicU64>>,
    /// How connections have ended before they were to stop.
    ended: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

/// The priority (nice value) of the server while it receives.
const RECEIVING_PRIORITY: i32 = -20;

/// All clients send, or receive, over one TCP connection each. Prints the rates and the processor
/// time, which depend on what else the machine does: it is shared by the server, fifty clients and
/// fifty emulated links. Every client gets some of the rate. Their parts differ, as each learns the
/// rates of its channels while others use the processors.
///
/// A server on a host of its own does not wait for the processors of its clients. Here it would:
/// hundreds of threads want two processors, its receiving thread gets a fair part of them, and its
/// sockets drop what they cannot hold. So it goes first while it receives.
pub(crate) fn fifty_clients_share_a_server() {
    let clients = Clients::start(CLIENTS, CLIENTS, "");
    (0..CLIENTS).for_each(|number| clients.wait_for_client(number));
    for is_download in [false, true] {
        set_priority(clients.process("server"), if is_download { 0 } else { RECEIVING_PRIORITY });
        in_one_of_three(|| share_the_server(&clients, is_download));
    }
    let pages = fs::read_to_string(format!("/proc/{}/status", clients.process("server"))).unwrap();
    let resident = pages.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("the server's memory: {resident}");
}

/// Measures the rates of new connections once. An error says which connection has ended, or that a
/// client has too little of the rate: on a busy machine its processes may wait for long.
fn share_the_server(clients: &Clients, is_download: bool) -> Result<(), String> {
    let transfers = Transfers::start(clients, is_download);
    transfers.wait_until_settled();
    let before = transfers.bytes();
    let (began, server) = (Instant::now(), clients.process("server"));
    let (busy, dropped) = (processor_s(server), dropped(server));
    thread::sleep(PERIOD);
    let seconds = began.elapsed().as_secs_f64();
    let busy: Vec<String> = busy
        .iter()
        .zip(processor_s(server))
        .map(|((thread, before), (_, after))| {
            format!("{thread} {:.0} %", 100.0 * (after - before) / seconds)
        })
        .collect();
    let (after, dropped) = (transfers.bytes(), self::dropped(server) - dropped);
    let rates =
        before.iter().zip(&after).map(|(before, after)| (after - before) as f64 * 8e-6 / seconds);
    let mut rates: Vec<f64> = rates.collect();
    // The threads have not been told to stop yet: none of the connections should have ended.
    let ended = transfers.ended.lock().unwrap().clone();
    drop(transfers);
    rates.sort_by(f64::total_cmp);
    let total: f64 = rates.iter().sum();
    let what = if is_download { "to the clients" } else { "to the server" };
    println!(
        "{CLIENTS} clients, {what}: {total:.0} Mbit/s in all, each {:.1} to {:.1} (median {:.1}); \
         the server's threads: {}; the server's sockets dropped {dropped} datagrams",
        rates[0],
        rates[CLIENTS - 1],
        rates[CLIENTS / 2],
        busy.join(", ")
    );
    if !ended.is_empty() {
        println!("{what}: {ended:?}");
        return Err(format!("{what}: {ended:?}"));
    }
    let has_all_a_part = rates[0] > total / CLIENTS as f64 / 20.0;
    has_all_a_part.then_some(()).ok_or_else(|| format!("{what}: {rates:?}"))
}

impl Transfers {
    fn start(clients: &Clients, is_download: bool) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let ended = Arc::<Mutex<Vec<String>>>::default();
        let (mut received, mut threads) = (Vec::new(), Vec::new());
        for number in 0..CLIENTS {
            let [client, server] = [&name(number), "server"].map(|name| clients.host(name));
            let (from, to, at) = if is_download {
                (server, client, address(number))
            } else {
                (client, server, SERVER.to_owned())
            };
            let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0));
            let listener = to.run(listen).unwrap().unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut sender = None;
            until("a connection through the tunnel is open", || {
                sender = from.run(|| TcpStream::connect((at.as_str(), port))).unwrap().ok();
                sender.is_some()
            });
            let (mut sender, (mut receiver, _)) = (sender.unwrap(), listener.accept().unwrap());
            sender.set_write_timeout(Some(POLL_INTERVAL)).unwrap();
            receiver.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
            let count = Arc::new(AtomicU64::new(0));
            received.push(Arc::clone(&count));
            let (is_over, failed) = (Arc::clone(&stops), Arc::clone(&ended));
            threads.push(thread::spawn(move || {
                let zeros = vec![0; 1 << 16];
                while !is_over.load(Ordering::Relaxed) {
                    if let Err(error) = sender.write(&zeros)
                        && !is_timeout(&error)
                    {
                        failed.lock().unwrap().push(format!("sender {number}: {error}"));
                        return;
                    }
                }
            }));
            let (is_over, failed) = (Arc::clone(&stops), Arc::clone(&ended));
            threads.push(thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while !is_over.load(Ordering::Relaxed) {
                    let why = match receiver.read(&mut bytes) {
                        Ok(0) => "the stream has ended".to_owned(),
                        Ok(length) => {
                            count.fetch_add(length as u64, Ordering::Relaxed);
                            continue;
                        }
                        Err(error) if is_timeout(&error) => continue,
                        Err(error) => error.to_string(),
                    };
                    // The sender may have stopped first.
                    if !is_over.load(Ordering::Relaxed) {
                        failed.lock().unwrap().push(format!("receiver {number}: {why}"));
                    }
                    return;
                }
            }));
        }
        Self { stops, received, ended, threads }
    }

    /// Waits until the rates of the channels are learnt.
    fn wait_until_settled(&self) {
        let (mut highest, mut settled, mut before) = (0.0, 0, None);
        until("the rates have settled", || {
            let now = (Instant::now(), self.bytes().iter().sum::<u64>());
            let (at, bytes) = *before.get_or_insert(now);
            let elapsed = (now.0 - at).as_secs_f64();
            if elapsed >= 1.0 {
                let rate = (now.1 - bytes) as f64 / elapsed;
                settled = if rate > highest * SETTLED_GROWTH { 0 } else { settled + 1 };
                (highest, before) = (rate.max(highest), Some(now));
            }
            settled >= SETTLED_SECONDS
        });
    }

    fn bytes(&self) -> Vec<u64> {
        self.received.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sets the priority of all threads of a process.
fn set_priority(process: u32, nice: i32) {
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap().parse().unwrap();
        if let Err(error) = setpriority_process(Pid::from_raw(thread), nice) {
            println!("the server has no priority, and waits for its clients: {error}");
            return;
        }
    }
}

/// The datagrams that the kernel has dropped on the host of a process, because the buffer of a
/// socket was full.
fn dropped(process: u32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{process}/net/snmp")).unwrap();
    let mut lines = counts.lines().filter(|line| line.starts_with("Udp:"));
    let [names, values] = [(); 2].map(|()| lines.next().unwrap().split_whitespace());
    let found = names.zip(values).find(|(name, _)| *name == "RcvbufErrors");
    found.and_then(|(_, value)| value.parse().ok()).expect("the kernel counts them")
}

/// The processor time in seconds that each thread of a tunnel has used, by name.
fn processor_s(process: u32) -> Vec<(String, f64)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let used = threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        // The user's and the system's time, in hundredths of a second.
        let used: f64 = fields[11..13].iter().filter_map(|it| it.parse::<f64>().ok()).sum();
        Some((before.rsplit_once('(')?.1.to_owned(), used / 100.0))
    });
    used.collect()
}

//! A running tunnel with a load, and what shows that the host was too slow for both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::channel_faults::ChannelFault;
use crate::load::{Load, LoadKind};
use crate::pair::{Channel, Pair, network, over, until};

/// The time for a tunnel to learn its channels' rates.
const SETTLED: Duration = Duration::from_secs(6);

/// A host that delayed the test's own threads or packets for longer disturbed the trial.
const MAX_LATE: Duration = Duration::from_millis(30);
const MAX_LATE_PACKET_MS: f64 = 3.0;

/// How often a disturbed trial is tried.
const ATTEMPTS: usize = 3;

/// A tunnel between the hosts `client` and `server`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TunnelSetting<'a> {
    /// The network, in TOML.
    pub(crate) topology: &'a str,
    /// The links of the channels.
    pub(crate) links: &'a [&'static str],
    /// Top-level settings of both ends, in TOML.
    pub(crate) settings: &'a str,
    /// The configured rate of each channel. `None`: it is learnt.
    pub(crate) rate_mbit: Option<u32>,
}

/// A running tunnel with its load.
pub(crate) struct LoadedTunnel {
    load: Load,
    pair: Pair,
    lateness: LatenessMonitor,
}

impl LoadedTunnel {
    /// Starts both ends, with these faults of channels from the beginning, and the load, and waits
    /// until rates are learnt.
    pub(crate) fn start(
        tunnel: TunnelSetting<'_>,
        load: LoadKind,
        faults: &[ChannelFault],
    ) -> Self {
        let TunnelSetting { topology, links, settings, rate_mbit } = tunnel;
        let network = network(topology);
        let channels: Vec<Channel> = over(&network, links)
            .into_iter()
            .map(|channel| Channel { rate_mbit, ..channel })
            .collect();
        let pair = Pair::start(network, settings, &channels);
        for fault in faults {
            fault.set(&pair, true);
        }
        until("the ends are associated", || {
            ["client", "server"].iter().all(|end| pair.status(end).associated)
        });
        let lateness = LatenessMonitor::start();
        let load = Load::start(&pair, load);
        thread::sleep(SETTLED);
        Self { load, pair, lateness }
    }

    /// Replaces the load. What was measured before is forgotten.
    pub(crate) fn set_load(&mut self, load: LoadKind) {
        self.load = Load::start(&self.pair, load);
    }

    /// The time since the start of the load.
    pub(crate) fn now(&self) -> Duration {
        self.load.now()
    }

    /// The rate of the load in a period that is over, in Mbit/s.
    pub(crate) fn rate_mbit(&self, from: Duration, to: Duration) -> f64 {
        self.load.rate_mbit(from, to)
    }

    /// The rate of the load in each second of a period that is over, in Mbit/s.
    pub(crate) fn rates_mbit(&self, from: Duration, to: Duration) -> Vec<f64> {
        self.load.rates_mbit(from, to)
    }

    /// The rate of the load from now on, in Mbit/s.
    pub(crate) fn rate_for(&self, duration: Duration) -> f64 {
        let from = self.load.now();
        thread::sleep(duration);
        self.load.rate_mbit(from, from + duration)
    }

    /// Begins or ends a fault.
    pub(crate) fn set(&self, fault: &ChannelFault, is_on: bool) {
        fault.set(&self.pair, is_on);
    }

    /// The client's estimate of each channel, and whether and how it is used.
    pub(crate) fn estimates(&self) -> String {
        let status = self.pair.status("client");
        let channels = status.channels.iter().map(|channel| {
            let rate = channel.rate_mbit.unwrap_or_default();
            let from = channel.rate_from.as_deref().unwrap_or_default();
            let loss = 100.0 * channel.loss_out.unwrap_or_default();
            let state = channel.state_out.as_deref().unwrap_or("not connected");
            let is_spare = if channel.spare_s.is_some() { ", spare" } else { "" };
            let mtu = channel.mtu.map_or("–".to_owned(), |mtu| mtu.to_string());
            let hole =
                channel.former_mtu.map_or(String::new(), |former| format!(" after {former}"));
            format!("{rate:.1} Mbit/s {from}, {loss:.1} % lost, {state}{is_spare}, MTU {mtu}{hole}")
        });
        channels.collect::<Vec<_>>().join("; ")
    }

    /// Why the results may be due to the host and not to the tunnel, if it was too slow.
    pub(crate) fn disturbance(&self) -> Option<String> {
        let (late, packets_ms) = (self.lateness.longest(), self.pair.network().late_ms());
        let missed = self.pair.network().missed().unwrap_or_default();
        let is_disturbed = late > MAX_LATE || packets_ms > MAX_LATE_PACKET_MS || missed > 0;
        is_disturbed.then(|| {
            format!(
                "a thread was late by up to {late:.0?}, 1 % of packets by more than \
                 {packets_ms:.1} ms, and {missed} were missed by the emulator"
            )
        })
    }
}

/// Repeats a trial while it has a disturbance, but not without end.
pub(crate) fn undisturbed<T>(mut trial: impl FnMut() -> (T, Option<String>)) -> T {
    let mut attempt = 1;
    loop {
        let (result, disturbance) = trial();
        let Some(why) = disturbance.filter(|_| attempt < ATTEMPTS) else { return result };
        eprintln!("THE HOST DISTURBED THIS TRIAL, which is repeated: {why}");
        attempt += 1;
    }
}

/// A thread that shows how late this host wakes threads.
struct LatenessMonitor {
    longest_us: Arc<AtomicU64>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The interval at which the thread wakes.
const WAKE_INTERVAL: Duration = Duration::from_millis(2);

impl LatenessMonitor {
    fn start() -> Self {
        let (longest_us, stops) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let (longest_us, stops) = (Arc::clone(&longest_us), Arc::clone(&stops));
            move || {
                while !stops.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    thread::sleep(WAKE_INTERVAL);
                    let late = before.elapsed().saturating_sub(WAKE_INTERVAL).as_micros();
                    longest_us.fetch_max(u64::try_from(late).unwrap(), Ordering::Relaxed);
                }
            }
        });
        Self { longest_us, stops, thread: Some(thread) }
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Ordering::Relaxed))
    }
}

impl Drop for LatenessMonitor {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

//! How much of a load a tunnel over three channels of 20 Mbit/s carries before, during and after
//! faults of its channels.

use std::fmt;
use std::thread;
use std::time::Duration;

use model::{ChannelModel, ChannelSet, LossProbability, RiskProbability};

use crate::channel_faults::{ChannelFault, LINKS};
use crate::load::LoadKind;
use crate::loaded_tunnel::{LoadedTunnel, TunnelSetting, undisturbed};

/// The rate of each channel, in Mbit/s.
pub(crate) const RATE_MBIT: u32 = 20;

/// A client and a server with the links of the channels between them.
fn three_channels(queue_ms: f64) -> String {
    let link = |(name, delay_ms)| {
        format!(
            "[links.{name}]\nhosts = [\"client\", \"server\"]\nboth = {{ rate_mbit = {RATE_MBIT}, \
             delay_ms = {delay_ms}, queue_ms = {queue_ms} }}\n"
        )
    };
    let links: String = LINKS.into_iter().zip(DELAYS_MS).map(link).collect();
    format!(
        "measure = {{ driver = \"accuracy\", values = {{}} }}\n[hosts.client]\n[hosts.server]\n{links}"
    )
}

/// The delays of the channels, and the usual length of their queues.
const DELAYS_MS: [f64; 3] = [8.0, 10.0, 12.0];
const QUEUE_MS: f64 = 50.0;

/// The time after the last fault within which a tunnel must have recovered, and the duration of a
/// measurement: for TCP, a whole cycle of BBR, which sends nearly nothing for 0.2 s of each 10.
const RECOVERED: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(4);
const TCP_MEASURED: Duration = Duration::from_secs(10);

/// The fractions that the rate must have after faults, of that before, and during faults, of what
/// the healthy channels allow.
const MIN_AFTER: f64 = 0.9;
const MIN_DURING: f64 = 0.8;

/// Faults that are shorter are not measured: packets on the way and the detection of a failure take
/// a part of a second.
const MIN_FAULT: Duration = Duration::from_secs(2);

/// A tunnel and its load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) kappa: f64,
    pub(crate) mu: f64,
    /// Whether the channels' rates are configured.
    pub(crate) knows_rates: bool,
    pub(crate) load: LoadKind,
    /// The length of the channels' queues.
    pub(crate) queue_ms: f64,
}

impl Setting {
    /// A tunnel that learns its channels' rates, with somewhat more UDP than it can carry.
    pub(crate) fn udp(kappa: f64, mu: f64) -> Self {
        let offered = 1.1 * best_rate([f64::from(RATE_MBIT); LINKS.len()].to_vec(), mu);
        Self { load: LoadKind::Udp(offered), ..Self::tcp(kappa, mu) }
    }

    /// A tunnel that learns its channels' rates, with one TCP connection.
    pub(crate) fn tcp(kappa: f64, mu: f64) -> Self {
        let load = LoadKind::ONE_FLOW;
        Self { kappa, mu, knows_rates: false, load, queue_ms: QUEUE_MS }
    }

    /// Starts the tunnel and its load, with these faults from the beginning.
    pub(crate) fn start(&self, faults: &[ChannelFault]) -> LoadedTunnel {
        let Self { kappa, mu, knows_rates, load, queue_ms } = self;
        let tunnel = TunnelSetting {
            topology: &three_channels(*queue_ms),
            links: &LINKS,
            settings: &format!("kappa = {kappa}\nmu = {mu}"),
            rate_mbit: knows_rates.then_some(RATE_MBIT),
        };
        LoadedTunnel::start(tunnel, *load, faults)
    }

    /// The rate of payload that channels of these rates, in Mbit/s, carry at full use.
    pub(crate) fn possible(&self, rates: &[f64]) -> f64 {
        self.load.efficiency() * best_rate(rates.to_vec(), self.mu.min(rates.len() as f64))
    }
}

/// The highest rate of symbols at this mean number of shares.
fn best_rate(rates: Vec<f64>, mu: f64) -> f64 {
    let channel =
        |rate| ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), 10.0, rate).unwrap();
    let set = ChannelSet::new(rates.into_iter().map(channel).collect()).unwrap();
    set.best_rate(mu).unwrap()
}

/// What was measured, in Mbit/s of payload.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) before: f64,
    pub(crate) during: f64,
    /// The rate that the healthy channels allow, if the others may be lost and are faulty for long
    /// enough to tell.
    pub(crate) allowed: Option<f64>,
    pub(crate) after: f64,
    /// The rate in each second after the last fault.
    pub(crate) seconds: Vec<f64>,
    pub(crate) estimates: String,
    pub(crate) disturbance: Option<String>,
}

impl Measurement {
    /// Measures a tunnel with faults. A trial that fails, and that the host disturbed, is repeated.
    pub(crate) fn of(setting: Setting, faults: &[ChannelFault]) -> Self {
        undisturbed(|| {
            let measured = Self::once(setting, faults);
            let why = measured.disturbance.clone().filter(|_| measured.failure().is_some());
            (measured, why)
        })
    }

    fn once(setting: Setting, faults: &[ChannelFault]) -> Self {
        let tunnel = setting.start(&[]);
        let is_tcp = matches!(setting.load, LoadKind::Tcp { .. });
        let time = if is_tcp { TCP_MEASURED } else { MEASURED };
        let before = tunnel.rate_for(time);
        let during = rate_during(&tunnel, faults);
        let ended = tunnel.now();
        thread::sleep(RECOVERED);
        let after = tunnel.rate_for(time);
        let seconds = tunnel.rates_mbit(ended, tunnel.now());
        let (estimates, disturbance) = (tunnel.estimates(), tunnel.disturbance());
        let allowed = allowed(setting, faults);
        Self { before, during, allowed, after, seconds, estimates, disturbance }
    }

    /// What is wrong, if anything is.
    pub(crate) fn failure(&self) -> Option<String> {
        let Self { before, during, allowed, after, seconds, estimates, .. } = self;
        let least = MIN_AFTER * before;
        if *after < least {
            return Some(format!(
                "{after:.1} Mbit/s after the faults, and {before:.1} before; each second: \
                 {seconds:.1?}; {estimates}"
            ));
        }
        let allowed = allowed.filter(|allowed| *during < MIN_DURING * allowed)?;
        Some(format!("{during:.1} Mbit/s during the faults, of {allowed:.1} that are possible"))
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, during, allowed, after, .. } = self;
        let allowed = allowed.map_or("–".to_owned(), |allowed| format!("{allowed:.1}"));
        write!(f, "{before:.1} | {during:.1} | {allowed} | {after:.1}")
    }
}

/// Lets faults begin and end. Returns the rate from their first begin to their last end.
fn rate_during(tunnel: &LoadedTunnel, faults: &[ChannelFault]) -> f64 {
    let begin = tunnel.now();
    let mut changes: Vec<(Duration, &ChannelFault, bool)> = faults
        .iter()
        .flat_map(|fault| [(fault.begin, fault, true), (fault.end, fault, false)])
        .collect();
    changes.sort_by_key(|(time, _, _)| *time);
    for (time, fault, is_on) in changes {
        thread::sleep((begin + time).saturating_sub(tunnel.now()));
        tunnel.set(fault, is_on);
    }
    tunnel.rate_mbit(begin, tunnel.now())
}

/// The rate that the healthy channels allow, if mu - kappa others may be lost, and are faulty for
/// long enough to tell.
fn allowed(setting: Setting, faults: &[ChannelFault]) -> Option<f64> {
    let is_healthy = |link: &&str| faults.iter().all(|fault| fault.link != *link);
    let healthy = LINKS.iter().filter(|link| is_healthy(link)).count();
    let lost = (LINKS.len() - healthy) as f64;
    let is_long = faults.iter().any(|fault| fault.end >= MIN_FAULT);
    let may_be_lost = lost <= setting.mu - setting.kappa;
    (is_long && may_be_lost).then(|| setting.possible(&vec![f64::from(RATE_MBIT); healthy]))
}

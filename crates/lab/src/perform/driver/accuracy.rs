//! How exactly a link does what it is asked to: its rate, delay and loss in one direction, measured
//! from outside with numbered datagrams.
//!
//! - Delay: single packets, each with the time at which it was sent; both hosts have one clock.
//!   What is compared with the request is the delay less the time that the packet's bits take.
//! - Loss: packets at four fifths of the link's rate, so that none is dropped for want of room.
//! - Rate: a quarter more than the link can carry; the bytes that arrive from the first packet to
//!   the last. If `offered` is less than that, it is the sender who was measured.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::datagrams::{Arrivals, Receiver, Sender};
use super::{Driver, Values, options};
use crate::link::{Conditions, Direction};
use crate::network::Network;

pub(super) const DRIVER: Driver = Driver {
    name: "accuracy",
    values: &[
        "offered",
        "carried",
        "delay",
        "delay_off",
        "delay_off_99",
        "loss",
        "loss_z",
        "packets",
    ],
    hosts: &[],
    check,
    measure,
};

/// The driver's settings.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Packets for the delay, one a millisecond.
    delays: u32,
    /// Packets for the loss.
    losses: u32,
    /// Seconds for the rate.
    rate_s: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { delays: 1000, losses: 0, rate_s: 0.0 }
    }
}

/// The headers of an IPv4 packet with a datagram.
const HEADERS: usize = 28;

/// The payload of packets that measure delay and loss.
const SHORT: usize = 36;

/// The most packets a second that one thread can send and receive one by one.
const MAX_PACKETS_PER_SECOND: f64 = 40_000.0;

/// The most packets that are sent in a row.
const MAX_PACKETS: u32 = 10_000_000;

/// The longest that a rate is measured, in seconds.
const MAX_SECONDS: f64 = 60.0;

fn check(table: &toml::Table) -> Result<(), String> {
    let Options { delays, losses, rate_s } = options(table)?;
    if delays.max(losses) > MAX_PACKETS {
        return Err(format!("delays and losses must be {MAX_PACKETS} packets at most"));
    }
    if !(0.0..=MAX_SECONDS).contains(&rate_s) {
        return Err(format!("rate_s is {rate_s}; it must be from 0 to {MAX_SECONDS}"));
    }
    Ok(())
}

fn measure(network: &Network, table: &toml::Table) -> Result<Values, String> {
    let options: Options = options(table)?;
    let (link, ends) = network.only_link().ok_or("this driver needs a network of one link")?;
    let [from, to] = ends.map(|end| network.host(end));
    let (Some(from), Some(to)) = (from, to) else { return Err("the link has no hosts".into()) };
    let address = network.address(to.name(), link).ok_or("the link has no address")?;
    let mut address = SocketAddr::new(address.into(), 9000);
    let conditions = network.conditions(link, Direction::Forward).ok_or("the link is gone")?;

    let mut run = |flow: Flow| {
        // A port for each flow: what is late of one is not taken for the next one's.
        address.set_port(address.port() + 1);
        let receiver = to.run(|| Receiver::new(address))??;
        let sender = from.run(|| Sender::new(address))??;
        flow.run(&sender, &receiver, &conditions)
    };
    let mut values = BTreeMap::new();
    let io = |error: io::Error| format!("the measuring packets failed: {error}");
    if options.delays > 0 {
        let arrivals =
            run(Flow { packets: options.delays, payload: SHORT, batch: 1, rate: 1000.0 })
                .map_err(io)?;
        delay(&arrivals, &conditions, &mut values);
    }
    if options.losses > 0 {
        let rate = packets_per_second(&conditions, SHORT)
            .map_or(MAX_PACKETS_PER_SECOND, |rate| (0.8 * rate).min(MAX_PACKETS_PER_SECOND));
        let arrivals =
            run(Flow { packets: options.losses, payload: SHORT, batch: 1, rate }).map_err(io)?;
        loss(&arrivals, &conditions, &mut values);
    }
    if options.rate_s > 0.0 {
        let payload = 1472;
        let full = packets_per_second(&conditions, payload)
            .ok_or("a link without a rate has none to be measured")?;
        // What comes on top fills the queue within a part of the time.
        let rate = 1.25 * full;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds of packets"
        )]
        let packets = (rate * options.rate_s) as u32;
        let batch = if full > 20_000.0 { 40 } else { 1 };
        // What is lost after it was sent has used the link: it is to arrive and be counted.
        let lossless = Conditions { loss: 0.0, burst: None, ..conditions };
        let link = network.link(link).ok_or("the link is gone")?;
        link.set(Direction::Forward, lossless).map_err(|error| error.to_string())?;
        let arrivals = run(Flow { packets, payload, batch, rate }).map_err(io)?;
        values.insert("offered", arrivals.offered_mbit(HEADERS));
        values.insert("carried", arrivals.rate_mbit(HEADERS));
    }
    Ok(Values(values))
}

/// Packets that are sent in a row.
#[derive(Clone, Copy, Debug)]
struct Flow {
    packets: u32,
    /// Bytes in each, less IP's and UDP's headers.
    payload: usize,
    /// How many are handed to the kernel at a time.
    batch: u32,
    /// How many a second.
    rate: f64,
}

impl Flow {
    fn run(
        self,
        sender: &Sender,
        receiver: &Receiver,
        conditions: &Conditions,
    ) -> io::Result<Arrivals> {
        let longest = conditions.delay_ms
            + conditions.jitter_ms
            + conditions.reorder_ms
            + conditions.queue_ms;
        let quiet = Duration::from_secs_f64(longest / 1000.0 + 0.5);
        thread::scope(|scope| {
            let (done, is_done) = std::sync::mpsc::channel();
            let arrivals =
                scope.spawn(move || receiver.receive(self.packets, self.payload, quiet, &is_done));
            let sent = sender.send(self.packets, self.payload, self.batch, self.rate);
            let _ = done.send(());
            let arrivals = arrivals.join().map_err(|_| io::Error::other("the receiver failed"))?;
            sent.and(arrivals)
        })
    }
}

fn packets_per_second(conditions: &Conditions, payload: usize) -> Option<f64> {
    conditions.rate_mbit.map(|rate| rate * 1e6 / (8.0 * (payload + HEADERS) as f64))
}

/// The delay, and how far from the request it is for the median packet and for one in a hundred.
fn delay(arrivals: &Arrivals, conditions: &Conditions, values: &mut BTreeMap<&'static str, f64>) {
    let bits = packets_per_second(conditions, SHORT).map_or(0.0, |rate| 1000.0 / rate);
    let delays: Vec<f64> = arrivals.delays_ms().map(|delay| delay - bits).collect();
    let off: Vec<f64> = delays.iter().map(|delay| (delay - conditions.delay_ms).abs()).collect();
    values.insert("delay", quantile(delays, 0.5));
    values.insert("delay_off", quantile(off.clone(), 0.5));
    values.insert("delay_off_99", quantile(off, 0.99));
}

/// The loss, and how many standard deviations it is from the request: within 2.576 in 99 of 100.
fn loss(arrivals: &Arrivals, conditions: &Conditions, values: &mut BTreeMap<&'static str, f64>) {
    let n = f64::from(arrivals.sent);
    let measured = 1.0 - f64::from(arrivals.different) / n;
    let p = conditions.loss;
    // Losses that come in bursts are correlated, which widens the distribution of their sum.
    let correlation =
        conditions.burst.map_or(0.0, |burst| 1.0 - 1.0 / burst - p / (burst * (1.0 - p)));
    let deviation = (p * (1.0 - p) / n * (1.0 + correlation) / (1.0 - correlation)).sqrt();
    values.insert("loss", measured);
    values.insert("loss_z", if deviation > 0.0 { (measured - p) / deviation } else { 0.0 });
    values.insert("packets", n);
}

/// The value that a part of all is not above; NaN of none.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = ((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or(f64::NAN)
}

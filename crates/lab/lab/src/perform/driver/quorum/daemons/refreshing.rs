//! Measures a refresh with servers on a network (figures 5-1 and 5-2, and tables 5.5 and 5.6 of the
//! thesis).

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Instant, SystemTime};

use quorum::links::SentBytes;
use serde::Deserialize;

use super::super::super::{DriverMeasure, DriverValues, MeasurementDriver, options};
use super::super::{NEW_IN_ORDER, OLD_IN_ORDER, in_order, mean};
use super::{JoiningServers, POLL_INTERVAL, QuorumNetworkOptions, RunningServers, TIMEOUT};
use crate::network::EmulatedNetwork;
use crate::trial::Trial;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "quorum-node-refresh",
    values: &[
        "old",
        "old_1",
        "old_2",
        "old_3",
        "old_4",
        "old_5",
        "old_6",
        "old_7",
        "new",
        "new_1",
        "new_2",
        "new_3",
        "new_4",
        "new_5",
        "new_6",
        "new_7",
        "signed",
        "old_kb",
        "new_kb",
        "log_kb",
        "signing_kb",
    ],
    hosts: &[],
    paths: &[],
    network: add_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The epoch that the refresh begins.
const EPOCH: u64 = 2;

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRefreshOptions {
    /// The servers.
    site: QuorumNetworkOptions,
    /// Whether servers of both groups have links before the refresh.
    #[serde(default)]
    linked: bool,
    /// Whether the new group has the same servers.
    #[serde(default)]
    same: bool,
}

fn check(table: &toml::Table) -> Result<(), String> {
    let NodeRefreshOptions { site, linked, same } = options(table)?;
    if same && linked {
        return Err("the same servers have links; leave linked out".into());
    }
    site.check()
}

fn add_hosts(table: &toml::Table, trial: &mut Trial) -> Result<(), String> {
    let NodeRefreshOptions { site, same, .. } = options(table)?;
    let servers = usize::from(site.servers);
    site.add_hosts(if same { servers } else { 2 * servers }, trial);
    Ok(())
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let NodeRefreshOptions { site, linked, same } = options(table)?;
    let count = usize::from(site.servers);
    let joining = JoiningServers { count: if same { 0 } else { count }, linked };
    let mut servers = RunningServers::start(site, joining, network)?;
    let before = sent(&servers)?;
    let start = SystemTime::now();
    (1..=(count - 1) / 3 + 1).try_for_each(|number| servers.approve(number))?;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let total = servers.running.len();
    for number in 1..=total {
        let after = |at: SystemTime| at.duration_since(start).unwrap_or_default().as_secs_f64();
        let begun = wait_for(&mut servers, number, "an epoch begins")?;
        if number <= count {
            times[0].push(after(begun));
        }
        if number > count || same {
            // A new server is done when it can sign in the new epoch.
            let has_shares = wait_for(&mut servers, number, "this server has its shares")?;
            times[1].push(after(begun.max(has_shares)));
            let signed = wait_for(&mut servers, number, "the group has signed its header")?;
            times[2].push(after(signed));
        }
    }
    let after = sent(&servers)?;
    let kb = |part: fn(&SentBytes) -> u64| -> Vec<f64> {
        let pairs = after.iter().zip(&before);
        pairs.map(|(after, before)| (part(after) - part(before)) as f64 / 1e3).collect()
    };
    let refresh = kb(|sent| sent.refresh);
    servers.sign(total, "a message of the new group")?;
    let [old, new, signed] = times;
    let mut values = BTreeMap::from([
        ("old", mean(old.iter().copied())),
        ("new", mean(new.iter().copied())),
        ("signed", mean(signed.into_iter())),
        ("old_kb", mean(refresh[..count].iter().copied())),
        ("new_kb", mean(refresh[total - count..].iter().copied())),
        ("log_kb", kb(|sent| sent.log).iter().sum()),
        ("signing_kb", kb(|sent| sent.signing).iter().sum()),
    ]);
    values.extend(in_order(OLD_IN_ORDER, old));
    values.extend(in_order(NEW_IN_ORDER, new));
    Ok(DriverValues::NamedInPart(values))
}

/// The number of bytes that each server has sent.
fn sent(servers: &RunningServers<'_>) -> Result<Vec<SentBytes>, String> {
    let numbers = servers.running.keys();
    numbers.map(|number| Ok(servers.status(*number)?.sent_bytes)).collect()
}

/// Waits until a server has logged an event of the new epoch, and returns its time.
fn wait_for(
    servers: &mut RunningServers<'_>,
    number: usize,
    event: &str,
) -> Result<SystemTime, String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(at) = servers.logged(number, event, EPOCH)? {
            return Ok(at);
        }
        servers.check()?;
        if Instant::now() > deadline {
            let what = format!("does not say \"{event}\"");
            return Err(servers.program(number)?.error_with_output(&what));
        }
        sleep(POLL_INTERVAL);
    }
}

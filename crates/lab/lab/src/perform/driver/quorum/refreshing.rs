//! Measures the computations of a refresh (figures 5-1 and 5-2, and tables 5.5 to 5.11 of the
//! thesis).

use std::collections::BTreeMap;
use std::time::Duration;

use quorum::CombinatorialSharing;
use quorum::in_process::{RefreshProcessorTime, RefreshReport, ServerRefreshReport};
use random::RandomGenerator;
use serde::Deserialize;

use super::super::{DriverMeasure, DriverValues, MeasurementDriver, no_hosts, options};
use super::{QuorumGroupOptions, check_rank, key, mean, time_at_rank};
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "quorum-refresh",
    values: &[
        "old",
        "new",
        "old_kb",
        "new_kb",
        "log_kb",
        "prove",
        "check",
        "all_deal",
        "designated_deal",
        "processor",
    ],
    hosts: &[],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuorumRefreshOptions {
    /// The number of servers, 3f+1.
    servers: u8,
    /// The number of bits of the modulus.
    modulus_bits: u32,
    /// Whether shares are as long as the thesis's.
    paper_range: bool,
    /// The rank of the servers whose times are `old` and `new`: the nth to finish, from 1, or 0 for
    /// the mean of all.
    #[serde(default)]
    place: f64,
}

impl QuorumRefreshOptions {
    fn group(self) -> QuorumGroupOptions {
        let Self { servers, modulus_bits, paper_range, .. } = self;
        QuorumGroupOptions { servers, modulus_bits, paper_range }
    }
}

fn check(table: &toml::Table) -> Result<(), String> {
    let options: QuorumRefreshOptions = options(table)?;
    let (group, place) = (options.group(), options.place);
    group.check()?;
    check_rank(place, group.servers)
}

fn measure(_: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: QuorumRefreshOptions = options(table)?;
    let (options, place) = (options.group(), options.place);
    let mut generator = RandomGenerator::seeded().map_err(|error| error.to_string())?;
    let key = key(options.modulus_bits)?;
    let (setting, combination) = (options.setting(&key), options.combination()?);
    let group = setting.deal(&key, &combination, &mut generator);
    let group = group.map_err(|error| error.to_string())?;
    let refreshed = group.refresh(&setting, &combination, &mut generator);
    let (_, report) = refreshed.map_err(|error| error.to_string())?;
    let RefreshReport { old, new } = &report;
    let costs = SubshareCosts::of(&report, &combination);
    let entries: usize = old.iter().chain(new).map(|server| server.entries.bytes).sum();
    let servers = combination.server_count();
    let (labels, held) = counts(&combination);
    let signers = combination.signer_count() as f64;
    let work = |part: fn(&RefreshProcessorTime) -> Duration| {
        move |servers: &[ServerRefreshReport]| {
            let most = servers.iter().map(|server| part(&server.work)).max();
            most.unwrap_or_default().as_secs_f64()
        }
    };
    let processor: Duration = old.iter().chain(new).map(|server| server.work.total()).sum();
    Ok(DriverValues::Named(BTreeMap::from([
        ("old", done(old, place)),
        ("new", done(new, place)),
        ("old_kb", mean(old.iter().map(|server| server.messages.bytes as f64 / 1e3))),
        ("new_kb", mean(new.iter().map(|server| server.messages.bytes as f64 / 1e3))),
        // Each of the 3f+1 servers of the log gets each entry.
        ("log_kb", (servers * entries) as f64 / 1e3),
        ("prove", costs.prove * 1e3),
        ("check", costs.check * 1e3),
        // As if all holders dealt, and each new server verified what f+1 of them dealt (5.2.3).
        ("all_deal", labels * held * costs.prove + held * held * signers * costs.check),
        // The costs of this protocol, which is the thesis's optimistic case.
        (
            "designated_deal",
            work(|work| work.proving + work.sealing)(old) + work(|work| work.verifying)(new),
        ),
        ("processor", processor.as_secs_f64()),
    ])))
}

/// The processor time for a subshare, in s.
struct SubshareCosts {
    /// Of the proof of a subshare.
    prove: f64,
    /// Of decrypting and checking a subshare.
    check: f64,
}

impl SubshareCosts {
    fn of(report: &RefreshReport, group: &CombinatorialSharing) -> Self {
        let (labels, held) = counts(group);
        let total = |servers: &[ServerRefreshReport],
                     part: fn(&RefreshProcessorTime) -> Duration| {
            servers.iter().map(|server| part(&server.work)).sum::<Duration>().as_secs_f64()
        };
        let servers = group.server_count() as f64;
        Self {
            prove: total(&report.old, |work| work.proving) / (labels * labels),
            check: total(&report.new, |work| work.verifying) / (servers * labels * held),
        }
    }
}

/// l and l'.
fn counts(group: &CombinatorialSharing) -> (f64, f64) {
    let labels = group.label_count();
    // Each share has 2f+1 holders.
    (labels as f64, (labels * group.quorum() / group.server_count()) as f64)
}

/// The time at which servers finished, in s.
fn done(servers: &[ServerRefreshReport], place: f64) -> f64 {
    time_at_rank(servers.iter().map(|server| server.done_after.as_secs_f64()).collect(), place)
}

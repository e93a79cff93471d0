//! Measures the computations of a refresh (figures 5-1 and 5-2, and tables 5.5 to 5.11 of the
//! thesis).

use std::collections::BTreeMap;
use std::time::Duration;

use quorum::CombinatorialSharing;
use quorum::in_process::{RefreshProcessorTime, RefreshReport, ServerRefreshReport};
use random::RandomGenerator;

use super::super::{DriverMeasure, DriverValues, MeasurementDriver, no_hosts, options};
use super::{NEW_IN_ORDER, OLD_IN_ORDER, QuorumGroupOptions, in_order, key, mean};
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "quorum-refresh",
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

fn check(table: &toml::Table) -> Result<(), String> {
    options::<QuorumGroupOptions>(table)?.check()
}

fn measure(_: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: QuorumGroupOptions = options(table)?;
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
    let mut values = BTreeMap::from([
        ("old", mean(done(old).into_iter())),
        ("new", mean(done(new).into_iter())),
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
    ]);
    values.extend(in_order(OLD_IN_ORDER, done(old)));
    values.extend(in_order(NEW_IN_ORDER, done(new)));
    Ok(DriverValues::NamedInPart(values))
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

/// The times at which servers finished, in s.
fn done(servers: &[ServerRefreshReport]) -> Vec<f64> {
    servers.iter().map(|server| server.done_after.as_secs_f64()).collect()
}

//! The number of operations of each engine in an exchange (table 1 of the paper). Nothing is
//! measured: the numbers follow from the shape. As in the paper, slots have a few bits here, not at
//! least 64 bytes.

use std::collections::BTreeMap;

use mix::engine::{MixEngineName, size};
use serde::Deserialize;

use super::super::{DriverMeasure, DriverValues, MeasurementDriver, no_hosts, options};
use super::{CHECKS, error_text};
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "mix-sizes",
    values: &["ot", "circuit", "bdd"],
    hosts: &[],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MixSizesOptions {
    /// n: the members of the group.
    members: usize,
    /// m: the slots of each.
    slots_per_member: usize,
    /// The bits of a slot.
    bits: usize,
}

/// The maxima.
const MAX_MEMBERS: usize = 1024;
const MAX_SLOTS: usize = 1024;
const MAX_BITS: usize = 8 * 4096;

fn check(table: &toml::Table) -> Result<(), String> {
    let MixSizesOptions { members, slots_per_member, bits } = options(table)?;
    for (name, number, range) in [
        ("members", members, 2..=MAX_MEMBERS),
        ("slots_per_member", slots_per_member, 1..=MAX_SLOTS),
        ("bits", bits, 1..=MAX_BITS),
    ] {
        if !range.contains(&number) {
            let (least, most) = range.into_inner();
            return Err(format!("{name} is {number}; give {least} to {most}"));
        }
    }
    Ok(())
}

fn measure(_: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let MixSizesOptions { members, slots_per_member, bits } = options(table)?;
    let slots = members * slots_per_member + 1;
    // One slot of each other member, in which that member may have written to this one.
    let reads = members - 1 + CHECKS;
    let sizes = MixEngineName::ALL.into_iter().map(|engine| {
        let size = size(engine, slots, reads, bits).map_err(error_text)?;
        Ok((engine.as_str(), size as f64))
    });
    Ok(DriverValues::Named(sizes.collect::<Result<BTreeMap<_, _>, String>>()?))
}

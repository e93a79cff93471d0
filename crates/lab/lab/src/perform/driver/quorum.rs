//! Threshold signatures and refreshes. `refreshing` and `signing` measure groups whose servers are
//! all in this process: the time of their computations and the number of bytes that they send.
//! Links take no time. `daemons` measures groups of running servers on a network.

mod daemons;
mod refreshing;
mod signing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use quorum::in_process::GroupKeyParameters;
use quorum::{CombinatorialSharing, DealerKey, ShareRange};
use serde::Deserialize;

use super::MeasurementDriver;

pub(super) const NODE_REFRESH: MeasurementDriver = daemons::REFRESH;
pub(super) const NODE_SIGN: MeasurementDriver = daemons::SIGN;
pub(super) const REFRESH: MeasurementDriver = refreshing::DRIVER;
pub(super) const SIGN: MeasurementDriver = signing::DRIVER;

/// The settings of a group.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuorumGroupOptions {
    /// The number of servers, 3f+1.
    servers: u8,
    /// The number of bits of the modulus.
    modulus_bits: u32,
    /// Whether shares are as long as the thesis's.
    paper_range: bool,
}

impl QuorumGroupOptions {
    /// Checks them. The error is one line.
    fn check(self) -> Result<(), String> {
        self.combination()?;
        check_bits(self.modulus_bits)
    }

    fn combination(self) -> Result<CombinatorialSharing, String> {
        combination(self.servers)
    }

    fn setting(self, key: &DealerKey) -> GroupKeyParameters {
        let new = if self.paper_range { ShareRange::paper } else { ShareRange::new };
        GroupKeyParameters::new(key.group(), new(self.modulus_bits))
    }
}

/// The sharing of a group with this number of servers.
fn combination(servers: u8) -> Result<CombinatorialSharing, String> {
    if servers < 4 || servers % 3 != 1 {
        return Err(format!("servers is {servers}; give 4, 7, 10 or 13"));
    }
    CombinatorialSharing::new((servers - 1) / 3).map_err(|error| error.to_string())
}

fn check_bits(modulus_bits: u32) -> Result<(), String> {
    if keys::rsa::MODULUS_BITS.contains(&modulus_bits) {
        return Ok(());
    }
    Err(format!("modulus_bits is {modulus_bits}; give 1024, 2048, 3072 or 4096"))
}

/// The values that are the times of the old servers, in the order in which they are done. Of a
/// larger group, those of the last ones are not measured.
const OLD_IN_ORDER: [&str; 7] = ["old_1", "old_2", "old_3", "old_4", "old_5", "old_6", "old_7"];

/// The same of the new servers.
const NEW_IN_ORDER: [&str; 7] = ["new_1", "new_2", "new_3", "new_4", "new_5", "new_6", "new_7"];

/// The times of servers of one refresh, in order, by these names. A smaller group lacks the last.
fn in_order(
    names: [&'static str; 7],
    mut times: Vec<f64>,
) -> impl Iterator<Item = (&'static str, f64)> {
    times.sort_by(f64::total_cmp);
    names.into_iter().zip(times)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// A key of this size. All trials of a process share it, because the search for safe primes takes
/// seconds.
fn key(bits: u32) -> Result<Arc<DealerKey>, String> {
    static KEYS: Mutex<BTreeMap<u32, Arc<DealerKey>>> = Mutex::new(BTreeMap::new());
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(key) = keys.get(&bits) {
        return Ok(key.clone());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let key = DealerKey::generate_on(threads, bits, &|_| {}).map_err(|error| error.to_string())?;
    let key = Arc::new(key);
    keys.insert(bits, key.clone());
    Ok(key)
}

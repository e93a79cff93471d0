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

use super::MeasurementDriver;

pub(super) const NODE_REFRESH: MeasurementDriver = daemons::REFRESH;
pub(super) const NODE_SIGN: MeasurementDriver = daemons::SIGN;
pub(super) const REFRESH: MeasurementDriver = refreshing::DRIVER;
pub(super) const SIGN: MeasurementDriver = signing::DRIVER;

/// The settings of a group.
#[derive(Clone, Copy, Debug)]
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

/// Checks the rank of a server among `servers`; 0 for the mean.
fn check_rank(place: f64, servers: u8) -> Result<(), String> {
    let servers = f64::from(servers);
    if (0.0..=servers).contains(&place) && place.fract() == 0.0 {
        return Ok(());
    }
    Err(format!("place is {place}; give a whole number from 0 to {servers}"))
}

/// The time of the nth server to finish, from 1, or the mean of all for 0.
fn time_at_rank(mut times: Vec<f64>, place: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let mut nth = (1..).map(f64::from).zip(&times).filter(|(nth, _)| *nth >= place);
    match nth.next() {
        Some((_, time)) if place > 0.0 => *time,
        _ => mean(times.into_iter()),
    }
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

//! Threshold signatures and refreshes by groups whose servers are all in this process: what their
//! computations take, and how much they send. Links take no time.

mod refreshing;
mod signing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use quorum::in_process::Setting;
use quorum::{Combination, DealerKey, ShareRange};
use sharing::Generator;

use super::Driver;

pub(super) const REFRESH: Driver = refreshing::DRIVER;
pub(super) const SIGN: Driver = signing::DRIVER;

/// The settings of a group.
#[derive(Clone, Copy, Debug)]
struct GroupOptions {
    /// The number of servers, 3f+1.
    servers: u8,
    /// The number of bits of the modulus.
    modulus_bits: u32,
    /// Whether shares are as long as the thesis's.
    paper_range: bool,
}

impl GroupOptions {
    /// What is wrong with them, in one line.
    fn check(self) -> Result<(), String> {
        self.combination()?;
        if keys::rsa::MODULUS_BITS.contains(&self.modulus_bits) {
            return Ok(());
        }
        Err(format!("modulus_bits is {}; give 1024, 2048, 3072 or 4096", self.modulus_bits))
    }

    fn combination(self) -> Result<Combination, String> {
        let Self { servers, .. } = self;
        if servers < 4 || servers % 3 != 1 {
            return Err(format!("servers is {servers}; give 4, 7, 10 or 13"));
        }
        Combination::new((servers - 1) / 3).map_err(|error| error.to_string())
    }

    fn setting(self, key: &DealerKey) -> Setting {
        let new = if self.paper_range { ShareRange::paper } else { ShareRange::new };
        Setting::new(key.group(), new(self.modulus_bits))
    }
}

/// The key of a size. All trials of a process have the same: the search for safe primes takes
/// seconds.
fn key(bits: u32, generator: &mut Generator) -> Result<Arc<DealerKey>, String> {
    static KEYS: Mutex<BTreeMap<u32, Arc<DealerKey>>> = Mutex::new(BTreeMap::new());
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(key) = keys.get(&bits) {
        return Ok(key.clone());
    }
    let key = DealerKey::generate(bits, generator).map_err(|error| error.to_string())?;
    let key = Arc::new(key);
    keys.insert(bits, key.clone());
    Ok(key)
}

//! How often one may guess passwords. Pure.

use std::hash::{BuildHasher as _, Hash, RandomState};

/// How often one may try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleLimits {
    /// How many tries are allowed at once.
    pub burst: u32,
    /// The seconds after which one more is.
    pub interval_s: u64,
}

/// Counts tries by what they have in common, such as a name or an address.
///
/// The counters are a table of a fixed size. A secret hash chooses the counter, so that no one can
/// choose names that share the counter of another name; those that share one by chance are limited
/// together.
#[derive(Clone, Debug)]
pub struct LoginThrottle {
    limits: ThrottleLimits,
    hash: RandomState,
    /// The time until which each counter's tries are used up, in seconds.
    used_until: Vec<u64>,
}

/// The number of counters.
const COUNTERS: usize = 1 << 14;

impl LoginThrottle {
    /// A throttle with these limits.
    pub fn new(limits: ThrottleLimits) -> Self {
        Self { limits, hash: RandomState::new(), used_until: vec![0; COUNTERS] }
    }

    /// Counts a try at a time in seconds.
    ///
    /// # Errors
    /// After how many seconds it is allowed. It is then not counted.
    pub fn try_once(&mut self, key: &impl Hash, now: u64) -> Result<(), u64> {
        let ThrottleLimits { burst, interval_s } = self.limits;
        let until = self.counter(key);
        let used = (*until).max(now) + interval_s;
        let allowed_until = now + u64::from(burst) * interval_s;
        if used > allowed_until {
            return Err(used - allowed_until);
        }
        *until = used;
        Ok(())
    }

    /// Forgets the tries of a key whose last one was right.
    pub fn forgive(&mut self, key: &impl Hash) {
        *self.counter(key) = 0;
    }

    fn counter(&mut self, key: &impl Hash) -> &mut u64 {
        #[expect(clippy::cast_possible_truncation, reason = "it is taken modulo a power of two")]
        let hash = self.hash.hash_one(key) as usize;
        &mut self.used_until[hash % COUNTERS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ThrottleLimits = ThrottleLimits { burst: 5, interval_s: 10 };

    #[test]
    fn guesses_are_slowed_to_one_in_each_interval() {
        let mut throttle = LoginThrottle::new(LIMITS);
        let allowed = (0..1000).filter(|now| throttle.try_once(&"alice", *now).is_ok()).count();
        assert!((104..=105).contains(&allowed), "{allowed}");
        assert!((1..=10).contains(&throttle.try_once(&"alice", 999).unwrap_err()));
        // Waiting gives the burst back, and no more.
        let allowed = (0..50).filter(|_| throttle.try_once(&"alice", 9000).is_ok()).count();
        assert_eq!(allowed, 5);
        throttle.forgive(&"alice");
        assert!(throttle.try_once(&"alice", 9000).is_ok());
    }

    #[test]
    fn other_names_are_not_slowed() {
        let mut throttle = LoginThrottle::new(LIMITS);
        while throttle.try_once(&"alice", 0).is_ok() {}
        let slowed = (0..1000).filter(|name| throttle.try_once(name, 0).is_err()).count();
        assert!(slowed <= 10, "{slowed}");
    }
}

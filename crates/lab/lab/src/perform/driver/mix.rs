//! Mix-in-place (MIPNet): `millionaires` compares oblivious transfers, `sizes` counts the engines'
//! operations, `exchange` measures the exchange of one member over a link, and `delivery` measures
//! whole groups with the proxy in a separate process.

mod delivery;
mod exchange;
mod millionaires;
mod sizes;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use mix::engine::MixEngineName;
use mix::{Conversations, GroupMember, MailboxShape, MemberEpoch, MixGroupKey, MixMember};
use random::RandomGenerator;
use rustix::time::{ClockId, clock_gettime};
use transport::random_identity;

use super::MeasurementDriver;
use crate::link::LinkDirection;
use crate::network::EmulatedNetwork;

pub(super) const DELIVERY: MeasurementDriver = delivery::DRIVER;
pub(super) const EXCHANGE: MeasurementDriver = exchange::DRIVER;
pub(super) const MILLIONAIRES: MeasurementDriver = millionaires::DRIVER;
pub(super) const SIZES: MeasurementDriver = sizes::DRIVER;

/// The slots that a member reads besides those of others: the sentinel, and one of its own.
const CHECKS: usize = 2;

/// The bytes of a slot, as in a proxy's configuration without `slot_len`.
const SLOT_LEN: usize = 256;

/// The shape of a group whose members write one slot in an exchange and read `messages` slots of
/// others.
fn shape(members: usize, slots_per_member: usize, messages: usize) -> Result<MailboxShape, String> {
    let reads = messages.saturating_add(CHECKS);
    MailboxShape::new(members, slots_per_member, 1, reads, SLOT_LEN).map_err(error_text)
}

/// The engine with this name.
fn engine(name: &str) -> Result<MixEngineName, String> {
    name.parse().map_err(error_text)
}

fn error_text(error: impl Display) -> String {
    error.to_string()
}

/// A member of a group whose other members exist only by name and key, and the group's key. It has
/// the number 0.
fn first_member(shape: &MailboxShape) -> Result<(MixMember, MixGroupKey), String> {
    let group = seed()?;
    let own = Arc::new(random_identity().map_err(error_text)?);
    let mut members = vec![GroupMember { name: "member 0".into(), key: own.public() }];
    for number in 1..shape.members() {
        let key = IdentitySecretKey::random().map_err(error_text)?.public();
        members.push(GroupMember { name: format!("member {number}"), key });
    }
    let epoch = MemberEpoch::new(1, *shape, &own.public(), MixGroupKey::new(group), members);
    let epoch = epoch.map_err(error_text)?;
    let member = MixMember::new(own, epoch, Conversations::new(1), 0, seed()?);
    Ok((member, MixGroupKey::new(group)))
}

fn seed() -> Result<[u8; 32], String> {
    RandomGenerator::seeded().and_then(|mut generator| generator.array()).map_err(error_text)
}

/// The bytes of packets that have crossed the network's only link.
#[derive(Clone, Copy, Debug, Default)]
struct WireBytes {
    /// From members to the proxy.
    up: u64,
    down: u64,
}

impl WireBytes {
    /// The bytes so far. `members` is the host of the members.
    fn of(network: &EmulatedNetwork, members: &str) -> Result<Self, String> {
        let links = network.links().zip(network.plans());
        let mut links = links.filter(|(_, plan)| plan.hosts.iter().any(|host| host == members));
        let (link, plan) = links.next().ok_or_else(|| format!("{members} has no link"))?;
        let [forward, back] = [LinkDirection::Forward, LinkDirection::Back]
            .map(|direction| link.counts(direction).delivered_bytes);
        let is_forward = plan.hosts[0] == members;
        let (up, down) = if is_forward { (forward, back) } else { (back, forward) };
        Ok(Self { up, down })
    }

    fn since(self, before: Self) -> Self {
        Self { up: self.up - before.up, down: self.down - before.down }
    }

    /// The bytes per exchange, up and down.
    fn each(self, exchanges: u64) -> [f64; 2] {
        [self.up, self.down].map(|bytes| bytes as f64 / exchanges.max(1) as f64)
    }
}

/// Converts bytes per exchange to bytes per day.
fn per_day(bytes: f64, round_ms: f64) -> f64 {
    bytes * 86_400e3 / round_ms
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A percentile of durations, in ms; 0 if there are none.
fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    let at = times.len().saturating_sub(1) * percent / 100;
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

//! Measures signatures with servers on a network (tables 5.2 and 5.3 of the thesis).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::super::super::{DriverMeasure, DriverValues, MeasurementDriver, options};
use super::{JoiningServers, QuorumNetworkOptions, RunningServers};
use crate::network::EmulatedNetwork;
use crate::trial::Trial;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "quorum-node-sign",
    values: &["usual", "usual_99", "one_silent", "f_silent", "f_silent_longest", "still_silent"],
    hosts: &[],
    paths: &[],
    network: add_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeSignOptions {
    /// The servers.
    site: QuorumNetworkOptions,
    /// The number of signatures that are measured while all servers answer.
    signatures: u32,
    /// The number of times that servers fall silent.
    rounds: u32,
}

/// The maximum number of signatures, and of rounds.
const MAX: u32 = 10_000;

/// The number of signatures of a requester before servers fall silent, so that it knows their usual
/// times.
const WARM_UP: u32 = 5;

fn check(table: &toml::Table) -> Result<(), String> {
    let NodeSignOptions { site, signatures, rounds } = options(table)?;
    for (name, count) in [("signatures", signatures), ("rounds", rounds)] {
        if !(1..=MAX).contains(&count) {
            return Err(format!("{name} is {count}; give 1 to {MAX}"));
        }
    }
    site.check()
}

fn add_hosts(table: &toml::Table, trial: &mut Trial) -> Result<(), String> {
    let NodeSignOptions { site, .. } = options(table)?;
    site.add_hosts(usize::from(site.servers), trial);
    Ok(())
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let NodeSignOptions { site, signatures, rounds } = options(table)?;
    let servers = usize::from(site.servers);
    let faulty = (servers - 1) / 3;
    let mut group = NodeSigningGroup {
        servers: RunningServers::start(site, JoiningServers::default(), network)?,
        messages: 0,
    };
    (0..WARM_UP).try_for_each(|_| group.sign(servers).map(|_| ()))?;
    let mut usual = (0..signatures).map(|_| group.sign(servers)).collect::<Result<Vec<_>, _>>()?;
    // As in the thesis, the requester is rarely one of the servers that it asks: it first asks the
    // first f+1 servers, and asks them again if they answer in time.
    let requesters: Vec<usize> = (faulty + 2..=servers).collect();
    let (mut one, mut all, mut still) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        for count in if faulty == 1 { vec![1] } else { vec![1, faulty] } {
            group.restart(&requesters)?;
            for &requester in &requesters {
                let (first, second) = group.with_silent(count, requester)?;
                if count == 1 {
                    one.push(first);
                }
                if count == faulty {
                    all.push(first);
                    still.push(second);
                }
            }
        }
    }
    Ok(DriverValues::Named(BTreeMap::from([
        ("usual", percentile(&mut usual, 50)),
        ("usual_99", percentile(&mut usual, 99)),
        ("one_silent", percentile(&mut one, 50)),
        ("f_silent", percentile(&mut all, 50)),
        ("f_silent_longest", percentile(&mut all, 100)),
        ("still_silent", percentile(&mut still, 50)),
    ])))
}

/// A group that signs distinct messages.
struct NodeSigningGroup<'a> {
    servers: RunningServers<'a>,
    messages: u32,
}

impl NodeSigningGroup<'_> {
    /// Requests a signature of a message of 168 bits. The thesis's has 160. An Ed25519 key signs no
    /// message of this length, because it could be a digest of OpenPGP.
    fn sign(&mut self, requester: usize) -> Result<Duration, String> {
        self.messages += 1;
        self.servers.sign(requester, &format!("a message {:011}", self.messages))
    }

    /// The bytes that each server has sent for signatures, by its number.
    fn sent(&self) -> Result<BTreeMap<usize, u64>, String> {
        let numbers = self.servers.running.keys();
        numbers.map(|&it| Ok((it, self.servers.status(it)?.sent_bytes.signing))).collect()
    }

    /// Restarts requesters, so that they forget which servers recently answered the fastest.
    fn restart(&mut self, requesters: &[usize]) -> Result<(), String> {
        self.servers.run(requesters)?;
        let others = u64::from(self.servers.site.servers) - 1;
        requesters.iter().try_for_each(|&requester| {
            self.servers.wait(requester, "be linked again", |status| {
                status.health.ok && status.health.connected == others
            })
        })
    }

    /// The times of a requester's first and second signature after `count` of the servers that it
    /// asks have fallen silent. The servers are resumed afterwards.
    fn with_silent(
        &mut self,
        count: usize,
        requester: usize,
    ) -> Result<(Duration, Duration), String> {
        (0..WARM_UP).try_for_each(|_| self.sign(requester).map(|_| ()))?;
        let before = self.sent()?;
        self.sign(requester)?;
        let mut asked = self.sent()?;
        asked.retain(|number, sent| before[number] != *sent && *number != requester);
        let silent: Vec<usize> = asked.into_keys().take(count).collect();
        if silent.len() < count {
            return Err(format!("server {requester} asks fewer than {count} servers"));
        }
        // Only briefly, because a server that is silent for 5 s loses its links.
        self.servers.suspend(&silent)?;
        let times = (self.sign(requester)?, self.sign(requester)?);
        self.servers.resume(&silent)?;
        Ok(times)
    }
}

/// A percentile of times, in ms.
fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

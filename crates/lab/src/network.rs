//! A trial's network: its hosts and links.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;

use thiserror::Error;

use crate::host::Host;
use crate::link::{Conditions, Direction, Link, LinkOptions};
use crate::trial::{LinkPlan, Place, Trial, address};

/// Hosts and the links between them. It is gone when this is dropped.
#[derive(Debug)]
pub struct Network {
    // Links first: they are cut before their hosts go.
    links: BTreeMap<String, Link>,
    hosts: BTreeMap<String, Host>,
    /// The links as they were asked for.
    plans: BTreeMap<String, LinkPlan>,
}

/// Why there is no network.
#[derive(Debug, Error)]
#[error("cannot make {what} {name}: {error}")]
pub struct NetworkError {
    what: &'static str,
    name: String,
    error: io::Error,
}

impl Network {
    /// Makes a trial's network.
    ///
    /// # Errors
    /// When the kernel refuses something; it says what.
    pub fn new(trial: &Trial, place: Place<'_>) -> Result<Self, NetworkError> {
        let mut hosts = BTreeMap::new();
        for (name, plan) in &trial.hosts {
            let failed = |error| NetworkError { what: "host", name: name.clone(), error };
            let mut host = Host::new(name).map_err(failed)?;
            if plan.ipv6 {
                host.enable_ipv6().map_err(failed)?;
            }
            for (path, value) in &plan.sysctl {
                host.set(path, value).map_err(|error| failed(not_set(path, value, &error)))?;
            }
            hosts.insert(name.clone(), host);
        }
        let mut seeds = fastrand::Rng::with_seed(place.seed);
        let mut links = BTreeMap::new();
        for (i, (name, plan)) in trial.links.iter().enumerate() {
            let failed = |error| NetworkError { what: "link", name: name.clone(), error };
            let tap = plan
                .tap
                .as_ref()
                .map(|file| place.results.join(format!("{}-{file}", place.number)));
            let options = LinkOptions {
                name,
                addresses: [address(i, 0), address(i, 1)],
                mtu: plan.mtu,
                congestion: plan.congestion.as_deref(),
                conditions: plan.conditions(),
                seed: seeds.u64(..),
                tap: tap.as_deref(),
            };
            let unknown = || io::Error::other("there is no such host");
            let end = |i: usize| hosts.get(&plan.hosts[i]).ok_or_else(unknown);
            let link = end(0).and_then(|a| Link::new([a, end(1)?], &options)).map_err(failed)?;
            links.insert(name.clone(), link);
        }
        Ok(Self { links, hosts, plans: trial.links.clone() })
    }

    /// A host, by name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name)
    }

    /// A link, by name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.get(name)
    }

    /// The links, by name.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The links as they were asked for, by name.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &LinkPlan> {
        self.plans.values()
    }

    /// A host's address on a link.
    pub fn address(&self, host: &str, link: &str) -> Option<Ipv4Addr> {
        let index = self.plans.keys().position(|name| name == link)?;
        let end = self.plans[link].hosts.iter().position(|name| name == host)?;
        Some(address(index, end))
    }

    /// What a link was asked to do in a direction.
    pub fn conditions(&self, link: &str, direction: Direction) -> Option<Conditions> {
        Some(self.plans.get(link)?.conditions()[direction as usize])
    }

    /// The name of the only link, and those of its hosts. `None` if there are more, or none.
    pub fn only_link(&self) -> Option<(&str, [&str; 2])> {
        let (name, plan) = self.plans.first_key_value().filter(|_| self.plans.len() == 1)?;
        Some((name, [&plan.hosts[0], &plan.hosts[1]]))
    }

    /// How late the links handed over packets, in ms: of 100 packets, 99 were less late, on the
    /// worst line.
    pub fn late_ms(&self) -> f64 {
        let lines =
            self.links.values().flat_map(|link| Direction::BOTH.map(|way| link.lateness(way)));
        lines.map(|lateness| lateness.quantile_ms(0.99)).fold(0.0, f64::max)
    }

    /// How many packets the kernel dropped because a link had not fetched them in time, or did not
    /// take from it.
    ///
    /// # Errors
    /// When a host cannot be asked.
    pub fn missed(&self) -> io::Result<u64> {
        let dropped = |host: &Host| {
            let devices = host.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
            let links = devices.lines().filter_map(|line| line.split_once(':'));
            let links = links.filter(|(name, _)| self.links.contains_key(name.trim()));
            // Eight numbers about what was received; of those about what was sent, the fourth.
            let sent = links.filter_map(|(_, numbers)| numbers.split_whitespace().nth(11));
            Ok(sent.filter_map(|number| number.parse::<u64>().ok()).sum::<u64>())
        };
        let refused = self.links.values().map(|link| Ok(link.refused()));
        self.hosts.values().map(dropped).chain(refused).sum()
    }

    /// Takes the network down.
    ///
    /// # Errors
    /// When a tap's file could not be written; it says which.
    pub fn take_down(self) -> io::Result<()> {
        self.links.into_values().try_for_each(Link::cut)
    }
}

/// Why a host's system parameter could not be set.
fn not_set(path: &str, value: &str, error: &io::Error) -> io::Error {
    io::Error::other(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("a host has no sysctl {path} of its own; check its name, or leave it out")
        }
        _ => format!("sysctl {path} cannot be {value}: {error}"),
    })
}

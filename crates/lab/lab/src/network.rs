//! A trial's network: its hosts and links.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

use thiserror::Error;

use crate::host::EmulatedHost;
use crate::link::{EmulatedLink, EmulatedLinkConditions, LinkDirection, LinkOptions};
use crate::trial::{HostPlan, LinkPlan, Trial, TrialContext, address, all_links};

/// Hosts and the links between them. Dropping it removes them.
#[derive(Debug)]
pub struct EmulatedNetwork {
    // Links first: they stop before their hosts are removed.
    links: BTreeMap<String, EmulatedLink>,
    hosts: BTreeMap<String, EmulatedHost>,
    /// The definitions of the links.
    plans: BTreeMap<String, LinkPlan>,
    /// The definitions of the hosts.
    host_plans: BTreeMap<String, HostPlan>,
}

/// Why a network could not be created.
#[derive(Debug, Error)]
#[error("cannot make {what} {name}: {error}")]
pub struct EmulatedNetworkError {
    what: &'static str,
    name: String,
    error: io::Error,
}

impl EmulatedNetwork {
    /// Creates a trial's network.
    ///
    /// # Errors
    /// If the kernel refuses a host or a link; the error names it.
    pub fn new(trial: &Trial, context: TrialContext<'_>) -> Result<Self, EmulatedNetworkError> {
        let mut hosts = BTreeMap::new();
        for (name, plan) in &trial.hosts {
            let failed = |error| EmulatedNetworkError { what: "host", name: name.clone(), error };
            let mut host = EmulatedHost::new(name).map_err(failed)?;
            if plan.ipv6 {
                host.enable_ipv6().map_err(failed)?;
            }
            if plan.forwards {
                host.set("net/ipv4/ip_forward", "1").map_err(failed)?;
            }
            for (path, value) in &plan.sysctl {
                host.set(path, value).map_err(|error| failed(not_set(path, value, &error)))?;
            }
            hosts.insert(name.clone(), host);
        }
        let mut seeds = fastrand::Rng::with_seed(context.seed);
        let mut links = BTreeMap::new();
        for (i, (name, plan)) in trial.links.iter().enumerate() {
            let failed = |error| EmulatedNetworkError { what: "link", name: name.clone(), error };
            let tap = plan
                .tap
                .as_ref()
                .map(|file| context.results.join(format!("{}-{file}", context.number)));
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
            let host = |i: usize| hosts.get(&plan.hosts[i]).ok_or_else(unknown);
            let link = host(0)
                .and_then(|first| EmulatedLink::new([first, host(1)?], &options))
                .map_err(failed)?;
            let forwards = [0, 1].map(|end| trial.hosts[&plan.hosts[end]].forwards);
            for end in [0, 1].into_iter().filter(|&end| forwards[1 - end] && !forwards[end]) {
                host(end).and_then(|it| it.route_through(name, all_links())).map_err(failed)?;
            }
            links.insert(name.clone(), link);
        }
        let (plans, host_plans) = (trial.links.clone(), trial.hosts.clone());
        Ok(Self { links, hosts, plans, host_plans })
    }

    /// A host, by name.
    pub fn host(&self, name: &str) -> Option<&EmulatedHost> {
        self.hosts.get(name)
    }

    /// A link, by name.
    pub fn link(&self, name: &str) -> Option<&EmulatedLink> {
        self.links.get(name)
    }

    /// The links, by name.
    pub fn links(&self) -> impl Iterator<Item = &EmulatedLink> {
        self.links.values()
    }

    /// The names of the links, in their order.
    pub(crate) fn names_of_links(&self) -> impl Iterator<Item = &String> {
        self.links.keys()
    }

    /// The definitions of the links, in the order of their names.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &LinkPlan> {
        self.plans.values()
    }

    /// The definitions of the links, by name.
    pub(crate) fn link_plans(&self) -> &BTreeMap<String, LinkPlan> {
        &self.plans
    }

    /// A host's address on a link.
    pub fn address(&self, host: &str, link: &str) -> Option<Ipv4Addr> {
        let index = self.plans.keys().position(|name| name == link)?;
        let end = self.plans[link].hosts.iter().position(|name| name == host)?;
        Some(address(index, end))
    }

    /// The definition of a host, by its name.
    pub(crate) fn host_plan(&self, name: &str) -> Option<&HostPlan> {
        self.host_plans.get(name)
    }

    /// The links of a host, by name, and whether the host at the other end forwards.
    pub(crate) fn links_of(&self, host: &str) -> impl Iterator<Item = (&String, &LinkPlan, bool)> {
        self.plans.iter().filter_map(move |(name, plan)| {
            let end = plan.hosts.iter().position(|it| it == host)?;
            let other = self.host_plans.get(&plan.hosts[1 - end]);
            Some((name, plan, other.is_some_and(|it| it.forwards)))
        })
    }

    /// The conditions of a link in one direction, as defined.
    pub fn conditions(
        &self,
        link: &str,
        direction: LinkDirection,
    ) -> Option<EmulatedLinkConditions> {
        Some(self.plans.get(link)?.conditions()[direction as usize])
    }

    /// The name of the link and those of its hosts, if there is exactly one link.
    pub fn only_link(&self) -> Option<(&str, [&str; 2])> {
        let (name, plan) = self.plans.first_key_value().filter(|_| self.plans.len() == 1)?;
        Some((name, [&plan.hosts[0], &plan.hosts[1]]))
    }

    /// The 99th percentile of the lateness of delivered packets, in ms, in the worst direction of
    /// any link.
    pub fn late_ms(&self) -> f64 {
        let lines = self
            .links
            .values()
            .flat_map(|link| LinkDirection::BOTH.map(|direction| link.lateness(direction)));
        lines.map(|lateness| lateness.quantile_ms(0.99)).fold(0.0, f64::max)
    }

    /// How many packets the kernel dropped because a link did not read them in time, or refused
    /// from a link.
    ///
    /// # Errors
    /// If a host's counters cannot be read.
    pub fn missed(&self) -> io::Result<u64> {
        let dropped =
            |host: &EmulatedHost| host.dropped_packets(|name| self.links.contains_key(name));
        let refused = self.links.values().map(|link| Ok(link.refused()));
        self.hosts.values().map(dropped).chain(refused).sum()
    }

    /// Removes the network.
    ///
    /// # Errors
    /// If a tap's file could not be written; the error names it.
    pub fn remove(self) -> io::Result<()> {
        self.links.into_values().try_for_each(EmulatedLink::remove)
    }
}

/// The error for a system parameter that cannot be set.
pub(crate) fn not_set(path: &str, value: &str, error: &io::Error) -> io::Error {
    io::Error::other(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("a host has no sysctl {path} of its own; check its name, or leave it out")
        }
        _ => format!("sysctl {path} cannot be {value}: {error}"),
    })
}

//! The hosts and links of a trial that are emulated at sites.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use random::RandomGenerator;

use crate::link::{EmulatedLinkConditions, LinkEndOptions, LinkEndReport, StretchedLinkKey};
use crate::site::{
    AgentAnswer, AgentRequest, PathReading, SiteChange, SiteConnection, SiteConnections, SiteHost,
    SiteLinkEnd,
};
use crate::trial::{LinkPlan, Trial, address};

/// What the machines and the paths made of emulated links.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StretchedLinksResult {
    /// How late packets were, in ms, with what the paths are longer than the links are to be.
    pub(super) late_ms: f64,
    /// How many packets the machines have dropped, and the paths have lost.
    pub(super) missed: u64,
}

/// The paths between sites, by the names of the sites in their order.
pub(super) struct SitePaths<'a>(pub(super) &'a BTreeMap<(String, String), PathReading>);

impl SitePaths<'_> {
    /// The time that a packet travels between two sites, in ms: half of the round trip.
    fn delay_ms(&self, one: &String, two: &String) -> f64 {
        let pair = (one.min(two).clone(), one.max(two).clone());
        self.0.get(&pair).map_or(0.0, |reading| reading.round_trip_ms / 2.0)
    }
}

/// Makes the hosts of a trial at their sites, and the links between them.
pub(super) fn make(
    trial: &Trial,
    seed: u64,
    sites: &SiteConnections,
    hosts: &BTreeMap<String, String>,
    paths: &SitePaths<'_>,
) -> Result<(), String> {
    for (name, plan) in &trial.hosts {
        let sysctl = plan.sysctl.clone().into_iter().collect();
        let host = SiteHost { name: name.clone(), sysctl };
        site_of(sites, hosts, name)?.order(&AgentRequest::Host(host))?;
    }
    let mut random = RandomGenerator::seeded().map_err(|error| error.to_string())?;
    let mut seeds = fastrand::Rng::with_seed(seed);
    for (index, (name, plan)) in trial.links.iter().enumerate() {
        let seed = seeds.u64(..);
        let mut key = || random.array().map(StretchedLinkKey).map_err(|error| error.to_string());
        let keys = [key()?, key()?];
        let conditions = plan.conditions();
        let ends = [0, 1].map(|end| site_of(sites, hosts, &plan.hosts[end]));
        let [one, two] = ends;
        let ends = [one?, two?];
        let path_ms = paths.delay_ms(&hosts[&plan.hosts[0]], &hosts[&plan.hosts[1]]);
        for (end, site) in ends.into_iter().enumerate() {
            let options = LinkEndOptions {
                name: name.clone(),
                address: address(index, end),
                mtu: plan.mtu,
                congestion: plan.congestion.clone(),
                conditions: beyond_path(conditions[end], path_ms),
                seed: seed ^ end as u64,
                port: port(site, index)?,
                other: SocketAddr::new(ends[1 - end].address().ip(), port(ends[1 - end], index)?),
                keys: [keys[end].clone(), keys[1 - end].clone()],
            };
            let link = SiteLinkEnd { host: plan.hosts[end].clone(), options };
            site.order(&AgentRequest::Link(Box::new(link)))?;
        }
    }
    wait_until_joined(trial, sites, hosts)
}

/// How long the ends of links may take until they receive from each other.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How often to ask whether they do.
const JOIN_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until both ends of each link receive what the other one sends.
fn wait_until_joined(
    trial: &Trial,
    sites: &SiteConnections,
    hosts: &BTreeMap<String, String>,
) -> Result<(), String> {
    let deadline = Instant::now() + JOIN_TIMEOUT;
    loop {
        let reports = link_reports(sites, hosts, &trial.links)?;
        let is_joined = |ends: &[LinkEndReport; 2]| ends.iter().all(|end| end.is_joined);
        let Some(index) = reports.iter().position(|ends| !is_joined(ends)) else { return Ok(()) };
        if Instant::now() > deadline {
            let link = trial.links.iter().nth(index);
            let (name, plan) = link.ok_or("there is no such link")?;
            let end = |host: &String| -> Result<String, String> {
                let site = site_of(sites, hosts, host)?;
                Ok(format!("UDP port {} of site {}", port(site, index)?, site.site().name))
            };
            return Err(format!(
                "link {name}: datagrams do not pass between {} and {}; let them through in the \
                 firewalls",
                end(&plan.hosts[0])?,
                end(&plan.hosts[1])?
            ));
        }
        thread::sleep(JOIN_INTERVAL);
    }
}

/// The links whose delay is shorter than that of their path by more than a trial may be late.
pub(super) fn too_long_paths(
    trial: &Trial,
    hosts: &BTreeMap<String, String>,
    paths: &SitePaths<'_>,
) -> Vec<SiteChange> {
    let too_long = |(name, plan): (&String, &LinkPlan)| {
        let path_ms = paths.delay_ms(&hosts[&plan.hosts[0]], &hosts[&plan.hosts[1]]);
        let delays = plan.conditions().map(|conditions| conditions.delay_ms);
        let link_ms = delays[0].min(delays[1]);
        let is_too_long = has_conditions(plan) && path_ms > link_ms + super::MAX_LATE_MS;
        is_too_long.then(|| SiteChange::PathTooLong { link: name.clone(), link_ms, path_ms })
    };
    trial.links.iter().filter_map(too_long).collect()
}

/// What has become of the links until now.
pub(super) fn result(
    trial: &Trial,
    sites: &SiteConnections,
    hosts: &BTreeMap<String, String>,
    paths: &SitePaths<'_>,
) -> Result<StretchedLinksResult, String> {
    let mut result = StretchedLinksResult::default();
    let reports = link_reports(sites, hosts, &trial.links)?;
    for (plan, reports) in trial.links.values().zip(reports) {
        let path_ms = paths.delay_ms(&hosts[&plan.hosts[0]], &hosts[&plan.hosts[1]]);
        for (end, conditions) in plan.conditions().into_iter().enumerate() {
            let [sender, receiver] = [&reports[end], &reports[1 - end]];
            result.missed += sender.missed;
            let mut late_ms = sender.late_ms;
            // A link without conditions is as the path is.
            if has_conditions(plan) {
                result.missed += receiver.lost;
                let is_longer = (path_ms - conditions.delay_ms).max(0.0);
                late_ms = late_ms.max(receiver.path_late_ms) + is_longer;
            }
            result.late_ms = result.late_ms.max(late_ms);
        }
    }
    Ok(result)
}

/// What both ends of each link have done, in the order of the links.
pub(super) fn link_reports(
    sites: &SiteConnections,
    hosts: &BTreeMap<String, String>,
    links: &BTreeMap<String, LinkPlan>,
) -> Result<Vec<[LinkEndReport; 2]>, String> {
    let mut of_sites: BTreeMap<&String, std::vec::IntoIter<LinkEndReport>> = BTreeMap::new();
    let mut all = Vec::new();
    for plan in links.values() {
        let mut ends = [LinkEndReport::default(); 2];
        for (report, host) in ends.iter_mut().zip(&plan.hosts) {
            let (name, site) = (&hosts[host], site_of(sites, hosts, host)?);
            let reports = match of_sites.entry(name) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    match site.request(&AgentRequest::Links)? {
                        AgentAnswer::Links(reports) => entry.insert(reports.into_iter()),
                        _ => return Err(site.unexpected()),
                    }
                }
            };
            *report = reports.next().ok_or_else(|| site.unexpected())?;
        }
        all.push(ends);
    }
    Ok(all)
}

/// The conditions that an emulated link adds to a path.
fn beyond_path(conditions: EmulatedLinkConditions, path_ms: f64) -> EmulatedLinkConditions {
    let delay_ms = (conditions.delay_ms - path_ms).max(0.0);
    let jitter_ms = conditions.jitter_ms.min(delay_ms);
    EmulatedLinkConditions { delay_ms, jitter_ms, ..conditions }
}

/// Whether a link has other conditions than those of its path.
fn has_conditions(plan: &LinkPlan) -> bool {
    plan.conditions() != [EmulatedLinkConditions::default(); 2]
}

/// The UDP port of a site for a link: those after the agent's.
fn port(site: &SiteConnection, link: usize) -> Result<u16, String> {
    let port = usize::from(site.address().port()) + 1 + link;
    u16::try_from(port)
        .map_err(|_| site.line("its port is too high: each link needs one of those after it"))
}

fn site_of<'a>(
    sites: &'a SiteConnections,
    hosts: &BTreeMap<String, String>,
    host: &str,
) -> Result<&'a SiteConnection, String> {
    let site = hosts.get(host).and_then(|site| sites.site(site));
    site.ok_or_else(|| format!("host {host} is at no site"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretched_link_adds_what_the_path_lacks() {
        let conditions = EmulatedLinkConditions {
            delay_ms: 25.0,
            jitter_ms: 20.0,
            rate_mbit: Some(10.0),
            ..EmulatedLinkConditions::default()
        };
        let added = beyond_path(conditions, 10.0);
        assert_eq!((added.delay_ms, added.jitter_ms), (15.0, 15.0));
        assert_eq!(added.rate_mbit, Some(10.0));
        let added = beyond_path(conditions, 30.0);
        assert_eq!((added.delay_ms, added.jitter_ms), (0.0, 0.0));
        assert!(added.checked().is_ok());
    }
}

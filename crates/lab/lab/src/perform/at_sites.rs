//! Runs a trial at sites, and repeats it if a site is lost meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::sampling::TrialProgress;
use super::stretched_links::{self, SitePaths, StretchedLinksResult};
use super::trial_network::TrialNetwork;
use super::{MeasuredQuantities, TrialError, TrialMeasurement, failed, perform_on, write_files};
use crate::sandbox;
use crate::site::{
    AgentAnswer, AgentRequest, PathReading, SiteConnection, SiteConnections, SitePath,
};
use crate::trial::{Trial, TrialContext};

/// How often a trial is repeated because sites are lost.
const MAX_REPEATS: usize = 10;

/// Runs a trial at sites, in a [sandbox with the machine's network](sandbox::enter_with_network).
/// If a site is lost meanwhile, runs it again as soon as the site is back, and counts nothing of
/// the attempt before.
///
/// # Errors
/// If a site stays lost, a program fails or does not become ready, or a value is missing.
pub(crate) fn perform_at_sites(
    trial: &Trial,
    context: TrialContext<'_>,
    sites: &SiteConnections,
    report: &(dyn Fn(&TrialProgress) + Sync),
) -> Result<TrialMeasurement, TrialError> {
    for _ in 0..=MAX_REPEATS {
        sites.prepare(&|change| report(&TrialProgress::Site(change))).map_err(failed)?;
        let measured = attempt(trial, context, sites, report);
        if !sites.have_lost() {
            return measured;
        }
    }
    Err(failed(format!("a site was lost in each of {} attempts", MAX_REPEATS + 1)))
}

/// Runs a trial once. Its result does not count if a site was lost.
fn attempt(
    trial: &Trial,
    context: TrialContext<'_>,
    sites: &SiteConnections,
    report: &(dyn Fn(&TrialProgress) + Sync),
) -> Result<TrialMeasurement, TrialError> {
    let place = |(host, plan): (&String, &crate::trial::HostPlan)| {
        let site = sites.of_host(host, plan.site.as_deref());
        let site = site.ok_or_else(|| failed(format!("host {host} is at no site")))?;
        Ok((host.clone(), site))
    };
    let hosts: BTreeMap<String, String> =
        trial.hosts.iter().map(place).collect::<Result<_, TrialError>>()?;
    let names: BTreeSet<&String> = hosts.values().collect();
    let used: Vec<&SiteConnection> = names.iter().filter_map(|name| sites.site(name)).collect();
    // Drivers read some of them.
    write_files(trial, context.files).map_err(|error| {
        failed(format!("cannot write the trial's files: {}", sandbox::write_error(&error)))
    })?;
    for site in &used {
        begin(site, trial).map_err(failed)?;
    }
    let pairs = pairs(trial, &hosts);
    let before = probe(sites, &pairs)?;
    let readings = pairs.iter().cloned().zip(before.iter().cloned()).collect();
    let paths = SitePaths(&readings);
    let emulates_links = sites.emulates_links();
    if emulates_links {
        for change in stretched_links::too_long_paths(trial, &hosts, &paths) {
            report(&TrialProgress::Site(change));
        }
        stretched_links::make(trial, context.seed, sites, &hosts, &paths).map_err(failed)?;
    }
    let links = emulates_links.then(|| trial.links.clone());
    let network = TrialNetwork::Sites { sites, hosts: hosts.clone(), links };
    let measured = perform_on(&network, trial, context, report);
    let result = if emulates_links && measured.is_ok() {
        stretched_links::result(trial, sites, &hosts, &paths)
    } else {
        Ok(StretchedLinksResult::default())
    };
    // Also of a trial that has failed.
    let ended = used.iter().map(|site| end(site)).collect::<Vec<_>>();
    let MeasuredQuantities { values, texts } = measured?;
    let StretchedLinksResult { late_ms, missed } = result.map_err(failed)?;
    ended.into_iter().collect::<Result<Vec<()>, String>>().map_err(failed)?;
    let after = probe(sites, &pairs)?;
    let paths = pairs.into_iter().zip(before.into_iter().zip(after));
    let paths = paths.map(|((from, to), (before, after))| SitePath { from, to, before, after });
    Ok(TrialMeasurement { values, texts, late_ms, missed, paths: paths.collect() })
}

/// Begins a trial at a site, with its files.
fn begin(site: &SiteConnection, trial: &Trial) -> Result<(), String> {
    site.order(&AgentRequest::Begin)?;
    for (name, text) in &trial.files {
        site.write_file(name, text.as_bytes(), false)?;
    }
    trial.zeros.iter().try_for_each(|(name, length)| site.write_zeros(name, *length))
}

/// Ends a trial at a site.
fn end(site: &SiteConnection) -> Result<(), String> {
    match site.request(&AgentRequest::End)? {
        AgentAnswer::Over { was_full: false } => Ok(()),
        AgentAnswer::Over { was_full: true } => {
            let place = sandbox::SCRATCH;
            Err(site.line(&format!(
                "its disk for trials ({place}) was full at the end of the trial, so that the result \
                 does not count"
            )))
        }
        _ => Err(site.unexpected()),
    }
}

/// The pairs of sites that links join, or of all sites if there are no links.
fn pairs(trial: &Trial, hosts: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    let mut pairs = BTreeSet::new();
    let mut add = |one: &String, two: &String| {
        if one != two {
            pairs.insert((one.min(two).clone(), one.max(two).clone()));
        }
    };
    for link in trial.links.values() {
        add(&hosts[&link.hosts[0]], &hosts[&link.hosts[1]]);
    }
    if trial.links.is_empty() {
        for one in hosts.values() {
            for two in hosts.values() {
                add(one, two);
            }
        }
    }
    pairs
}

/// Measures the paths between pairs of sites.
fn probe(
    sites: &SiteConnections,
    pairs: &BTreeSet<(String, String)>,
) -> Result<Vec<PathReading>, TrialError> {
    pairs.iter().map(|(from, to)| sites.probe(from, to).map_err(failed)).collect()
}

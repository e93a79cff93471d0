//! Checks that a trial can run at sites, and where its hosts are.

use std::net::IpAddr;

use toml::Value;

use crate::experiment::error::ExperimentProblem;
use crate::perform::driver::{self, DriverMeasure};
use crate::site::ExperimentSites;
use crate::trial::Trial;

/// The address at which other sites reach a host, from its table in the file.
pub(super) fn address(
    sites: &ExperimentSites,
    host: &str,
    table: &Value,
) -> Result<IpAddr, ExperimentProblem> {
    let named = table.get("site").and_then(Value::as_str);
    let (_, address) = sites.of_host(host, named).map_err(|site| unknown(host, site))?;
    Ok(address.ip())
}

/// Checks that all hosts have a site, and that the trial requests nothing of their networks that
/// they do not have there.
pub(super) fn check(trial: &Trial, sites: &ExperimentSites) -> Result<(), ExperimentProblem> {
    let only_emulated = |key: String, what: &str| {
        let what = format!("{what} is for emulated networks only; run it without --sites");
        Err(ExperimentProblem::new(key, what))
    };
    let emulates_links = sites.emulates_links();
    let needs_links = |key: String, what: &str| {
        let what = format!(
            "{what} is for emulated links only; add --emulate-links, or run it without --sites"
        );
        Err(ExperimentProblem::new(key, what))
    };
    if let Some(host) = sites.placed_stranger(|host| trial.hosts.contains_key(host)) {
        let what = format!("there is no host {host}; place another with --place");
        return Err(ExperimentProblem::new("hosts", what));
    }
    for (host, plan) in &trial.hosts {
        let found = sites.of_host(host, plan.site.as_deref());
        found.map_err(|site| unknown(host, site))?;
        let settings = [("ipv6", plan.ipv6), ("forwards", plan.forwards)];
        if let Some((setting, _)) = settings.iter().find(|(_, is_set)| *is_set) {
            return only_emulated(format!("hosts.{host}"), setting);
        }
        if !emulates_links && !plan.sysctl.is_empty() {
            return needs_links(format!("hosts.{host}"), "sysctl");
        }
    }
    for (link, plan) in &trial.links {
        if plan.tap.is_some() {
            return only_emulated(format!("links.{link}"), "tap");
        }
        if !emulates_links {
            if plan.congestion.is_some() {
                return needs_links(format!("links.{link}"), "congestion");
            }
            continue;
        }
        let [one, two] = [&plan.hosts[0], &plan.hosts[1]].map(|host| {
            let named = trial.hosts[host].site.as_deref();
            sites.of_host(host, named).map(|(site, _)| site)
        });
        if one == two {
            let what = "joins hosts at one site; with --emulate-links they are at two";
            return Err(ExperimentProblem::new(format!("links.{link}"), what));
        }
    }
    let driver = trial.measure.driver.as_deref().and_then(driver::find);
    match driver.map(|driver| (driver.name, driver.measure)) {
        Some((name, DriverMeasure::Emulated(_))) => only_emulated("measure.driver".into(), name),
        Some((name, DriverMeasure::Linked(_))) if !emulates_links => {
            needs_links("measure.driver".into(), name)
        }
        Some((_, DriverMeasure::Programs { check_at_sites, .. })) => {
            check_at_sites(&trial.measure.options, emulates_links)
                .map_err(|what| ExperimentProblem::new("measure.options", what))
        }
        Some((_, DriverMeasure::Linked(_))) | None => Ok(()),
    }
}

fn unknown(host: &str, site: &str) -> ExperimentProblem {
    let what = format!(
        "is at the site {site}, which is not given; add {site}=HOST:PORT/KEY to --sites, or --place \
         {host}=SITE"
    );
    ExperimentProblem::new(format!("hosts.{host}"), what)
}

//! Two scripts of a user, `NAME-server.sh` and `NAME-client.sh`, each on its own host and in its
//! own copy of their folder. Each gets three arguments: the other's address, its own, and the name
//! of the transport, as in the paper (Transputation, section 6).
//!
//! The server starts first. The client starts when the server's host has a new open port, when the
//! server has ended, or after a limited time. A script that fails does not fail the trial: the
//! values say so, because other trials of the sweep may succeed.
//!
//! The scripts are contained (`containment`), so that those of strangers can be run. With
//! `contain = "vm"` each has a virtual machine of its own. With `contain = false` they run like the
//! laboratory's other programs, with the privileges of the user.

mod containment_option;
mod folder;
mod guest;
mod listening;
mod party;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use containment::{
    BOOT_TIMEOUT, ContainmentError, ContainmentLimits, MachineFiles, UploadBounds, find_bubblewrap,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{DriverMeasure, DriverPath, DriverValues, MeasurementDriver, no_hosts, options};
use crate::link::LinkDirection;
use crate::perform::trial_network::{TrialHost, TrialNetwork};
use crate::sandbox::SCRATCH;
use crate::trial::{self, LinkPlan};
use containment_option::ScriptContainment;
use folder::ScriptPair;
use listening::OpenPorts;
use party::{PartyEnd, ScriptBounds, ScriptParty};

/// The setting with the folder.
const SCRIPTS: DriverPath = DriverPath { option: "scripts", check: find };

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "scripts",
    values: &[],
    hosts: &["client", "server"],
    paths: &[SCRIPTS],
    network: no_hosts,
    check,
    measure: DriverMeasure::Programs { measure, check_at_sites },
};

/// Checks an archive with scripts in memory, as it is checked before it is run.
///
/// # Errors
/// If it does not have exactly one pair of scripts, or something in it is refused, in one line.
pub fn check_script_archive(archive: &[u8]) -> Result<(), String> {
    folder::check_archive(archive)
}

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptsDriverOptions {
    /// The folder with the scripts, or an archive of it.
    scripts: PathBuf,
    /// The scripts' name. `None`: that of the only pair.
    name: Option<String>,
    /// The parties' hosts.
    client: String,
    server: String,
    /// The transport, which the scripts get in lower case.
    transport: String,
    /// The time after which the client is ended, in seconds.
    #[serde(default = "minute")]
    timeout_s: f64,
    /// By what the scripts are contained.
    #[serde(default)]
    contain: ScriptContainment,
    /// What each party may use.
    #[serde(default)]
    limits: ScriptLimits,
}

/// What a contained script may use, with all that it starts.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptLimits {
    memory_mib: u64,
    processes: u32,
    disk_mib: u64,
    output_mib: u64,
    processors: f64,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        let ContainmentLimits { memory_mib, processes, disk_mib, output_mib, processors, .. } =
            ContainmentLimits::default();
        Self { memory_mib, processes, disk_mib, output_mib, processors }
    }
}

impl ScriptLimits {
    /// Checks that a script can run within them; the error is one line.
    fn check(self) -> Result<(), String> {
        let wrong = |key: &str, value: f64, [least, most]: [f64; 2]| {
            let is_wrong = !(value >= least && value <= most);
            is_wrong.then(|| format!("limits.{key} is {value}; it must be from {least} to {most}"))
        };
        let wrong = wrong("memory_mib", self.memory_mib as f64, [16.0, 65_536.0])
            .or_else(|| wrong("processes", self.processes.into(), [4.0, 4096.0]))
            .or_else(|| wrong("disk_mib", self.disk_mib as f64, [1.0, 65_536.0]))
            .or_else(|| wrong("output_mib", self.output_mib as f64, [1.0, 64.0]))
            .or_else(|| wrong("processors", self.processors, [0.05, 1024.0]));
        wrong.map_or(Ok(()), Err)
    }
}

impl ScriptsDriverOptions {
    /// The limits of a contained script that has so much time; `None` if it is not contained.
    fn limits(&self, time: Duration) -> Option<ContainmentLimits> {
        let ScriptLimits { memory_mib, processes, disk_mib, output_mib, processors } = self.limits;
        let other = ContainmentLimits::default();
        self.contain.is_contained().then_some(ContainmentLimits {
            memory_mib,
            processes,
            disk_mib,
            output_mib,
            processors,
            time,
            ..other
        })
    }

    /// What contains the script of a host that has so much time.
    fn bounds(
        &self,
        network: &TrialNetwork<'_>,
        host: &str,
        time: Duration,
    ) -> Result<ScriptBounds, String> {
        Ok(match (self.limits(time), network.emulated()) {
            (None, _) => ScriptBounds::None,
            (Some(limits), Some(network)) if self.contain == ScriptContainment::Machine => {
                ScriptBounds::Machine(limits, guest::machine(network, host)?)
            }
            (Some(limits), _) => ScriptBounds::Sandbox(limits),
        })
    }

    /// The pair of scripts.
    fn pair(&self) -> Result<ScriptPair, String> {
        let bounds = self.limits(Duration::ZERO).map(|it| UploadBounds::of_limits(&it));
        ScriptPair::find(&self.scripts, self.name.as_deref(), bounds.as_ref())
    }
}

/// The maximum of `timeout_s`.
const MAX_TIMEOUT_S: f64 = 3600.0;

/// The time that the server has to open a port, before the client starts anyway.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that the server has to end after the client has ended.
const GRACE: Duration = Duration::from_secs(2);

/// How often the ports are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

fn minute() -> f64 {
    60.0
}

fn check(table: &toml::Table) -> Result<(), String> {
    let options: ScriptsDriverOptions = options(table)?;
    if let Some(name) = &options.name {
        folder::check_name(name)?;
    }
    if options.client == options.server {
        return Err("client and server are the same host; name two".into());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let transport = &options.transport;
    if transport.is_empty() || !transport.chars().all(is_plain) {
        return Err(format!("transport is \"{transport}\"; use letters, digits and -"));
    }
    options.limits.check()?;
    let timeout_s = options.timeout_s;
    if !(timeout_s > 0.0 && timeout_s <= MAX_TIMEOUT_S) {
        return Err(format!(
            "timeout_s is {timeout_s}; it must be above 0 and at most {MAX_TIMEOUT_S}"
        ));
    }
    Ok(())
}

/// Why a contained script does not run on the network of a site's machine.
const UNCONTAINED_SITE: &str = "scripts are contained at sites only on emulated links; add \
     --emulate-links, or set contain = false for scripts of your own";

/// Why a script does not run in a virtual machine at a site.
const NO_MACHINE_AT_SITE: &str =
    "scripts have no virtual machines at sites; set contain = true for a sandbox";

/// Checks that the scripts can run at sites. The error is one line.
fn check_at_sites(table: &toml::Table, emulates_links: bool) -> Result<(), String> {
    let options: ScriptsDriverOptions = options(table)?;
    if options.contain == ScriptContainment::Machine {
        return Err(NO_MACHINE_AT_SITE.into());
    }
    if options.contain.is_contained() && !emulates_links {
        return Err(UNCONTAINED_SITE.into());
    }
    if options.scripts.starts_with(SCRATCH) {
        return Err("scripts is a directory of a site; name a folder of this machine".into());
    }
    Ok(())
}

/// Checks that the scripts are there, and what contains them. The error is one line.
fn find(table: &toml::Table) -> Result<(), String> {
    let options: ScriptsDriverOptions = options(table)?;
    if options.contain.is_contained() && find_bubblewrap().is_none() {
        let missing = ContainmentError::NotInstalled;
        return Err(format!("{missing}, or set contain = false for scripts of your own"));
    }
    if options.contain == ScriptContainment::Machine {
        MachineFiles::find()
            .map_err(|missing| format!("{missing}; or set contain = true for a sandbox"))?;
    }
    if options.scripts.starts_with(SCRATCH) {
        // Files of the trial, which are written when it begins.
        return Ok(());
    }
    options.pair().map(drop)
}

fn measure(network: &TrialNetwork<'_>, table: &toml::Table) -> Result<DriverValues, String> {
    let options: ScriptsDriverOptions = options(table)?;
    let pair = options.pair()?;
    let host = |name| network.host(name).map_err(|error| format!("measure.options: {error}"));
    let [server_host, client_host] = [host(&options.server)?, host(&options.client)?];
    let [server_address, client_address] = addresses(network, &options)?;
    let transport = options.transport.to_lowercase();
    let limit = Duration::from_secs_f64(options.timeout_s);
    let before = carried_to(network, &options);

    let ports = OpenPorts::of(server_host)?;
    let own = server_address.own.to_string();
    let arguments = [client_address.reached.to_string(), own, transport.clone()];
    // It ends with the client. It has the time of all that comes before.
    let before_client = match options.contain {
        ScriptContainment::Machine => OPENING_TIMEOUT + BOOT_TIMEOUT,
        _ => 2 * OPENING_TIMEOUT,
    };
    let bounds = options.bounds(network, &options.server, limit + before_client)?;
    let mut server = ScriptParty::start("server", server_host, &pair, &arguments, bounds)?;
    let means = server.means().to_owned();
    let opened = wait_until_open(&ports, &mut server)?;
    let server_end = server.end_if_ended()?;
    if let Some(end) = server_end.filter(|end| end.exit != 0) {
        // Without a server, the client would only wait.
        let run = ScriptsRun { ends: vec![("server", end)], opened, means, before };
        return Ok(document(run, network, &options));
    }

    let own = client_address.own.to_string();
    let arguments = [server_address.reached.to_string(), own, transport];
    let bounds = options.bounds(network, &options.client, limit)?;
    let mut client = ScriptParty::start("client", client_host, &pair, &arguments, bounds)?;
    let client_end = client.end_within(limit)?;
    let server_end = server.stop(GRACE, Duration::from_secs(1))?;
    let ends = vec![("client", client_end), ("server", server_end)];
    Ok(document(ScriptsRun { ends, opened, means, before }, network, &options))
}

/// The addresses of a party.
struct PartyAddress {
    /// The one at which the other party reaches it.
    reached: IpAddr,
    /// The one at which it listens.
    own: IpAddr,
}

/// The addresses of the server and the client.
fn addresses(
    network: &TrialNetwork<'_>,
    options: &ScriptsDriverOptions,
) -> Result<[PartyAddress; 2], String> {
    if let Some(links) = network.links() {
        let addresses = emulated_addresses(links, options)?;
        return Ok(addresses.map(|it| PartyAddress { reached: it.into(), own: it.into() }));
    }
    let address = |host| match network.host(host)? {
        TrialHost::Site { site, .. } => {
            Ok(PartyAddress { reached: site.address().ip(), own: site.listening_address() })
        }
        TrialHost::Emulated { .. } => Err(format!("{host} is at no site")),
    };
    Ok([address(&options.server)?, address(&options.client)?])
}

/// The addresses of the server and the client on the link or the links between them.
fn emulated_addresses(
    links: &BTreeMap<String, LinkPlan>,
    options: &ScriptsDriverOptions,
) -> Result<[Ipv4Addr; 2], String> {
    let ends = [&options.server, &options.client];
    let on = |end: &String, (index, plan): (usize, &LinkPlan)| {
        let place = plan.hosts.iter().position(|host| host == end)?;
        Some(trial::address(index, place))
    };
    let joins = |(_, plan): &(usize, &LinkPlan)| ends.iter().all(|it| plan.hosts.contains(*it));
    let direct = links.values().enumerate().find(joins);
    let address = |end: &String| match direct {
        Some(link) => on(end, link),
        None => links.values().enumerate().find_map(|link| on(end, link)),
    };
    let no_link = |end: &String| format!("host {end} has no link; add one");
    Ok([
        address(ends[0]).ok_or_else(|| no_link(ends[0]))?,
        address(ends[1]).ok_or_else(|| no_link(ends[1]))?,
    ])
}

/// The bytes that have arrived at the server and at the client, by emulated links.
fn carried_to(network: &TrialNetwork<'_>, options: &ScriptsDriverOptions) -> Option<[u64; 2]> {
    let network = network.emulated()?;
    Some([&options.server, &options.client].map(|host| {
        let links = network.names_of_links().zip(network.plans());
        let arrived = links.filter_map(|(name, plan)| {
            let end = plan.hosts.iter().position(|it| it == host)?;
            let direction = [LinkDirection::Back, LinkDirection::Forward][end];
            Some(network.link(name)?.counts(direction).delivered_bytes)
        });
        arrived.sum()
    }))
}

/// Waits until the server has opened a port, has ended, or does neither for too long. Returns which
/// it is.
fn wait_until_open(
    ports: &OpenPorts<'_>,
    server: &mut ScriptParty<'_>,
) -> Result<&'static str, String> {
    let deadline = Instant::now() + OPENING_TIMEOUT;
    loop {
        let has_ended = server.has_ended(POLL_INTERVAL)?;
        if ports.has_new()? || server.has_opened_port() {
            return Ok("the server has opened a port");
        }
        if has_ended {
            return Ok("the server has ended");
        }
        if Instant::now() > deadline {
            return Ok("the server has opened no port within 10 s");
        }
    }
}

/// A run of a pair of scripts.
struct ScriptsRun {
    /// How each party has ended.
    ends: Vec<(&'static str, PartyEnd)>,
    /// When the client has started.
    opened: &'static str,
    /// How the scripts are contained.
    means: String,
    /// The bytes that had arrived at each host before, by emulated links.
    before: Option<[u64; 2]>,
}

/// The values of a trial. `time_s` is there only if both scripts succeeded, so that the time of a
/// failure is not taken for a result.
fn document(
    run: ScriptsRun,
    network: &TrialNetwork<'_>,
    options: &ScriptsDriverOptions,
) -> DriverValues {
    let ScriptsRun { ends, opened, means, before } = run;
    let mut content = Map::new();
    content.insert("started_when".into(), opened.into());
    content.insert("contained".into(), means.into());
    let carried = before.zip(carried_to(network, options));
    if let Some((before, after)) = carried {
        content.insert("bytes_to_server".into(), (after[0] - before[0]).into());
        content.insert("bytes_to_client".into(), (after[1] - before[1]).into());
    }
    let failure =
        ends.iter().find_map(|(role, end)| Some(format!("{role}: {}", end.failure(role)?)));
    let has_succeeded = failure.is_none() && ends.len() == 2;
    // At sites the bytes are missing.
    let is_whole = has_succeeded && carried.is_some();
    content.insert("result".into(), failure.unwrap_or_else(|| "ok".into()).into());
    for (role, end) in ends {
        content.insert(format!("{role}_exit"), end.exit.into());
        let time = if role == "client" { "time_s" } else { "server_time_s" };
        if has_succeeded || role == "server" {
            content.insert(time.into(), end.time.as_secs_f64().into());
        }
        if role == "server" {
            content.insert("server_ended".into(), u8::from(end.was_ended).into());
        }
        let mut party = json!({ "output": end.tail });
        if let Some((name, _)) = end.limit {
            party["limit"] = name.into();
        }
        content.insert(role.into(), party);
    }
    DriverValues::Document { content: Value::Object(content), is_whole }
}

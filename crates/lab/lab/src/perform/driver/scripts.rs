//! Two scripts of a user, `NAME-server.sh` and `NAME-client.sh`, each on its own host and in its
//! own copy of their folder. Each gets three arguments: the other's address, its own, and the name
//! of the transport, as in the paper (Transputation, section 6).
//!
//! The server starts first. The client starts when the server's host has a new open port, when the
//! server has ended, or after a limited time. A script that fails does not fail the trial: the
//! values say so, because other trials of the sweep may succeed.
//!
//! The scripts are not contained: they run like the laboratory's other programs, with the
//! privileges of the user. Run only scripts that you trust.

mod folder;
mod listening;
mod party;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{DriverMeasure, DriverValues, MeasurementDriver, host, no_hosts, options};
use crate::link::LinkDirection;
use crate::network::EmulatedNetwork;
use crate::trial::MeasurePlan;
use folder::ScriptPair;
use listening::OpenPorts;
use party::{PartyEnd, ScriptParty};

/// The driver's name.
pub(crate) const NAME: &str = "scripts";

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: NAME,
    values: &[],
    hosts: &["client", "server"],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptsDriverOptions {
    /// The folder with the scripts.
    folder: PathBuf,
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
    let timeout_s = options.timeout_s;
    if !(timeout_s > 0.0 && timeout_s <= MAX_TIMEOUT_S) {
        return Err(format!(
            "timeout_s is {timeout_s}; it must be above 0 and at most {MAX_TIMEOUT_S}"
        ));
    }
    Ok(())
}

/// Makes the path of the folder relative to a directory, that of the experiment's file.
pub(crate) fn resolve_folder(measure: &mut MeasurePlan, directory: &Path) {
    if measure.driver.as_deref() != Some(NAME) {
        return;
    }
    if let Some(toml::Value::String(folder)) = measure.options.get_mut("folder") {
        *folder = directory.join(&*folder).to_string_lossy().into_owned();
    }
}

/// Checks that the scripts are there. The error is about the option `folder` or `name`.
pub(crate) fn find(table: &toml::Table) -> Result<(), String> {
    let options: ScriptsDriverOptions = options(table)?;
    ScriptPair::find(&options.folder, options.name.as_deref()).map(drop)
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: ScriptsDriverOptions = options(table)?;
    let pair = ScriptPair::find(&options.folder, options.name.as_deref())?;
    let [server_host, client_host] =
        [host(network, &options.server)?, host(network, &options.client)?];
    let [at_server, at_client] = addresses(network, &options)?;
    let transport = options.transport.to_lowercase();
    let limit = Duration::from_secs_f64(options.timeout_s);
    let before = carried_to(network, [&options.server, &options.client]);

    let ports = OpenPorts::of(server_host)?;
    let arguments = [at_client.to_string(), at_server.to_string(), transport.clone()];
    let mut server = ScriptParty::start("server", server_host, &pair, &arguments)?;
    let opened = wait_until_open(&ports, &mut server)?;
    let server_end = server.end_if_ended()?;
    if let Some(end) = server_end.filter(|end| end.exit != 0) {
        // Without a server, the client would only wait.
        return Ok(document(vec![("server", end)], opened, network, &options, before));
    }

    let arguments = [at_server.to_string(), at_client.to_string(), transport];
    let mut client = ScriptParty::start("client", client_host, &pair, &arguments)?;
    let client_end = client.end(limit, Duration::ZERO)?;
    let server_end = server.end(GRACE, Duration::from_secs(1))?;
    let ends = vec![("client", client_end), ("server", server_end)];
    Ok(document(ends, opened, network, &options, before))
}

/// The addresses of the server and the client on the link or the links between them.
fn addresses(
    network: &EmulatedNetwork,
    options: &ScriptsDriverOptions,
) -> Result<[Ipv4Addr; 2], String> {
    let ends = [&options.server, &options.client];
    let links: Vec<&String> = network.names_of_links().collect();
    let joins = |link: &&&String| ends.iter().all(|end| network.address(end, link).is_some());
    let direct = links.iter().find(joins);
    let address = |end: &String| {
        let on = |link: &&String| network.address(end, link);
        direct.map_or_else(|| links.iter().find_map(on), on)
    };
    let no_link = |end: &String| format!("host {end} has no link; add one");
    Ok([
        address(ends[0]).ok_or_else(|| no_link(ends[0]))?,
        address(ends[1]).ok_or_else(|| no_link(ends[1]))?,
    ])
}

/// The bytes that have arrived at each of two hosts.
fn carried_to(network: &EmulatedNetwork, hosts: [&str; 2]) -> [u64; 2] {
    hosts.map(|host| {
        let links = network.names_of_links().zip(network.plans());
        let arrived = links.filter_map(|(name, plan)| {
            let end = plan.hosts.iter().position(|it| it == host)?;
            let direction = [LinkDirection::Back, LinkDirection::Forward][end];
            Some(network.link(name)?.counts(direction).delivered_bytes)
        });
        arrived.sum()
    })
}

/// Waits until the server has opened a port, has ended, or does neither for too long. Returns which
/// it is.
fn wait_until_open(
    ports: &OpenPorts<'_>,
    server: &mut ScriptParty,
) -> Result<&'static str, String> {
    let deadline = Instant::now() + OPENING_TIMEOUT;
    loop {
        let has_ended = server.has_ended(POLL_INTERVAL)?;
        if ports.has_new()? {
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

/// The values of a trial. `time_s` is there only if both scripts succeeded, so that the time of a
/// failure is not taken for a result.
fn document(
    ends: Vec<(&str, PartyEnd)>,
    started_when: &str,
    network: &EmulatedNetwork,
    options: &ScriptsDriverOptions,
    before: [u64; 2],
) -> DriverValues {
    let mut content = Map::new();
    content.insert("started_when".into(), started_when.into());
    let after = carried_to(network, [&options.server, &options.client]);
    content.insert("bytes_to_server".into(), (after[0] - before[0]).into());
    content.insert("bytes_to_client".into(), (after[1] - before[1]).into());
    let failure =
        ends.iter().find_map(|(role, end)| Some(format!("{role}: {}", end.failure(role)?)));
    let is_whole = failure.is_none() && ends.len() == 2;
    content.insert("result".into(), failure.unwrap_or_else(|| "ok".into()).into());
    for (role, end) in ends {
        content.insert(format!("{role}_exit"), end.exit.into());
        let time = if role == "client" { "time_s" } else { "server_time_s" };
        if is_whole || role == "server" {
            content.insert(time.into(), end.time.as_secs_f64().into());
        }
        if role == "server" {
            content.insert("server_ended".into(), u8::from(end.was_ended).into());
        }
        content.insert(role.into(), json!({ "output": end.tail }));
    }
    DriverValues::Document { content: Value::Object(content), is_whole }
}

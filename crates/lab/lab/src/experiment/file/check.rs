//! Checks of a trial that its types cannot express.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use super::in_plain_words;
use crate::experiment::error::ExperimentProblem;
use crate::experiment::value::written;
use crate::link::EmulatedLinkConditions;
use crate::perform::driver;
use crate::trial::{HostPlan, LinkPlan, MeasurePlan, ProgramPlan, Trial, ValuePlan};

/// The maximum length of a file name, in bytes. A tap's file name also begins with the trial's
/// number.
const MAX_FILE_NAME_LEN: usize = 200;

/// The maximum length of the name of an interface, and so of a link.
const MAX_INTERFACE_NAME_LEN: usize = 15;

/// The maximum number of links. Each has a network of its own, 10.0.i.0/24.
const MAX_LINKS: usize = 100;

/// The maximum time of a measurement: a day.
const MAX_TIMEOUT_S: f64 = 86_400.0;

/// Checks everything except the programs and that the links' hosts exist.
pub(crate) fn trial(trial: &Trial) -> Result<(), ExperimentProblem> {
    for (name, host) in &trial.hosts {
        let key = format!("hosts.{name}");
        check_name(&key, name)?;
        if host.site.as_ref().is_some_and(|site| site.is_empty() || site.contains(['{', '}'])) {
            let what = "is no plain name of a site; write one such as fra";
            return Err(ExperimentProblem::new(format!("{key}.site"), what));
        }
        check_parameters(&key, host)?;
    }
    if trial.links.len() > MAX_LINKS {
        let what = format!("are {}, more than {MAX_LINKS}; leave some out", trial.links.len());
        return Err(ExperimentProblem::new("links", what));
    }
    check_forwarding(trial)?;
    let mut taps = BTreeSet::new();
    for (name, link) in &trial.links {
        let key = format!("links.{name}");
        check_name(&key, name)?;
        if ["all", "default"].contains(&name.as_str()) {
            let what = "stands for other interfaces than one; give it another name";
            return Err(ExperimentProblem::new(key, what));
        }
        check_link(&key, link)?;
        check_tap(&key, link, &mut taps)?;
    }
    for (section, name) in names_of_files(trial) {
        if !is_file_name(name) || (section == "zeros" && trial.files.contains_key(name)) {
            let what = "is no plain name of a file of its own; write one of at most 200 bytes without / \
                        that does not begin with a dot";
            return Err(ExperimentProblem::new(format!("{section}.{name}"), what));
        }
    }
    check_measure(&trial.measure, &trial.hosts)
}

/// The section and the name of each file.
fn names_of_files(trial: &Trial) -> impl Iterator<Item = (&'static str, &String)> {
    let files = trial.files.keys().map(|name| ("files", name));
    files.chain(trial.zeros.keys().map(|name| ("zeros", name)))
}

/// Checks the program at `key`.
pub(crate) fn program(
    key: &str,
    program: &ProgramPlan,
    hosts: &BTreeMap<String, HostPlan>,
) -> Result<(), ExperimentProblem> {
    check_host(&format!("{key}.host"), &program.host, hosts)?;
    check_command(&format!("{key}.run"), &program.run)?;
    if program.listens == Some(0) {
        return Err(ExperimentProblem::new(
            format!("{key}.listens"),
            "is 0; write a port from 1 to 65535",
        ));
    }
    if program.says.as_ref().is_some_and(String::is_empty) {
        return Err(ExperimentProblem::new(
            format!("{key}.says"),
            "is empty; write what it prints when it is ready",
        ));
    }
    if program.listens.is_some() && program.says.is_some() {
        let what = "tells, beside listens, when the program is ready; give one of them";
        return Err(ExperimentProblem::new(format!("{key}.says"), what));
    }
    Ok(())
}

fn check_name(key: &str, name: &str) -> Result<(), ExperimentProblem> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=MAX_INTERFACE_NAME_LEN).contains(&name.len()) && name.chars().all(plain) && name != "lo"
    {
        return Ok(());
    }
    let what = format!(
        "cannot be an interface's name; use at most {MAX_INTERFACE_NAME_LEN} of a-z, 0-9 and -, and not lo"
    );
    Err(ExperimentProblem::new(key, what))
}

fn check_parameters(key: &str, host: &HostPlan) -> Result<(), ExperimentProblem> {
    for path in host.sysctl.keys() {
        // Other parameters belong to the machine, not to the host, and would stay changed.
        let strange = |part: &str| part.is_empty() || part == "." || part == "..";
        if !path.starts_with("net/") || path.split('/').any(strange) {
            let what = "is no parameter of a network; write it as net/ipv4/tcp_rmem";
            return Err(ExperimentProblem::new(format!("{key}.sysctl.{path}"), what));
        }
    }
    Ok(())
}

/// Checks that each host has at most one route to other hosts through a switch.
fn check_forwarding(trial: &Trial) -> Result<(), ExperimentProblem> {
    let forwards = |host: &str| trial.hosts.get(host).is_some_and(|host| host.forwards);
    let mut reached = BTreeSet::new();
    for (name, link) in &trial.links {
        for [host, other] in [[0, 1], [1, 0]].map(|ends| ends.map(|end| &*link.hosts[end])) {
            if forwards(other) && !forwards(host) && !reached.insert(host) {
                let what =
                    format!("is {host}'s second link to a host that forwards; leave one out");
                return Err(ExperimentProblem::new(format!("links.{name}"), what));
            }
        }
    }
    Ok(())
}

fn check_link(key: &str, link: &LinkPlan) -> Result<(), ExperimentProblem> {
    if link.hosts[0] == link.hosts[1] {
        return Err(ExperimentProblem::new(
            format!("{key}.hosts"),
            "names one host twice; a link joins two",
        ));
    }
    if !(576..=65_535).contains(&link.mtu) {
        let what = format!("{} is not from 576 to 65535 bytes; give another number", link.mtu);
        return Err(ExperimentProblem::new(format!("{key}.mtu"), what));
    }
    if link.both.is_some() && (link.forward.is_some() || link.back.is_some()) {
        let what = "sets what forward or back sets, too; give both alone, or these two";
        return Err(ExperimentProblem::new(format!("{key}.both"), what));
    }
    check_conditions(&format!("{key}.both"), link.both)?;
    check_conditions(&format!("{key}.forward"), link.forward)?;
    check_conditions(&format!("{key}.back"), link.back)
}

fn check_conditions(
    key: &str,
    conditions: Option<EmulatedLinkConditions>,
) -> Result<(), ExperimentProblem> {
    let checked = conditions.map_or(Ok(()), |conditions| conditions.checked().map(|_| ()));
    checked.map_err(|wrong| {
        ExperimentProblem::new(
            format!("{key}.{}", wrong.key),
            format!("{} cannot be; {}", written(wrong.value), wrong.must),
        )
    })
}

fn check_tap<'a>(
    key: &str,
    link: &'a LinkPlan,
    taps: &mut BTreeSet<&'a str>,
) -> Result<(), ExperimentProblem> {
    let Some(tap) = &link.tap else { return Ok(()) };
    let key = format!("{key}.tap");
    if !is_file_name(tap) || !tap.ends_with(".pcapng") {
        let what = "is no plain name of a file of at most 200 bytes; write one such as wire.pcapng";
        return Err(ExperimentProblem::new(key, what));
    }
    if !taps.insert(tap) {
        return Err(ExperimentProblem::new(
            key,
            format!("{tap} is another link's, too; give another name"),
        ));
    }
    Ok(())
}

fn check_measure(
    measure: &MeasurePlan,
    hosts: &BTreeMap<String, HostPlan>,
) -> Result<(), ExperimentProblem> {
    if let Some(timeout_s) = measure.timeout_s
        && !(timeout_s > 0.0 && timeout_s <= MAX_TIMEOUT_S)
    {
        let what =
            format!("{} cannot be; it must be above 0 and at most 86400", written(timeout_s));
        return Err(ExperimentProblem::new("measure.timeout_s", what));
    }
    if measure.values.is_empty() {
        return Err(ExperimentProblem::new(
            "measure.values",
            "names no value; name what is measured",
        ));
    }
    if let Some(host) = &measure.host {
        check_host("measure.host", host, hosts)?;
    }
    for (name, value) in &measure.values {
        if !value.scale.is_finite() {
            let what = "is no finite number; write another";
            return Err(ExperimentProblem::new(format!("measure.values.{name}.scale"), what));
        }
    }
    for (name, text) in &measure.texts {
        if !text.json.is_empty() && !text.json.starts_with('/') {
            let what = format!("{} is no JSON pointer; begin it with /", text.json);
            return Err(ExperimentProblem::new(format!("measure.texts.{name}.json"), what));
        }
    }
    match (&measure.run, &measure.driver) {
        (Some(run), None) => check_run(run, measure),
        (None, Some(driver)) => check_driven(driver, measure, hosts),
        _ => Err(ExperimentProblem::new("measure", "needs either run or driver; give one of them")),
    }
}

/// Checks a measurement by a program.
fn check_run(run: &[String], measure: &MeasurePlan) -> Result<(), ExperimentProblem> {
    check_command("measure.run", run)?;
    if measure.host.is_none() {
        let what = "is missing; name the host that runs the program";
        return Err(ExperimentProblem::new("measure.host", what));
    }
    if !measure.options.is_empty() {
        let what = "are a driver's; give a program arguments instead";
        return Err(ExperimentProblem::new("measure.options", what));
    }
    let mut values = measure.values.iter();
    values.try_for_each(|(name, value)| check_read(&format!("measure.values.{name}"), value))
}

/// Checks a value that is read from a program's output.
fn check_read(key: &str, value: &ValuePlan) -> Result<(), ExperimentProblem> {
    match (&value.json, &value.after) {
        (Some(pointer), None) if !pointer.is_empty() && !pointer.starts_with('/') => {
            let what = format!("{pointer} is no JSON pointer; begin it with /");
            Err(ExperimentProblem::new(format!("{key}.json"), what))
        }
        (None, Some(text)) if text.is_empty() => Err(ExperimentProblem::new(
            format!("{key}.after"),
            "is empty; write the text before the number",
        )),
        (Some(_), None) | (None, Some(_)) => Ok(()),
        _ => Err(ExperimentProblem::new(key, "needs either json or after; give one of them")),
    }
}

/// Checks that the driver exists and gives the values.
fn check_driven(
    driver: &str,
    measure: &MeasurePlan,
    hosts: &BTreeMap<String, HostPlan>,
) -> Result<(), ExperimentProblem> {
    let Some(driver) = driver::find(driver) else {
        let names: Vec<&str> = driver::ALL.iter().map(|driver| driver.name).collect();
        let what = format!("there is no driver {driver}; there are {}", names.join(", "));
        return Err(ExperimentProblem::new("measure.driver", what));
    };
    for (key, is_there) in
        [("host", measure.host.is_some()), ("timeout_s", measure.timeout_s.is_some())]
    {
        if is_there {
            let what = "is for a program that measures; a driver has its own options";
            return Err(ExperimentProblem::new(format!("measure.{key}"), what));
        }
    }
    (driver.check)(&measure.options)
        .map_err(|what| ExperimentProblem::new("measure.options", in_plain_words(&what)))?;
    for name in driver.hosts {
        let host = measure.options.get(*name).and_then(Value::as_str).unwrap_or_default();
        check_host(&format!("measure.options.{name}"), host, hosts)?;
    }
    if !driver.values.is_empty() && !measure.texts.is_empty() {
        let what =
            format!("are of a document, but {} gives only values; leave them out", driver.name);
        return Err(ExperimentProblem::new("measure.texts", what));
    }
    for (name, value) in &measure.values {
        let key = format!("measure.values.{name}");
        if driver.values.is_empty() {
            if value.json.is_none() {
                let what = format!("needs json: {} gives a document", driver.name);
                return Err(ExperimentProblem::new(key, what));
            }
            check_read(&key, value)?;
            continue;
        }
        if !driver.values.contains(&name.as_str()) {
            let what = format!("is not what {} gives: {}", driver.name, driver.values.join(", "));
            return Err(ExperimentProblem::new(key, what));
        }
        if value.json.is_some() || value.after.is_some() {
            let what = "has json or after, but a driver gives its values itself; leave them out";
            return Err(ExperimentProblem::new(key, what));
        }
    }
    Ok(())
}

fn check_host(
    key: &str,
    host: &str,
    hosts: &BTreeMap<String, HostPlan>,
) -> Result<(), ExperimentProblem> {
    if hosts.contains_key(host) { Ok(()) } else { Err(no_host(key, host)) }
}

/// The error for a host that does not exist.
pub(crate) fn no_host(key: &str, host: &str) -> ExperimentProblem {
    if host.is_empty() {
        return ExperimentProblem::new(key, "is empty; name a host");
    }
    let what = format!("there is no host {host}; add [hosts.{host}] or name another");
    ExperimentProblem::new(key, what)
}

fn check_command(key: &str, run: &[String]) -> Result<(), ExperimentProblem> {
    if run.first().is_none_or(String::is_empty) {
        return Err(ExperimentProblem::new(
            key,
            "names no program; write [\"PROGRAM\", \"ARGUMENT\", ..]",
        ));
    }
    Ok(())
}

/// Whether the name is that of a file in the same directory that is not hidden.
fn is_file_name(name: &str) -> bool {
    (1..=MAX_FILE_NAME_LEN).contains(&name.len())
        && !name.starts_with('.')
        && !name.contains(['/', '\0'])
}

//! `sunder doctor`: what this host can do, and what is wrong with a configuration.

mod problems;

use std::io;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use serde::Serialize;
use service::config::read_file;

use super::{daemon_names, daemon_of, status};
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::{files, host};

/// Reports what this host supports, and errors in a configuration.
///
/// Each error has its fix. With a configuration it reports all errors in the text. If there are
/// none, it tests the settings on this host: addresses, devices, routes and keys, and whether a
/// proxy's servers answer. It changes nothing, and does not disturb running services.
///
/// The rights of a process depend on its user: run this as the user that the configured command
/// runs as.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder doctor --config /etc/sunder/proxy/office.toml\n\nExit codes: 0 \
                        no errors (there may be warnings), 1 errors, 2 no such \
                        file.\ndocs/guides/operation.md explains the findings."
)]
pub(crate) struct Arguments {
    #[arg(
        long,
        value_name = "FILE",
        help = format!("A configuration of {}; its keys show of which", daemon_names())
    )]
    config: Option<PathBuf>,

    /// Print one JSON document: `for`, the command, and findings with level, subject, message, fix
    #[arg(long)]
    json: bool,
}

/// The report.
#[derive(Serialize)]
struct DoctorReport {
    /// The command that the configuration is for.
    #[serde(rename = "for")]
    kind: Option<&'static str>,
    findings: Vec<CheckFinding>,
}

/// Examines the host or the configuration, and prints the findings.
///
/// # Errors
/// When there is an error among the findings, or no such configuration.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let report = match &arguments.config {
        Some(path) => examine(path)?,
        None => DoctorReport { kind: None, findings: of_host() },
    };
    if arguments.json {
        console::print_json(&report)?;
    } else {
        let coloured = console::wants_colour(&io::stdout());
        let lines: Vec<String> =
            report.findings.iter().map(|finding| finding.lines(coloured)).collect();
        console::print(lines.join("\n").as_bytes())?;
    }
    let wrong =
        report.findings.iter().filter(|finding| finding.level == FindingSeverity::Error).count();
    match wrong {
        0 => Ok(()),
        1 => Err(CommandFailure::Failed("1 error was found; its fix is shown below it".into())),
        _ => Err(CommandFailure::Failed(format!(
            "{wrong} errors were found; the fix of each is shown below it"
        ))),
    }
}

/// The findings about this host without a configuration.
fn of_host() -> Vec<CheckFinding> {
    #[cfg(feature = "tunnel")]
    let closed = status::closed_without_tunnel(&status::running());
    #[cfg(not(feature = "tunnel"))]
    let closed = [];
    host::findings().into_iter().chain(closed).collect()
}

/// Reads a configuration, and if it has no problems, tests on this host what it asks for.
fn examine(path: &Path) -> Result<DoctorReport, CommandFailure> {
    let text = read_file(path).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let shown = path.display();
    let Some(daemon) = daemon_of(&text) else {
        let what = format!("{shown} has no key of {}", daemon_names());
        let fix = "start from an example: sunder proxy --help, or the --help of the others";
        let findings = vec![CheckFinding::new(FindingSeverity::Error, "configuration", what, fix)];
        return Ok(DoctorReport { kind: None, findings });
    };
    let kind = daemon.name;
    let mut findings = problems::findings(daemon, &text);
    if findings.is_empty() {
        findings.push(CheckFinding::ok(
            "configuration",
            format!("{shown} is a configuration of sunder {kind}, without errors"),
        ));
        findings.extend(files::keys(path, &text));
        let own_listeners = |name: &str| status::own_listeners(kind, name);
        findings.extend((daemon.findings)(&text, path, &own_listeners)?);
    } else {
        let what = format!(
            "{shown} was read as a configuration of sunder {kind}; its settings are not tested yet"
        );
        findings.push(CheckFinding::new(
            FindingSeverity::Note,
            "configuration",
            what,
            "correct the errors, then run this again",
        ));
    }
    Ok(DoctorReport { kind: Some(kind), findings })
}

//! `sunder doctor`: what this host can do, and what is wrong with a configuration.

mod problems;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use service::config::read_file;

use super::daemon_names;
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::{files, host};
use crate::console;
use crate::daemon;
use crate::failure::CommandFailure;

/// Reports what this host supports, and the errors in a configuration, each with its fix.
///
/// With a configuration it reports all errors in the text. If there are none, it tests on this host
/// what the configuration asks for: addresses, devices, routes and keys, and whether a proxy's
/// servers answer. It changes nothing, and does not disturb what is running.
///
/// The rights of a process depend on its user: run this as the user that the command is to run as.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder doctor --config /etc/sunder/office.toml\n\n\
    Exit codes: 0 nothing is wrong (though there may be warnings), 1 something is, 2 no such file.\n\
    docs/guides/operation.md explains the findings.")]
pub(crate) struct Arguments {
    #[arg(
        long,
        value_name = "FILE",
        help = format!("A configuration of {}; its keys tell of which", daemon_names())
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
        None => DoctorReport { kind: None, findings: host::findings() },
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
        1 => Err(CommandFailure::Failed("one thing is wrong; its fix is beside it".into())),
        _ => Err(CommandFailure::Failed(format!(
            "{wrong} things are wrong; the fix of each is beside it"
        ))),
    }
}

/// Reads a configuration, and if it has no problems, tests on this host what it asks for.
fn examine(path: &Path) -> Result<DoctorReport, CommandFailure> {
    let text = read_file(path).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let shown = path.display();
    let Some(daemon) = problems::daemon_of(&text) else {
        let what = format!("{shown} has no setting of {}", daemon_names());
        let fix = "begin with an example: sunder proxy --help, and so for the others";
        let findings = vec![CheckFinding::new(FindingSeverity::Error, "configuration", what, fix)];
        return Ok(DoctorReport { kind: None, findings });
    };
    let kind = daemon.name;
    let mut findings = problems::findings(daemon, &text);
    if findings.is_empty() {
        findings.push(CheckFinding::ok(
            "configuration",
            format!("{shown} is a configuration of sunder {kind}, without mistakes"),
        ));
        findings.extend(files::keys(path, &text));
        findings.extend((daemon.findings)(&text, daemon::config_dir(path))?);
    } else {
        let what = format!(
            "{shown} was taken for one of sunder {kind}; what it asks for was not tried yet"
        );
        findings.push(CheckFinding::new(
            FindingSeverity::Note,
            "configuration",
            what,
            "run this again when it is right",
        ));
    }
    Ok(DoctorReport { kind: Some(kind), findings })
}

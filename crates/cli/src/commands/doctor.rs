//! `sunder doctor`: what this host can do, and what is wrong with a configuration.

mod files;
mod finding;
mod greeting;
mod host;
mod keys;
mod kind;
mod links;
mod listeners;
mod mistake;
mod places;
mod proxy;
mod repair;
mod risk;
mod serve;
mod text;
mod tunnel;

use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use micss::config::{ClientConfig, ServerConfig};
use remicss::config::Config;
use serde::Serialize;

use crate::console;
use crate::daemon::{self, TomlMistake};
use crate::failure::Failure;
use finding::{Finding, Level};

/// Says what this host can do; what is wrong, and the fix.
///
/// With a configuration it explains every mistake in it, and then tries what it asks for: addresses,
/// devices, routes and keys, and whether a proxy's servers answer. It changes nothing, and what is
/// running is not disturbed.
///
/// What a process may do depends on who runs it: run this as the user that the command is to run as.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder doctor --config /etc/sunder/office.toml\n\n\
    Exit codes: 0 nothing is wrong (though there may be warnings), 1 something is, 2 no such file.\n\
    docs/guides/operation.md explains the findings.")]
pub(crate) struct Arguments {
    /// A configuration of `sunder proxy`, `serve` or `tunnel`; which of them, its keys tell
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print one JSON document: `for`, the command, and findings with level, subject, message and fix
    #[arg(long)]
    json: bool,
}

/// The commands that keep running, each with a configuration of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// `sunder proxy`.
    Proxy,
    /// `sunder serve`.
    Serve,
    /// `sunder tunnel`.
    Tunnel,
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proxy => "proxy",
            Self::Serve => "serve",
            Self::Tunnel => "tunnel",
        })
    }
}

/// What was found out.
#[derive(Serialize)]
struct Report {
    /// The command that the configuration is for.
    #[serde(rename = "for")]
    kind: Option<Kind>,
    findings: Vec<Finding>,
}

/// Looks, and says what it found.
///
/// # Errors
/// When something is wrong, or there is no such configuration.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let report = match &arguments.config {
        Some(path) => examine(path)?,
        None => Report { kind: None, findings: host::findings() },
    };
    if arguments.json {
        console::print_json(&report)?;
    } else {
        let coloured = console::wants_colour(&io::stdout());
        let lines: Vec<String> =
            report.findings.iter().map(|finding| finding.lines(coloured)).collect();
        console::print(lines.join("\n").as_bytes())?;
    }
    let wrong = report.findings.iter().filter(|finding| finding.level == Level::Error).count();
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::Failed("one thing is wrong; its fix is beside it".into())),
        _ => {
            Err(Failure::Failed(format!("{wrong} things are wrong; the fix of each is beside it")))
        }
    }
}

/// Looks at a configuration: at its text, and if that has no mistakes at what it asks of this host.
fn examine(path: &Path) -> Result<Report, Failure> {
    let text = daemon::load("doctor", path, |text| Ok::<_, TomlMistake>(text.to_owned()))?;
    let shown = path.display();
    let Some(kind) = Kind::of(&text) else {
        let what = format!("{shown} has no setting of sunder proxy, serve or tunnel");
        let fix = "begin with an example: sunder proxy --help, and so for the others";
        let findings = vec![Finding::new(Level::Error, "configuration", what, fix)];
        return Ok(Report { kind: None, findings });
    };
    let mut findings = text::mistakes(kind, &text);
    if findings.is_empty() {
        findings.push(Finding::ok(
            "configuration",
            format!("{shown} is a configuration of sunder {kind}, without mistakes"),
        ));
        findings.extend(files::keys(path, &text));
        findings.extend(on_this_host(kind, path, &text)?);
    } else {
        let what = format!(
            "{shown} was taken for one of sunder {kind}; what it asks for was not tried yet"
        );
        findings.push(Finding::new(
            Level::Note,
            "configuration",
            what,
            "run this again when it is right",
        ));
    }
    Ok(Report { kind: Some(kind), findings })
}

fn on_this_host(kind: Kind, path: &Path, text: &str) -> Result<Vec<Finding>, Failure> {
    match kind {
        Kind::Proxy => {
            let mut config = ClientConfig::from_toml(text).map_err(refused)?;
            config.config_dir = path.parent().map(Path::to_owned).unwrap_or_default();
            proxy::findings(&config)
        }
        Kind::Serve => serve::findings(&ServerConfig::from_toml(text).map_err(refused)?),
        Kind::Tunnel => Ok(tunnel::findings(&Config::from_toml(text).map_err(refused)?)),
    }
}

/// What the kernel says there. Nothing if it says nothing.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn refused(error: impl Display) -> Failure {
    Failure::Usage(error.to_string())
}

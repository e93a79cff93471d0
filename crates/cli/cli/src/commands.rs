//! The subcommands, one file each.

#[cfg(feature = "mix")]
mod chat;
mod check;
#[cfg(feature = "compute")]
mod circuit;
#[cfg(feature = "compute")]
mod compute;
#[cfg(feature = "directory")]
mod directory;
mod doctor;
mod init;
mod join;
mod key;
#[cfg(feature = "lab")]
mod lab;
#[cfg(not(feature = "lab"))]
#[path = "commands/lab_program.rs"]
mod lab;
#[cfg(feature = "manual")]
mod manual;
#[cfg(feature = "mix")]
mod mix;
#[cfg(feature = "tunnel")]
mod plan;
mod proxy;
#[cfg(feature = "quorum")]
mod quorum;
mod serve;
mod split;
mod status;
mod stream_commands;
mod streams;
#[cfg(feature = "transport")]
mod transport;
#[cfg(feature = "tunnel")]
mod tunnel;

use std::net::SocketAddr;
use std::path::Path;

use clap::Subcommand;
use console::CommandFailure;
use serde::{Deserialize, Serialize};
use service::config::ConfigProblems;
use service::memory;
use service::metrics::Exposition;
use service::status::{ServiceProblem, ServiceStatus};

use crate::daemon::{self, ConfiguredDaemon, Daemon, DaemonExamination};

/// Defines the subcommands. Each names its module, and the Cargo feature that it needs.
macro_rules! commands {
    ($($(#[$feature:meta])? $command:ident($module:ident),)*) => {
        #[derive(Subcommand)]
        pub(crate) enum SunderCommand {
            $($(#[$feature])? $command($module::Arguments),)*
        }

        impl SunderCommand {
            fn run(&self) -> Result<(), CommandFailure> {
                match self {
                    $($(#[$feature])? Self::$command(arguments) => $module::run(arguments),)*
                }
            }
        }
    };
}

/// Defines the status of the subcommands that keep running. Each names its module and, with the
/// name of the status, the type in it that implements [`Daemon`].
macro_rules! daemons {
    ($($(#[$feature:meta])? $module:ident::$daemon:ident,)*) => {
        /// See [`Daemon::LEGEND`].
        const LEGENDS: &[&str] = &[$($(#[$feature])? $module::$daemon::LEGEND,)*];

        /// The status of a daemon on this host.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        enum DaemonStatus {
            $($(#[$feature])? $daemon(Box<<$module::$daemon as Daemon>::Status>),)*
        }

        impl DaemonStatus {
            /// The name of its command.
            fn kind(&self) -> &'static str {
                match self {
                    $($(#[$feature])? Self::$daemon(_) => $module::$daemon::NAME,)*
                }
            }

            /// See [`ServiceStatus::name`].
            fn name(&self) -> &str {
                match self {
                    $($(#[$feature])? Self::$daemon(status) => status.name(),)*
                }
            }

            /// See [`ServiceStatus::uptime_s`].
            fn uptime_s(&self) -> f64 {
                match self {
                    $($(#[$feature])? Self::$daemon(status) => status.uptime_s(),)*
                }
            }

            /// See [`ServiceStatus::listen`].
            fn listen(&self) -> Vec<SocketAddr> {
                match self {
                    $($(#[$feature])? Self::$daemon(status) => status.listen(),)*
                }
            }

            /// See [`ServiceStatus::take_name_of`].
            fn take_name_of(&mut self, socket: &std::path::Path) {
                let kind = self.kind();
                match self {
                    $($(#[$feature])? Self::$daemon(status) => status.take_name_of(kind, socket),)*
                }
            }

            /// Adds its metrics.
            fn expose(&self, exposition: &mut Exposition) {
                match self {
                    $($(#[$feature])? Self::$daemon(status) => {
                        status.expose(self.kind(), exposition);
                    })*
                }
            }

            /// See [`ServiceStatus::problems`].
            fn problems(&self) -> Vec<ServiceProblem> {
                match self {
                    $($(#[$feature])? Self::$daemon(status) => status.problems(),)*
                }
            }

            /// The page that `sunder status` shows for it, with the rates since `before`.
            fn page(&self, before: Option<&Self>) -> String {
                match (self, before) {
                    $($(#[$feature])? (Self::$daemon(now), before) => {
                        let before = match before {
                            Some(Self::$daemon(before)) => Some(&**before),
                            _ => None,
                        };
                        $module::$daemon::page(now, before)
                    })*
                }
            }
        }
    };
}

// In the order of --help.
commands! {
    Split(split),
    Join(join),
    Check(check),
    Serve(serve),
    Proxy(proxy),
    Streams(stream_commands),
    #[cfg(feature = "tunnel")]
    Plan(plan),
    Demo(demo),
    Lab(lab),
    #[cfg(feature = "directory")]
    Directory(directory),
    #[cfg(feature = "tunnel")]
    Tunnel(tunnel),
    #[cfg(feature = "quorum")]
    Quorum(quorum),
    #[cfg(feature = "mix")]
    Mix(mix),
    #[cfg(feature = "mix")]
    Chat(chat),
    #[cfg(feature = "transport")]
    Transport(transport),
    #[cfg(feature = "compute")]
    Circuit(circuit),
    #[cfg(feature = "compute")]
    Compute(compute),
    Key(key),
    Init(init),
    Status(status),
    Doctor(doctor),
    #[cfg(feature = "manual")]
    Manual(manual),
}

daemons! {
    serve::Serve,
    proxy::Proxy,
    #[cfg(feature = "tunnel")]
    tunnel::Tunnel,
    #[cfg(feature = "quorum")]
    quorum::Quorum,
    #[cfg(feature = "mix")]
    mix::Mix,
    #[cfg(feature = "transport")]
    transport::Relay,
    #[cfg(feature = "transport")]
    transport::Expose,
    #[cfg(feature = "transport")]
    transport::Forward,
}

/// What `sunder doctor` needs of each daemon that has a configuration.
const EXAMINATIONS: &[DaemonExamination] = &[
    DaemonExamination::of::<serve::Serve>(),
    DaemonExamination::of::<proxy::Proxy>(),
    #[cfg(feature = "tunnel")]
    DaemonExamination::of::<tunnel::Tunnel>(),
    #[cfg(feature = "quorum")]
    DaemonExamination::of::<quorum::Quorum>(),
    #[cfg(feature = "mix")]
    DaemonExamination::of::<mix::Mix>(),
];

/// The names of the daemons that have a configuration, as in `sunder serve, proxy, tunnel, quorum
/// or mix`.
fn daemon_names() -> String {
    let names: Vec<&str> = EXAMINATIONS.iter().map(|daemon| daemon.name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("sunder {} or {last}", others.join(", "))
}

/// Reads a daemon's configuration.
///
/// # Errors
/// When there is no such file, or it is no such configuration: the first problem, with its line.
fn load_config<D: ConfiguredDaemon>(path: &Path) -> Result<D::Config, CommandFailure> {
    let more = format!(", all errors: sunder doctor --config {}", path.display());
    let parse = |text: &str| D::parse(text, daemon::config_dir(path));
    daemon::load_file(D::NAME, path, parse, |text| other_owner(text, D::NAME), &more)
}

/// Reads the configuration of `sunder COMMAND`, which does not keep running.
///
/// # Errors
/// As [`load_config`].
fn load_config_file<T>(
    command: &str,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, ConfigProblems>,
) -> Result<T, CommandFailure> {
    daemon::load_file(command, path, parse, |text| other_owner(text, command), "")
}

/// The daemon that takes the whole text as its configuration, if it is another than `command`.
fn other_owner(text: &str, command: &str) -> Option<&'static str> {
    let owner = daemon_of(text)?;
    ((owner.problems)(text).is_none() && owner.name != command).then_some(owner.name)
}

/// The daemon of which the text contains the most keys. Among equals it is the one with the fewest
/// problems, and then the last one: a text with only channels belongs to a proxy. `None` if the
/// text has no key of any daemon.
fn daemon_of(text: &str) -> Option<&'static DaemonExamination> {
    let likeness = |daemon: &&DaemonExamination| daemon.keys.match_score(text);
    let most =
        EXAMINATIONS.iter().map(|daemon| likeness(&daemon)).max().filter(|most| *most > 0)?;
    let count = |daemon: &&DaemonExamination| (daemon.problems)(text).iter().flatten().count();
    EXAMINATIONS.iter().rev().filter(|daemon| likeness(daemon) == most).min_by_key(count)
}

/// A file for a picture, which is an SVG.
///
/// # Errors
/// If its name says that it is another kind of picture.
#[cfg(any(feature = "tunnel", feature = "compute"))]
fn svg_file(name: &str) -> Result<std::path::PathBuf, String> {
    let path = std::path::PathBuf::from(name);
    match path.extension() {
        Some(end) if !end.eq_ignore_ascii_case("svg") => {
            Err(format!("the picture is an SVG: write {}", path.with_extension("svg").display()))
        }
        _ => Ok(path),
    }
}

/// Runs a subcommand.
///
/// # Errors
/// As the subcommand.
pub(crate) fn run(command: &SunderCommand) -> Result<(), CommandFailure> {
    memory::forbid_core_files();
    // They need parts of /proc/self that are hidden then.
    let is_exempt = matches!(
        command,
        SunderCommand::Split(_)
            | SunderCommand::Join(_)
            | SunderCommand::Demo(_)
            | SunderCommand::Lab(_)
    );
    if !is_exempt {
        memory::forbid_dumps();
    }
    command.run()
}

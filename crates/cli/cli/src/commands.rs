//! The subcommands, one file each.

mod chat;
mod circuit;
mod compute;
mod demo;
mod directory;
mod doctor;
mod join;
mod lab;
mod mix;
mod plan;
mod proxy;
mod quorum;
mod serve;
mod split;
mod status;
mod streams;
mod transport;
mod tunnel;

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use service::memory;
use service::metrics::Exposition;
use service::status::ServiceStatus;

use crate::daemon::{Daemon, DaemonExamination};
use crate::failure::CommandFailure;

/// Defines the subcommands and their modules. A subcommand that keeps running also names the type
/// that implements [`Daemon`].
macro_rules! commands {
    ($($command:ident($module:ident $(, $daemon:ident)?),)*) => {
        #[derive(Subcommand)]
        pub(crate) enum SunderCommand {
            $($command($module::Arguments),)*
        }

        impl SunderCommand {
            fn run(&self) -> Result<(), CommandFailure> {
                match self {
                    $(Self::$command(arguments) => $module::run(arguments),)*
                }
            }
        }

        daemons! { $($($module::$daemon,)?)* }
    };
}

macro_rules! daemons {
    ($($module:ident::$daemon:ident,)*) => {
        /// See [`Daemon::LEGEND`].
        const LEGENDS: &[&str] = &[$($module::$daemon::LEGEND,)*];

        /// The status of a daemon on this host.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        enum DaemonStatus {
            $($daemon(Box<<$module::$daemon as Daemon>::Status>),)*
        }

        impl DaemonStatus {
            /// The name of its command.
            fn kind(&self) -> &'static str {
                match self {
                    $(Self::$daemon(_) => $module::$daemon::NAME,)*
                }
            }

            /// See [`ServiceStatus::name`].
            fn name(&self) -> &str {
                match self {
                    $(Self::$daemon(status) => status.name(),)*
                }
            }

            /// See [`ServiceStatus::uptime_s`].
            fn uptime_s(&self) -> f64 {
                match self {
                    $(Self::$daemon(status) => status.uptime_s(),)*
                }
            }

            /// See [`ServiceStatus::take_name_of`].
            fn take_name_of(&mut self, socket: &std::path::Path) {
                let kind = self.kind();
                match self {
                    $(Self::$daemon(status) => status.take_name_of(kind, socket),)*
                }
            }

            /// Adds its metrics.
            fn expose(&self, exposition: &mut Exposition) {
                match self {
                    $(Self::$daemon(status) => status.expose(self.kind(), exposition),)*
                }
            }

            /// The page that `sunder status` shows for it, with the rates since `before`.
            fn page(&self, before: Option<&Self>) -> String {
                match (self, before) {
                    $((Self::$daemon(now), before) => {
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
    Serve(serve, Serve),
    Proxy(proxy, Proxy),
    Plan(plan),
    Demo(demo),
    Lab(lab),
    Directory(directory),
    Tunnel(tunnel, Tunnel),
    Quorum(quorum, Quorum),
    Mix(mix, Mix),
    Chat(chat),
    Transport(transport, Relay),
    Circuit(circuit),
    Compute(compute),
    Status(status),
    Doctor(doctor),
}

/// What `sunder doctor` needs of each daemon that has a configuration.
const EXAMINATIONS: &[DaemonExamination] = &[
    DaemonExamination::of::<serve::Serve>(),
    DaemonExamination::of::<proxy::Proxy>(),
    DaemonExamination::of::<tunnel::Tunnel>(),
    DaemonExamination::of::<quorum::Quorum>(),
    DaemonExamination::of::<mix::Mix>(),
];

/// The names of the daemons that have a configuration, as in `sunder serve, proxy, tunnel, quorum
/// or mix`.
fn daemon_names() -> String {
    let names: Vec<&str> = EXAMINATIONS.iter().map(|daemon| daemon.name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("sunder {} or {last}", others.join(", "))
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
            | SunderCommand::Lab(_)
            | SunderCommand::Demo(_)
    );
    if !is_exempt {
        memory::forbid_dumps();
    }
    command.run()
}

//! `sunder tunnel close` and `sunder tunnel open`: whether packets for a tunnel's networks may
//! leave this host by another device.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use console::CommandFailure;
use remicss::config::TunnelConfig;
use remicss::fail_closed::{self, HostClosure, HostClosureGuard};
use remicss::status::ClosedStatus;

use super::Tunnel;
use crate::checks::closed::{how_to_open, sentence};
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::inbound;
use crate::commands::load_config;

/// How long to wait before another attempt to restore the rules.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// The most addresses that a message names.
const MAX_NAMED: usize = 3;

/// Closes this host for the networks of a tunnel with `fail_closed`: only the tunnel reaches them.
///
/// `sunder tunnel` does this itself when it starts. This command is for the time before, such as a
/// boot. This host stays closed when the tunnel stops, and even when it is killed, until
/// `sunder tunnel open`. Needs root or `CAP_NET_ADMIN`, and the program `nft`.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder tunnel close --config tunnel.toml")]
pub(super) struct CloseArguments {
    /// The tunnel's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print the rules, and change nothing
    #[arg(long)]
    print_rules: bool,
}

/// Opens this host again, after `fail_closed` has closed it: packets for the networks of the tunnel
/// may leave by any device.
///
/// While the tunnel runs with `fail_closed`, it closes this host again at once.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder tunnel open --config tunnel.toml")]
pub(super) struct OpenArguments {
    /// The tunnel's configuration
    #[arg(long, value_name = "FILE", required_unless_present = "device")]
    config: Option<PathBuf>,
    /// The tunnel's device, if there is no configuration any more
    #[arg(long, value_name = "DEVICE", conflicts_with = "config")]
    device: Option<String>,
}

/// Closes this host, or prints the rules.
///
/// # Errors
/// If the configuration is wrong or does not close anything, or the rules cannot be set.
pub(super) fn close(arguments: &CloseArguments) -> Result<(), CommandFailure> {
    let config = load_config::<Tunnel>(&arguments.config)?;
    if !config.fail_closed {
        let path = arguments.config.display();
        let message = format!("{path} does not close anything; set fail_closed = true in it");
        return Err(CommandFailure::Usage(message));
    }
    if arguments.print_rules {
        return console::print(fail_closed::rules(&config, SystemTime::now()).as_bytes());
    }
    if let Some(finding) = cut_off(&config) {
        console::warning(&finding.message);
    }
    let closed = now_closed(&config)?;
    console::note(&format!("{}; {}", sentence(&closed), how_to_open(&closed.device)));
    Ok(())
}

/// Opens this host.
///
/// # Errors
/// If the configuration is wrong, or the rules cannot be removed.
pub(super) fn open(arguments: &OpenArguments) -> Result<(), CommandFailure> {
    let device = match (&arguments.config, &arguments.device) {
        (Some(path), _) => load_config::<Tunnel>(path)?.device,
        (None, Some(device)) => device.clone(),
        (None, None) => return Err(CommandFailure::Usage("--config is missing".into())),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if device.is_empty() || !device.chars().all(is_plain) {
        let message = format!("\"{device}\" is not a tunnel's device; sunder status names it");
        return Err(CommandFailure::Usage(message));
    }
    let failed = |error| CommandFailure::Failed(format!("cannot open this host: {error}"));
    let was_closed = fail_closed::open(&device).map_err(failed)?;
    let state = if was_closed { "is open now" } else { "was open already" };
    console::note(&format!("this host {state}: packets for {device} may leave by any device"));
    Ok(())
}

/// Closes this host.
///
/// # Errors
/// If the tunnel's device is another one, such as an uplink, which would stay open, or the rules
/// cannot be set.
pub(super) fn now_closed(config: &TunnelConfig) -> Result<HostClosure, CommandFailure> {
    let device = Path::new("/sys/class/net").join(&config.device);
    if device.exists() && !device.join("tun_flags").exists() {
        let message = format!(
            "the device {} exists, and is not a tunnel's: give the tunnel's `device` a name of its own",
            config.device
        );
        return Err(CommandFailure::Usage(message));
    }
    fail_closed::close(config).map_err(|error| failure(&error))
}

fn failure(error: &std::io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("fail_closed: {error}"))
}

/// The rules of a running tunnel, for its status.
#[derive(Clone)]
pub(super) struct ClosedState {
    closed: HostClosure,
    in_force: Arc<AtomicBool>,
}

impl ClosedState {
    /// Closes this host, and restores the rules whenever another program changes them, until the
    /// runtime ends. `None` if the configuration closes nothing.
    ///
    /// # Errors
    /// If the rules cannot be set.
    pub(super) fn keep(config: &TunnelConfig) -> Result<Option<Self>, CommandFailure> {
        if !config.fail_closed {
            return Ok(None);
        }
        let guard = HostClosureGuard::close(config).map_err(|error| failure(&error))?;
        let in_force = Arc::new(AtomicBool::new(true));
        let state = Self { closed: guard.closed().clone(), in_force: Arc::clone(&in_force) };
        let guard = Arc::new(guard);
        tokio::spawn(async move {
            loop {
                guard.changed().await;
                in_force.store(false, Ordering::Relaxed);
                let restore = || {
                    let own = Arc::clone(&guard);
                    tokio::task::spawn_blocking(move || own.restore())
                };
                while !restore().await.unwrap_or(false) {
                    tokio::time::sleep(RESTORE_INTERVAL).await;
                }
                in_force.store(true, Ordering::Relaxed);
            }
        });
        Ok(Some(state))
    }

    /// The state now.
    pub(super) fn status(&self) -> ClosedStatus {
        let closed_s = self.closed.duration().as_secs_f64();
        ClosedStatus { closed_s, in_force: self.in_force.load(Ordering::Relaxed) }
    }
}

/// A warning if the configuration does not close this host any more, but it still is.
pub(super) fn still_closed(config: &TunnelConfig) -> Option<String> {
    let closed =
        (!config.fail_closed).then(|| fail_closed::closed_for(&config.device)).flatten()?;
    let open = how_to_open(&closed.device);
    Some(format!("fail_closed is not set any more, but {}; {open}", sentence(&closed)))
}

/// The findings of `sunder doctor` about the rules of a configuration.
pub(super) fn findings(config: &TunnelConfig) -> Vec<CheckFinding> {
    let subject = "fail_closed";
    if !config.fail_closed {
        let fix = how_to_open(&config.device);
        let finding = |what| CheckFinding::new(FindingSeverity::Warning, subject, what, fix);
        return still_closed(config).map(finding).into_iter().collect();
    }
    let state = match (fail_closed::check(config), fail_closed::closed_for(&config.device)) {
        (Err(error), _) => {
            let fix = match error.kind() {
                ErrorKind::NotFound => "install it (Debian: apt install nftables)",
                ErrorKind::PermissionDenied => "run this as root",
                _ => "sunder tunnel close --print-rules shows the rules",
            };
            CheckFinding::new(FindingSeverity::Error, subject, error.to_string(), fix)
        }
        (Ok(()), Some(closed)) => CheckFinding::ok(
            subject,
            format!("{}; {}", sentence(&closed), how_to_open(&closed.device)),
        ),
        (Ok(()), None) => {
            let what = format!(
                "this host is open: before the tunnel starts, packets for {} may leave by any device",
                config.device
            );
            let fix = "sunder tunnel close --config FILE; at each boot: systemctl enable sunder-tunnel-close@NAME";
            CheckFinding::new(FindingSeverity::Warning, subject, what, fix)
        }
    };
    let mut findings = vec![state];
    findings.extend(cut_off(config));
    findings
}

/// The connections to this host that cannot answer once it is closed.
fn cut_off(config: &TunnelConfig) -> Option<CheckFinding> {
    let is_closed = |client: &IpAddr| {
        config.networks().any(|network| network.contains(client))
            && !config.addresses.iter().any(|own| own.contains(client))
            && !config.direct.iter().any(|direct| direct.contains(client))
    };
    let clients: Vec<String> = inbound::clients()
        .iter()
        .filter(|client| is_closed(client))
        .map(IpAddr::to_string)
        .collect();
    let named = clients.get(..MAX_NAMED).unwrap_or(&clients).join(", ");
    let more = if clients.len() > MAX_NAMED { " and others" } else { "" };
    (!clients.is_empty()).then(|| {
        let what = format!("connections from {named}{more} to this host end when it is closed: answers to them may leave by the tunnel only");
        let fix = "if you need them, name their networks in `direct`";
        CheckFinding::new(FindingSeverity::Warning, "fail_closed", what, fix)
    })
}

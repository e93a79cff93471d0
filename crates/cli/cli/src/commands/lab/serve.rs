//! `sunder lab serve`: the page on which one runs experiments and sees what they measure.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use console::CommandFailure;
use containment::{MachineFiles, MachineProcessor};
use keys::storage::state_directory;
use panel::{
    AccountOptions, PageEncryption, PageUrl, PanelError, PanelOptions, QuotaLimits,
    ScriptIsolation, TlsFiles,
};
use service::ServiceError;
use service::signals::StopSignals;

/// Opens a page on which one chooses what to run, runs it, sees it and compares it.
///
/// Prints the address of the page, for a browser on this host. Whoever has the address can use the
/// page. Runs are kept in a directory, and go on only while this command runs.
///
/// With --accounts, several users have accounts, to which `sunder lab user invite` invites them.
/// Each sees their own runs only, and has quotas. SIGHUP reads the certificate again.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab serve

sunder lab serve --accounts /var/lib/sunder-lab --listen 0.0.0.0:443 --url https://lab.example.org \\
    --tls-certificate fullchain.pem --tls-key privkey.pem

docs/guides/accounts.md describes the accounts.")]
pub(super) struct LabServeArguments {
    /// The address to listen on, of this host alone unless browsers use TLS; port 0 is any that is
    /// free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8840")]
    listen: SocketAddr,
    /// The directory for the runs [default: ~/.local/state/sunder/lab]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Serve several users; the directory for their accounts and runs
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    accounts: Option<PathBuf>,
    /// The address that browsers use, as `https://NAME` [default: that of --listen]
    #[arg(long, requires = "accounts")]
    url: Option<PageUrl>,
    /// The certificate and those between it and the root, in PEM: browsers use TLS
    #[arg(long, value_name = "FILE", requires_all = ["accounts", "tls_key"])]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// A proxy in front of this server encrypts, and nobody else reaches --listen
    #[arg(long, requires_all = ["accounts", "url"], conflicts_with = "tls_certificate")]
    behind_proxy: bool,
    /// By what scripts from the page are contained: each by a virtual machine or by a sandbox
    /// [default: vm with --accounts where KVM and what a machine needs are there, else sandbox]
    #[arg(long, value_name = "BY")]
    contain: Option<ScriptContainer>,
    #[command(flatten)]
    quotas: LabQuotaArguments,
}

/// By what scripts are contained.
#[derive(Clone, Copy, clap::ValueEnum)]
enum ScriptContainer {
    Vm,
    Sandbox,
}

/// The quotas of accounts.
#[derive(clap::Args)]
struct LabQuotaArguments {
    /// How many runs of an account may wait or run
    #[arg(long, value_name = "N", default_value = "10", requires = "accounts")]
    account_runs: usize,
    /// How many MiB the runs of an account may hold on the disk
    #[arg(long, value_name = "MIB", default_value = "1024", requires = "accounts")]
    account_mib: u64,
    /// How many minutes the runs of an account may run on a day (UTC)
    #[arg(long, value_name = "MINUTES", default_value = "240", requires = "accounts")]
    account_minutes: u64,
    /// How many MiB all runs together may hold on the disk
    #[arg(long, value_name = "MIB", default_value = "16384", requires = "accounts")]
    total_mib: u64,
}

impl LabQuotaArguments {
    fn limits(&self) -> QuotaLimits {
        QuotaLimits {
            unfinished: self.account_runs,
            bytes: self.account_mib.saturating_mul(1 << 20),
            total_bytes: self.total_mib.saturating_mul(1 << 20),
            time_a_day: Duration::from_secs(self.account_minutes.saturating_mul(60)),
            ..QuotaLimits::default()
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// If the server cannot start.
pub(super) fn run(arguments: &LabServeArguments) -> Result<(), CommandFailure> {
    let named = arguments.accounts.clone().or_else(|| arguments.directory.clone());
    let directory = named.or_else(|| state_directory("lab"));
    let directory = directory.ok_or_else(|| {
        CommandFailure::Usage("there is no home directory: give --directory".to_owned())
    })?;
    let program = env::current_exe()
        .map_err(|error| CommandFailure::Failed(format!("cannot find this program: {error}")))?;
    let accounts = account_options(arguments);
    let machine = MachineFiles::find().map(|_| MachineProcessor::of_this_machine());
    let isolation = isolation(arguments.contain, accounts.is_some(), machine)?;
    let options =
        PanelOptions { listen: arguments.listen, directory, program, accounts, isolation };
    let failed = |error: ServiceError| CommandFailure::Failed(error.to_string());
    let runtime = service::runtime().map_err(failed)?;
    let served = runtime.block_on(async {
        let mut signals = StopSignals::listen().map_err(failed)?;
        let ready = |address: &str| {
            let _ = console::print_line(address);
        };
        let end = async move { signals.next().await };
        panel::serve(options, ready, end).await.map_err(|error| refused(&error))
    });
    // Viewers do not delay the end.
    runtime.shutdown_background();
    served
}

/// By what scripts are contained. Strangers have virtual machines where these are fast. `machine`
/// is how one would run here, or what it needs.
fn isolation(
    asked: Option<ScriptContainer>,
    has_accounts: bool,
    machine: Result<MachineProcessor, String>,
) -> Result<ScriptIsolation, CommandFailure> {
    Ok(match (asked, machine) {
        (Some(ScriptContainer::Vm), Err(missing)) => {
            return Err(CommandFailure::Usage(format!("{missing}; or give --contain sandbox")));
        }
        (Some(ScriptContainer::Vm), Ok(_)) => ScriptIsolation::VirtualMachine,
        (None, Ok(MachineProcessor::Hardware)) if has_accounts => ScriptIsolation::VirtualMachine,
        (Some(ScriptContainer::Sandbox) | None, _) => ScriptIsolation::Sandbox,
    })
}

/// What is needed for several users, if there are any.
fn account_options(arguments: &LabServeArguments) -> Option<AccountOptions> {
    arguments.accounts.as_ref()?;
    let files = arguments.tls_certificate.clone().zip(arguments.tls_key.clone());
    let encryption = match files {
        Some((certificate, key)) => PageEncryption::Tls(TlsFiles { certificate, key }),
        None if arguments.behind_proxy => PageEncryption::Proxy,
        None => PageEncryption::None,
    };
    let (url, limits) = (arguments.url.clone(), arguments.quotas.limits());
    Some(AccountOptions { url, encryption, limits })
}

fn refused(error: &PanelError) -> CommandFailure {
    match error {
        PanelError::NotLocal(_)
        | PanelError::NotEncrypted(_)
        | PanelError::NoUrl
        | PanelError::OtherKind(..)
        | PanelError::Tls(_)
        | PanelError::InUse(_) => CommandFailure::Usage(error.to_string()),
        _ => CommandFailure::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_virtual_machines_where_these_are_fast_or_asked_for() {
        let chosen = |asked, has_accounts, machine: Result<_, &str>| {
            isolation(asked, has_accounts, machine.map_err(str::to_owned)).ok()
        };
        let [fast, slow] = [MachineProcessor::Hardware, MachineProcessor::Translated].map(Ok);
        let (machine, sandbox) =
            (Some(ScriptIsolation::VirtualMachine), Some(ScriptIsolation::Sandbox));
        assert_eq!(chosen(None, true, fast), machine);
        assert_eq!(chosen(None, true, slow), sandbox);
        assert_eq!(chosen(None, true, Err("no QEMU")), sandbox);
        assert_eq!(chosen(None, false, fast), sandbox);
        assert_eq!(chosen(Some(ScriptContainer::Vm), false, slow), machine);
        assert_eq!(chosen(Some(ScriptContainer::Vm), true, Err("no QEMU")), None);
        assert_eq!(chosen(Some(ScriptContainer::Sandbox), true, fast), sandbox);
    }
}

//! `sunder lab user`: the accounts of a page for several users.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use accounts::{AccountName, AccountStore, AccountStoreError, AccountSummary, now};
use clap::Subcommand;
use console::CommandFailure;

/// Invites, lists and removes users of the page with accounts.
///
/// On the machine of the server, as the user who runs it. The server may run meanwhile.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example: sunder lab user invite alice --accounts /var/lib/sunder-lab"
)]
pub(super) struct LabUserArguments {
    #[command(subcommand)]
    command: LabUserCommand,
}

#[derive(Subcommand)]
enum LabUserCommand {
    Invite(LabUserInviteArguments),
    List(LabUserListArguments),
    Remove(LabUserRemoveArguments),
}

/// Invites a person to a new account, or to choose another password.
///
/// Prints an address for this person. They open it within 3 days and choose a password, once. An
/// earlier invitation of the same name is not valid any more. Until then an existing account keeps
/// its password.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab user invite alice --accounts /var/lib/sunder-lab")]
struct LabUserInviteArguments {
    /// The name: lower-case letters, digits and hyphens
    name: AccountName,
    /// The directory of `sunder lab serve --accounts`
    #[arg(long, value_name = "DIR")]
    accounts: PathBuf,
}

/// Lists the accounts.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab user list --accounts /var/lib/sunder-lab")]
struct LabUserListArguments {
    /// The directory of `sunder lab serve --accounts`
    #[arg(long, value_name = "DIR")]
    accounts: PathBuf,
    /// Print one JSON document on standard output: `id`, `name`, `has_password`, `invited_until`
    /// (seconds since 1970) and `sessions` of each
    #[arg(long)]
    json: bool,
}

/// Removes an account with its runs.
///
/// Its sessions end at once. The server removes its runs from the disk within seconds, or when it
/// starts.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab user remove alice --accounts /var/lib/sunder-lab")]
struct LabUserRemoveArguments {
    /// The name
    name: AccountName,
    /// The directory of `sunder lab serve --accounts`
    #[arg(long, value_name = "DIR")]
    accounts: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// If the accounts cannot be read or written, or there is none of the name.
pub(super) fn run(arguments: &LabUserArguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        LabUserCommand::Invite(LabUserInviteArguments { name, accounts }) => invite(name, accounts),
        LabUserCommand::List(LabUserListArguments { accounts, json }) => list(accounts, *json),
        LabUserCommand::Remove(LabUserRemoveArguments { name, accounts }) => remove(name, accounts),
    }
}

fn invite(name: &AccountName, directory: &Path) -> Result<(), CommandFailure> {
    let mut store = open(directory)?;
    let page = panel::page_of(directory)
        .map_err(|error| CommandFailure::Failed(format!("{}: {error}", directory.display())))?;
    let page = page.ok_or_else(|| no_server(directory))?;
    let secret = store.invite(name, now()).map_err(failed)?;
    // The part after `#` stays in the browser, so no log of a proxy has it.
    console::print_line(&format!("{page}/#/invitation/{name}/{}", secret.as_str()))
}

fn list(directory: &Path, json: bool) -> Result<(), CommandFailure> {
    let accounts = open(directory)?.list(now()).map_err(failed)?;
    if json {
        return console::print_json(&accounts);
    }
    accounts.iter().try_for_each(|account| console::print_line(&line(account)))
}

fn line(account: &AccountSummary) -> String {
    let AccountSummary { name, has_password, invited_until, sessions, .. } = account;
    let state = match (has_password, sessions) {
        (false, _) => "has not accepted yet".to_owned(),
        (true, 0) => "not signed in".to_owned(),
        (true, 1) => "signed in once".to_owned(),
        (true, sessions) => format!("signed in {sessions} times"),
    };
    let invited = invited_until.map(|until| {
        let until = UNIX_EPOCH + Duration::from_secs(until);
        format!(", invited until {}", humantime::format_rfc3339_seconds(until))
    });
    format!("{name}: {state}{}", invited.unwrap_or_default())
}

fn remove(name: &AccountName, directory: &Path) -> Result<(), CommandFailure> {
    match open(directory)?.remove(name).map_err(failed)? {
        Some(_) => Ok(()),
        None => Err(CommandFailure::Usage(format!(
            "there is no account {name}: see `sunder lab user list --accounts {}`",
            directory.display()
        ))),
    }
}

/// Opens the accounts of a directory that a server has used: a wrong name creates none.
fn open(directory: &Path) -> Result<AccountStore, CommandFailure> {
    if !directory.join("accounts.sqlite").exists() {
        return Err(no_server(directory));
    }
    AccountStore::open(directory).map_err(failed)
}

fn no_server(directory: &Path) -> CommandFailure {
    let directory = directory.display();
    CommandFailure::Usage(format!(
        "{directory} has no accounts: start `sunder lab serve --accounts {directory}` first"
    ))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: AccountStoreError) -> CommandFailure {
    CommandFailure::Failed(error.to_string())
}

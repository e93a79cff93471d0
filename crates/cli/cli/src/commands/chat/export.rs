//! `sunder chat export`, `import` and `found`: the list of a group's members, for an administrator
//! or a proxy that has lost it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use console::CommandFailure;
use keys::storage;
use mix::chat::{self, ChatCommand, ChatEvent, ChatSession};
use mix::membership::MAX_ANNOUNCEMENT_LEN;

use super::{failed, load};

/// Writes the newest list of the group's members to a file.
///
/// Any member can do this. The file has no secrets, but shows the members' keys. Names are
/// encrypted. An administrator that has lost its state imports it: sunder chat import. While a chat
/// runs with the same configuration, end it first.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder chat export --config bob.toml --out friends.members")]
pub(super) struct ExportArguments {
    /// The configuration of the chat
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Takes over a list of members that another member has exported, if it is newer.
///
/// For an administrator that has lost its state, when the proxy has lost it too, and for members of
/// a proxy that has moved away. The list is signed by an administrator of the group.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder chat import --config alice.toml friends.members")]
pub(super) struct ImportArguments {
    /// The configuration of the chat
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The exported list
    #[arg(value_name = "FILE")]
    members: PathBuf,
}

/// Begins the group anew, without members, if its state is lost everywhere.
///
/// `sunder chat init` does this for a new group. If a member or the proxy still has the list of
/// members, do not found the group again: start the chat, or import the list.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder chat found --config alice.toml")]
pub(super) struct FoundArguments {
    /// The configuration of the founder
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// # Errors
/// If the state is in use, has no epoch, or the file cannot be written.
pub(super) fn export(arguments: &ExportArguments) -> Result<(), CommandFailure> {
    let event = run(&arguments.config, ChatCommand::Export)?;
    let ChatEvent::Exported(exported) = event else {
        return Err(CommandFailure::Failed("the chat has ended".into()));
    };
    let shown = arguments.out.display();
    let written = storage::create(&arguments.out, &exported, 0o600);
    written.map_err(|error| CommandFailure::Failed(format!("cannot write {shown}: {error}")))?;
    console::note(&format!("{shown} is written"));
    Ok(())
}

/// # Errors
/// If the list is not of this group, or not newer than the one that the chat has.
pub(super) fn import(arguments: &ImportArguments) -> Result<(), CommandFailure> {
    let mut exported = Vec::new();
    let max = MAX_ANNOUNCEMENT_LEN as u64 + 1;
    let shown = arguments.members.display();
    File::open(&arguments.members)
        .and_then(|file| file.take(max).read_to_end(&mut exported))
        .map_err(|error| CommandFailure::Failed(format!("cannot read {shown}: {error}")))?;
    run(&arguments.config, ChatCommand::Import(exported))?;
    let config = arguments.config.display();
    console::note(&format!("the members are imported: sunder chat --config {config}"));
    Ok(())
}

/// # Errors
/// If the configuration is not the founder's, or there is a state.
pub(super) fn found(arguments: &FoundArguments) -> Result<(), CommandFailure> {
    let config = load(&arguments.config)?;
    chat::found_group(&config).map_err(|error| failed(&error))?;
    let shown = arguments.config.display();
    console::note(&format!("the group begins with the next chat: sunder chat --config {shown}"));
    Ok(())
}

/// Runs one command, and returns its answer.
fn run(config: &Path, command: ChatCommand) -> Result<ChatEvent, CommandFailure> {
    let config = load(config)?;
    let (sender, events) = channel();
    let report = move |event| sender.send(event).map_err(|_| "the command is done".into());
    let (session, _) = ChatSession::start(&config, None, report).map_err(|error| failed(&error))?;
    session.send_command(command);
    for event in events {
        match event {
            ChatEvent::Exported(_) | ChatEvent::Done(_) => return Ok(event),
            ChatEvent::NotDone(why) | ChatEvent::Ended { why: Some(why) } => {
                return Err(CommandFailure::Failed(why));
            }
            _ => {}
        }
    }
    Err(CommandFailure::Failed("the chat has ended".into()))
}

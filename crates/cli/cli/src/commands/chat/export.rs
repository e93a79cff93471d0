//! `sunder chat export`, `import` and `found`: the list of a group's members, for an administrator
//! or a proxy that has lost it.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

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
///
/// If two administrators who did not know of each other have changed who the administrators are,
/// the group has two lists, and each chat refuses the other one. Ask the administrators which list
/// is valid. --replace makes this chat follow the other one: it shows the difference, and asks.
#[derive(clap::Args)]
#[command(
    after_help = "Examples: sunder chat import --config alice.toml friends.members\n          \
                        sunder chat import --config alice.toml --replace bob.members"
)]
pub(super) struct ImportArguments {
    /// The configuration of the chat
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Follow this list in place of another one that does not come from it
    #[arg(long)]
    replace: bool,
    /// With --replace: do not ask
    #[arg(long, requires = "replace")]
    yes: bool,
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
    let event = CommandSession::start(&arguments.config)?.run(ChatCommand::Export)?;
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
/// If the list is not of this group, not newer than the one that the chat has, or, with --replace,
/// cannot be followed in its place.
pub(super) fn import(arguments: &ImportArguments) -> Result<(), CommandFailure> {
    let mut exported = Vec::new();
    let max = MAX_ANNOUNCEMENT_LEN as u64 + 1;
    let shown = arguments.members.display();
    File::open(&arguments.members)
        .and_then(|file| file.take(max).read_to_end(&mut exported))
        .map_err(|error| CommandFailure::Failed(format!("cannot read {shown}: {error}")))?;
    let session = CommandSession::start(&arguments.config)?;
    if arguments.replace {
        let compared = session.run(ChatCommand::CompareList(exported.clone()))?;
        let ChatEvent::ListCompared(difference) = compared else {
            return Err(CommandFailure::Failed("the lists are not compared".into()));
        };
        for line in difference.to_string().lines() {
            console::print_line(line)?;
        }
        if !arguments.yes && !agrees()? {
            return Err(CommandFailure::Failed("nothing is replaced".into()));
        }
        session.run(ChatCommand::ReplaceList(exported))?;
    } else {
        session.run(ChatCommand::Import(exported))?;
    }
    session.end();
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

/// Asks whether this chat follows the other list.
fn agrees() -> Result<bool, CommandFailure> {
    if !io::stdin().is_terminal() {
        let message = "standard input is not a terminal: read the difference, and add --yes";
        return Err(CommandFailure::Usage(message.into()));
    }
    let question = "Follow the other list? Messages to those who are not in it are dropped. [y/N] ";
    let mut answer = String::new();
    let asked = io::stderr().write_all(question.as_bytes());
    let read = asked.and_then(|()| io::stdin().read_line(&mut answer));
    read.map_err(|error| CommandFailure::Failed(format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A chat that runs for some commands, without a connection.
struct CommandSession {
    session: ChatSession,
    events: Receiver<ChatEvent>,
}

impl CommandSession {
    fn start(config: &Path) -> Result<Self, CommandFailure> {
        let config = load(config)?;
        let (sender, events) = channel();
        let report = move |event| sender.send(event).map_err(|_| "the command is done".into());
        let started = ChatSession::start_for_commands(&config, report);
        Ok(Self { session: started.map_err(|error| failed(&error))?, events })
    }

    /// Runs a command, and returns its answer.
    fn run(&self, command: ChatCommand) -> Result<ChatEvent, CommandFailure> {
        self.session.send_command(command);
        for event in &self.events {
            match event {
                ChatEvent::Exported(_) | ChatEvent::ListCompared(_) | ChatEvent::Done(_) => {
                    return Ok(event);
                }
                ChatEvent::NotDone(why) | ChatEvent::Ended { why: Some(why) } => {
                    return Err(CommandFailure::Failed(why));
                }
                ChatEvent::Warning(why) => console::warning(&why),
                _ => {}
            }
        }
        Err(CommandFailure::Failed("the chat has ended".into()))
    }

    /// Ends the chat. It has perhaps compared the keys of members since, and does not report that
    /// again.
    fn end(self) {
        drop(self.session);
        for event in self.events.try_iter() {
            if let ChatEvent::Warning(why) = event {
                console::warning(&why);
            }
        }
    }
}

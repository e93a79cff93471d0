//! `sunder chat invite`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use console::CommandFailure;
use keys::storage;
use mix::chat::{self, ChatEvent, ChatSession};
use mix::membership::MemberName;

use super::{failed, files, load};

/// Makes an invitation for a person, as a group's administrator.
///
/// Give it to this person only, over a private channel: anyone who has it can join in their place.
/// It is valid once, for a week. The person can join only while you are in the chat. While a chat
/// runs with the same configuration, write /invite NAME there instead.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder chat invite --config alice.toml --out bob.invitation bob
The person then runs: sunder chat join bob.invitation --config bob.toml")]
pub(super) struct Arguments {
    /// The configuration of the administrator
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The file to write, which only you can read
    #[arg(long, value_name = "FILE", required_unless_present = "print")]
    out: Option<PathBuf>,
    /// Print the invitation instead, for another program
    #[arg(long, conflicts_with = "out")]
    print: bool,
    /// Let the person join with another name
    #[arg(long)]
    any_name: bool,
    /// The person's name
    #[arg(value_parser = files::parse_name)]
    name: MemberName,
}

/// Makes the invitation and prints it.
///
/// # Errors
/// If this is not the administrator, or the state is in use.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let config = load(&arguments.config)?;
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(CommandFailure::Usage(exists(path)));
    }
    let (sender, events) = channel();
    let report = move |event| sender.send(event).map_err(|_| "the invitation is made".into());
    let session =
        ChatSession::start_for_commands(&config, report).map_err(|error| failed(&error))?;
    let name = arguments.name.clone();
    session.send_command(if arguments.any_name {
        chat::ChatCommand::InviteAnyName(name)
    } else {
        chat::ChatCommand::Invite(name)
    });
    let mut invited = Err(CommandFailure::Failed("the chat has ended".into()));
    for event in &events {
        match event {
            ChatEvent::Invitation { code, .. } => invited = hand_out(arguments, &code),
            ChatEvent::NotDone(why) | ChatEvent::Ended { why: Some(why) } => {
                invited = Err(CommandFailure::Failed(why));
            }
            ChatEvent::Warning(why) => {
                console::warning(&why);
                continue;
            }
            _ => continue,
        }
        break;
    }
    // It has perhaps compared the keys of members since, and does not report that again.
    drop(session);
    for event in events.try_iter() {
        if let ChatEvent::Warning(why) = event {
            console::warning(&why);
        }
    }
    invited
}

/// Writes or prints the invitation.
fn hand_out(arguments: &Arguments, code: &str) -> Result<(), CommandFailure> {
    let Some(path) = &arguments.out else { return console::print(code.as_bytes()) };
    write_invitation(path, code).map_err(CommandFailure::Failed)?;
    let name = &arguments.name;
    console::note(&format!("{} is written: give it to {name} only", path.display()));
    Ok(())
}

/// Writes an invitation to a new file that only its owner can read.
///
/// # Errors
/// The error message, if the file exists or cannot be written.
pub(super) fn write_invitation(path: &Path, code: &str) -> Result<(), String> {
    let text = format!("{}\n", code.trim_end());
    storage::create(path, text.as_bytes(), 0o600).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => format!("cannot write {}: {error}", path.display()),
    })
}

fn exists(path: &Path) -> String {
    format!("{} exists: move it away, or choose another name", path.display())
}

//! `sunder chat invite`.

use std::path::PathBuf;
use std::sync::mpsc::channel;

use console::CommandFailure;
use mix::chat::{self, ChatEvent, ChatSession};
use mix::membership::MemberName;

use super::{failed, files, load};

/// Prints an invitation for a person, as a group's administrator.
///
/// Give it to this person only, over a private channel: anyone who has it can join in their place.
/// It is valid once, for a week. The person can join only while you are in the chat. While a chat
/// runs with the same configuration, write /invite NAME there instead.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder chat invite --config alice.toml bob")]
pub(super) struct Arguments {
    /// The configuration of the administrator
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
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
    let (sender, events) = channel();
    let report = move |event| sender.send(event).map_err(|_| "the invitation is made".into());
    let (session, _) = ChatSession::start(&config, None, report).map_err(|error| failed(&error))?;
    session.send_command(chat::ChatCommand::Invite(arguments.name.clone()));
    for event in events {
        match event {
            ChatEvent::Invitation(code) => return console::print(code.as_bytes()),
            ChatEvent::NotDone(why) | ChatEvent::Ended { why: Some(why) } => {
                return Err(CommandFailure::Failed(why));
            }
            _ => {}
        }
    }
    Err(CommandFailure::Failed("the chat has ended".into()))
}

//! `sunder chat join`.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc::channel;

use console::CommandFailure;
use mix::chat::{ChatConfig, ChatEvent, ChatSession};
use mix::membership::{GroupAddress, Invitation, MemberName};
use zeroize::Zeroizing;

use super::{ChatEventSender, ChatUiEvent, failed, files, load, stop_on_signals};

/// The longest text of an invitation.
const MAX_CODE_LEN: usize = 4096;

/// What an invitation begins with.
const PREFIX: &str = "sunder-mix-";

/// Joins a group with an invitation of its administrator.
///
/// Writes a configuration and a key, and waits until the administrator, who must be in the chat,
/// has admitted you. If it is stopped before, the same command continues.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder chat join bob.invitation --config bob.toml
Then: sunder chat --config bob.toml
The invitation itself can be given instead of a file, but it is then in the
history of the shell and in the list of processes.")]
pub(super) struct Arguments {
    /// The file with the invitation; `-` for standard input
    #[arg(value_name = "FILE")]
    invitation: String,
    /// Your name in the group [default: the one in the invitation]
    #[arg(long, value_name = "NAME", value_parser = files::parse_name)]
    name: Option<MemberName>,
    /// The configuration to write
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Connect through this SOCKS5 proxy, such as Tor's: 127.0.0.1:9050
    #[arg(long, value_name = "HOST:PORT", value_parser = files::parse_address)]
    socks: Option<String>,
}

/// Writes the files, if they do not exist, and joins.
///
/// # Errors
/// If the invitation is none, or the administrator refuses.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let invitation = Invitation::parse(&code(&arguments.invitation)?)
        .map_err(|error| CommandFailure::Usage(error.to_string()))?;
    if !arguments.config.exists() {
        let key = files::file(&arguments.config, "key");
        if !key.exists() {
            files::write_key(&arguments.config)?;
        }
        let name = arguments.name.as_ref().unwrap_or(invitation.name());
        let socks = arguments.socks.as_deref();
        files::write_config(&arguments.config, name, invitation.group(), socks)?;
    }
    let config = load(&arguments.config)?;
    check_config(arguments, &config, invitation.group())?;
    service::log::start(console::wants_colour(&io::stderr()))?;
    let (sender, inputs) = channel::<ChatUiEvent<()>>();
    stop_on_signals(sender.clone())?;
    let events = ChatEventSender(sender);
    let report = move |event| events.send_event(event);
    let (_session, _) =
        ChatSession::start(&config, Some(invitation), report).map_err(|error| failed(&error))?;
    console::note("waiting for the administrator, who must be in the chat");
    for input in inputs {
        match input {
            ChatUiEvent::Stop => {
                let what = "stopped; run the same command to continue";
                return Err(CommandFailure::Failed(what.into()));
            }
            ChatUiEvent::Event(ChatEvent::Ended { why }) => {
                return Err(CommandFailure::Failed(
                    why.unwrap_or_else(|| "the chat has ended".into()),
                ));
            }
            // It will not be reported again: the chat knows then what it says of members.
            ChatUiEvent::Event(
                ChatEvent::Disconnected { why, .. }
                | ChatEvent::Warning(why)
                | ChatEvent::NotDone(why),
            ) => console::warning(&why),
            ChatUiEvent::Event(ChatEvent::Status(status))
                // Without a connection, the epoch is that of a state of before.
                if status.epoch > 0
                    && status.waiting_for.is_none()
                    && !status.has_notices_waiting =>
            {
                let shown = arguments.config.display();
                let group = &config.group;
                let text =
                    format!("you are {} in {group}: sunder chat --config {shown}", status.name);
                return console::print_line(&text);
            }
            ChatUiEvent::Event(_) | ChatUiEvent::Person(()) => {}
        }
    }
    Err(CommandFailure::Failed("the chat has ended".into()))
}

/// Checks that a configuration that has existed before is what the arguments ask for.
fn check_config(
    arguments: &Arguments,
    config: &ChatConfig,
    group: &GroupAddress,
) -> Result<(), CommandFailure> {
    let (name, socks) = (&arguments.name, &arguments.socks);
    let wrong = if config.address() != *group {
        "belongs to another group: choose another name with --config".to_owned()
    } else if let Some(name) = name.as_ref().filter(|name| **name != config.name) {
        format!("exists, with another name than {name}: set name there, or leave out --name")
    } else if let Some(socks) = socks.as_ref().filter(|_| *socks != config.socks) {
        format!("exists, without socks = \"{socks}\": set it there, or leave out --socks")
    } else {
        return Ok(());
    };
    Err(CommandFailure::Usage(format!("{} {wrong}", arguments.config.display())))
}

fn code(argument: &str) -> Result<Zeroizing<String>, CommandFailure> {
    let mut code = Zeroizing::new(String::with_capacity(2 * MAX_CODE_LEN));
    if argument.starts_with(PREFIX) {
        code.push_str(argument);
        return Ok(code);
    }
    let max = MAX_CODE_LEN as u64;
    let (read, from) = match argument {
        "-" => (io::stdin().lock().take(max).read_to_string(&mut code), "standard input"),
        path => (File::open(path).and_then(|it| it.take(max).read_to_string(&mut code)), path),
    };
    read.map_err(|error| CommandFailure::Failed(format!("cannot read {from}: {error}")))?;
    Ok(code)
}

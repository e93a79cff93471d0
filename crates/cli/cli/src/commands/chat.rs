//! `sunder chat`: a chat in which the proxy does not learn who talks to whom.

mod command;
mod conversation;
mod draw;
mod export;
mod files;
mod input;
mod invite;
mod join;
mod lines;
mod person;
mod plain;
mod rows;
mod screen;
mod stdin;
mod terminal;
mod wrap;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;

use clap::Subcommand;
use console::CommandFailure;
use keys::file::exposure;
use mix::chat::{ChatConfig, ChatError, ChatEvent};
use service::config::ConfigProblems;
use service::signals::StopSignals;

use crate::commands::load_config_file;
use crate::daemon;

/// A complete configuration, shown by `--help`.
const EXAMPLE: &str = include_str!("chat.toml");

/// Chats in a group; nobody outside learns who talks to whom.
///
/// All members send messages of the same length at the same times to one proxy (`sunder mix`), even
/// if they have nothing to say. The proxy learns who takes part, but not who writes to whom,
/// whatever it does. If it cooperates with members, they learn only about messages from and to
/// these members. (With another `engine` than "broadcast", this holds only if the proxy follows the
/// protocol and cooperates with nobody.) Messages are encrypted end to end.
///
/// In the terminal, `@NAME TEXT` sends TEXT to a member, `@all TEXT` to all, and the Tab key
/// completes names; /help lists the commands, Ctrl-C ends the chat. Messages are sent only if at
/// least `least_anonymity` members could read them: all members of the group if the proxy keeps
/// rounds, otherwise those that took part in the last round. docs/guides/chat.md shows how to set
/// up a group.
#[derive(clap::Args)]
#[command(
    after_help = help(),
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Read lines from standard input and write lines to standard output, for scripts
    #[arg(long)]
    plain: bool,
    /// Append what happens as sentences, for screen readers: nothing is drawn
    #[arg(long, conflicts_with = "plain")]
    lines: bool,
    /// How many rounds to stay after the end of the input, whether the messages have arrived or not
    ///
    /// It replaces `stay` in the configuration, which is 100 by default. If the chat left when a
    /// message arrived, that moment would tell the proxy who received it.
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stay: Option<u64>,
    #[command(subcommand)]
    command: Option<ChatSubcommand>,
}

#[derive(Subcommand)]
enum ChatSubcommand {
    Init(Box<files::ChatInitArguments>),
    Invite(invite::Arguments),
    Join(join::Arguments),
    Export(export::ExportArguments),
    Import(export::ImportArguments),
    Found(export::FoundArguments),
}

fn help() -> String {
    format!(
        "Example: sunder chat --config alice.toml, with this in alice.toml\n\n{EXAMPLE}\n\
         `sunder chat init` and `sunder chat join` write such a file, and the key.\n\
         Further settings: transport, socks, least_anonymity, history, files, stay,\n\
         engine, rounds_kept, max_mb_per_day, max_terms_change."
    )
}

/// Runs the chat, or the subcommand.
///
/// # Errors
/// If the configuration is wrong, something that it names cannot be used, or the chat fails.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match (&arguments.command, &arguments.config) {
        (Some(ChatSubcommand::Init(arguments)), _) => files::init(arguments),
        (Some(ChatSubcommand::Invite(arguments)), _) => invite::run(arguments),
        (Some(ChatSubcommand::Join(arguments)), _) => join::run(arguments),
        (Some(ChatSubcommand::Export(arguments)), _) => export::export(arguments),
        (Some(ChatSubcommand::Import(arguments)), _) => export::import(arguments),
        (Some(ChatSubcommand::Found(arguments)), _) => export::found(arguments),
        (None, Some(config)) => {
            let mut config = load(config)?;
            config.stay = arguments.stay.unwrap_or(config.stay);
            match (arguments.plain, arguments.lines) {
                (true, _) => plain::run(&config),
                (_, true) => lines::run(&config),
                _ => talk(&config),
            }
        }
        (None, None) => Err(CommandFailure::Usage("--config is missing".into())),
    }
}

fn talk(config: &ChatConfig) -> Result<(), CommandFailure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let message =
            "standard input and output are not a terminal: use --plain for scripts, or --lines";
        return Err(CommandFailure::Usage(message.into()));
    }
    terminal::run(config)
}

/// Reads the configuration of a chat.
///
/// # Errors
/// If it is wrong.
fn load(path: &Path) -> Result<ChatConfig, CommandFailure> {
    let parse = |text: &str| -> Result<ChatConfig, ConfigProblems> {
        Ok(ChatConfig {
            config_dir: daemon::config_dir(path).to_owned(),
            ..ChatConfig::from_toml(text)?
        })
    };
    let config = load_config_file("chat", path, parse)?;
    if let Some(error) = exposure(&config.config_dir.join(&config.identity)) {
        let (what, fix) = (error.problem(), error.advice());
        console::warning(&format!("identity: {what}, and so impersonate you: {fix}"));
    }
    Ok(config)
}

/// What the parts of a chat send to its user interface.
#[expect(clippy::large_enum_variant, reason = "nearly all are events of the chat")]
enum ChatUiEvent<K> {
    Event(ChatEvent),
    /// Of a person: a key, or a line.
    Person(K),
    /// A signal has arrived, or the terminal is gone.
    Stop,
}

/// Sends events to the user interface. Dropping it ends the chat, even if the sending thread
/// panics.
struct ChatEventSender<K>(Sender<ChatUiEvent<K>>);

impl<K> ChatEventSender<K> {
    /// # Errors
    /// When the user interface has ended.
    fn send_event(&self, event: ChatEvent) -> Result<(), String> {
        self.0.send(ChatUiEvent::Event(event)).map_err(|_| "the chat is not shown any more".into())
    }
}

impl<K> Drop for ChatEventSender<K> {
    fn drop(&mut self) {
        // Nobody takes it if the chat has reported its end.
        let why = Some("it has ended without a reason".into());
        let _ = self.send_event(ChatEvent::Ended { why });
    }
}

/// From now on SIGINT and SIGTERM end the chat in order.
fn stop_on_signals<K: Send + 'static>(
    inputs: Sender<ChatUiEvent<K>>,
) -> Result<(), CommandFailure> {
    let runtime = service::runtime()?;
    let mut signals = runtime.block_on(async { StopSignals::listen() })?;
    let waiting = move || {
        runtime.block_on(signals.next());
        let _ = inputs.send(ChatUiEvent::Stop);
        // A second one need not wait for anything.
        runtime.block_on(signals.next());
        terminal::restore_before_exit();
        std::process::exit(1);
    };
    spawn("signals", waiting)
}

/// Runs work in a thread of its own.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), CommandFailure> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(drop).map_err(|error| CommandFailure::Failed(format!("no threads: {error}")))
}

fn failed(error: &ChatError) -> CommandFailure {
    match error {
        ChatError::Identity(_) => CommandFailure::Usage(error.to_string()),
        _ => CommandFailure::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use mix::chat::KEYS;

    use super::*;
    use crate::daemon::tests::names;

    const GUIDE: &str = include_str!("../../../../../docs/guides/chat.md");

    #[test]
    fn the_example_is_a_configuration() {
        let config = ChatConfig::from_toml(EXAMPLE).unwrap();
        assert_eq!((config.name.as_str(), config.least_anonymity), ("alice", 3));
    }

    #[test]
    fn help_and_guide_name_every_setting() {
        for name in KEYS.names("") {
            assert!(names(&help(), name), "{name} is not in --help");
            assert!(GUIDE.contains(&format!("`{name}`")), "{name}: not in the guide");
        }
    }
}

//! The chat for scripts: lines in, lines out. docs/guides/chat.md lists them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::mpsc::channel;

use console::CommandFailure;
use console::{self, is_deceptive};
use mix::MixClientEvent;
use mix::chat::{
    self, ChatConfig, ChatContactList, ChatEvent, ChatSession, ContactTrust, MixClientStatus,
    QueuedMessage,
};

use super::command::{ChatInputCommand, HELP};
use super::person::{cancelled_text, read_file, session_command};
use super::stdin::{MAX_LINE, StdinLine, send_lines};
use super::{ChatEventSender, ChatUiEvent, failed, spawn, stop_on_signals};

/// The most messages that wait until there are exchanges.
const MAX_HELD: usize = 1_000;

/// A message that was entered.
#[derive(Clone)]
struct HeldChatMessage {
    to: String,
    content: HeldChatContent,
}

/// The content of a message that was entered.
#[derive(Clone)]
enum HeldChatContent {
    Text(String),
    File { name: String, content: Vec<u8> },
}

impl HeldChatMessage {
    /// The command that sends it.
    fn command(self) -> chat::ChatCommand {
        let to = self.to;
        match self.content {
            HeldChatContent::Text(text) => chat::ChatCommand::Say { to, text },
            HeldChatContent::File { name, content } => {
                chat::ChatCommand::SendFile { to, name, content }
            }
        }
    }
}

/// The state of the conversation with the script.
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
struct PlainChat<'a> {
    session: &'a ChatSession,
    anonymity: usize,
    members: Vec<String>,
    contacts: ChatContactList,
    partner: Option<String>,
    /// Messages that wait until there are exchanges, by when they were entered.
    held: BTreeMap<u64, HeldChatMessage>,
    entered: u64,
    /// What was asked for and not answered: a message, and when it was entered, or another
    /// command.
    pending_requests: VecDeque<Option<(u64, HeldChatMessage)>>,
    /// Whether enough members have taken part.
    has_begun: bool,
    /// Whether there are no exchanges now.
    is_waiting: bool,
    /// The messages that were taken and not delivered.
    undelivered: BTreeSet<u64>,
    has_input: bool,
    has_ended: bool,
    /// Whether a signal has come.
    is_stopped: bool,
    /// Why nothing is written any more.
    closed: Option<CommandFailure>,
}

/// Talks with a script, until it has ended and the rounds of the configuration are over, or a
/// signal arrives.
///
/// # Errors
/// If the chat cannot begin, or fails, or a message has not arrived.
pub(super) fn run(config: &ChatConfig) -> Result<(), CommandFailure> {
    service::log::start(console::wants_colour(&io::stderr()))?;
    let (sender, inputs) = channel();
    stop_on_signals(sender.clone())?;
    let events = ChatEventSender(sender.clone());
    let report = move |event| match event {
        // At once: it counts as shown when this returns, and is not shown again.
        ChatEvent::Message { ref from, trust, ref text } => {
            message(from, trust, text).map_err(|_| "standard output is closed".into())
        }
        // Before the message that it is about.
        ChatEvent::Warning(ref text) => {
            warning(text).map_err(|_| "standard output is closed".into())
        }
        event => events.send_event(event),
    };
    let (session, _) = ChatSession::start(config, None, report).map_err(|error| failed(&error))?;
    spawn("input", move || send_lines(&sender))?;
    let mut plain = PlainChat {
        session: &session,
        anonymity: 0,
        members: Vec::new(),
        contacts: ChatContactList::default(),
        partner: None,
        held: BTreeMap::new(),
        entered: 0,
        pending_requests: VecDeque::new(),
        has_begun: false,
        is_waiting: true,
        undelivered: BTreeSet::new(),
        has_input: false,
        has_ended: false,
        is_stopped: false,
        closed: None,
    };
    while let Ok(input) = inputs.recv() {
        let taken = match input {
            ChatUiEvent::Stop if plain.is_stopped => return Ok(()),
            ChatUiEvent::Stop => {
                plain.is_stopped = true;
                session.send_command(chat::ChatCommand::Stop);
                Ok(())
            }
            ChatUiEvent::Event(ChatEvent::Ended { why }) => return plain.ended(why),
            ChatUiEvent::Event(event) => plain.handle_event(event),
            ChatUiEvent::Person(StdinLine::Line(line)) => plain.handle_line(&line),
            ChatUiEvent::Person(StdinLine::TooLong) => {
                print(&format!("warning a line has more than {MAX_LINE} bytes: it is ignored"))
            }
            ChatUiEvent::Person(StdinLine::End) => {
                plain.has_ended = true;
                plain.finish();
                Ok(())
            }
        };
        if let Err(failure) = taken {
            // Who reads has gone, perhaps because of a message: the proxy must not see that.
            plain.closed.get_or_insert(failure);
            session.send_command(chat::ChatCommand::Finish);
        }
    }
    Ok(())
}

impl PlainChat<'_> {
    /// Has the chat end by itself when the script has sent something and has ended.
    fn finish(&self) {
        if self.has_ended && self.has_input {
            self.session.send_command(chat::ChatCommand::Finish);
        }
    }

    /// The chat has ended.
    fn ended(self, why: Option<String>) -> Result<(), CommandFailure> {
        for HeldChatMessage { to, .. } in self.held.values().filter(|_| self.closed.is_none()) {
            print(&format!("refused {to} too few members took part in the last rounds"))?;
        }
        match (why, self.undelivered.len()) {
            (Some(why), _) => Err(CommandFailure::Failed(why)),
            (None, 0) if self.held.is_empty() => self.closed.map_or(Ok(()), Err),
            (None, _) if self.is_stopped => Ok(()),
            (None, 0) => Err(CommandFailure::Failed("not all messages were accepted".into())),
            (None, count) => Err(CommandFailure::Failed(format!(
                "{count} messages have not been acknowledged: they are kept, and sent in the next \
                 run; --stay ROUNDS stays longer"
            ))),
        }
    }

    /// Takes a line.
    fn handle_line(&mut self, line: &str) -> Result<(), CommandFailure> {
        let command = match ChatInputCommand::parse(line, self.partner.as_deref()) {
            Err(wrong) => return warning(&wrong),
            Ok(None) => return Ok(()),
            Ok(Some(command)) => command,
        };
        self.has_input = true;
        match command {
            ChatInputCommand::Say { to, text } => {
                self.partner = Some(to.clone());
                self.hold(to, HeldChatContent::Text(unescaped(&text)))?;
            }
            ChatInputCommand::SpeakTo(name) => self.partner = Some(name),
            ChatInputCommand::Members => print(&members("members", &self.members))?,
            ChatInputCommand::Groups => {
                for (name, members) in &self.contacts.groups {
                    print(&format!("group {name} {}", members.join(" ")))?;
                }
            }
            ChatInputCommand::Send { to, path } => match read_file(&path) {
                Ok((name, content)) => self.hold(to, HeldChatContent::File { name, content })?,
                Err(why) => print(&format!("refused {to} {}", escaped(&format!("{path}: {why}"))))?,
            },
            ChatInputCommand::Help => print(&format!("note {HELP}"))?,
            ChatInputCommand::Quit => self.session.send_command(chat::ChatCommand::Finish),
            other => match session_command(other) {
                // No event answers these.
                Some(command @ (chat::ChatCommand::Accept(_) | chat::ChatCommand::Decline(_))) => {
                    self.session.send_command(command);
                }
                Some(command) => self.ask(command),
                None => {}
            },
        }
        Ok(())
    }

    fn ask(&mut self, command: chat::ChatCommand) {
        self.pending_requests.push_back(None);
        self.session.send_command(command);
    }

    /// Sends a message, at once or when that is possible.
    fn hold(&mut self, to: String, content: HeldChatContent) -> Result<(), CommandFailure> {
        if self.held.len() >= MAX_HELD {
            return print(&format!("refused {to} too many messages wait"));
        }
        self.entered += 1;
        self.held.insert(self.entered, HeldChatMessage { to, content });
        self.send();
        Ok(())
    }

    /// Asks for the messages that wait, if they can be sent.
    fn send(&mut self) {
        while self.has_begun
            && !self.is_waiting
            && let Some((entered, message)) = self.held.pop_first()
        {
            self.pending_requests.push_back(Some((entered, message.clone())));
            self.session.send_command(message.command());
        }
    }

    /// Writes what has happened.
    fn handle_event(&mut self, event: ChatEvent) -> Result<(), CommandFailure> {
        match event {
            ChatEvent::Connected => print("connected"),
            ChatEvent::Disconnected { why, again_in } => {
                let seconds = again_in.as_secs_f64();
                print(&format!("disconnected {seconds:.1} {}", escaped(&why)))
            }
            ChatEvent::Status(status) => self.status(status),
            ChatEvent::Queued { messages, .. } => {
                self.pending_requests.pop_front();
                messages.into_iter().try_for_each(|QueuedMessage { id, to }| {
                    self.undelivered.insert(id);
                    print(&format!("queued {id} {to}"))
                })
            }
            ChatEvent::NotSent { to, why, is_early, .. } => {
                if let Some(Some((entered, message))) = self.pending_requests.pop_front()
                    && is_early
                {
                    // The exchanges have ended since it was asked for.
                    self.held.insert(entered, message);
                    return Ok(());
                }
                print(&format!("refused {to} {}", escaped(&why)))
            }
            // They are written where they are reported, and only a command of its own asks for an
            // export.
            ChatEvent::Message { .. }
            | ChatEvent::Warning(_)
            | ChatEvent::Ended { .. }
            | ChatEvent::Exported(_)
            | ChatEvent::ListCompared(_) => Ok(()),
            ChatEvent::Client(MixClientEvent::GivenUp { id, to, reason }) => {
                self.undelivered.remove(&id.0);
                print(&format!("undelivered {} {to} {}", id.0, escaped(&reason.to_string())))
            }
            ChatEvent::Client(MixClientEvent::Stored { id, to }) => {
                self.undelivered.remove(&id.0);
                print(&format!("stored {} {to}", id.0))
            }
            ChatEvent::Client(MixClientEvent::Delivered { id, to }) => {
                self.undelivered.remove(&id.0);
                print(&format!("delivered {} {to}", id.0))
            }
            ChatEvent::Client(note) => print(&format!("note {}", escaped(&note.to_string()))),
            ChatEvent::Cancelled(cancelled) => {
                self.pending_requests.pop_front();
                for id in &cancelled.dropped {
                    self.undelivered.remove(&id.0);
                    print(&format!("cancelled {}", id.0))?;
                }
                print(&format!("note {}", cancelled_text(cancelled.dropped.len(), &cancelled.left)))
            }
            ChatEvent::SafetyNumber { name, number, .. } => {
                self.pending_requests.pop_front();
                print(&format!("safety {name} {number}"))
            }
            ChatEvent::Contacts(contacts) => self.contacts_changed(contacts),
            ChatEvent::FileOffered { number, from, trust, name, len } => {
                let from = sender(&from, trust);
                print(&format!("file {number} {from} {len} {}", escaped(&name)))
            }
            ChatEvent::ProxySilent { since } => {
                let seconds = since.as_secs();
                print(&format!("note the proxy has not answered for {seconds} s"))
            }
            ChatEvent::ProxyAnswers => print("note the proxy answers again"),
            ChatEvent::Invitation { code, .. } => {
                self.pending_requests.pop_front();
                print(&format!("invitation {code}"))
            }
            ChatEvent::Done(text) => {
                self.pending_requests.pop_front();
                print(&format!("note {}", escaped(&text)))
            }
            ChatEvent::NotDone(text) => {
                self.pending_requests.pop_front();
                warning(&text)
            }
            ChatEvent::Note(text) => print(&format!("note {}", escaped(&text))),
        }
    }

    fn contacts_changed(&mut self, now: ChatContactList) -> Result<(), CommandFailure> {
        let before = std::mem::replace(&mut self.contacts, now);
        if before.verified == self.contacts.verified {
            return Ok(());
        }
        let verified: Vec<String> = self.contacts.verified.iter().cloned().collect();
        print(&members("verified", &verified))
    }

    fn status(&mut self, now: MixClientStatus) -> Result<(), CommandFailure> {
        if self.members != now.others {
            self.members = now.others;
            print(&members("members", &self.members))?;
        }
        if self.anonymity != now.anonymity_set {
            self.anonymity = now.anonymity_set;
            print(&format!("anonymity {}", self.anonymity))?;
        }
        self.is_waiting = now.waiting_for.is_some();
        self.has_begun |= now.can_send;
        self.send();
        Ok(())
    }
}

fn members(kind: &str, names: &[String]) -> String {
    [&[kind.to_owned()], names].concat().join(" ")
}

/// Writes a message that has arrived.
fn message(from: &str, trust: ContactTrust, text: &str) -> Result<(), CommandFailure> {
    print(&format!("message {} {}", sender(from, trust), escaped(text)))
}

/// The name of a sender, which is no member's name if its key is not trusted.
fn sender(name: &str, trust: ContactTrust) -> String {
    match trust {
        ContactTrust::Changed => format!("?{name}"),
        ContactTrust::Seen | ContactTrust::Verified => name.to_owned(),
    }
}

fn warning(text: &str) -> Result<(), CommandFailure> {
    print(&format!("warning {}", escaped(text)))
}

fn print(line: &str) -> Result<(), CommandFailure> {
    console::print(line.as_bytes())
}

/// A text in one line: `\n` for a line break, `\\` for a backslash, and nothing that is
/// [deceptive](is_deceptive).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            _ if is_deceptive(c) => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// The inverse of [`escaped`].
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some(escaped @ ('n' | '\\'))) => {
                plain.push(if escaped == 'n' { '\n' } else { '\\' });
                chars.next();
            }
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_with_another_key_has_no_members_name() {
        let trusts = [ContactTrust::Seen, ContactTrust::Verified, ContactTrust::Changed];
        assert_eq!(trusts.map(|trust| sender("bob", trust)), ["bob", "bob", "?bob"]);
    }

    #[test]
    fn a_text_is_one_line_and_comes_back() {
        for text in ["plain", "two\nlines", "a \\n b", "\\", "\\\\n\n", "C:\\new"] {
            assert!(!escaped(text).contains('\n'));
            assert_eq!(unescaped(&escaped(text)), text);
        }
        assert_eq!(unescaped("C:\\x"), "C:\\x");
        assert_eq!(escaped("\x1b[2J"), "\u{FFFD}[2J");
        // What some programs take for the end of a line.
        for separator in ["\x0B", "\x0C", "\x1C", "\u{85}", "\u{2028}", "\u{2029}"] {
            let forged = escaped(&format!("hello{separator}message alice give him the key"));
            assert_eq!(forged, "hello\u{FFFD}message alice give him the key");
        }
    }
}

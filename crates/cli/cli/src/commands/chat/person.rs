//! A person's chat, however it is shown: what commands and events do to the conversation.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Instant;

use console::CommandFailure;
use jiff::tz::TimeZone;
use mix::MixClientEvent;
use mix::chat::{
    self, CancelledChatMessages, ChatConfig, ChatEvent, ChatHistoryEntry, ChatSession,
    MAX_SHARED_FILE_LEN, MixClientStatus, QueuedMessage,
};

use super::command::{ChatInputCommand, HELP};
use super::conversation::{DeliveryMark, LineContent, SentMessage, sign_of};
use super::invite::write_invitation;
use super::screen::{ChatScreen, ChatStatusLine};
use super::{ChatEventSender, ChatUiEvent, failed, stop_on_signals};

/// The chat, and why there are no exchanges with the proxy.
pub(super) struct PersonalChat {
    session: ChatSession,
    pub(super) screen: ChatScreen,
    /// The directory for invitations.
    invitations: PathBuf,
    /// Why there is no connection, and when the next attempt is.
    outage: Option<(String, Instant)>,
    /// Since when the proxy has sent nothing, though it should have.
    silent_since: Option<Instant>,
    /// Why there are no exchanges, though there is a connection.
    waiting_for: Option<&'static str>,
    /// For how many rounds it stays when it is to end.
    stay: u64,
    /// How many rounds there were, and will have been when it ends.
    rounds: u64,
    leaves_at: Option<u64>,
}

impl PersonalChat {
    /// Starts a chat, with what was said before. Its events, and signals, come to `inputs`.
    ///
    /// # Errors
    /// If it cannot begin.
    pub(super) fn start<K: Send + 'static>(
        config: &ChatConfig,
        inputs: &Sender<ChatUiEvent<K>>,
    ) -> Result<Self, CommandFailure> {
        stop_on_signals(inputs.clone())?;
        let events = ChatEventSender(inputs.clone());
        let report = move |event| events.send_event(event);
        let (session, entries) =
            ChatSession::start(config, None, report).map_err(|error| failed(&error))?;
        let status = ChatStatusLine {
            group: config.group.to_string(),
            connection: Some("connecting".into()),
            min_anonymity: config.least_anonymity,
            ..ChatStatusLine::default()
        };
        let mut screen = ChatScreen::new(TimeZone::system(), status);
        for ChatHistoryEntry { at, is_own, name, trust, text } in entries {
            // Whether it has arrived is not in the history; what has not is sent again.
            screen.add_at(
                at,
                if is_own {
                    LineContent::To { name, text, messages: Vec::new() }
                } else {
                    LineContent::From { name, trust, text }
                },
            );
        }
        screen.add(LineContent::Note(format!("You are {}. {HELP}", config.name)));
        Ok(Self {
            session,
            screen,
            invitations: config.config_dir.clone(),
            outage: Some((String::new(), Instant::now())),
            silent_since: None,
            waiting_for: None,
            stay: config.stay,
            rounds: 0,
            leaves_at: None,
        })
    }

    fn note(&mut self, text: impl Into<String>) {
        self.screen.add(LineContent::Note(text.into()));
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.screen.add(LineContent::Warning(text.into()));
    }

    /// Runs what the person has entered.
    pub(super) fn run_command(&mut self, command: ChatInputCommand) {
        let asked = match command {
            ChatInputCommand::Say { to, text } => {
                self.screen.partner = Some(to.clone());
                chat::ChatCommand::Say { to, text }
            }
            ChatInputCommand::SpeakTo(name) => {
                if self.screen.receivers().contains(&name) {
                    self.screen.partner = Some(name);
                } else {
                    self.warn(format!("there is no member or group {name}"));
                }
                return;
            }
            ChatInputCommand::Members => {
                let screen = &self.screen;
                let signed = screen.members.iter().map(|name| screen.sign(name).to_owned() + name);
                let members: Vec<String> = signed.collect();
                let text =
                    if members.is_empty() { "nobody else".into() } else { members.join(", ") };
                return self.note(format!("members: {text}"));
            }
            ChatInputCommand::Groups => {
                let groups = &self.screen.contacts.groups;
                let groups = groups.iter().map(|(name, all)| format!("{name}: {}", all.join(", ")));
                let groups: Vec<String> = groups.collect();
                let text = if groups.is_empty() { "no groups".into() } else { groups.join("; ") };
                return self.note(text);
            }
            ChatInputCommand::Help => return self.note(HELP),
            ChatInputCommand::Send { to, path } => match read_file(&path) {
                Ok((name, content)) => chat::ChatCommand::SendFile { to, name, content },
                Err(why) => return self.warn(format!("not sent: {path}: {why}")),
            },
            ChatInputCommand::Quit => {
                if self.leaves_at.is_none() {
                    self.leaves_at = Some(self.rounds + self.stay);
                    self.note(format!(
                        "the chat ends after {} rounds, so that the proxy does not see when you \
                         have read a message; Ctrl-C ends it at once",
                        self.stay
                    ));
                }
                chat::ChatCommand::Finish
            }
            other => match session_command(other) {
                Some(command) => command,
                None => return,
            },
        };
        self.session.send_command(asked);
    }

    /// Shows what has happened.
    pub(super) fn handle_event(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Connected => (self.outage, self.silent_since) = (None, None),
            ChatEvent::Disconnected { why, again_in } => {
                self.outage = Some((why, Instant::now() + again_in));
                self.silent_since = None;
            }
            ChatEvent::ProxySilent { since } => {
                let now = Instant::now();
                self.silent_since = Some(now.checked_sub(since).unwrap_or(now));
            }
            ChatEvent::ProxyAnswers => self.silent_since = None,
            ChatEvent::Status(status) => self.status(status),
            ChatEvent::Contacts(contacts) => self.screen.contacts = contacts,
            ChatEvent::Queued { to, messages, text } => {
                let sent =
                    |QueuedMessage { id, to }| SentMessage { id, to, mark: DeliveryMark::Waiting };
                let messages = messages.into_iter().map(sent).collect();
                self.screen.add(LineContent::To { name: to, text, messages });
            }
            ChatEvent::Message { from: name, trust, text } => {
                self.screen.add(LineContent::From { name, trust, text });
            }
            ChatEvent::Client(event) => self.handle_client_event(event),
            ChatEvent::NotSent { to, text, why, .. } => {
                self.warn(format!("not sent to {to}: {why}"));
                // So that it need not be typed again.
                if self.screen.input.text().is_empty() && !text.is_empty() {
                    self.screen.input.insert(&format!("@{to} {text}"));
                }
            }
            ChatEvent::Cancelled(cancelled) => self.cancelled(&cancelled),
            ChatEvent::SafetyNumber { name, number, is_verified } => {
                let state = if is_verified { "verified" } else { "not verified" };
                self.note(format!(
                    "safety number of {name} and you ({state}): {number}. Compare it when you \
                     meet or call each other. If both numbers are the same: /verify {name} NUMBER"
                ));
            }
            ChatEvent::FileOffered { number, from, trust, name, len } => self.note(format!(
                "{}{from} sends the file {name} ({len} bytes): /accept {number} saves it, /decline \
                 {number} drops it",
                sign_of(trust)
            )),
            ChatEvent::Invitation { name, code } => {
                let path = self.invitations.join(format!("{name}.invitation"));
                match write_invitation(&path, &code) {
                    Ok(()) => self.note(format!(
                        "the invitation is in {}: give it to {name} only, who then runs `sunder \
                         chat join`",
                        path.display()
                    )),
                    Err(error) => self.warn(error),
                }
            }
            ChatEvent::Done(text) | ChatEvent::Note(text) => self.note(text),
            ChatEvent::NotDone(text) | ChatEvent::Warning(text) => self.warn(text),
            // Only a command of its own asks for an export.
            ChatEvent::Exported(_) | ChatEvent::ListCompared(_) | ChatEvent::Ended { .. } => {}
        }
    }

    fn handle_client_event(&mut self, event: MixClientEvent) {
        match event {
            MixClientEvent::Stored { id, .. } => {
                self.screen.mark(id.0, DeliveryMark::Stored);
            }
            MixClientEvent::Delivered { id, .. } => {
                self.screen.mark(id.0, DeliveryMark::Delivered);
            }
            MixClientEvent::GivenUp { id, .. } => {
                self.screen.mark(id.0, DeliveryMark::GivenUp);
                self.warn(event.to_string());
            }
            note => self.note(note.to_string()),
        }
    }

    fn cancelled(&mut self, CancelledChatMessages { dropped, left }: &CancelledChatMessages) {
        for id in dropped {
            self.screen.mark(id.0, DeliveryMark::GivenUp);
        }
        self.note(cancelled_text(dropped.len(), left));
    }

    fn status(&mut self, now: MixClientStatus) {
        self.screen.members = now.others;
        self.waiting_for = now.waiting_for;
        let status = &mut self.screen.status;
        (status.round, status.latency) = (now.round, now.latency);
        (status.anonymity_set, status.waiting) = (now.anonymity_set, now.undelivered);
        status.bytes_today = now.bytes_today.sent + now.bytes_today.received;
        status.min_anonymity = if now.can_send { 0 } else { now.least_participants };
        self.rounds = now.exchanges;
        status.leaves_in = self.leaves_at.map(|at| at.saturating_sub(now.exchanges));
    }

    /// Why there are no exchanges, if there are none, and when the next attempt to connect is.
    pub(super) fn connection(&self) -> Option<String> {
        if let Some(since) = self.silent_since {
            return Some(format!("no answer from the proxy for {} s", since.elapsed().as_secs()));
        }
        let Some((why, again)) = &self.outage else {
            return self.waiting_for.map(|what| format!("waiting: {what}"));
        };
        let left = again.saturating_duration_since(Instant::now());
        let when = match left.as_secs() {
            0 => "connecting".to_owned(),
            seconds => format!("no connection, next attempt in {seconds} s"),
        };
        Some(if why.is_empty() { when } else { format!("{when}: {why}") })
    }
}

/// The commands that the session runs as they are.
pub(super) fn session_command(command: ChatInputCommand) -> Option<chat::ChatCommand> {
    Some(match command {
        ChatInputCommand::Accept(number) => chat::ChatCommand::Accept(number),
        ChatInputCommand::Decline(number) => chat::ChatCommand::Decline(number),
        ChatInputCommand::Cancel(to) => chat::ChatCommand::Cancel { to },
        ChatInputCommand::SetGroup { name, members } => {
            chat::ChatCommand::SetGroup { name, members }
        }
        ChatInputCommand::Verify { name, number } => chat::ChatCommand::Verify { name, number },
        ChatInputCommand::Trust(name) => chat::ChatCommand::Trust(name),
        ChatInputCommand::Invite { name, is_any_name: false } => chat::ChatCommand::Invite(name),
        ChatInputCommand::Invite { name, .. } => chat::ChatCommand::InviteAnyName(name),
        ChatInputCommand::Remove(name) => chat::ChatCommand::Remove(name),
        ChatInputCommand::Admin(name) => chat::ChatCommand::AddAdministrator(name),
        ChatInputCommand::Unadmin(name) => chat::ChatCommand::RemoveAdministrator(name),
        ChatInputCommand::HandOver(name) => chat::ChatCommand::HandOver(name),
        ChatInputCommand::Proxy(to) => chat::ChatCommand::MoveProxy(*to),
        ChatInputCommand::Leave => chat::ChatCommand::Leave,
        _ => return None,
    })
}

/// What `/cancel` has done.
pub(super) fn cancelled_text(dropped: usize, left: &[(mix::ChatMessageId, String)]) -> String {
    let dropped = match dropped {
        0 => "no message was dropped".to_owned(),
        1 => "1 message was dropped: nothing of it has left".to_owned(),
        count => format!("{count} messages were dropped: nothing of them has left"),
    };
    if left.is_empty() {
        return dropped;
    }
    let mut names: Vec<&str> = left.iter().map(|(_, name)| &**name).collect();
    names.dedup();
    format!(
        "{dropped}. {} may have left already, to {}: they are sent on",
        left.len(),
        names.join(", ")
    )
}

/// The name and the content of a file that is to be sent.
pub(super) fn read_file(path: &str) -> Result<(String, Vec<u8>), String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = match (path.strip_prefix("~/"), home) {
        (Some(path), Some(home)) => home.join(path),
        _ => PathBuf::from(path),
    };
    let mut content = Vec::new();
    let max = MAX_SHARED_FILE_LEN as u64 + 1;
    // Opening a pipe would wait for its other end.
    let read = fs::metadata(&path).and_then(|metadata| {
        if !metadata.is_file() {
            return Err(io::Error::other("this is not a file"));
        }
        File::open(&path)?.take(max).read_to_end(&mut content)
    });
    read.map_err(|error| error.to_string())?;
    if content.len() > MAX_SHARED_FILE_LEN {
        return Err(format!("it has more than {MAX_SHARED_FILE_LEN} bytes"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, content))
}

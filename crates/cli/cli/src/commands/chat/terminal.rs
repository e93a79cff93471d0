//! The chat in a terminal: draws the screen, and passes keys and events to it.

use std::io::{self, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use console::CommandFailure;
use mix::MixClientEvent;
use mix::chat::{self, ChatConfig, ChatEvent, ChatSession, MixClientStatus};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange,
    KeyEventKind,
};
use ratatui::crossterm::execute;

use super::command::{ChatInputCommand, HELP};
use super::draw::draw;
use super::screen::{ChatScreen, ChatStatusLine, ConversationLine, DeliveryMark, KeyAction};
use super::{ChatEventSender, ChatUiEvent, failed, stop_on_signals};

/// How often the countdown to the next connection attempt is updated.
const TICK: Duration = Duration::from_secs(1);

/// The chat, and the time of the next connection attempt.
struct TerminalChat<'a> {
    session: &'a ChatSession,
    screen: ChatScreen,
    /// Why there is no connection, and when the next attempt is.
    outage: Option<(String, Instant)>,
    /// Why there are no exchanges, though there is a connection.
    waiting_for: Option<&'static str>,
    /// For how many rounds it stays when it is to end.
    stay: u64,
    /// How many rounds there were, and will have been when it ends.
    rounds: u64,
    leaves_at: Option<u64>,
}

/// Runs the chat until the user or a signal ends it. Then the terminal is restored, even after a
/// panic.
///
/// # Errors
/// If the chat cannot begin, or fails.
pub(super) fn run(config: &ChatConfig) -> Result<(), CommandFailure> {
    let (sender, inputs) = channel();
    stop_on_signals(sender.clone())?;
    let events = ChatEventSender(sender.clone());
    let (session, entries) =
        ChatSession::start(config, None, move |event| events.send_event(event))
            .map_err(|error| failed(&error))?;
    let mut screen = ChatScreen {
        status: ChatStatusLine {
            group: config.group.to_string(),
            connection: Some("connecting".into()),
            min_anonymity: config.least_anonymity,
            ..ChatStatusLine::default()
        },
        ..ChatScreen::default()
    };
    for chat::ChatHistoryEntry { is_own, name, text, .. } in entries {
        // Whether it has arrived is not in the history; what has not is sent again.
        let mark = DeliveryMark::Delivered;
        screen.add(if is_own {
            ConversationLine::To { name, text, id: 0, mark }
        } else {
            ConversationLine::From { name, text }
        });
    }
    screen.add(ConversationLine::Note(format!("You are {}. {HELP}", config.name)));
    let mut terminal = RestoredTerminal::new().map_err(|error| broken(&error))?;
    let keys = thread::Builder::new().name("keys".into()).spawn(move || read_keys(&sender));
    keys.map_err(|error| CommandFailure::Failed(format!("no threads: {error}")))?;
    let lost = Some((String::new(), Instant::now()));
    let talk = TerminalChat {
        session: &session,
        screen,
        outage: lost,
        waiting_for: None,
        stay: config.stay,
        rounds: 0,
        leaves_at: None,
    };
    let ended = talk.run(&mut terminal.0, &inputs);
    drop(terminal);
    ended
}

/// A terminal that is restored when this is dropped. The library restores it in a panic.
struct RestoredTerminal(DefaultTerminal);

impl RestoredTerminal {
    fn new() -> io::Result<Self> {
        let terminal = Self(ratatui::try_init()?);
        execute!(stdout(), EnableBracketedPaste, EnableFocusChange)?;
        Ok(terminal)
    }
}

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        let _ = execute!(stdout(), DisableBracketedPaste, DisableFocusChange);
        ratatui::restore();
    }
}

fn read_keys(inputs: &Sender<ChatUiEvent<event::Event>>) {
    while let Ok(event) = event::read() {
        if inputs.send(ChatUiEvent::Person(event)).is_err() {
            return;
        }
    }
    // The terminal is gone.
    let _ = inputs.send(ChatUiEvent::Stop);
}

impl TerminalChat<'_> {
    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        inputs: &Receiver<ChatUiEvent<event::Event>>,
    ) -> Result<(), CommandFailure> {
        loop {
            let mut page = 0;
            self.screen.status.connection = self.connection();
            terminal
                .draw(|frame| page = draw(frame, &self.screen))
                .map_err(|error| broken(&error))?;
            let first = match inputs.recv_timeout(TICK) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // What has come at once is drawn at once.
            for input in std::iter::once(first).chain(inputs.try_iter()) {
                match input {
                    ChatUiEvent::Stop | ChatUiEvent::Event(ChatEvent::Ended { why: None }) => {
                        return Ok(());
                    }
                    ChatUiEvent::Event(ChatEvent::Ended { why: Some(why) }) => {
                        return Err(CommandFailure::Failed(why));
                    }
                    ChatUiEvent::Event(event) => self.handle_event(event),
                    ChatUiEvent::Person(event) => match self.pressed(&event, page) {
                        KeyAction::Nothing => {}
                        KeyAction::Redraw => terminal.clear().map_err(|error| broken(&error))?,
                        KeyAction::Stop => return Ok(()),
                        KeyAction::Command(command) => self.run_command(command),
                    },
                }
            }
        }
    }

    fn pressed(&mut self, event: &event::Event, page: usize) -> KeyAction {
        match event {
            event::Event::Key(key) if key.kind != KeyEventKind::Release => {
                return self.screen.key(*key, page);
            }
            event::Event::Paste(text) => self.screen.paste(text),
            event::Event::FocusGained => self.screen.focus(true),
            event::Event::FocusLost => self.screen.focus(false),
            _ => {}
        }
        KeyAction::Nothing
    }

    fn run_command(&mut self, command: ChatInputCommand) {
        let asked = match command {
            ChatInputCommand::Say { to, text } => {
                self.screen.partner = Some(to.clone());
                chat::ChatCommand::Say { to, text }
            }
            ChatInputCommand::SpeakTo(name) => {
                if self.screen.members.contains(&name) {
                    self.screen.partner = Some(name);
                } else {
                    self.screen
                        .add(ConversationLine::Warning(format!("there is no member {name}")));
                }
                return;
            }
            ChatInputCommand::Members => {
                let members = &self.screen.members;
                let text =
                    if members.is_empty() { "nobody else".into() } else { members.join(", ") };
                self.screen.add(ConversationLine::Note(format!("members: {text}")));
                return;
            }
            ChatInputCommand::Help => return self.screen.add(ConversationLine::Note(HELP.into())),
            ChatInputCommand::Invite(name) => chat::ChatCommand::Invite(name),
            ChatInputCommand::Remove(name) => chat::ChatCommand::Remove(name),
            ChatInputCommand::Leave => chat::ChatCommand::Leave,
            ChatInputCommand::Quit => {
                if self.leaves_at.is_none() {
                    self.leaves_at = Some(self.rounds + self.stay);
                    let text = format!(
                        "the chat ends after {} rounds, so that the proxy does not see when you \
                         have read a message; Ctrl-C ends it at once",
                        self.stay
                    );
                    self.screen.add(ConversationLine::Note(text));
                }
                chat::ChatCommand::Finish
            }
        };
        self.session.send_command(asked);
    }

    fn handle_event(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Connected => self.outage = None,
            ChatEvent::Disconnected { why, again_in } => {
                self.outage = Some((why, Instant::now() + again_in));
            }
            ChatEvent::Status(status) => self.status(status),
            ChatEvent::Queued { id, to, text } => {
                self.screen.add(ConversationLine::To {
                    name: to,
                    text,
                    id,
                    mark: DeliveryMark::Waiting,
                });
            }
            ChatEvent::Client(event) => self.handle_client_event(event),
            ChatEvent::NotSent { to, text, why, .. } => {
                self.screen.add(ConversationLine::Warning(format!("not sent to {to}: {why}")));
                // So that it need not be typed again.
                if self.screen.input.text().is_empty() {
                    self.screen.input.insert(&format!("@{to} {text}"));
                }
            }
            ChatEvent::Invitation(code) => {
                let text = format!(
                    "give this to one person only, who then runs `sunder chat join`: \
                             {code}"
                );
                self.screen.add(ConversationLine::Note(text));
            }
            ChatEvent::Done(text) | ChatEvent::Note(text) => {
                self.screen.add(ConversationLine::Note(text));
            }
            ChatEvent::NotDone(text) | ChatEvent::Warning(text) => {
                self.screen.add(ConversationLine::Warning(text));
            }
            ChatEvent::Ended { .. } => {}
        }
    }

    fn handle_client_event(&mut self, event: MixClientEvent) {
        let line = match event {
            MixClientEvent::Stored { id, .. } => {
                return self.screen.mark(id.0, DeliveryMark::Stored);
            }
            MixClientEvent::Delivered { id, .. } => {
                return self.screen.mark(id.0, DeliveryMark::Delivered);
            }
            MixClientEvent::GivenUp { id, .. } => {
                self.screen.mark(id.0, DeliveryMark::GivenUp);
                ConversationLine::Warning(event.to_string())
            }
            MixClientEvent::Message { from, text } => ConversationLine::From { name: from, text },
            note => ConversationLine::Note(note.to_string()),
        };
        self.screen.add(line);
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

    /// Why there is no connection, if there is none, and when it is tried again.
    fn connection(&self) -> Option<String> {
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

fn broken(error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("the terminal: {error}"))
}

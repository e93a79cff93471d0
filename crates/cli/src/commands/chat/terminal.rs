//! The chat in a terminal: draws the screen, and passes keys and events to it.

use std::io::{self, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use mix::chat::{self, ClientStatus, Config, Event, Session};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange,
    KeyEventKind,
};
use ratatui::crossterm::execute;

use super::command::{Command, HELP};
use super::draw::draw;
use super::screen::{Asked, Line, Mark, Screen, Status};
use super::{Input, Teller, failed, stop_on_signals};
use crate::failure::Failure;

/// How often the time until the next attempt to connect is shown again.
const TICK: Duration = Duration::from_secs(1);

/// The chat, and when the proxy is tried again.
struct Talk<'a> {
    session: &'a Session,
    screen: Screen,
    /// Why there is no connection, and when the next attempt is.
    lost: Option<(String, Instant)>,
    /// Why there are no exchanges, though there is a connection.
    waiting_for: Option<&'static str>,
    /// For how many rounds it stays when it is to end.
    stay: u64,
    /// How many rounds there were, and will have been when it ends.
    rounds: u64,
    leaves_at: Option<u64>,
}

/// Talks until the person or a signal ends it. The terminal is as before then, also after a panic.
///
/// # Errors
/// If the chat cannot begin, or fails.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
    let (sender, inputs) = channel();
    stop_on_signals(sender.clone())?;
    let teller = Teller(sender.clone());
    let (session, said) = Session::start(config, None, move |event| teller.tell(event))
        .map_err(|error| failed(&error))?;
    let mut screen = Screen {
        status: Status {
            group: config.group.to_string(),
            connection: Some("connecting".into()),
            least: config.least_anonymity,
            ..Status::default()
        },
        ..Screen::default()
    };
    for chat::Said { is_own, name, text, .. } in said {
        // Whether it has arrived is not in the history; what has not is sent again.
        let mark = Mark::Delivered;
        screen.add(if is_own {
            Line::To { name, text, id: 0, mark }
        } else {
            Line::From { name, text }
        });
    }
    screen.add(Line::Note(format!("You are {}. {HELP}", config.name)));
    let mut terminal = Restored::new().map_err(|error| broken(&error))?;
    let keys = thread::Builder::new().name("keys".into()).spawn(move || read_keys(&sender));
    keys.map_err(|error| Failure::Failed(format!("no threads: {error}")))?;
    let lost = Some((String::new(), Instant::now()));
    let talk = Talk {
        session: &session,
        screen,
        lost,
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
struct Restored(DefaultTerminal);

impl Restored {
    fn new() -> io::Result<Self> {
        let terminal = Self(ratatui::try_init()?);
        execute!(stdout(), EnableBracketedPaste, EnableFocusChange)?;
        Ok(terminal)
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = execute!(stdout(), DisableBracketedPaste, DisableFocusChange);
        ratatui::restore();
    }
}

fn read_keys(inputs: &Sender<Input<event::Event>>) {
    while let Ok(event) = event::read() {
        if inputs.send(Input::Person(event)).is_err() {
            return;
        }
    }
    // The terminal is gone.
    let _ = inputs.send(Input::Stop);
}

impl Talk<'_> {
    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        inputs: &Receiver<Input<event::Event>>,
    ) -> Result<(), Failure> {
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
                    Input::Stop | Input::Event(Event::Ended { why: None }) => return Ok(()),
                    Input::Event(Event::Ended { why: Some(why) }) => {
                        return Err(Failure::Failed(why));
                    }
                    Input::Event(event) => self.told(event),
                    Input::Person(event) => match self.pressed(&event, page) {
                        Asked::Nothing => {}
                        Asked::Redraw => terminal.clear().map_err(|error| broken(&error))?,
                        Asked::Stop => return Ok(()),
                        Asked::Command(command) => self.obey(command),
                    },
                }
            }
        }
    }

    fn pressed(&mut self, event: &event::Event, page: usize) -> Asked {
        match event {
            event::Event::Key(key) if key.kind != KeyEventKind::Release => {
                return self.screen.key(*key, page);
            }
            event::Event::Paste(text) => self.screen.paste(text),
            event::Event::FocusGained => self.screen.focus(true),
            event::Event::FocusLost => self.screen.focus(false),
            _ => {}
        }
        Asked::Nothing
    }

    fn obey(&mut self, command: Command) {
        let asked = match command {
            Command::Say { to, text } => {
                self.screen.partner = Some(to.clone());
                chat::Command::Say { to, text }
            }
            Command::SpeakTo(name) => {
                if self.screen.members.contains(&name) {
                    self.screen.partner = Some(name);
                } else {
                    self.screen.add(Line::Warning(format!("there is no member {name}")));
                }
                return;
            }
            Command::Members => {
                let members = &self.screen.members;
                let text =
                    if members.is_empty() { "nobody else".into() } else { members.join(", ") };
                self.screen.add(Line::Note(format!("members: {text}")));
                return;
            }
            Command::Help => return self.screen.add(Line::Note(HELP.into())),
            Command::Invite(name) => chat::Command::Invite(name),
            Command::Remove(name) => chat::Command::Remove(name),
            Command::Leave => chat::Command::Leave,
            Command::Quit => {
                if self.leaves_at.is_none() {
                    self.leaves_at = Some(self.rounds + self.stay);
                    let text = format!(
                        "this ends after {} rounds, so that the proxy does not see when you have \
                         read something; Ctrl-C ends it at once",
                        self.stay
                    );
                    self.screen.add(Line::Note(text));
                }
                chat::Command::Finish
            }
        };
        self.session.ask(asked);
    }

    fn told(&mut self, event: Event) {
        match event {
            Event::Connected => self.lost = None,
            Event::Disconnected { why, again_in } => {
                self.lost = Some((why, Instant::now() + again_in));
            }
            Event::Status(status) => self.status(status),
            Event::Queued { id, to, text } => {
                self.screen.add(Line::To { name: to, text, id, mark: Mark::Waiting });
            }
            Event::Delivered { id, .. } => self.screen.mark(id, Mark::Delivered),
            Event::GivenUp { id, to, why } => {
                self.screen.mark(id, Mark::GivenUp);
                self.screen.add(Line::Warning(format!("not delivered to {to}: {why}")));
            }
            Event::Message { from, text } => self.screen.add(Line::From { name: from, text }),
            Event::NotSent { to, text, why, .. } => {
                self.screen.add(Line::Warning(format!("not sent to {to}: {why}")));
                // So that it need not be typed again.
                if self.screen.input.text().is_empty() {
                    self.screen.input.insert(&format!("@{to} {text}"));
                }
            }
            Event::Invitation(code) => {
                let text =
                    format!("give this to one person only, who runs `sunder chat join`: {code}");
                self.screen.add(Line::Note(text));
            }
            Event::Done(text) | Event::Note(text) => self.screen.add(Line::Note(text)),
            Event::NotDone(text) | Event::Warning(text) => self.screen.add(Line::Warning(text)),
            Event::Ended { .. } => {}
        }
    }

    fn status(&mut self, now: ClientStatus) {
        self.screen.members = now.others;
        self.waiting_for = now.waiting_for;
        let status = &mut self.screen.status;
        (status.round, status.latency) = (now.round, now.latency);
        (status.anonymity_set, status.waiting) = (now.anonymity_set, now.undelivered);
        self.rounds = now.exchanges;
        status.leaves_in = self.leaves_at.map(|at| at.saturating_sub(now.exchanges));
    }

    /// Why there is no connection, if there is none, and when it is tried again.
    fn connection(&self) -> Option<String> {
        let Some((why, again)) = &self.lost else {
            return self.waiting_for.map(|what| format!("waiting: {what}"));
        };
        let left = again.saturating_duration_since(Instant::now());
        let when = match left.as_secs() {
            0 => "connecting".to_owned(),
            seconds => format!("no connection, again in {seconds} s"),
        };
        Some(if why.is_empty() { when } else { format!("{when}: {why}") })
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::Failed(format!("the terminal: {error}"))
}

//! The chat for scripts: lines in, lines out. docs/guides/chat.md lists them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, BufRead, Read as _};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use mix::chat::{self, ClientStatus, Config, Event, Session};

use super::command::{Command, HELP};
use super::{Input, Teller, failed, stop_on_signals};
use crate::console::{self, is_deceptive};
use crate::failure::Failure;

/// The most messages that wait until there are exchanges.
const MAX_HELD: usize = 1_000;

/// The longest line, in bytes.
const MAX_LINE: usize = 128 << 10;

/// What standard input has brought.
enum Entered {
    Line(String),
    /// A line that is too long. Nothing of it is taken.
    TooLong,
    End,
}

/// A message that was entered.
struct Entry {
    to: String,
    text: String,
}

/// The state of the conversation with the script.
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
struct Plain<'a> {
    session: &'a Session,
    least: usize,
    anonymity: usize,
    members: Vec<String>,
    partner: Option<String>,
    /// Messages that wait until there are exchanges, by when they were entered.
    held: BTreeMap<u64, Entry>,
    entered: u64,
    /// What was asked for and not answered: when a message was entered, or another command.
    asked: VecDeque<Option<u64>>,
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
    closed: Option<Failure>,
}

/// Talks with a script, until it has ended and the rounds of the configuration are over, or a
/// signal arrives.
///
/// # Errors
/// If the chat cannot begin, or fails, or something that was said has not arrived.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
    service::log::start(console::wants_colour(&io::stderr()))?;
    let (sender, inputs) = channel();
    stop_on_signals(sender.clone())?;
    let teller = Teller(sender.clone());
    let tell = move |event| match event {
        // At once: it counts as shown when this returns, and is not shown again.
        Event::Message { ref from, ref text } => {
            message(from, text).map_err(|_| "standard output is closed".into())
        }
        event => teller.tell(event),
    };
    let (session, _) = Session::start(config, None, tell).map_err(|error| failed(&error))?;
    let entering = thread::Builder::new().name("input".into()).spawn(move || enter(&sender));
    entering.map_err(|error| Failure::Failed(format!("no threads: {error}")))?;
    let mut plain = Plain {
        session: &session,
        least: config.least_anonymity,
        anonymity: 0,
        members: Vec::new(),
        partner: None,
        held: BTreeMap::new(),
        entered: 0,
        asked: VecDeque::new(),
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
            Input::Stop if plain.is_stopped => return Ok(()),
            Input::Stop => {
                plain.is_stopped = true;
                session.ask(chat::Command::Stop);
                Ok(())
            }
            Input::Event(Event::Ended { why }) => return plain.ended(why),
            Input::Event(event) => plain.told(event),
            Input::Person(Entered::Line(line)) => plain.entered(&line),
            Input::Person(Entered::TooLong) => {
                print(&format!("warning a line has more than {MAX_LINE} bytes: it is ignored"))
            }
            Input::Person(Entered::End) => {
                plain.has_ended = true;
                plain.finish();
                Ok(())
            }
        };
        if let Err(failure) = taken {
            // Who reads has gone, perhaps because of a message: the proxy must not see that.
            plain.closed.get_or_insert(failure);
            session.ask(chat::Command::Finish);
        }
    }
    Ok(())
}

impl Plain<'_> {
    /// Has the chat end by itself when the script has said something and has ended.
    fn finish(&self) {
        if self.has_ended && self.has_input {
            self.session.ask(chat::Command::Finish);
        }
    }

    /// The chat has ended.
    fn ended(self, why: Option<String>) -> Result<(), Failure> {
        for Entry { to, .. } in self.held.values().filter(|_| self.closed.is_none()) {
            print(&format!("refused {to} there were not enough members in the last rounds"))?;
        }
        match (why, self.undelivered.len()) {
            (Some(why), _) => Err(Failure::Failed(why)),
            (None, 0) if self.held.is_empty() => self.closed.map_or(Ok(()), Err),
            (None, _) if self.is_stopped => Ok(()),
            (None, 0) => Err(Failure::Failed("not all messages were taken".into())),
            (None, count) => Err(Failure::Failed(format!(
                "{count} of the messages are not known to have arrived: they are kept, and sent in \
                 the next run; --stay ROUNDS stays longer"
            ))),
        }
    }

    /// Takes a line.
    fn entered(&mut self, line: &str) -> Result<(), Failure> {
        let command = match Command::parse(line, self.partner.as_deref()) {
            Err(wrong) => return print(&format!("warning {}", escaped(&wrong))),
            Ok(None) => return Ok(()),
            Ok(Some(command)) => command,
        };
        self.has_input = true;
        match command {
            Command::Say { to, text } => {
                self.partner = Some(to.clone());
                self.entered += 1;
                if self.held.len() < MAX_HELD {
                    self.held.insert(self.entered, Entry { to, text: unescaped(&text) });
                    self.send();
                } else {
                    print(&format!("refused {to} too many messages wait"))?;
                }
            }
            Command::SpeakTo(name) => self.partner = Some(name),
            Command::Invite(name) => self.ask(None, chat::Command::Invite(name)),
            Command::Remove(name) => self.ask(None, chat::Command::Remove(name)),
            Command::Leave => self.ask(None, chat::Command::Leave),
            Command::Members => print(&members(&self.members))?,
            Command::Help => print(&format!("note {HELP}"))?,
            Command::Quit => self.session.ask(chat::Command::Finish),
        }
        Ok(())
    }

    fn ask(&mut self, message: Option<u64>, command: chat::Command) {
        self.asked.push_back(message);
        self.session.ask(command);
    }

    /// Asks for the messages that wait, if they can be sent.
    fn send(&mut self) {
        while self.has_begun
            && !self.is_waiting
            && let Some((entered, Entry { to, text })) = self.held.pop_first()
        {
            self.ask(Some(entered), chat::Command::Say { to, text });
        }
    }

    /// Writes what has happened.
    fn told(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Connected => print("connected"),
            Event::Disconnected { why, again_in } => {
                let seconds = again_in.as_secs_f64();
                print(&format!("disconnected {seconds:.1} {}", escaped(&why)))
            }
            Event::Status(status) => self.status(status),
            Event::Queued { id, to, .. } => {
                self.asked.pop_front();
                self.undelivered.insert(id);
                print(&format!("queued {id} {to}"))
            }
            Event::NotSent { to, text, why, is_early } => {
                if let Some(Some(entered)) = self.asked.pop_front()
                    && is_early
                {
                    // The exchanges have ended since it was asked for.
                    self.held.insert(entered, Entry { to, text });
                    return Ok(());
                }
                print(&format!("refused {to} {}", escaped(&why)))
            }
            // They are written where they are told.
            Event::Message { .. } | Event::Ended { .. } => Ok(()),
            Event::GivenUp { id, to, why } => {
                self.undelivered.remove(&id);
                print(&format!("undelivered {id} {to} {}", escaped(&why)))
            }
            Event::Delivered { id, to } => {
                self.undelivered.remove(&id);
                print(&format!("delivered {id} {to}"))
            }
            Event::Invitation(code) => {
                self.asked.pop_front();
                print(&format!("invitation {code}"))
            }
            Event::Done(text) => {
                self.asked.pop_front();
                print(&format!("note {}", escaped(&text)))
            }
            Event::NotDone(text) => {
                self.asked.pop_front();
                print(&format!("warning {}", escaped(&text)))
            }
            Event::Note(text) => print(&format!("note {}", escaped(&text))),
            Event::Warning(text) => print(&format!("warning {}", escaped(&text))),
        }
    }

    fn status(&mut self, now: ClientStatus) -> Result<(), Failure> {
        if self.members != now.others {
            self.members = now.others;
            print(&members(&self.members))?;
        }
        if self.anonymity != now.anonymity_set {
            self.anonymity = now.anonymity_set;
            print(&format!("anonymity {}", self.anonymity))?;
        }
        self.is_waiting = now.waiting_for.is_some();
        self.has_begun |= now.anonymity_set >= self.least;
        self.send();
        Ok(())
    }
}

/// Sends the lines of standard input.
fn enter(inputs: &Sender<Input<Entered>>) {
    let mut lines = io::stdin().lock();
    loop {
        let entered = next_line(&mut lines);
        let is_end = matches!(entered, Entered::End);
        if inputs.send(Input::Person(entered)).is_err() || is_end {
            return;
        }
    }
}

/// The next line. Of one that is too long nothing is kept: its rest is no line of its own.
fn next_line(lines: &mut impl BufRead) -> Entered {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let before = line.len();
        // Bounded: who writes may never end a line.
        let read = lines.take(MAX_LINE as u64).read_until(b'\n', &mut line);
        let is_end = !matches!(read, Ok(count) if count > 0);
        if is_end && before == 0 && !is_too_long {
            return Entered::End;
        }
        let is_whole = is_end || line.last() == Some(&b'\n');
        is_too_long |= line.len() > MAX_LINE || !is_whole;
        match (is_whole, is_too_long) {
            (true, true) => return Entered::TooLong,
            (true, false) => return Entered::Line(String::from_utf8_lossy(&line).into_owned()),
            (false, _) => line.clear(),
        }
    }
}

fn members(names: &[String]) -> String {
    [&["members".to_owned()], names].concat().join(" ")
}

/// Writes a message that has arrived.
fn message(from: &str, text: &str) -> Result<(), Failure> {
    print(&format!("message {from} {}", escaped(text)))
}

fn print(line: &str) -> Result<(), Failure> {
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

/// The text of which [`escaped`] has made this.
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

    #[test]
    fn the_rest_of_a_line_that_is_too_long_is_no_line() {
        let long = "x".repeat(MAX_LINE);
        let text = format!("one\n@bob {long}/remove emil\n{long}\ntwo\n{long}");
        let mut lines = text.as_bytes();
        let mut read = Vec::new();
        loop {
            read.push(match next_line(&mut lines) {
                Entered::Line(line) => line,
                Entered::TooLong => "too long".into(),
                Entered::End => break,
            });
        }
        assert_eq!(read, ["one\n", "too long", "too long", "two\n", "too long"]);
    }
}

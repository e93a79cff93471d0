//! The chat in sentences, for screen readers: what happens is appended, nothing is drawn again.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::channel;

use console::CommandFailure;
use mix::MixClientEvent;
use mix::chat::{ChatConfig, ChatEvent};
use ratatui::crossterm::terminal;

use super::command::{ChatInputCommand, visible};
use super::conversation::{ConversationLine, DeliveryMark, LineContent, SentMessage, sign_of};
use super::person::PersonalChat;
use super::stdin::{MAX_LINE, StdinLine, send_lines};
use super::wrap::{max_width, wrap_safely};
use super::{ChatUiEvent, spawn};

/// What begins each row of a sentence but the first one.
const INDENT: &str = "  ";

/// The columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// A chat of which everything is said once.
struct SpokenChat {
    chat: PersonalChat,
    /// How many lines of the conversation were said.
    said: u64,
    /// The receiver that the prompt has named.
    prompted: Option<String>,
    /// Whether enough members take part, as it was said.
    can_send: Option<bool>,
}

/// Runs the chat until the user or a signal ends it.
///
/// # Errors
/// If the chat cannot begin, or fails.
pub(super) fn run(config: &ChatConfig) -> Result<(), CommandFailure> {
    let (sender, inputs) = channel();
    let chat = PersonalChat::start(config, &sender)?;
    let mut spoken = SpokenChat { chat, said: 0, prompted: None, can_send: None };
    spawn("input", move || send_lines(&sender))?;
    spoken.say_news()?;
    for input in inputs {
        match input {
            ChatUiEvent::Stop | ChatUiEvent::Event(ChatEvent::Ended { why: None }) => return Ok(()),
            ChatUiEvent::Event(ChatEvent::Ended { why: Some(why) }) => {
                return Err(CommandFailure::Failed(why));
            }
            ChatUiEvent::Event(event) => spoken.handle_event(event)?,
            ChatUiEvent::Person(StdinLine::Line(line)) => spoken.handle_line(&line),
            ChatUiEvent::Person(StdinLine::TooLong) => {
                let text = format!("not sent: a line has at most {MAX_LINE} bytes");
                spoken.chat.screen.add(LineContent::Warning(text));
            }
            // The end of the input ends the chat in order.
            ChatUiEvent::Person(StdinLine::End) => spoken.chat.run_command(ChatInputCommand::Quit),
        }
        spoken.say_news()?;
    }
    Ok(())
}

impl SpokenChat {
    fn handle_line(&mut self, line: &str) {
        match ChatInputCommand::parse(line, self.chat.screen.partner.as_deref()) {
            Err(wrong) => self.chat.screen.add(LineContent::Warning(wrong)),
            Ok(None) => {}
            Ok(Some(command)) => self.chat.run_command(command),
        }
    }

    fn handle_event(&mut self, event: ChatEvent) -> Result<(), CommandFailure> {
        match &event {
            ChatEvent::Connected => say("Connected to the proxy.")?,
            ChatEvent::Disconnected { why, .. } => say(&format!("No connection: {why}"))?,
            ChatEvent::ProxySilent { since } => {
                say(&format!("The proxy has not answered for {} seconds.", since.as_secs()))?;
            }
            ChatEvent::ProxyAnswers => say("The proxy answers again.")?,
            ChatEvent::Status(status) => {
                let count = status.anonymity_set;
                let can_send = status.can_send;
                if count > 0 && self.can_send.replace(can_send) != Some(can_send) {
                    let effect = if can_send { "messages are sent" } else { "too few to send" };
                    say(&format!("{count} members take part: {effect}."))?;
                }
            }
            ChatEvent::Client(MixClientEvent::Stored { id, .. }) => {
                return self.say_mark(id.0, DeliveryMark::Stored);
            }
            ChatEvent::Client(MixClientEvent::Delivered { id, .. }) => {
                return self.say_mark(id.0, DeliveryMark::Delivered);
            }
            _ => {}
        }
        self.chat.handle_event(event);
        // There is no line that is being edited: the text was said as not sent.
        self.chat.screen.input.clear();
        Ok(())
    }

    /// Marks a message, and says so if its line has no other message without this mark.
    fn say_mark(&mut self, id: u64, now: DeliveryMark) -> Result<(), CommandFailure> {
        let line = self.chat.screen.mark(id, now);
        line.and_then(|line| marked(line, now)).map_or(Ok(()), |sentence| say(&sentence))
    }

    /// Says the lines that were added, and the prompt if it has changed.
    fn say_news(&mut self) -> Result<(), CommandFailure> {
        let screen = &self.chat.screen;
        for line in screen.conversation.since(self.said) {
            say(&sentence(line, |name| screen.sign(name)))?;
        }
        self.said = screen.conversation.count();
        if self.prompted != screen.partner {
            self.prompted.clone_from(&screen.partner);
            if let Some(partner) = &self.prompted {
                say(&format!("What you enter now goes to {partner}."))?;
            }
        }
        Ok(())
    }
}

/// A line as a sentence. `sign` returns the sign of a member's key.
fn sentence(line: &ConversationLine, sign: impl Fn(&str) -> &'static str) -> String {
    let time = &line.time;
    match &line.content {
        LineContent::From { name, trust, text } => {
            format!("{time} {name}{}: {text}", said_sign(sign_of(*trust)))
        }
        LineContent::To { name, text, .. } => {
            format!("{time} You to {name}{}: {text}", said_sign(sign(name)))
        }
        LineContent::Note(text) | LineContent::Day(text) => text.clone(),
        LineContent::Warning(text) => format!("Warning: {text}"),
    }
}

/// What is said of a name with this sign.
fn said_sign(sign: &str) -> &'static str {
    match sign {
        "" => "",
        "?" => ", whose key has changed",
        _ => ", verified",
    }
}

/// What is said when a message of a line got this mark.
fn marked(line: &ConversationLine, now: DeliveryMark) -> Option<String> {
    let LineContent::To { name, messages, .. } = &line.content else { return None };
    let is_marked = |message: &&SentMessage| message.mark == now;
    let count = messages.iter().filter(is_marked).count();
    let receiver = match messages.len() {
        1 => name.clone(),
        all if count == all => format!("all {all} of {name}"),
        _ => return None,
    };
    match now {
        DeliveryMark::Stored => Some(format!("The proxy keeps it for {receiver}.")),
        DeliveryMark::Delivered => Some(format!("Delivered to {receiver}.")),
        DeliveryMark::Waiting | DeliveryMark::GivenUp => None,
    }
}

/// Says a text on a line of its own. A terminal would continue a long line at the left edge, where
/// a member could write a text that looks like a sentence of its own: there it is divided.
fn say(text: &str) -> Result<(), CommandFailure> {
    let text = visible(text);
    if !io::stdout().is_terminal() {
        return console::print(text.as_bytes());
    }
    let columns = match terminal::size() {
        Ok((columns @ 1.., _)) => columns.into(),
        _ => COLUMNS,
    };
    console::print(rows_of_sentence(&text, columns).as_bytes())
}

/// A sentence as rows of a terminal with so many columns. The cursor may stand behind what is being
/// entered, so the first row goes back to the left edge and covers that.
fn rows_of_sentence(text: &str, columns: usize) -> String {
    let mut rows = wrap_safely(text, columns, columns.saturating_sub(INDENT.len()));
    if let Some(first) = rows.first_mut() {
        let covered = columns.saturating_sub(max_width(first));
        first.push_str(&" ".repeat(covered));
    }
    format!("\r{}", rows.join(&format!("\n{INDENT}")))
}

#[cfg(test)]
mod tests {
    use mix::chat::ContactTrust;

    use super::*;

    #[test]
    fn what_happens_is_said_in_sentences() {
        let line = |content| ConversationLine { time: "08:05".into(), content };
        let said = |content| sentence(&line(content), |_| "◆");
        let (name, text) = ("bob".to_owned(), "hello".to_owned());
        let from = LineContent::From {
            name: name.clone(),
            trust: ContactTrust::Verified,
            text: text.clone(),
        };
        assert_eq!(said(from), "08:05 bob, verified: hello");
        let message = |id, mark| SentMessage { id, to: "bob".into(), mark };
        let to =
            |messages| line(LineContent::To { name: name.clone(), text: text.clone(), messages });
        let one = to(vec![message(1, DeliveryMark::Delivered)]);
        assert_eq!(sentence(&one, |_| ""), "08:05 You to bob: hello");
        let delivered = |line: &ConversationLine| marked(line, DeliveryMark::Delivered);
        assert_eq!(delivered(&one).unwrap(), "Delivered to bob.");
        let kept = to(vec![message(1, DeliveryMark::Stored)]);
        let said_kept = marked(&kept, DeliveryMark::Stored);
        assert_eq!(said_kept.unwrap(), "The proxy keeps it for bob.");
        let some = [DeliveryMark::Delivered, DeliveryMark::Waiting].map(|mark| message(1, mark));
        assert_eq!(delivered(&to(some.to_vec())), None);
        let all = [DeliveryMark::Delivered; 2].map(|mark| message(1, mark));
        assert_eq!(delivered(&to(all.to_vec())).unwrap(), "Delivered to all 2 of bob.");
        assert_eq!(said(LineContent::Warning("no".into())), "Warning: no");
    }

    #[test]
    fn a_row_in_a_terminal_is_not_wider_and_is_indented_unless_it_begins_a_sentence() {
        assert_eq!(rows_of_sentence("08:05 bob: hello", 20), "\r08:05 bob: hello    ");
        let forged = format!("08:05 bob: ok{}08:06 carol: yes", "\u{a0}".repeat(7));
        let rows = rows_of_sentence(&forged, 20);
        let rows: Vec<&str> = rows.strip_prefix('\r').unwrap().split('\n').collect();
        assert_eq!(rows[0], "08:05 bob:          ");
        assert!(rows.len() > 2, "{rows:?}");
        for row in &rows {
            assert!(max_width(row) <= 20 && (*row == rows[0] || row.starts_with(INDENT)), "{row}");
        }
    }
}

//! The state of the terminal chat, and what keys do to it. It does no input or output.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::command::ChatInputCommand;
use super::input::LineEditor;

/// The most lines that can be scrolled back to.
const MAX_LINES: usize = 10_000;

/// A line of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConversationLine {
    /// A message of a member.
    From { name: String, text: String },
    /// A message to a member.
    To { name: String, text: String, id: u64, mark: DeliveryMark },
    /// What has happened.
    Note(String),
    /// What could not be done.
    Warning(String),
}

/// What is known of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryMark {
    /// It waits, or its acknowledgement does.
    Waiting,
    /// The proxy keeps it for the receiver.
    Stored,
    /// The receiver has it.
    Delivered,
    /// It is not sent any more.
    GivenUp,
}

/// What the status line shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ChatStatusLine {
    /// The group's name.
    pub(super) group: String,
    /// Why there are no exchanges with the proxy, if there are none.
    pub(super) connection: Option<String>,
    /// The round.
    pub(super) round: u64,
    /// From a request to its answer.
    pub(super) latency: Option<Duration>,
    /// The participants of the last round.
    pub(super) anonymity_set: usize,
    /// The least number of them.
    pub(super) min_anonymity: usize,
    /// The messages that wait, or whose acknowledgements do.
    pub(super) waiting: usize,
    /// The bytes of messages of today.
    pub(super) bytes_today: u64,
    /// The rounds until the chat ends, if it is to.
    pub(super) leaves_in: Option<u64>,
}

/// The chat, as it is drawn.
#[derive(Debug, Default)]
pub(super) struct ChatScreen {
    pub(super) lines: VecDeque<ConversationLine>,
    pub(super) input: LineEditor,
    /// The member spoken to last.
    pub(super) partner: Option<String>,
    /// The other members.
    pub(super) members: Vec<String>,
    pub(super) status: ChatStatusLine,
    /// How many lines the view is above the last one.
    pub(super) scrolled: usize,
    /// The messages that have come since the last line was seen.
    pub(super) unread: usize,
    /// Whether the terminal says that it is looked at.
    pub(super) is_unfocused: bool,
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    /// Nothing but that it is drawn.
    Nothing,
    /// This.
    Command(ChatInputCommand),
    /// That everything is drawn again.
    Redraw,
    /// That the chat ends at once.
    Stop,
}

impl ChatScreen {
    /// Adds a line.
    pub(super) fn add(&mut self, line: ConversationLine) {
        let is_message = matches!(line, ConversationLine::From { .. });
        self.lines.push_back(line);
        if self.lines.len() > MAX_LINES {
            self.lines.pop_front();
        }
        if self.scrolled > 0 {
            self.scrolled = (self.scrolled + 1).min(self.lines.len() - 1);
        }
        if is_message && (self.scrolled > 0 || self.is_unfocused) {
            self.unread += 1;
        }
    }

    /// Marks a message with what has become of it.
    pub(super) fn mark(&mut self, message: u64, now: DeliveryMark) {
        for line in self.lines.iter_mut().rev() {
            if let ConversationLine::To { id, mark, .. } = line
                && *id == message
            {
                *mark = now;
                return;
            }
        }
    }

    /// Whether the terminal is looked at.
    pub(super) fn focus(&mut self, has_focus: bool) {
        self.is_unfocused = !has_focus;
        self.mark_read();
    }

    /// Takes a text that was pasted.
    pub(super) fn paste(&mut self, text: &str) {
        self.input.insert(&text.replace(['\r', '\n', '\t'], " "));
    }

    /// Takes a key. `page` is how many lines are seen.
    pub(super) fn key(&mut self, key: KeyEvent, page: usize) -> KeyAction {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return KeyAction::Stop,
            KeyCode::Char('q') if is_control => return KeyAction::Command(ChatInputCommand::Quit),
            KeyCode::Char('d') if is_control && self.input.text().is_empty() => {
                return KeyAction::Command(ChatInputCommand::Quit);
            }
            KeyCode::Char('l') if is_control => return KeyAction::Redraw,
            KeyCode::Char('a') if is_control => self.input.home(),
            KeyCode::Char('e') if is_control => self.input.end(),
            KeyCode::Char('u') if is_control => self.input.clear(),
            KeyCode::Char('w') if is_control => self.input.delete_word(),
            KeyCode::Char(_) if is_control || key.modifiers.contains(KeyModifiers::ALT) => {}
            KeyCode::Char(typed) => self.input.insert(typed.encode_utf8(&mut [0; 4])),
            KeyCode::Backspace => self.input.backspace(),
            KeyCode::Delete => self.input.delete(),
            KeyCode::Left => self.input.left(),
            KeyCode::Right => self.input.right(),
            KeyCode::Home => self.input.home(),
            KeyCode::End if self.input.is_at_end() => self.scroll_to_end(),
            KeyCode::End => self.input.end(),
            KeyCode::Tab => self.input.complete(&self.members),
            KeyCode::Up => self.scroll_up(1),
            KeyCode::Down => self.scroll_down(1),
            KeyCode::PageUp => self.scroll_up(page.max(2) - 1),
            KeyCode::PageDown => self.scroll_down(page.max(2) - 1),
            KeyCode::Esc => self.scroll_to_end(),
            KeyCode::Enter => return self.enter(),
            _ => {}
        }
        KeyAction::Nothing
    }

    fn enter(&mut self) -> KeyAction {
        let line = self.input.text().to_owned();
        match ChatInputCommand::parse(&line, self.partner.as_deref()) {
            Err(wrong) => {
                // The line stays, so that it can be corrected.
                self.add(ConversationLine::Warning(wrong));
                self.scroll_to_end();
                KeyAction::Nothing
            }
            Ok(None) => KeyAction::Nothing,
            Ok(Some(command)) => {
                self.input.clear();
                self.scroll_to_end();
                KeyAction::Command(command)
            }
        }
    }

    fn scroll_up(&mut self, count: usize) {
        self.scrolled = (self.scrolled + count).min(self.lines.len().saturating_sub(1));
    }

    fn scroll_down(&mut self, count: usize) {
        self.scrolled = self.scrolled.saturating_sub(count);
        self.mark_read();
    }

    fn scroll_to_end(&mut self) {
        self.scrolled = 0;
        self.mark_read();
    }

    fn mark_read(&mut self) {
        if self.scrolled == 0 && !self.is_unfocused {
            self.unread = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(screen: &mut ChatScreen, code: KeyCode) -> KeyAction {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE), 10)
    }

    fn type_in(screen: &mut ChatScreen, text: &str) {
        text.chars().for_each(|c| assert_eq!(press(screen, KeyCode::Char(c)), KeyAction::Nothing));
    }

    fn from(name: &str, text: &str) -> ConversationLine {
        ConversationLine::From { name: name.into(), text: text.into() }
    }

    #[test]
    fn a_name_is_completed_and_the_partner_is_kept() {
        let mut screen =
            ChatScreen { members: vec!["bob".into(), "carol".into()], ..ChatScreen::default() };
        type_in(&mut screen, "@c");
        press(&mut screen, KeyCode::Tab);
        type_in(&mut screen, "hi");
        let entered = ChatInputCommand::Say { to: "carol".into(), text: "hi".into() };
        assert_eq!(press(&mut screen, KeyCode::Enter), KeyAction::Command(entered));
        assert_eq!(screen.input.text(), "");
        screen.partner = Some("carol".into());
        type_in(&mut screen, "again");
        let entered = ChatInputCommand::Say { to: "carol".into(), text: "again".into() };
        assert_eq!(press(&mut screen, KeyCode::Enter), KeyAction::Command(entered));
    }

    #[test]
    fn a_line_that_is_none_stays_and_says_why() {
        let mut screen = ChatScreen::default();
        type_in(&mut screen, "hello");
        assert_eq!(press(&mut screen, KeyCode::Enter), KeyAction::Nothing);
        assert_eq!(screen.input.text(), "hello");
        assert!(
            matches!(&screen.lines[0], ConversationLine::Warning(text) if text.contains("@NAME"))
        );
    }

    #[test]
    fn what_comes_while_nobody_looks_is_unread() {
        let mut screen = ChatScreen::default();
        for text in ["a", "b", "c"] {
            screen.add(from("bob", text));
        }
        assert_eq!(screen.unread, 0);
        press(&mut screen, KeyCode::Up);
        screen.add(from("bob", "d"));
        // The view stays where it is.
        assert_eq!((screen.unread, screen.scrolled), (1, 2));
        press(&mut screen, KeyCode::Esc);
        assert_eq!((screen.unread, screen.scrolled), (0, 0));
        screen.focus(false);
        screen.add(from("bob", "e"));
        screen.add(ConversationLine::Note("connected".into()));
        assert_eq!(screen.unread, 1);
        screen.focus(true);
        assert_eq!(screen.unread, 0);
    }

    #[test]
    fn a_message_is_marked_once_it_is_delivered() {
        let mut screen = ChatScreen::default();
        for id in [7, 8] {
            let (name, text) = ("bob".to_owned(), "x".to_owned());
            screen.add(ConversationLine::To { name, text, id, mark: DeliveryMark::Waiting });
        }
        screen.mark(7, DeliveryMark::Delivered);
        let marks = screen
            .lines
            .iter()
            .map(|line| matches!(line, ConversationLine::To { mark, .. } if *mark == DeliveryMark::Delivered));
        assert_eq!(marks.collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn control_c_ends_the_chat_at_once() {
        let mut screen = ChatScreen::default();
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(screen.key(control('c'), 10), KeyAction::Stop);
        assert_eq!(screen.key(control('d'), 10), KeyAction::Command(ChatInputCommand::Quit));
        type_in(&mut screen, "x");
        assert_eq!(screen.key(control('d'), 10), KeyAction::Nothing);
    }
}

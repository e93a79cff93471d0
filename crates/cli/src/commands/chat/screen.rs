//! The state of the terminal chat, and what keys do to it. It does no input or output.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::command::Command;
use super::input::Input;

/// The most lines that can be scrolled back to.
const MAX_LINES: usize = 10_000;

/// A line of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A member has said it.
    From { name: String, text: String },
    /// It was said to a member.
    To { name: String, text: String, id: u64, mark: Mark },
    /// What has happened.
    Note(String),
    /// What could not be done.
    Warning(String),
}

/// What is known of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It waits, or its acknowledgement does.
    Waiting,
    /// The receiver has it.
    Delivered,
    /// It is not sent any more.
    GivenUp,
}

/// What the status line shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Status {
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
    pub(super) least: usize,
    /// The messages that wait, or whose acknowledgements do.
    pub(super) waiting: usize,
    /// The rounds until the chat ends, if it is to.
    pub(super) leaves_in: Option<u64>,
}

/// The chat, as it is drawn.
#[derive(Debug, Default)]
pub(super) struct Screen {
    pub(super) lines: VecDeque<Line>,
    pub(super) input: Input,
    /// The member spoken to last.
    pub(super) partner: Option<String>,
    /// The other members.
    pub(super) members: Vec<String>,
    pub(super) status: Status,
    /// How many lines the view is above the last one.
    pub(super) scrolled: usize,
    /// The messages that have come since the last line was seen.
    pub(super) unread: usize,
    /// Whether the terminal says that it is looked at.
    pub(super) is_unfocused: bool,
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing but that it is drawn.
    Nothing,
    /// This.
    Command(Command),
    /// That everything is drawn again.
    Redraw,
    /// That the chat ends at once.
    Stop,
}

impl Screen {
    /// Adds a line.
    pub(super) fn add(&mut self, line: Line) {
        let is_message = matches!(line, Line::From { .. });
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
    pub(super) fn mark(&mut self, message: u64, now: Mark) {
        for line in self.lines.iter_mut().rev() {
            if let Line::To { id, mark, .. } = line
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
        self.see();
    }

    /// Takes a text that was pasted.
    pub(super) fn paste(&mut self, text: &str) {
        self.input.insert(&text.replace(['\r', '\n', '\t'], " "));
    }

    /// Takes a key. `page` is how many lines are seen.
    pub(super) fn key(&mut self, key: KeyEvent, page: usize) -> Asked {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Asked::Stop,
            KeyCode::Char('q') if is_control => return Asked::Command(Command::Quit),
            KeyCode::Char('d') if is_control && self.input.text().is_empty() => {
                return Asked::Command(Command::Quit);
            }
            KeyCode::Char('l') if is_control => return Asked::Redraw,
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
        Asked::Nothing
    }

    fn enter(&mut self) -> Asked {
        let line = self.input.text().to_owned();
        match Command::parse(&line, self.partner.as_deref()) {
            Err(wrong) => {
                // The line stays, so that it can be corrected.
                self.add(Line::Warning(wrong));
                self.scroll_to_end();
                Asked::Nothing
            }
            Ok(None) => Asked::Nothing,
            Ok(Some(command)) => {
                self.input.clear();
                self.scroll_to_end();
                Asked::Command(command)
            }
        }
    }

    fn scroll_up(&mut self, count: usize) {
        self.scrolled = (self.scrolled + count).min(self.lines.len().saturating_sub(1));
    }

    fn scroll_down(&mut self, count: usize) {
        self.scrolled = self.scrolled.saturating_sub(count);
        self.see();
    }

    fn scroll_to_end(&mut self) {
        self.scrolled = 0;
        self.see();
    }

    fn see(&mut self) {
        if self.scrolled == 0 && !self.is_unfocused {
            self.unread = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(screen: &mut Screen, code: KeyCode) -> Asked {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE), 10)
    }

    fn type_in(screen: &mut Screen, text: &str) {
        text.chars().for_each(|c| assert_eq!(press(screen, KeyCode::Char(c)), Asked::Nothing));
    }

    fn from(name: &str, text: &str) -> Line {
        Line::From { name: name.into(), text: text.into() }
    }

    #[test]
    fn a_name_is_completed_and_the_partner_is_kept() {
        let mut screen =
            Screen { members: vec!["bob".into(), "carol".into()], ..Screen::default() };
        type_in(&mut screen, "@c");
        press(&mut screen, KeyCode::Tab);
        type_in(&mut screen, "hi");
        let said = Command::Say { to: "carol".into(), text: "hi".into() };
        assert_eq!(press(&mut screen, KeyCode::Enter), Asked::Command(said));
        assert_eq!(screen.input.text(), "");
        screen.partner = Some("carol".into());
        type_in(&mut screen, "again");
        let said = Command::Say { to: "carol".into(), text: "again".into() };
        assert_eq!(press(&mut screen, KeyCode::Enter), Asked::Command(said));
    }

    #[test]
    fn a_line_that_is_none_stays_and_says_why() {
        let mut screen = Screen::default();
        type_in(&mut screen, "hello");
        assert_eq!(press(&mut screen, KeyCode::Enter), Asked::Nothing);
        assert_eq!(screen.input.text(), "hello");
        assert!(matches!(&screen.lines[0], Line::Warning(text) if text.contains("@NAME")));
    }

    #[test]
    fn what_comes_while_nobody_looks_is_unread() {
        let mut screen = Screen::default();
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
        screen.add(Line::Note("connected".into()));
        assert_eq!(screen.unread, 1);
        screen.focus(true);
        assert_eq!(screen.unread, 0);
    }

    #[test]
    fn a_message_is_marked_once_it_is_delivered() {
        let mut screen = Screen::default();
        for id in [7, 8] {
            let (name, text) = ("bob".to_owned(), "x".to_owned());
            screen.add(Line::To { name, text, id, mark: Mark::Waiting });
        }
        screen.mark(7, Mark::Delivered);
        let marks = screen
            .lines
            .iter()
            .map(|line| matches!(line, Line::To { mark, .. } if *mark == Mark::Delivered));
        assert_eq!(marks.collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn control_c_ends_the_chat_at_once() {
        let mut screen = Screen::default();
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(screen.key(control('c'), 10), Asked::Stop);
        assert_eq!(screen.key(control('d'), 10), Asked::Command(Command::Quit));
        type_in(&mut screen, "x");
        assert_eq!(screen.key(control('d'), 10), Asked::Nothing);
    }
}

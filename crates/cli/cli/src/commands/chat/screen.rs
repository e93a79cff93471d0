//! The state of the terminal chat, and what keys do to it. It does no input or output.

use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use mix::chat::{ALL, ChatContactList};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::command::ChatInputCommand;
use super::conversation::{ConversationLine, ConversationLog, DeliveryMark, LineContent, ViewSize};
use super::input::{LineEditor, MAX_LEN};
use super::rows::{self, count_rows};
use super::wrap::WrapCache;

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
    pub(super) conversation: ConversationLog,
    pub(super) wrap_cache: WrapCache,
    /// The size of the part of it that is seen.
    pub(super) view: ViewSize,
    pub(super) input: LineEditor,
    /// The member spoken to last.
    pub(super) partner: Option<String>,
    /// The other members.
    pub(super) members: Vec<String>,
    pub(super) contacts: ChatContactList,
    pub(super) status: ChatStatusLine,
    /// The messages that have come since the last row was seen.
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
    /// An empty chat, with times of this zone.
    pub(super) fn new(zone: TimeZone, status: ChatStatusLine) -> Self {
        Self { conversation: ConversationLog::new(zone), status, ..Self::default() }
    }

    /// Adds a line.
    pub(super) fn add(&mut self, content: LineContent) {
        self.add_at(SystemTime::now(), content);
    }

    /// Adds a line of this time.
    pub(super) fn add_at(&mut self, at: SystemTime, content: LineContent) {
        let is_message = matches!(content, LineContent::From { .. });
        self.conversation.add(at, content);
        if is_message && (self.conversation.is_scrolled() || self.is_unfocused) {
            self.unread += 1;
        }
    }

    /// Marks a message with what has become of it. Returns its line.
    pub(super) fn mark(&mut self, id: u64, now: DeliveryMark) -> Option<&ConversationLine> {
        self.conversation.mark(id, now)
    }

    /// See [`rows::sign`].
    pub(super) fn sign(&self, name: &str) -> &'static str {
        rows::sign(&self.contacts, name)
    }

    /// Whether the terminal is looked at.
    pub(super) fn focus(&mut self, has_focus: bool) {
        self.is_unfocused = !has_focus;
        self.mark_read();
    }

    /// Takes a text that was pasted.
    pub(super) fn paste(&mut self, text: &str) {
        if !self.input.insert(&text.replace(['\r', '\n', '\t'], " ")) {
            let text = format!("not pasted: a line has at most {MAX_LEN} bytes");
            self.add(LineContent::Warning(text));
        }
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> KeyAction {
        let page = self.view.height.max(2) - 1;
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
            KeyCode::Char(typed) => _ = self.input.insert(typed.encode_utf8(&mut [0; 4])),
            KeyCode::Backspace => self.input.backspace(),
            KeyCode::Delete => self.input.delete(),
            KeyCode::Left => self.input.left(),
            KeyCode::Right => self.input.right(),
            KeyCode::Home => self.input.home(),
            KeyCode::End if self.input.is_at_end() => self.scroll_to_end(),
            KeyCode::End => self.input.end(),
            KeyCode::Tab => self.input.complete(&self.receivers()),
            KeyCode::Up => self.scroll_up(1),
            KeyCode::Down => self.scroll_down(1),
            KeyCode::PageUp => self.scroll_up(page),
            KeyCode::PageDown => self.scroll_down(page),
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
                self.add(LineContent::Warning(wrong));
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

    /// What a message can be addressed to.
    pub(super) fn receivers(&self) -> Vec<String> {
        let groups = self.contacts.groups.keys().cloned();
        let all = (!self.members.is_empty()).then(|| ALL.to_owned());
        self.members.iter().cloned().chain(groups).chain(all).collect()
    }

    fn scroll_up(&mut self, rows: usize) {
        let mut conversation = std::mem::take(&mut self.conversation);
        let ViewSize { width, height } = self.view;
        let count =
            |line: &ConversationLine| count_rows(&self.wrap_cache, &self.contacts, line, width);
        conversation.scroll_up(rows, height, count);
        self.conversation = conversation;
    }

    fn scroll_down(&mut self, rows: usize) {
        let mut conversation = std::mem::take(&mut self.conversation);
        let width = self.view.width;
        let count =
            |line: &ConversationLine| count_rows(&self.wrap_cache, &self.contacts, line, width);
        conversation.scroll_down(rows, count);
        self.conversation = conversation;
        self.mark_read();
    }

    fn scroll_to_end(&mut self) {
        self.conversation.scroll_to_end();
        self.mark_read();
    }

    fn mark_read(&mut self) {
        if !self.conversation.is_scrolled() && !self.is_unfocused {
            self.unread = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use mix::chat::ContactTrust;

    use super::*;

    fn press(screen: &mut ChatScreen, code: KeyCode) -> KeyAction {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn type_in(screen: &mut ChatScreen, text: &str) {
        text.chars().for_each(|c| assert_eq!(press(screen, KeyCode::Char(c)), KeyAction::Nothing));
    }

    fn from(name: &str, text: &str) -> LineContent {
        LineContent::From { name: name.into(), trust: ContactTrust::Seen, text: text.into() }
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
        let last = &screen.conversation.since(1).next().unwrap().content;
        assert!(matches!(last, LineContent::Warning(text) if text.contains("@NAME")));
    }

    #[test]
    fn what_comes_while_nobody_looks_is_unread() {
        let view = ViewSize { width: 40, height: 3 };
        let mut screen = ChatScreen { view, ..ChatScreen::default() };
        for text in ["a", "b", "c"] {
            screen.add(from("bob", text));
        }
        assert_eq!(screen.unread, 0);
        press(&mut screen, KeyCode::Up);
        screen.add(from("bob", "d"));
        assert_eq!((screen.unread, screen.conversation.is_scrolled()), (1, true));
        press(&mut screen, KeyCode::Esc);
        assert_eq!((screen.unread, screen.conversation.is_scrolled()), (0, false));
        screen.focus(false);
        screen.add(from("bob", "e"));
        screen.add(LineContent::Note("connected".into()));
        assert_eq!(screen.unread, 1);
        screen.focus(true);
        assert_eq!(screen.unread, 0);
    }

    #[test]
    fn members_groups_and_all_are_completed() {
        let mut screen = ChatScreen { members: vec!["bob".into()], ..ChatScreen::default() };
        screen.contacts.groups.insert("team".into(), vec!["bob".into()]);
        for (typed, completed) in [("@t", "@team "), ("@a", "@all "), ("@b", "@bob ")] {
            type_in(&mut screen, typed);
            press(&mut screen, KeyCode::Tab);
            assert_eq!(screen.input.text(), completed);
            screen.input.clear();
        }
    }

    #[test]
    fn a_paste_that_is_too_long_is_reported() {
        let mut screen = ChatScreen::default();
        screen.paste(&"x".repeat(MAX_LEN + 1));
        assert_eq!(screen.input.text(), "");
        assert_eq!(screen.conversation.count(), 2);
        screen.paste("two\nlines");
        assert_eq!(screen.input.text(), "two lines");
    }

    #[test]
    fn control_c_ends_the_chat_at_once() {
        let mut screen = ChatScreen::default();
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(screen.key(control('c')), KeyAction::Stop);
        assert_eq!(screen.key(control('d')), KeyAction::Command(ChatInputCommand::Quit));
        type_in(&mut screen, "x");
        assert_eq!(screen.key(control('d')), KeyAction::Nothing);
    }
}

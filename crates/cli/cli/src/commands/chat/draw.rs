//! How the chat is drawn: a function of its state.

use ratatui::Frame;
use ratatui::buffer::{Buffer, Cell, CellDiffOption};
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line as Row, Span};
use ratatui::widgets::Paragraph;

use super::command::visible;
use super::conversation::ViewSize;
use super::rows::rows_of;
use super::screen::{ChatScreen, ChatStatusLine};
use super::wrap::{first_part, last_part, width};

/// Draws the conversation, the status line below it, and the input line at the bottom. Returns the
/// size of the conversation.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &ChatScreen) -> ViewSize {
    let rows = [Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)];
    let [conversation, status, input] = Layout::vertical(rows).areas(frame.area());
    let view = ViewSize {
        width: usize::from(conversation.width),
        height: usize::from(conversation.height),
    };
    let rows = screen
        .conversation
        .seen(view.height, |line| rows_of(&screen.wrap_cache, &screen.contacts, line, view.width));
    frame.render_widget(Paragraph::new(Vec::from(rows)), conversation);
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let text = status_text(screen, usize::from(status.width));
    frame.render_widget(Paragraph::new(text).style(style), status);
    draw_input(frame, input, screen);
    view
}

/// Has each row that differs from what is shown written as a whole. A terminal may draw a character
/// wider than it is here, and the rest of its row farther to the right. Of such a row, a part would
/// remain behind the text that is drawn there next, and look like a part of it.
pub(super) fn rewrite_changed_rows(drawn: &mut Buffer, shown: &Buffer) {
    let width = usize::from(drawn.area.width).max(1);
    let is_resized = drawn.area != shown.area;
    let mut before = shown.content.chunks(width);
    for row in drawn.content.chunks_mut(width) {
        let before = before.next().unwrap_or_default().iter().map(Cell::symbol);
        if is_resized || before.ne(row.iter().map(Cell::symbol)) {
            for cell in row {
                cell.set_diff_option(CellDiffOption::AlwaysUpdate);
            }
        }
    }
}

/// The status line: what has changed or is wrong comes first, because the end is cut off in a
/// narrow terminal.
fn status_text(screen: &ChatScreen, width: usize) -> String {
    let ChatStatusLine {
        group,
        connection,
        round,
        latency,
        anonymity_set,
        min_anonymity: least,
        waiting,
        bytes_today,
        leaves_in,
    } = &screen.status;
    let mut parts = Vec::new();
    if let Some(rounds) = leaves_in {
        parts.push(format!("ends in {rounds} rounds, Ctrl-C at once"));
    }
    if screen.unread > 0 {
        parts.push(format!("{} unread", screen.unread));
    }
    if screen.conversation.is_scrolled() {
        parts.push("scrolled, Esc to the end".to_owned());
    }
    match connection {
        Some(why) => parts.push(why.clone()),
        None if anonymity_set < least => {
            parts.push(format!("{anonymity_set} take part: too few to send, {least} needed"));
        }
        None => parts.push(format!("{anonymity_set} take part")),
    }
    if *waiting > 0 {
        parts.push(format!("{waiting} not delivered"));
    }
    parts.push(format!("round {round}"));
    if let Some(latency) = latency {
        parts.push(format!("{:.0} ms", latency.as_secs_f64() * 1e3));
    }
    parts.push(group.clone());
    if *bytes_today > 0 {
        parts.push(format!("{} MB today", bytes_today.div_ceil(1_000_000)));
    }
    let text = format!(" {}", visible(&parts.join("  ")));
    format!("{text:width$}")
}

/// The input line, so that the cursor is seen.
fn draw_input(frame: &mut Frame<'_>, area: Rect, screen: &ChatScreen) {
    let prompt = match &screen.partner {
        Some(partner) => format!("{}@{}> ", screen.sign(partner), visible(partner)),
        None => "> ".to_owned(),
    };
    let prompt_width = width(&prompt);
    let room = usize::from(area.width).saturating_sub(prompt_width + 1);
    // Only what is seen is looked at: the text can be long.
    let (before, behind) = screen.input.parts();
    let shown = visible(last_part(before, room));
    let shown = last_part(&shown, room);
    let cursor = prompt_width + width(shown);
    let behind = visible(first_part(behind, usize::from(area.width).saturating_sub(cursor)));
    let row = Row::from(vec![
        Span::styled(prompt, Style::new().add_modifier(Modifier::DIM)),
        Span::raw(format!("{shown}{behind}")),
    ]);
    frame.render_widget(Paragraph::new(row), area);
    let x = u16::try_from(cursor).unwrap_or(u16::MAX).min(area.width.saturating_sub(1));
    frame.set_cursor_position(Position::new(area.x + x, area.y));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use mix::chat::ContactTrust;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::conversation::{DeliveryMark, LineContent, SentMessage};
    use super::*;

    /// What a terminal of this size shows.
    fn shown(screen: &ChatScreen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| _ = draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content.iter().map(Cell::symbol).collect();
        let rows = cells.chunks(usize::from(width));
        rows.map(|row| row.concat().trim_end().to_owned()).collect()
    }

    fn screen() -> ChatScreen {
        let mut screen = ChatScreen {
            status: ChatStatusLine {
                group: "friends".into(),
                round: 7,
                latency: Some(Duration::from_millis(12)),
                anonymity_set: 3,
                min_anonymity: 3,
                ..ChatStatusLine::default()
            },
            ..ChatScreen::default()
        };
        add(&mut screen, from("one two three four"));
        let (name, text) = ("bob".to_owned(), "five".to_owned());
        let messages = vec![SentMessage { id: 1, to: "bob".into(), mark: DeliveryMark::Delivered }];
        add(&mut screen, LineContent::To { name, text, messages });
        screen
    }

    fn from(text: &str) -> LineContent {
        LineContent::From { name: "bob".into(), trust: ContactTrust::Seen, text: text.into() }
    }

    fn add(screen: &mut ChatScreen, content: LineContent) {
        screen.add_at(SystemTime::UNIX_EPOCH + Duration::from_secs(8 * 3600), content);
    }

    #[test]
    fn long_lines_are_wrapped_and_the_last_ones_are_seen() {
        let screen = screen();
        let wide = [
            "— Thursday, 1 January 1970 —",
            "08:00 bob: one two three four",
            "08:00 → bob: five ✓",
            "",
            " 3 take part  round 7  12 ms  friends",
            ">",
        ];
        assert_eq!(shown(&screen, 60, 6), wide);
        let narrow = ["  three four", "→ bob: five ✓", " 3 take part", ">"];
        assert_eq!(shown(&screen, 14, 4), narrow);
    }

    #[test]
    fn a_word_that_is_too_long_is_broken() {
        let mut screen = ChatScreen::default();
        add(&mut screen, from("abcdefghij 漢字漢字漢字"));
        let shown = shown(&screen, 10, 9);
        assert_eq!(
            shown[3..7],
            ["bob: abcde", "  fghij", "  漢字漢字", "  漢字"].map(|row| {
                // A wide character has two cells, of which the second is empty.
                row.chars()
                    .map(|c| if c > '\u{FF}' { format!("{c} ") } else { c.to_string() })
                    .collect::<String>()
                    .trim_end()
                    .to_owned()
            })
        );
    }

    #[test]
    fn a_row_of_a_text_does_not_look_like_a_message_of_another_member() {
        let mut screen = ChatScreen::default();
        // It fills the row, so that the rest begins in the next one.
        let text = format!("hello{}08:01 ◆carol: send him the key", "\u{a0}".repeat(24));
        add(&mut screen, from(&text));
        let shown = shown(&screen, 40, 6);
        assert!(shown[2].starts_with("  08:01 ◆carol"), "{shown:?}");
    }

    #[test]
    fn a_row_that_has_changed_is_written_as_a_whole() {
        let area = Rect::new(0, 0, 12, 3);
        let before = Buffer::with_lines(["one", "two", "three       "]);
        assert_eq!(before.area, area);
        let mut now = Buffer::with_lines(["one", "漢o", "three       "]);
        rewrite_changed_rows(&mut now, &before);
        let written: Vec<_> = before.diff(&now).iter().map(|(x, y, _)| (*x, *y)).collect();
        // The second half of the wide character is written with the first one.
        let expected: Vec<_> = (0..12).filter(|x| *x != 1).map(|x| (x, 1)).collect();
        assert_eq!(written, expected);
        rewrite_changed_rows(&mut now, &Buffer::default());
        assert_eq!(before.diff(&now).len(), 35);
    }

    #[test]
    fn too_few_participants_and_no_connection_are_shown() {
        let mut screen = screen();
        screen.status.anonymity_set = 2;
        assert!(shown(&screen, 80, 4)[2].contains("2 take part: too few to send, 3 needed"));
        screen.status.connection = Some("no connection".into());
        assert!(shown(&screen, 80, 4)[2].starts_with(" no connection  round 7"));
        screen.unread = 2;
        assert!(shown(&screen, 80, 4)[2].starts_with(" 2 unread"));
    }

    #[test]
    fn the_cursor_is_seen_in_a_long_input() {
        let mut screen = screen();
        screen.partner = Some("bob".into());
        screen.input.insert("abcdefghijklmnopqrstuvwxyz");
        assert_eq!(shown(&screen, 14, 4)[3], "@bob> tuvwxyz");
        screen.input.insert("👨‍👩‍👧");
        assert_eq!(shown(&screen, 14, 4)[3].trim_end(), "@bob> vwxyz👨‍👩‍👧");
        assert_eq!(shown(&screen, 1, 1).len(), 1);
        assert_eq!(shown(&screen, 3, 2).len(), 2);
    }

    #[test]
    fn verified_members_and_changed_keys_have_signs() {
        let mut screen = screen();
        screen.contacts.verified.insert("bob".into());
        assert_eq!(shown(&screen, 60, 5)[2], "08:00 → ◆bob: five ✓");
        screen.contacts.verified.clear();
        screen.contacts.changed.insert("bob".into());
        screen.partner = Some("bob".into());
        let shown = shown(&screen, 60, 5);
        assert_eq!((&*shown[2], &*shown[4]), ("08:00 → ?bob: five ✓", "?@bob>"));
    }

    #[test]
    fn the_sign_of_a_message_is_that_of_the_key_that_has_sent_it() {
        let mut screen = ChatScreen::default();
        let trusts = [ContactTrust::Seen, ContactTrust::Verified, ContactTrust::Changed];
        for trust in trusts {
            add(&mut screen, LineContent::From { name: "bob".into(), trust, text: "hi".into() });
        }
        let expected = ["08:00 bob: hi", "08:00 ◆bob: hi", "08:00 ?bob: hi"];
        assert_eq!(shown(&screen, 60, 6)[1..4], expected);
        // Another key of this name is verified later, or replaced.
        screen.contacts.verified.insert("bob".into());
        assert_eq!(shown(&screen, 60, 6)[1..4], expected);
        screen.contacts.verified.clear();
        screen.contacts.changed.insert("bob".into());
        assert_eq!(shown(&screen, 60, 6)[1..4], expected);
    }
}

//! How the chat is drawn: a function of its state.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Row, Span};
use ratatui::widgets::Paragraph;

use super::command::visible;
use super::screen::{ChatScreen, ChatStatusLine, ConversationLine, DeliveryMark};

/// Draws the conversation, the status line below it, and the input line at the bottom. Returns how
/// many rows the conversation has.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &ChatScreen) -> usize {
    let rows = [Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)];
    let [conversation, status, input] = Layout::vertical(rows).areas(frame.area());
    draw_conversation(frame, conversation, screen);
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let text = status_text(screen, usize::from(status.width));
    frame.render_widget(Paragraph::new(text).style(style), status);
    draw_input(frame, input, screen);
    usize::from(conversation.height)
}

/// The last rows above the place to which it is scrolled.
fn draw_conversation(frame: &mut Frame<'_>, area: Rect, screen: &ChatScreen) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut rows: Vec<Row<'static>> = Vec::new();
    for line in screen.lines.iter().rev().skip(screen.scrolled) {
        let wrapped = wrap(line, width);
        rows.splice(0..0, wrapped);
        if rows.len() >= height {
            break;
        }
    }
    let above = rows.len().saturating_sub(height);
    rows.drain(..above);
    let area = Rect { height: u16::try_from(rows.len()).unwrap_or(area.height), ..area };
    frame.render_widget(Paragraph::new(rows), area);
}

/// The rows of a line: its head, in a colour, and its text, which may have several rows.
fn wrap(line: &ConversationLine, width: usize) -> Vec<Row<'static>> {
    let bold = |colour| Style::new().fg(colour).add_modifier(Modifier::BOLD);
    let (head, style, text, mark) = match line {
        ConversationLine::From { name, text } => {
            (format!("{name}: "), bold(Color::Green), visible(text), "")
        }
        ConversationLine::To { name, text, mark, .. } => {
            let mark = match mark {
                DeliveryMark::Waiting => " ·",
                DeliveryMark::Stored => " ○",
                DeliveryMark::Delivered => " ✓",
                DeliveryMark::GivenUp => " ✗",
            };
            (format!("→ {name}: "), bold(Color::Cyan), visible(text), mark)
        }
        ConversationLine::Note(text) => (String::new(), Style::new(), visible(text), ""),
        ConversationLine::Warning(text) => ("! ".to_owned(), bold(Color::Red), visible(text), ""),
    };
    let dim = matches!(line, ConversationLine::Note(_));
    let text_style = if dim { Style::new().add_modifier(Modifier::DIM) } else { Style::new() };
    let head = visible(&head);
    let mut rows = Vec::new();
    let mut left = width.saturating_sub(Span::raw(head.as_str()).width());
    let mut spans = vec![Span::styled(head, style)];
    let mut row = String::new();
    for word in (text + mark).split_inclusive(' ') {
        let len = Span::raw(word.trim_end()).width();
        if len > left && !row.is_empty() {
            spans.push(Span::styled(std::mem::take(&mut row), text_style));
            rows.push(Row::from(std::mem::take(&mut spans)));
            left = width;
        }
        for c in word.chars() {
            let len = Span::raw(c.encode_utf8(&mut [0; 4]) as &str).width();
            if len > left {
                if c == ' ' {
                    continue;
                }
                spans.push(Span::styled(std::mem::take(&mut row), text_style));
                rows.push(Row::from(std::mem::take(&mut spans)));
                left = width.max(len);
            }
            row.push(c);
            left -= len;
        }
    }
    spans.push(Span::styled(row, text_style));
    rows.push(Row::from(spans));
    rows
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
    if screen.scrolled > 0 {
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
        Some(partner) => format!("@{}> ", visible(partner)),
        None => "> ".to_owned(),
    };
    let (before, behind) = screen.input.parts();
    let (before, behind) = (visible(before), visible(behind));
    let prompt_width = Span::raw(prompt.as_str()).width();
    let room = usize::from(area.width).saturating_sub(prompt_width + 1);
    let mut shown = before.as_str();
    while Span::raw(shown).width() > room {
        let first = shown.chars().next().map_or(shown.len(), char::len_utf8);
        shown = &shown[first..];
    }
    let cursor = prompt_width + Span::raw(shown).width();
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
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    /// What a terminal of this size shows.
    fn shown(screen: &ChatScreen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| _ = draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
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
        screen
            .add(ConversationLine::From { name: "bob".into(), text: "one two three four".into() });
        let (name, text) = ("bob".to_owned(), "five".to_owned());
        screen.add(ConversationLine::To { name, text, id: 1, mark: DeliveryMark::Delivered });
        screen
    }

    #[test]
    fn long_lines_are_wrapped_and_the_last_ones_are_seen() {
        let screen = screen();
        let wide = [
            "bob: one two three four",
            "→ bob: five ✓",
            "",
            " 3 take part  round 7  12 ms  friends",
            ">",
        ];
        assert_eq!(shown(&screen, 60, 5), wide);
        let narrow = ["three four", "→ bob: five ✓", " 3 take part", ">"];
        assert_eq!(shown(&screen, 14, 4), narrow);
    }

    #[test]
    fn a_word_that_is_too_long_is_broken() {
        let mut screen = ChatScreen::default();
        screen.add(ConversationLine::From {
            name: "bob".into(),
            text: "abcdefghij 漢字漢字漢字".into(),
        });
        let shown = shown(&screen, 10, 8);
        assert_eq!(
            shown[..4],
            ["bob: abcde", "fghij", "漢字漢字漢", "字"].map(|row| {
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
        assert_eq!(shown(&screen, 1, 1).len(), 1);
        assert_eq!(shown(&screen, 3, 2).len(), 2);
    }
}

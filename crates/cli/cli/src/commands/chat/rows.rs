//! The rows of a line of the conversation.

use std::rc::Rc;

use mix::chat::{ChatContactList, ContactTrust};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Row, Span};

use super::command::visible;
use super::conversation::{ConversationLine, LineContent, combined_mark, sign_of};
use super::wrap::{WrapCache, width};

/// Narrower windows show no times.
const MIN_WIDTH_WITH_TIMES: usize = 30;

/// What is before the text in all rows of a line but the first one. Otherwise a member could write
/// a text of which a row looks like a message of another member.
const INDENT: &str = "  ";

/// The sign before the name of a member, as its key is trusted now.
pub(super) fn sign(contacts: &ChatContactList, name: &str) -> &'static str {
    sign_of(if contacts.verified.contains(name) {
        ContactTrust::Verified
    } else if contacts.changed.contains(name) {
        ContactTrust::Changed
    } else {
        ContactTrust::Seen
    })
}

/// The parts of a line before its text, each with its style; the text, and the text's style.
type LineParts = (Vec<(String, Style)>, String, Style);

fn parts_of(contacts: &ChatContactList, line: &ConversationLine, width: usize) -> LineParts {
    let bold = |colour| Style::new().fg(colour).add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let plain = Style::new();
    let (head, head_style, text, style) = match &line.content {
        LineContent::From { name, trust, text } => {
            (format!("{}{name}: ", sign_of(*trust)), bold(Color::Green), text.clone(), plain)
        }
        LineContent::To { name, text, messages } => {
            let sign = sign(contacts, name);
            let text = format!("{text} {}", combined_mark(messages));
            (format!("→ {sign}{name}: "), bold(Color::Cyan), text, plain)
        }
        LineContent::Note(text) => (String::new(), plain, text.clone(), dim),
        LineContent::Warning(text) => ("! ".to_owned(), bold(Color::Red), text.clone(), plain),
        LineContent::Day(day) => (String::new(), plain, format!("— {day} —"), dim),
    };
    let time = match line.time.as_str() {
        "" => String::new(),
        _ if width < MIN_WIDTH_WITH_TIMES => String::new(),
        time => format!("{time} "),
    };
    (vec![(time, dim), (visible(&head), head_style)], visible(&text), style)
}

/// The rows of a line.
pub(super) fn rows_of(
    cache: &WrapCache,
    contacts: &ChatContactList,
    line: &ConversationLine,
    row_width: usize,
) -> Vec<Row<'static>> {
    let (heads, text, style) = parts_of(contacts, line, row_width);
    let texts = wrap_behind(cache, &heads, &text, row_width);
    let mut before: Vec<Span<'_>> =
        heads.into_iter().map(|(head, style)| Span::styled(head, style)).collect();
    let rows = texts.iter().map(|text| {
        let mut spans = std::mem::replace(&mut before, vec![Span::raw(INDENT)]);
        spans.push(Span::styled(text.clone(), style));
        Row::from(spans)
    });
    rows.collect()
}

/// How many rows a line has.
pub(super) fn count_rows(
    cache: &WrapCache,
    contacts: &ChatContactList,
    line: &ConversationLine,
    row_width: usize,
) -> usize {
    let (heads, text, _) = parts_of(contacts, line, row_width);
    wrap_behind(cache, &heads, &text, row_width).len()
}

/// The text of each row: in the first one behind the heads, in the others behind [`INDENT`].
fn wrap_behind(
    cache: &WrapCache,
    heads: &[(String, Style)],
    text: &str,
    row_width: usize,
) -> Rc<[String]> {
    let head_width: usize = heads.iter().map(|(head, _)| width(head)).sum();
    let left = |before: usize| row_width.saturating_sub(before);
    cache.wrap(text, left(head_width), left(INDENT.len()))
}

//! The lines of the conversation, and the part of them that is seen.

use std::collections::VecDeque;
use std::time::SystemTime;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use mix::chat::ContactTrust;

/// The most lines that can be scrolled back to.
const MAX_LINES: usize = 10_000;

/// The most bytes of their texts. Longer ones of the members would take all memory.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// A line of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConversationLine {
    /// When it was added, in this place: hours and minutes. Empty if it is a new day.
    pub(super) time: String,
    pub(super) content: LineContent,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineContent {
    /// A message of a member, with the trust in its key when the message arrived.
    From { name: String, trust: ContactTrust, text: String },
    /// A message to a member, or to several: one message each. None is in the history.
    To { name: String, text: String, messages: Vec<SentMessage> },
    /// What has happened.
    Note(String),
    /// What could not be done.
    Warning(String),
    /// The next lines are of this day.
    Day(String),
}

impl LineContent {
    fn text(&self) -> &str {
        match self {
            Self::From { text, .. }
            | Self::To { text, .. }
            | Self::Note(text)
            | Self::Warning(text)
            | Self::Day(text) => text,
        }
    }
}

/// The sign before the name of a member or sender: whether its key is verified, or another one than
/// the name had. No name contains it.
pub(super) fn sign_of(trust: ContactTrust) -> &'static str {
    match trust {
        ContactTrust::Seen => "",
        ContactTrust::Verified => "◆",
        ContactTrust::Changed => "?",
    }
}

/// A message to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentMessage {
    pub(super) id: u64,
    pub(super) to: String,
    pub(super) mark: DeliveryMark,
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

/// The mark of a line: that of its message; of several, how many are delivered.
pub(super) fn combined_mark(messages: &[SentMessage]) -> String {
    let count = |mark| messages.iter().filter(|message| message.mark == mark).count();
    let delivered = count(DeliveryMark::Delivered);
    let mark = if count(DeliveryMark::Waiting) > 0 {
        '·'
    } else if count(DeliveryMark::Stored) > 0 {
        '○'
    } else if delivered == messages.len() {
        '✓'
    } else {
        '✗'
    };
    match messages.len() {
        0 | 1 => mark.to_string(),
        all => format!("{mark} {delivered}/{all}"),
    }
}

/// The size of the part that is seen, in cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ViewSize {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// A row of a line: the last one that is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ViewAnchor {
    /// The number of the line since the beginning.
    line: u64,
    /// The row in the line.
    row: usize,
}

/// The conversation, in the zone of this place.
#[derive(Debug)]
pub(super) struct ConversationLog {
    lines: VecDeque<ConversationLine>,
    /// The bytes of their texts.
    text_bytes: usize,
    /// How many lines were removed before these.
    removed: u64,
    /// `None`: the last row is seen.
    anchor: Option<ViewAnchor>,
    zone: TimeZone,
    day: Option<Date>,
}

impl ConversationLog {
    pub(super) fn new(zone: TimeZone) -> Self {
        Self { lines: VecDeque::new(), text_bytes: 0, removed: 0, anchor: None, zone, day: None }
    }

    /// Adds a line of a time. A line with the date precedes the first one of a day.
    pub(super) fn add(&mut self, at: SystemTime, content: LineContent) {
        let at = Timestamp::try_from(at).unwrap_or_default();
        let at: ZonedDateTime = at.to_zoned_datetime(self.zone.clone());
        if self.day != Some(at.date()) {
            self.day = Some(at.date());
            let day = LineContent::Day(at.strftime("%A, %-d %B %Y").to_string());
            self.push(ConversationLine { time: String::new(), content: day });
        }
        self.push(ConversationLine { time: at.strftime("%H:%M").to_string(), content });
    }

    fn push(&mut self, line: ConversationLine) {
        self.text_bytes += line.content.text().len();
        self.lines.push_back(line);
        while self.lines.len() > MAX_LINES || self.text_bytes > MAX_TEXT_BYTES {
            let Some(removed) = self.lines.pop_front() else { break };
            self.text_bytes -= removed.content.text().len();
            self.removed += 1;
        }
    }

    /// The lines with this number and later. The first line has the number 0.
    pub(super) fn since(&self, number: u64) -> impl Iterator<Item = &ConversationLine> {
        let skipped = number.saturating_sub(self.removed);
        self.lines.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    /// The number of the next line.
    pub(super) fn count(&self) -> u64 {
        self.removed + self.lines.len() as u64
    }

    /// Marks a message with what has become of it. Returns its line.
    pub(super) fn mark(&mut self, id: u64, now: DeliveryMark) -> Option<&ConversationLine> {
        let is_it = |line: &ConversationLine| match &line.content {
            LineContent::To { messages, .. } => messages.iter().any(|message| message.id == id),
            _ => false,
        };
        let line = self.lines.iter_mut().rev().find(|line| is_it(line))?;
        if let LineContent::To { messages, .. } = &mut line.content
            && let Some(message) = messages.iter_mut().find(|message| message.id == id)
        {
            message.mark = now;
        }
        Some(line)
    }

    /// Whether rows below those that are seen exist.
    pub(super) fn is_scrolled(&self) -> bool {
        self.anchor.is_some()
    }

    /// Shows the last row.
    pub(super) fn scroll_to_end(&mut self) {
        self.anchor = None;
    }

    /// Moves the view up by this number of rows, but not beyond the first row. `wrap` returns how
    /// many rows a line has.
    pub(super) fn scroll_up(
        &mut self,
        rows: usize,
        height: usize,
        wrap: impl Fn(&ConversationLine) -> usize,
    ) {
        let Some(mut at) = self.last_seen(&wrap) else { return };
        // The rows from the first one to the last one that is seen, as far as they matter.
        let mut available = at.row + 1;
        for line in self.lines.iter().take(self.index(at.line)).rev() {
            if available >= height + rows {
                break;
            }
            available += wrap(line);
        }
        let mut left = rows.min(available.saturating_sub(height));
        if left == 0 {
            return;
        }
        while left > at.row {
            left -= at.row + 1;
            at.line -= 1;
            at.row = wrap(&self.lines[self.index(at.line)]) - 1;
        }
        at.row -= left;
        self.anchor = Some(at);
    }

    /// Moves the view down by this number of rows, at most to the last row.
    pub(super) fn scroll_down(&mut self, rows: usize, wrap: impl Fn(&ConversationLine) -> usize) {
        if self.anchor.is_none() {
            return;
        }
        let Some(mut at) = self.last_seen(&wrap) else { return };
        let mut left = rows;
        loop {
            let len = wrap(&self.lines[self.index(at.line)]);
            let is_last = at.line + 1 == self.count();
            if is_last && at.row + left + 1 >= len {
                self.anchor = None;
                return;
            }
            if at.row + left < len {
                at.row += left;
                self.anchor = Some(at);
                return;
            }
            left -= len - at.row;
            at = ViewAnchor { line: at.line + 1, row: 0 };
        }
    }

    /// The rows that are seen, at most `height`. `wrap` returns the rows of a line.
    pub(super) fn seen<T>(
        &self,
        height: usize,
        wrap: impl Fn(&ConversationLine) -> Vec<T>,
    ) -> VecDeque<T> {
        let mut rows = VecDeque::new();
        let Some(last) = self.last_seen(&|line| wrap(line).len()) else { return rows };
        for (index, line) in self.lines.iter().enumerate().take(self.index(last.line) + 1).rev() {
            let mut of_line = wrap(line);
            if index == self.index(last.line) {
                of_line.truncate(last.row + 1);
            }
            of_line.into_iter().rev().for_each(|row| rows.push_front(row));
            if rows.len() >= height {
                break;
            }
        }
        let above = rows.len().saturating_sub(height);
        rows.drain(..above);
        rows
    }

    /// The last row that is seen; `None` if there are no lines. The window may have become wider
    /// since the anchor was set, and its line may have been removed.
    fn last_seen(&self, wrap: &impl Fn(&ConversationLine) -> usize) -> Option<ViewAnchor> {
        let last = ViewAnchor { line: self.count().checked_sub(1)?, row: usize::MAX };
        let anchor = self.anchor.unwrap_or(last);
        let line = anchor.line.max(self.removed);
        let rows = wrap(self.lines.get(self.index(line))?);
        Some(ViewAnchor { line, row: anchor.row.min(rows.saturating_sub(1)) })
    }

    fn index(&self, line: u64) -> usize {
        usize::try_from(line - self.removed).unwrap_or(usize::MAX)
    }
}

impl Default for ConversationLog {
    fn default() -> Self {
        Self::new(TimeZone::UTC)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Lines whose text is the number of their rows. The line of the day has one.
    fn conversation(rows: &[usize]) -> ConversationLog {
        let mut conversation = ConversationLog::default();
        for count in rows {
            conversation.add(SystemTime::UNIX_EPOCH, LineContent::Note(count.to_string()));
        }
        conversation
    }

    fn wrap(line: &ConversationLine) -> Vec<String> {
        let LineContent::Note(count) = &line.content else { return vec!["day".into()] };
        (0..count.parse().unwrap()).map(|row| format!("{count}.{row}")).collect()
    }

    fn seen(conversation: &ConversationLog, height: usize) -> Vec<String> {
        conversation.seen(height, wrap).into()
    }

    #[test]
    fn every_row_of_a_long_message_can_be_reached() {
        let mut conversation = conversation(&[100, 2]);
        let rows = |line: &ConversationLine| wrap(line).len();
        let mut reached = seen(&conversation, 10);
        assert_eq!(reached.last().unwrap(), "2.1");
        for _ in 0..200 {
            conversation.scroll_up(1, 10, rows);
            let now = seen(&conversation, 10);
            assert_eq!(now.len(), 10);
            if now[0] != reached[0] {
                reached.insert(0, now[0].clone());
            }
        }
        let all: Vec<String> = conversation.lines.iter().flat_map(wrap).collect();
        assert_eq!(reached, all);
        for _ in 0..92 {
            conversation.scroll_down(1, rows);
            assert!(conversation.is_scrolled());
        }
        // In pages it comes to the same rows.
        let before = seen(&conversation, 10);
        conversation.scroll_up(9, 10, rows);
        conversation.scroll_up(18, 10, rows);
        conversation.scroll_down(27, rows);
        assert_eq!(seen(&conversation, 10), before);
        conversation.scroll_down(50, rows);
        assert!(!conversation.is_scrolled());
        assert_eq!(seen(&conversation, 10).last().unwrap(), "2.1");
    }

    #[test]
    fn the_view_stays_when_lines_come_and_when_the_window_changes() {
        let mut conversation = conversation(&[20, 5]);
        conversation.scroll_up(7, 4, |line| wrap(line).len());
        let before = seen(&conversation, 4);
        conversation.add(SystemTime::UNIX_EPOCH, LineContent::Note("3".into()));
        assert_eq!((seen(&conversation, 4), &*before[3]), (before.clone(), "20.17"));
        // Rows that do not exist any more in a wider window.
        let narrow = |line: &ConversationLine| wrap(line).into_iter().take(3).collect::<Vec<_>>();
        assert_eq!(conversation.seen(4, narrow).back().unwrap(), "20.2");
        let empty = ConversationLog::default();
        assert!(seen(&empty, 4).is_empty());
    }

    #[test]
    fn a_line_that_is_seen_may_be_removed() {
        let mut conversation = conversation(&[1; 20]);
        conversation.scroll_up(15, 3, |line| wrap(line).len());
        for _ in 0..2 * MAX_LINES {
            conversation.add(SystemTime::UNIX_EPOCH, LineContent::Note("1".into()));
        }
        assert_eq!(seen(&conversation, 3).len(), 1);
        conversation.scroll_down(1, |line| wrap(line).len());
        assert_eq!(seen(&conversation, 3).len(), 2);
    }

    #[test]
    fn long_messages_of_members_do_not_take_all_memory() {
        let mut conversation = ConversationLog::default();
        for number in 0..1000 {
            let text = number.to_string().repeat(20_000);
            let content = LineContent::From { name: "bob".into(), trust: ContactTrust::Seen, text };
            conversation.add(SystemTime::UNIX_EPOCH, content);
        }
        let len = conversation.lines.iter().map(|line| line.content.text().len()).sum::<usize>();
        assert_eq!(len, conversation.text_bytes);
        assert!((MAX_TEXT_BYTES - 100_000..=MAX_TEXT_BYTES).contains(&len), "{len}");
        assert!(conversation.lines.back().unwrap().content.text().starts_with("999"));
    }

    #[test]
    fn days_and_times_are_those_of_the_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let mut conversation = ConversationLog::new(zone);
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for hours in [0, 1, 13, 14] {
            let at = start + Duration::from_secs(hours * 3600);
            conversation.add(at, LineContent::Note(hours.to_string()));
        }
        let shown = conversation.since(0).map(|line| match &line.content {
            LineContent::Day(day) => day.clone(),
            _ => line.time.clone(),
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "Friday, 15 January 2027",
                "10:00",
                "11:00",
                "23:00",
                "Saturday, 16 January 2027",
                "00:00"
            ]
        );
    }

    #[test]
    fn the_mark_of_a_message_to_several_counts() {
        let message = |id, mark| SentMessage { id, to: "bob".into(), mark };
        let mut conversation = ConversationLog::default();
        let messages = (1..4).map(|id| message(id, DeliveryMark::Waiting)).collect();
        let (name, text) = ("team".into(), "x".into());
        conversation.add(SystemTime::UNIX_EPOCH, LineContent::To { name, text, messages });
        let mut marks = Vec::new();
        for (id, mark) in [
            (2, DeliveryMark::Delivered),
            (1, DeliveryMark::Delivered),
            (3, DeliveryMark::Stored),
            (3, DeliveryMark::GivenUp),
        ] {
            let line = conversation.mark(id, mark).unwrap();
            let LineContent::To { messages, .. } = &line.content else { panic!() };
            marks.push(combined_mark(messages));
        }
        assert_eq!(marks, ["· 1/3", "· 2/3", "○ 2/3", "✗ 2/3"]);
        assert!(conversation.mark(9, DeliveryMark::Delivered).is_none());
        assert_eq!(combined_mark(&[message(1, DeliveryMark::Delivered)]), "✓");
        assert_eq!(combined_mark(&[]), "✓");
    }
}

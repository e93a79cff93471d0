//! The rows of a text. Widths are those of grapheme clusters, as terminals draw them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The most characters of a cluster that is shown. A family has seven, and the longest flags too.
/// Hundreds of marks on one letter would be drawn over the rows above and below.
const MAX_CLUSTER: usize = 16;

/// Shorter texts are divided in no time.
const MIN_CACHED_LEN: usize = 1000;

/// The most texts in a cache: more than a window shows of this length.
const MAX_CACHED: usize = 32;

/// In place of a longer cluster. A part of it could form another long one with what follows.
const LONG_CLUSTER: &str = "\u{FFFD}";

/// Whether terminals draw more cells for this character than [`width`] counts: the prepended
/// characters of the segmentation in clusters (Unicode, annex 29), and the selector of the narrow
/// form of an emoji.
pub(super) fn has_unclear_width(c: char) -> bool {
    matches!(
        c,
        '\u{600}'..='\u{605}'
            | '\u{6DD}'
            | '\u{70F}'
            | '\u{890}'..='\u{891}'
            | '\u{8E2}'
            | '\u{D4E}'
            | '\u{FE0E}'
            | '\u{110BD}'
            | '\u{110CD}'
            | '\u{111C2}'..='\u{111C3}'
            | '\u{113D1}'
            | '\u{1193F}'
            | '\u{11941}'
            | '\u{11A84}'..='\u{11A89}'
            | '\u{11D46}'
            | '\u{11F02}'
    )
}

/// The width of a text in cells.
pub(super) fn width(text: &str) -> usize {
    text.graphemes(true).map(str::width).sum()
}

/// The most cells that a terminal may give a text: some draw each character of a cluster for
/// itself, and many letters with two cells.
pub(super) fn max_width(text: &str) -> usize {
    text.chars().map(|c| if c.is_ascii() { 1 } else { c.width().unwrap_or(2).max(2) }).sum()
}

/// Divides a text into rows of this width. The first one has only `first` cells. A row ends between
/// words, and a word that is too long is divided between grapheme clusters.
pub(super) fn wrap(text: &str, first: usize, width: usize) -> Vec<String> {
    divide(text, first, width, self::width)
}

/// The same for any terminal: a row may be shorter than it could be.
pub(super) fn wrap_safely(text: &str, first: usize, width: usize) -> Vec<String> {
    divide(text, first, width, max_width)
}

fn divide(text: &str, first: usize, width: usize, measure: fn(&str) -> usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut left = first;
    let next_row = |rows: &mut Vec<String>, left: &mut usize| {
        rows.push(String::new());
        *left = width;
    };
    for word in text.split_inclusive(' ') {
        let is_row_begun = rows.last().is_some_and(|row| !row.is_empty());
        if is_row_begun && measure(word.trim_end()) > left {
            next_row(&mut rows, &mut left);
        }
        for cluster in word.graphemes(true) {
            let is_long = cluster.chars().nth(MAX_CLUSTER).is_some();
            let cluster = if is_long { LONG_CLUSTER } else { cluster };
            let len = measure(cluster);
            if len > left {
                if cluster == " " {
                    continue;
                }
                next_row(&mut rows, &mut left);
            }
            if let Some(row) = rows.last_mut() {
                row.push_str(cluster);
            }
            left = left.saturating_sub(len);
        }
    }
    rows
}

/// The rows of the long texts that were divided last. Everything is drawn after each key, and a
/// message can have 64 KiB.
#[derive(Debug, Default)]
pub(super) struct WrapCache(RefCell<VecDeque<WrappedText>>);

#[derive(Debug)]
struct WrappedText {
    text: String,
    widths: [usize; 2],
    rows: Rc<[String]>,
}

impl WrapCache {
    /// See [`wrap`].
    pub(super) fn wrap(&self, text: &str, first: usize, width: usize) -> Rc<[String]> {
        if text.len() < MIN_CACHED_LEN {
            return wrap(text, first, width).into();
        }
        let mut cached = self.0.borrow_mut();
        let is_it = |it: &&WrappedText| it.widths == [first, width] && it.text == text;
        if let Some(found) = cached.iter().find(is_it) {
            return found.rows.clone();
        }
        let rows: Rc<[String]> = wrap(text, first, width).into();
        cached.truncate(MAX_CACHED - 1);
        let (text, widths) = (text.to_owned(), [first, width]);
        cached.push_front(WrappedText { text, widths, rows: rows.clone() });
        rows
    }
}

/// The last part of a text that has at most this width.
pub(super) fn last_part(text: &str, max_width: usize) -> &str {
    let mut left = max_width;
    let mut start = text.len();
    for (at, cluster) in text.grapheme_indices(true).rev() {
        let Some(rest) = left.checked_sub(cluster.width()) else { break };
        (start, left) = (at, rest);
    }
    &text[start..]
}

/// The first part of a text that has at most this width.
pub(super) fn first_part(text: &str, max_width: usize) -> &str {
    let mut left = max_width;
    for (at, cluster) in text.grapheme_indices(true) {
        let Some(rest) = left.checked_sub(cluster.width()) else { return &text[..at] };
        left = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_between_words_and_clusters() {
        assert_eq!(wrap("one two three", 20, 20), ["one two three"]);
        assert_eq!(wrap("one two three", 4, 8), ["one ", "two ", "three"]);
        assert_eq!(wrap("abcdefghij", 5, 4), ["abcde", "fghi", "j"]);
        assert_eq!(wrap("漢字漢字", 5, 5), ["漢字", "漢字"]);
        assert_eq!(wrap("👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧", 4, 4), ["👨‍👩‍👧👨‍👩‍👧", "👨‍👩‍👧"]);
        assert_eq!(wrap("", 4, 4), [""]);
        // A window that is too narrow for a character.
        assert_eq!(wrap("漢a", 1, 1), ["", "漢", "a"]);
        assert_eq!(wrap("ab", 0, 0), ["", "a", "b"]);
        // Marks over marks.
        let marked = format!("a{}b", "\u{301}".repeat(15));
        assert_eq!(wrap(&marked, 4, 4), [marked]);
        let marked = format!("a{}b", "\u{301}".repeat(1000));
        assert_eq!(wrap(&marked, 4, 4), ["\u{FFFD}b"]);
    }

    #[test]
    fn what_replaces_long_clusters_forms_no_other_long_one() {
        // Prepended characters; emoji that are joined; vowels and final consonants of Hangul.
        for long in [
            format!("{}a", "\u{d4e}".repeat(20)),
            format!("{}👩", "👩\u{200D}".repeat(20)),
            format!("{}\u{11A8}", "\u{1161}".repeat(20)),
            format!("क{}", "\u{94D}क".repeat(20)),
        ] {
            for row in wrap(&long.repeat(50), 200, 200) {
                let longest = row.graphemes(true).map(|cluster| cluster.chars().count()).max();
                assert!(longest.unwrap() <= MAX_CLUSTER, "{long}: {longest:?}");
            }
        }
    }

    #[test]
    fn all_prepended_characters_have_an_unclear_width() {
        for c in (' '..=char::MAX).filter(|&c| c != 'a') {
            let is_prepended = format!("{c}a").graphemes(true).count() == 1;
            assert_eq!(has_unclear_width(c), is_prepended || c == '\u{FE0E}', "{c:?}");
        }
    }

    #[test]
    fn rows_for_any_terminal_are_not_wider_in_one_that_draws_each_character_for_itself() {
        assert_eq!(wrap_safely("one two three", 4, 8), ["one ", "two ", "three"]);
        // One cell each, or two in other terminals; and two or six.
        assert_eq!(wrap_safely("жжжж", 4, 4), ["жж", "жж"]);
        assert_eq!(wrap_safely("👨‍👩‍👧👨‍👩‍👧", 12, 12), ["👨‍👩‍👧", "👨‍👩‍👧"]);
        for c in (' '..=char::MAX).filter(|c| !c.is_control()) {
            let text = c.to_string();
            assert!(max_width(&text) >= width(&text), "{c:?}");
        }
        for text in ["❤\u{FE0F}", "1\u{FE0F}\u{20E3}", "🇩🇪", "👍🏽"] {
            assert!(max_width(text) >= width(text), "{text}");
        }
    }

    #[test]
    fn cached_rows_are_those_of_the_text_and_the_widths() {
        let cache = WrapCache::default();
        for round in 0..2 {
            for number in 0..MAX_CACHED + 8 {
                let text = format!("{number} words ").repeat(MIN_CACHED_LEN / 8);
                for widths in [[10, 20], [10, 30]] {
                    let [first, width] = widths;
                    let rows = cache.wrap(&text, first, width);
                    assert_eq!(rows[..], wrap(&text, first, width), "{number} in round {round}");
                }
            }
            assert_eq!(cache.0.borrow().len(), MAX_CACHED);
        }
    }

    #[test]
    fn parts_have_whole_clusters() {
        let family = "👨‍👩‍👧";
        let text = format!("ab{family}cd");
        assert_eq!(width(&text), 6);
        assert_eq!(last_part(&text, 4), format!("{family}cd"));
        assert_eq!(last_part(&text, 3), "cd");
        assert_eq!(first_part(&text, 3), "ab");
        assert_eq!(first_part(&text, 100), text);
        assert_eq!(last_part(&text, 0), "");
    }
}

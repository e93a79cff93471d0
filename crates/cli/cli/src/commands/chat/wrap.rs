//! The rows of a text. Widths are those of grapheme clusters, as terminals draw them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// The most characters of a cluster that are shown. A family has seven, and the longest flags too.
/// Hundreds of marks on one letter would be drawn over the rows above and below.
const MAX_CLUSTER: usize = 16;

/// Shorter texts are divided in no time.
const MIN_CACHED_LEN: usize = 1000;

/// The most texts in a cache: more than a window shows of this length.
const MAX_CACHED: usize = 32;

/// The width of a text in cells.
pub(super) fn width(text: &str) -> usize {
    text.graphemes(true).map(str::width).sum()
}

/// Divides a text into rows of this width. The first one has only `first` cells. A row ends between
/// words, and a word that is too long is divided between grapheme clusters.
pub(super) fn wrap(text: &str, first: usize, width: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut left = first;
    let next_row = |rows: &mut Vec<String>, left: &mut usize| {
        rows.push(String::new());
        *left = width;
    };
    for word in text.split_inclusive(' ') {
        let is_row_begun = rows.last().is_some_and(|row| !row.is_empty());
        if is_row_begun && self::width(word.trim_end()) > left {
            next_row(&mut rows, &mut left);
        }
        for cluster in word.graphemes(true) {
            let cluster = match cluster.char_indices().nth(MAX_CLUSTER) {
                Some((end, _)) => &cluster[..end],
                None => cluster,
            };
            let len = cluster.width();
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
        let marked = format!("a{}b", "\u{301}".repeat(1000));
        assert_eq!(wrap(&marked, 4, 4), [format!("a{}b", "\u{301}".repeat(15))]);
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

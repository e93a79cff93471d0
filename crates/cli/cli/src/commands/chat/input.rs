//! The input line of the chat. Its characters are grapheme clusters: what a person sees as one.

use unicode_segmentation::UnicodeSegmentation as _;

/// A text with a cursor.
#[derive(Debug, Default)]
pub(super) struct LineEditor {
    text: String,
    /// In bytes, at a boundary of characters.
    cursor: usize,
}

/// The most bytes of a line: as many as a message can have.
pub(super) const MAX_LEN: usize = 64 << 10;

impl LineEditor {
    /// What was typed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What is before the cursor, and what is behind.
    pub(super) fn parts(&self) -> (&str, &str) {
        self.text.split_at(self.cursor)
    }

    /// Whether the cursor is behind everything.
    pub(super) fn is_at_end(&self) -> bool {
        self.cursor == self.text.len()
    }

    /// Adds a text at the cursor. Returns whether it had room.
    pub(super) fn insert(&mut self, text: &str) -> bool {
        let has_room = self.text.len() + text.len() <= MAX_LEN;
        if has_room {
            self.text.insert_str(self.cursor, text);
            self.cursor += text.len();
        }
        has_room
    }

    /// Removes the character before the cursor.
    pub(super) fn backspace(&mut self) {
        let end = self.cursor;
        self.left();
        self.text.replace_range(self.cursor..end, "");
    }

    /// Removes the character behind the cursor.
    pub(super) fn delete(&mut self) {
        let start = self.cursor;
        self.right();
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    /// Removes the word before the cursor.
    pub(super) fn delete_word(&mut self) {
        let (before, _) = self.parts();
        let kept = before.trim_end().trim_end_matches(|c: char| !c.is_whitespace()).len();
        self.text.replace_range(kept..self.cursor, "");
        self.cursor = kept;
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.cursor = 0;
    }

    /// Moves the cursor by a character.
    pub(super) fn left(&mut self) {
        self.cursor -= self.parts().0.graphemes(true).next_back().map_or(0, str::len);
    }

    /// Moves the cursor by a character.
    pub(super) fn right(&mut self) {
        self.cursor += self.parts().1.graphemes(true).next().map_or(0, str::len);
    }

    /// Moves the cursor before everything.
    pub(super) fn home(&mut self) {
        self.cursor = 0;
    }

    /// Moves the cursor behind everything.
    pub(super) fn end(&mut self) {
        self.cursor = self.text.len();
    }

    /// Completes the name before the cursor, as far as all names that begin so have the same
    /// letters.
    pub(super) fn complete(&mut self, names: &[String]) {
        let (before, _) = self.parts();
        let begun = match before.strip_prefix('@') {
            Some(begun) if !begun.contains(char::is_whitespace) => begun,
            _ if before.is_empty() => "",
            _ => return,
        };
        let possible: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| name.starts_with(begun)).collect();
        let Some((first, others)) = possible.split_first() else { return };
        let common = others.iter().fold(*first, |common, name| common_start(common, name));
        let end = if others.is_empty() { " " } else { "" };
        let completed = format!("@{common}{end}");
        let cursor = completed.len();
        self.text.replace_range(..self.cursor, &completed);
        self.cursor = cursor;
    }
}

fn common_start<'a>(one: &'a str, other: &str) -> &'a str {
    let differs = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    let shorter = one.char_indices().nth(other.chars().count()).map_or(one.len(), |(at, _)| at);
    &one[..differs.map_or(shorter, |((at, _), _)| at)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> LineEditor {
        let mut input = LineEditor::default();
        input.insert(text);
        input
    }

    #[test]
    fn characters_are_edited_whole() {
        let mut line = input("aé漢");
        line.left();
        line.backspace();
        assert_eq!(line.parts(), ("a", "漢"));
        line.delete();
        line.delete();
        assert_eq!(line.text(), "a");
        line.home();
        line.left();
        line.backspace();
        line.insert("b");
        assert_eq!(line.parts(), ("b", "a"));
        line.end();
        line.insert(" two  words ");
        line.delete_word();
        assert_eq!(line.text(), "ba two  ");
    }

    #[test]
    fn a_combined_character_is_one() {
        // A family, a flag, a letter with a mark, and a Devanagari syllable.
        for character in ["👨‍👩‍👧", "🇨🇭", "e\u{301}", "न्दी"] {
            let mut line = input(&format!("a{character}b"));
            line.left();
            line.left();
            assert_eq!(line.parts(), ("a", &*format!("{character}b")));
            line.right();
            line.backspace();
            assert_eq!(line.text(), "ab");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_not_inserted_in_part() {
        let mut line = input("a");
        assert!(!line.insert(&"x".repeat(MAX_LEN)) && line.insert(&"x".repeat(MAX_LEN - 1)));
        assert!(!line.insert("y"));
        assert_eq!(line.text().len(), MAX_LEN);
    }

    #[test]
    fn names_are_completed_as_far_as_they_are_certain() {
        let names = ["bob", "bobby", "carol"].map(str::to_owned);
        for (typed, completed) in
            [("@c", "@carol "), ("@b", "@bob"), ("@bobb", "@bobby "), ("@x", "@x"), ("x", "x")]
        {
            let mut line = input(typed);
            line.complete(&names);
            assert_eq!(line.parts(), (completed, ""), "{typed}");
        }
        let mut empty = LineEditor::default();
        empty.complete(&names[2..]);
        assert_eq!(empty.text(), "@carol ");
    }
}

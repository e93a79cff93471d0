//! Lines of text, and the words in them.

/// The lines of a text, without comments, each with its number, from 1.
#[derive(Clone, Copy)]
pub(super) struct BristolLines<'a> {
    rest: &'a [u8],
    number: usize,
}

/// The mark that some editors write at the start of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl<'a> BristolLines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text), number: 0 }
    }

    /// The number of the last line.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The number of bytes of the lines that follow.
    pub(super) fn rest(&self) -> usize {
        self.rest.len()
    }

    /// The next line, and nothing of it if it is blank or a comment.
    fn next_line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&byte| byte == b'\n').unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        self.number += 1;
        Some(without_comment(line).trim_ascii())
    }

    /// The next line that is not blank.
    pub(super) fn next_text(&mut self) -> Option<&'a [u8]> {
        loop {
            let line = self.next_line()?;
            if !line.is_empty() {
                return Some(line);
            }
        }
    }
}

/// A line up to `#` or `//`.
fn without_comment(line: &[u8]) -> &[u8] {
    let is_comment = |at: usize| line[at] == b'#' || line[at..].starts_with(b"//");
    &line[..(0..line.len()).find(|&at| is_comment(at)).unwrap_or(line.len())]
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number below 2^32.
pub(super) fn number(word: &[u8]) -> Option<u32> {
    if word.is_empty() || word.len() > 10 {
        return None;
    }
    let value = word.iter().try_fold(0_u64, |value, &byte| {
        byte.is_ascii_digit().then(|| 10 * value + u64::from(byte - b'0'))
    })?;
    u32::try_from(value).ok()
}

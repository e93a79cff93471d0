//! A share file as lines of text, which a person can type and a QR code can hold. The format is in
//! `docs/formats/share.md`, *On paper*. This module has no I/O.
//!
//! ```text
//! K3F7-2-1: RNJU KDIK DIAQ EAQD ALCP ... M4XA
//! ```
//!
//! A line begins with a label: the first characters of the split's identifier, the number of the
//! share, and the number of the line. It ends with a checksum of the label and the bytes. So a
//! mistyped line is found, and named, before anything is joined, and lines of several shares can be
//! in one text in any order. The checksum detects errors, not attacks: those are detected by the
//! tamper code of the share file.
//!
//! Of line `n`, the bytes are those from `(n - 1) * LINE_LEN` on: [`LINE_LEN`] in a line that is
//! printed, and any number of such pieces in a QR code, which holds what the next lines hold, too.

use std::collections::BTreeMap;
use std::fmt;

use base32ct::{Base32UpperUnpadded, Encoding};
use zeroize::Zeroizing;

use crate::file::{HEADER_LEN, ShareFileHeader, ShareFileHeaderError, SplitId};

/// The number of bytes of a share in a line that is printed.
pub const LINE_LEN: usize = 25;

/// The largest number of lines of a share.
pub const MAX_LINES: usize = 200;

/// The largest number of characters of a line that is read, spaces included.
pub const MAX_LINE_CHARACTERS: usize = 2048;

/// The number of characters of a label that come from the split's identifier.
const SPLIT_CHARACTERS: usize = 4;

/// The number of characters of a checksum: 20 bits.
const CHECK_CHARACTERS: usize = 4;

/// What scanners write before the content of a QR code.
const SCANNER_PREFIX: &str = "QR-CODE:";

/// What some editors write at the beginning of a text.
const BYTE_ORDER_MARK: char = '\u{FEFF}';

/// The share that a line belongs to: how its label begins, for example `K3F7-2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PaperShareLabel {
    split: String,
    x: u8,
}

impl PaperShareLabel {
    /// The label of the share with this header.
    pub fn of(header: &ShareFileHeader) -> Self {
        Self { split: split_characters(header.split().id()), x: header.coordinate() }
    }
}

impl fmt::Display for PaperShareLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.split, self.x)
    }
}

/// Why a line of a text is not a line of a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PaperLineError {
    /// It does not begin with a label.
    #[error("it does not begin with a label such as K3F7-2-1:")]
    NoLabel,
    /// It is longer than any line of a share.
    #[error("it is too long")]
    TooLong,
    /// It ends too early, or a few characters were left out or typed twice.
    #[error("characters are missing, or there are too many")]
    WrongLength,
    /// It contains a character that does not occur in such a line.
    #[error("the character {0:?} does not occur in a line of a share")]
    BadCharacter(char),
    /// The checksum does not match.
    #[error("a character is mistyped: the checksum does not match")]
    Checksum,
    /// An earlier line has the same label and other bytes.
    #[error("it has the same label as an earlier line, and differs from it")]
    Conflict,
}

/// Why the lines of a share are not a whole share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PaperShareError {
    /// Lines are missing. The header, in the first lines, says how many there are.
    #[error("{}", missing_lines(.0))]
    Missing(Vec<usize>),
    /// The header is not valid.
    #[error(transparent)]
    Header(#[from] ShareFileHeaderError),
    /// The header is that of another share, or the share has another length.
    #[error("its lines do not belong together")]
    Inconsistent,
}

/// Writes the lines of a share file. Each holds `pieces` pieces of [`LINE_LEN`] bytes, in groups of
/// four characters if `grouped`.
///
/// # Errors
/// If the bytes do not begin with a valid header.
///
/// # Panics
/// If `pieces` is 0.
pub fn lines(
    share: &[u8],
    pieces: usize,
    grouped: bool,
) -> Result<Vec<String>, ShareFileHeaderError> {
    let label = PaperShareLabel::of(&ShareFileHeader::parse(share)?);
    let numbers = (1..).step_by(pieces);
    let chunks = share.chunks(pieces * LINE_LEN);
    Ok(numbers.zip(chunks).map(|(number, bytes)| line(&label, number, bytes, grouped)).collect())
}

fn line(label: &PaperShareLabel, number: usize, bytes: &[u8], grouped: bool) -> String {
    let mut digits = Base32UpperUnpadded::encode_string(bytes);
    digits.push_str(&checksum(label, number, bytes));
    if !grouped {
        return format!("{label}-{number}:{digits}");
    }
    let mut line = format!("{label}-{number}:");
    for (i, digit) in digits.chars().enumerate() {
        if i % 4 == 0 {
            line.push(' ');
        }
        line.push(digit);
    }
    line
}

/// The first 20 bits of the CRC-32 of the label and the bytes, in base32.
fn checksum(label: &PaperShareLabel, number: usize, bytes: &[u8]) -> String {
    let mut crc = crc32fast::Hasher::new();
    crc.update(format!("{label}-{number}:").as_bytes());
    crc.update(bytes);
    let mut digits = Base32UpperUnpadded::encode_string(&crc.finalize().to_be_bytes());
    digits.truncate(CHECK_CHARACTERS);
    digits
}

fn split_characters(id: SplitId) -> String {
    let mut digits = Base32UpperUnpadded::encode_string(id.bytes());
    digits.truncate(SPLIT_CHARACTERS);
    digits
}

/// Whether a line begins with a label, right or wrong, so that the text is meant to be a share.
pub fn has_label(line: &str) -> bool {
    line.len() <= MAX_LINE_CHARACTERS && parse_label(&normalized(line)).is_some()
}

/// The pieces of a share, by the number of their line.
type Pieces = BTreeMap<usize, Zeroizing<Vec<u8>>>;

/// Collects lines of shares, in any order.
#[derive(Default)]
pub struct PaperShareCollector {
    shares: BTreeMap<PaperShareLabel, Pieces>,
}

impl PaperShareCollector {
    /// Adds a line, typed or scanned. Spaces do not matter, nor whether letters are small; `0`, `1`
    /// and `8`, which do not occur, are read as `O`, `I` and `B`.
    ///
    /// # Errors
    /// If it is not a line of a share, or contradicts an earlier one. It is then not added.
    pub fn add(&mut self, line: &str) -> Result<(), PaperLineError> {
        if line.len() > MAX_LINE_CHARACTERS {
            return Err(PaperLineError::TooLong);
        }
        let line = normalized(line);
        let (label, number, digits) = parse_label(&line).ok_or(PaperLineError::NoLabel)?;
        let (bytes, check) = decode(digits)?;
        if check != checksum(&label, number, &bytes) {
            return Err(PaperLineError::Checksum);
        }
        if number + bytes.len().div_ceil(LINE_LEN) > MAX_LINES + 1 {
            return Err(PaperLineError::TooLong);
        }
        let pieces = self.shares.entry(label).or_default();
        let added = || (number..).zip(bytes.chunks(LINE_LEN));
        if added().any(|(i, piece)| pieces.get(&i).is_some_and(|it| it[..] != *piece)) {
            return Err(PaperLineError::Conflict);
        }
        pieces.extend(added().map(|(i, piece)| (i, Zeroizing::new(piece.to_vec()))));
        Ok(())
    }

    /// The share files that the lines contain, with their labels.
    pub fn finish(
        self,
    ) -> impl Iterator<Item = (PaperShareLabel, Result<Zeroizing<Vec<u8>>, PaperShareError>)> {
        self.shares.into_iter().map(|(label, pieces)| {
            let share = assemble(&label, &pieces);
            (label, share)
        })
    }
}

/// Removes spaces and what scanners add, and makes letters capital.
fn normalized(line: &str) -> Zeroizing<String> {
    let letters = line.chars().filter(|&c| !c.is_whitespace() && c != BYTE_ORDER_MARK);
    let line: String = letters.map(|c| c.to_ascii_uppercase()).collect();
    Zeroizing::new(line.strip_prefix(SCANNER_PREFIX).map(str::to_owned).unwrap_or(line))
}

/// Parses the label of a line. Returns the share, the number of the line, and what follows.
fn parse_label(line: &str) -> Option<(PaperShareLabel, usize, &str)> {
    let (label, digits) = line.split_once(':')?;
    let mut parts = label.split('-');
    let (split, x, number) = (parts.next()?, parts.next()?, parts.next()?);
    let split: String = split.chars().map(corrected).collect();
    let is_base32 = |c: char| c.is_ascii_uppercase() || ('2'..='7').contains(&c);
    if parts.next().is_some() || split.len() != SPLIT_CHARACTERS || !split.chars().all(is_base32) {
        return None;
    }
    let number = number.parse().ok().filter(|number| (1..=MAX_LINES).contains(number))?;
    let x = x.parse().ok().filter(|&x| x > 0)?;
    Some((PaperShareLabel { split, x }, number, digits))
}

/// The letter for which a digit was typed that does not occur in base32.
fn corrected(c: char) -> char {
    match c {
        '0' => 'O',
        '1' => 'I',
        '8' => 'B',
        _ => c,
    }
}

/// Decodes what follows a label: bytes, and the checksum as it is written.
fn decode(digits: &str) -> Result<(Zeroizing<Vec<u8>>, String), PaperLineError> {
    let digits: String = digits.chars().filter(|&c| c != '-').map(corrected).collect();
    let digits = Zeroizing::new(digits);
    if let Some(wrong) = digits.chars().find(|c| !matches!(c, 'A'..='Z' | '2'..='7')) {
        return Err(PaperLineError::BadCharacter(wrong));
    }
    let bytes = digits.len().checked_sub(CHECK_CHARACTERS).filter(|&len| len > 0);
    let (bytes, check) = digits.split_at(bytes.ok_or(PaperLineError::WrongLength)?);
    let decoded =
        Base32UpperUnpadded::decode_vec(bytes).map_err(|_| PaperLineError::WrongLength)?;
    let decoded = Zeroizing::new(decoded);
    // The last digit may have bits that no byte has, which are to be zeros.
    if Base32UpperUnpadded::encode_string(&decoded) != bytes {
        return Err(PaperLineError::Checksum);
    }
    Ok((decoded, check.to_owned()))
}

/// The share file that consists of these pieces.
fn assemble(
    label: &PaperShareLabel,
    pieces: &Pieces,
) -> Result<Zeroizing<Vec<u8>>, PaperShareError> {
    let missing = |lines| {
        let missing: Vec<usize> = (1..=lines).filter(|i| !pieces.contains_key(i)).collect();
        if missing.is_empty() { Ok(()) } else { Err(PaperShareError::Missing(missing)) }
    };
    let last = pieces.keys().last().copied().unwrap_or(0);
    missing(HEADER_LEN.div_ceil(LINE_LEN).max(last))?;
    let mut share = Zeroizing::new(Vec::with_capacity(MAX_LINES * LINE_LEN));
    for piece in pieces.values() {
        share.extend_from_slice(piece);
    }
    let header = ShareFileHeader::parse(&share)?;
    let len = header.split().file_len().and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|&len| len <= MAX_LINES * LINE_LEN);
    missing(len.ok_or(PaperShareError::Inconsistent)?.div_ceil(LINE_LEN))?;
    if len != Some(share.len()) || PaperShareLabel::of(&header) != *label {
        return Err(PaperShareError::Inconsistent);
    }
    Ok(share)
}

/// Names missing lines: `line 3 is missing`, or `lines 3, 4 and 12 more are missing`.
fn missing_lines(lines: &[usize]) -> String {
    const MAX_SHOWN: usize = 6;
    if let [line] = lines {
        return format!("line {line} is missing");
    }
    let shown: Vec<String> = lines.iter().take(MAX_SHOWN).map(usize::to_string).collect();
    let shown = shown.join(", ");
    let rest = lines.len().saturating_sub(MAX_SHOWN);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("lines {shown}{more} are missing")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::ShareFileEncoder;
    use crate::{SharingParameters, tamper};
    use random::RandomGenerator;

    /// The two share files of a secret of this length.
    fn shares(len: usize) -> [Vec<u8>; 2] {
        let mut generator = RandomGenerator::seeded().unwrap();
        let sharing = SharingParameters::shamir(2, 2).unwrap();
        let mut encoder = ShareFileEncoder::new(sharing, &mut generator).unwrap();
        let mut segment = vec![7; tamper::OVERHEAD + len];
        let mut parts = [vec![0; segment.len()], vec![0; segment.len()]];
        let mut views: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
        encoder.encode(&mut segment, &mut views, &mut generator).unwrap();
        let headers: Vec<_> = encoder.finish().unwrap().headers().collect();
        [0, 1].map(|i| [&headers[i].encode(), &parts[i][..]].concat())
    }

    fn read(lines: impl IntoIterator<Item = String>) -> Vec<Result<Vec<u8>, PaperShareError>> {
        let mut collector = PaperShareCollector::default();
        lines.into_iter().for_each(|line| collector.add(&line).unwrap());
        collector.finish().map(|(_, share)| share.map(|share| share.to_vec())).collect()
    }

    #[test]
    fn every_length_comes_back_from_lines_and_codes_in_any_order() {
        for len in (0..60).chain([1000, 4096]) {
            let shares = shares(len);
            for (pieces, grouped) in [(1, true), (14, false), (3, true)] {
                let mut all: Vec<String> = shares
                    .iter()
                    .flat_map(|share| lines(share, pieces, grouped).unwrap())
                    .collect();
                all.reverse();
                assert_eq!(read(all), shares.clone().map(Ok));
            }
            // A code that was lost is replaced by the lines with the same bytes.
            let mut codes = lines(&shares[0], 2, false).unwrap();
            codes.remove(0);
            let typed = lines(&shares[0], 1, true).unwrap();
            let typed = typed.iter().take(2).map(|line| line.to_lowercase());
            assert_eq!(read(codes.into_iter().chain(typed)), [Ok(shares[0].clone())]);
        }
    }

    #[test]
    fn every_mistyped_character_is_found() {
        let [share, _] = shares(10);
        for line in lines(&share, 1, true).unwrap() {
            for (i, right) in line.char_indices().filter(|(_, c)| *c != ' ') {
                for wrong in "AQZ27-: 089é".chars().filter(|&wrong| corrected(wrong) != right) {
                    let mut mistyped: Vec<char> = line.chars().collect();
                    mistyped[i] = wrong;
                    let mistyped: String = mistyped.into_iter().collect();
                    let added = PaperShareCollector::default().add(&mistyped);
                    assert!(added.is_err(), "{line} as {mistyped}");
                }
            }
        }
    }

    #[test]
    fn what_a_scanner_adds_and_confused_digits_do_not_matter() {
        let [share, _] = shares(30);
        let typed = lines(&share, 1, true).unwrap().into_iter().map(|line| {
            let (label, digits) = line.split_once(':').unwrap();
            let digits = digits.replace('O', "0").replace('I', "1").replace('B', "8");
            format!("QR-Code: {label}:{digits}\r")
        });
        assert_eq!(read(typed), [Ok(share)]);
    }

    #[test]
    fn missing_and_contradicting_lines_are_named() {
        let [share, other] = shares(60);
        let all = lines(&share, 1, true).unwrap();
        let without = |i: usize| {
            let rest = all.iter().enumerate().filter(|&(at, _)| at != i);
            read(rest.map(|(_, line)| line.clone()))
        };
        for i in 0..all.len() {
            assert_eq!(without(i), [Err(PaperShareError::Missing(vec![i + 1]))]);
        }
        assert_eq!(missing_lines(&[3]), "line 3 is missing");
        assert_eq!(
            missing_lines(&[1, 2, 3, 4, 5, 6, 7]),
            "lines 1, 2, 3, 4, 5, 6 and 1 more are missing"
        );

        let mut collector = PaperShareCollector::default();
        collector.add(&all[0]).unwrap();
        collector.add(&all[0]).unwrap();
        let label = PaperShareLabel::of(&ShareFileHeader::parse(&share).unwrap());
        let conflicting = line(&label, 1, &other[..LINE_LEN], true);
        assert_eq!(collector.add(&conflicting), Err(PaperLineError::Conflict));
        // The header of another share under this one's label.
        let mixed = [&other[..HEADER_LEN], &share[HEADER_LEN..]].concat();
        let mixed = mixed.chunks(LINE_LEN).zip(1..).map(|(bytes, i)| line(&label, i, bytes, true));
        assert_eq!(read(mixed), [Err(PaperShareError::Inconsistent)]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(
            text in vec("([A-Z2-7]{4}-[0-9]{1,3}-[0-9]{1,3}:)?[A-Z2-7 -é]{0,90}", 0..4),
            numbers in vec((0usize..300, vec(any::<u8>(), 0..60)), 0..6),
        ) {
            let mut collector = PaperShareCollector::default();
            for line in &text {
                let _ = (has_label(line), collector.add(line));
            }
            let label = PaperShareLabel { split: "ABCD".into(), x: 1 };
            for (number, bytes) in numbers {
                let _ = collector.add(&line(&label, number, &bytes, true));
            }
            prop_assert!(collector.finish().all(|(_, share)| share.is_err()));
        }
    }
}

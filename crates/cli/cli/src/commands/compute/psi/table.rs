//! A table in a CSV file: the key of each row, by which rows are compared.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use console::CommandFailure;
use csv::ByteRecord;
use flate2::read::MultiGzDecoder;
use psi::{MAX_DECIMALS, PsiNormalization};

use super::decimal::Decimal;
use super::quotes;

/// The bytes with which a file begins that gzip has compressed.
const GZIP: [u8; 2] = [0x1F, 0x8B];

/// The mark with which some programs begin a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Where a table is, and which of its columns are compared.
pub(super) struct PsiTableSource<'a> {
    pub(super) path: &'a Path,
    /// The names of the key columns; none stands for the only column.
    pub(super) columns: &'a [String],
    /// The rule for all of them, or one for each.
    pub(super) rules: &'a [PsiNormalization],
    pub(super) delimiter: u8,
    /// The name of the column of numbers, if they are summed.
    pub(super) numbers: Option<&'a str>,
}

/// The numbers of a table's different keys.
pub(super) struct TableNumbers {
    /// In units of the last decimal place, in the order of the keys' digests.
    pub(super) values: Vec<i64>,
    pub(super) decimals: u8,
}

/// The rows that have a key, with their places in the file.
pub(super) struct PsiTable {
    data: Vec<u8>,
    delimiter: u8,
    header: Range<usize>,
    keys: TableKeys,
    rows: Vec<PsiRow>,
}

/// A row of a table.
struct PsiRow {
    place: Range<usize>,
    digest: u128,
    /// Zero if numbers are not summed.
    number: Decimal,
}

/// How the key of a row is found.
struct TableKeys {
    places: Vec<usize>,
    rules: Vec<PsiNormalization>,
}

impl PsiTableSource<'_> {
    /// Reads the table, which gzip may have compressed.
    ///
    /// # Errors
    /// If the file cannot be read, is no CSV in UTF-8, or has no such columns.
    pub(super) fn read(&self) -> Result<PsiTable, CommandFailure> {
        let data = self.data()?;
        let named = |what: &str| CommandFailure::Usage(format!("{}: {what}", self.path.display()));
        quotes::check(&data, self.delimiter)
            .map_err(|fault| named(&format!("line {}: {}", fault.line, fault.what)))?;
        let mut reader = csv::ReaderBuilder::new().delimiter(self.delimiter).from_reader(&*data);
        let header = reader.byte_headers().map_err(|error| named(&explained(&error)))?.clone();
        let keys = self.keys(&header)?;
        let numbers = self.numbers.map(|name| self.place(&header, name)).transpose()?;
        let begin = |reader: &csv::Reader<&[u8]>| {
            usize::try_from(reader.position().byte()).unwrap_or(usize::MAX)
        };
        let mut from = begin(&reader);
        let header = 0..from;
        let mut rows = Vec::new();
        let mut record = ByteRecord::new();
        loop {
            let line = reader.position().line();
            match reader.read_byte_record(&mut record) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(named(&explained(&error))),
            }
            let place = from..begin(&reader);
            from = place.end;
            let line = record.position().map_or(line, csv::Position::line);
            let key = keys.of(&record).map_err(|()| {
                named(&format!("line {line} is not in UTF-8: convert it, with iconv for example"))
            })?;
            let number = numbers.map_or(Some(Decimal::default()), |at| number(&record, at));
            let number = number.ok_or_else(|| {
                let column = self.numbers.unwrap_or_default();
                named(&format!(
                    "line {line}: {column} is no number: write digits, with a point before \
                     decimal places"
                ))
            })?;
            if let Some(key) = key {
                rows.push(PsiRow { place, digest: psi::item(key.as_bytes()), number });
            }
        }
        Ok(PsiTable { data, delimiter: self.delimiter, header, keys, rows })
    }

    fn data(&self) -> Result<Vec<u8>, CommandFailure> {
        let failed = |error: io::Error| CommandFailure::reading(self.path, &error);
        let mut file = File::open(self.path).map_err(failed)?;
        let mut data = Vec::new();
        file.read_to_end(&mut data).map_err(failed)?;
        if data.starts_with(&GZIP) {
            let compressed = std::mem::take(&mut data);
            MultiGzDecoder::new(&*compressed).read_to_end(&mut data).map_err(failed)?;
        }
        if data.starts_with(BYTE_ORDER_MARK) {
            data.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(data)
    }

    /// The place of a column.
    fn place(&self, header: &ByteRecord, wanted: &str) -> Result<usize, CommandFailure> {
        let mut places = header.iter().enumerate().filter(|(_, name)| column_name(name) == wanted);
        match (places.next(), places.next()) {
            (Some((place, _)), None) => Ok(place),
            (None, _) => Err(self.missing(header, &format!("no column {wanted}"))),
            (Some(_), Some(_)) => Err(CommandFailure::Usage(format!(
                "{}: two columns have the name {wanted}: rename one of them",
                self.path.display()
            ))),
        }
    }

    fn missing(&self, header: &ByteRecord, what: &str) -> CommandFailure {
        let names: Vec<String> = header.iter().map(column_name).collect();
        let (path, columns) = (self.path.display(), names.join(", "));
        let missing = CommandFailure::Usage(format!("{path}: {what}; the columns are {columns}"));
        match names.len() {
            1 => missing.and("--delimiter sets the character between columns"),
            _ => missing,
        }
    }

    /// The places of the key columns, and their rules.
    fn keys(&self, header: &ByteRecord) -> Result<TableKeys, CommandFailure> {
        let places = match self.columns {
            [] if header.len() == 1 => vec![0],
            [] => return Err(self.missing(header, "which column? give --column")),
            columns => {
                let places = columns.iter().map(|wanted| self.place(header, wanted));
                places.collect::<Result<Vec<_>, _>>()?
            }
        };
        let rules = match self.rules {
            [] => vec![PsiNormalization::Trim; places.len()],
            &[rule] => vec![rule; places.len()],
            rules if rules.len() == places.len() => rules.to_vec(),
            rules => {
                let (rules, columns) = (rules.len(), places.len());
                return Err(CommandFailure::Usage(format!(
                    "{rules} rules for {columns} columns: give --normalize once for all of them, \
                     or once for each --column"
                )));
            }
        };
        Ok(TableKeys { places, rules })
    }
}

fn column_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).trim().to_owned()
}

/// The number of a row in a column. `None` if there is none.
fn number(record: &ByteRecord, place: usize) -> Option<Decimal> {
    let text = std::str::from_utf8(record.get(place).unwrap_or_default()).ok()?;
    Decimal::parse(text).filter(|number| number.places() <= MAX_DECIMALS)
}

/// What is wrong with a file.
fn explained(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos: Some(at), expected_len, len } => {
            format!("line {} has {len} columns, and the first row has {expected_len}", at.line())
        }
        _ => error.to_string(),
    }
}

impl TableKeys {
    /// The key of a row: the value of the key column, or the values of several as a row of CSV.
    /// `None` if it is empty.
    ///
    /// # Errors
    /// If it is not in UTF-8.
    fn of(&self, record: &ByteRecord) -> Result<Option<String>, ()> {
        let mut values = Vec::with_capacity(self.places.len());
        for (place, rule) in self.places.iter().zip(&self.rules) {
            let value = record.get(*place).unwrap_or_default();
            values.push(rule.apply(std::str::from_utf8(value).map_err(|_| ())?));
        }
        if values.iter().all(|value| value.is_empty()) {
            return Ok(None);
        }
        if let [value] = &mut values[..] {
            return Ok(Some(std::mem::take(value).into_owned()));
        }
        Ok(Some(psi::row_value(&values)))
    }
}

impl PsiTable {
    /// A digest of how keys are made, which must be the same at both parties.
    pub(super) fn comparison(&self) -> [u8; 32] {
        psi::comparison(&self.keys.rules)
    }

    /// The digests of the different keys, in ascending order.
    pub(super) fn digests(&self) -> Vec<u128> {
        let mut digests: Vec<u128> = self.rows.iter().map(|row| row.digest).collect();
        digests.sort_unstable();
        digests.dedup();
        digests
    }

    /// The numbers of the different keys: of a key in several rows, their sum. `None` if one is too
    /// large.
    pub(super) fn numbers(&self, digests: &[u128]) -> Option<TableNumbers> {
        let decimals = self.rows.iter().map(|row| row.number.places()).max().unwrap_or(0);
        let mut values = vec![0_i64; digests.len()];
        for row in &self.rows {
            if let Ok(place) = digests.binary_search(&row.digest) {
                let number = row.number.in_units_of(decimals)?;
                values[place] = values[place].checked_add(number)?;
            }
        }
        Some(TableNumbers { values, decimals })
    }

    /// The different keys, in ascending order, of the rows with these digests, which are in
    /// ascending order.
    pub(super) fn keys_of(&self, digests: &[u128]) -> BTreeSet<String> {
        self.keys_in(self.rows.iter().filter(|row| digests.binary_search(&row.digest).is_ok()))
    }

    /// All different keys.
    pub(super) fn all_keys(&self) -> BTreeSet<String> {
        self.keys_in(self.rows.iter())
    }

    /// The keys of these rows. One reader reads all of them, because making one takes longer than
    /// reading a row.
    fn keys_in<'a>(&self, rows: impl Iterator<Item = &'a PsiRow>) -> BTreeSet<String> {
        let mut text = Vec::new();
        for row in rows {
            text.extend_from_slice(&self.data[row.place.clone()]);
            text.push(b'\n');
        }
        let mut reader = csv::ReaderBuilder::new();
        let reader = reader.delimiter(self.delimiter).has_headers(false).flexible(true);
        let records = reader.from_reader(&text[..]).into_byte_records();
        records.map_while(Result::ok).filter_map(|it| self.keys.of(&it).ok().flatten()).collect()
    }

    /// The first row of the file, and the rows with these digests, as they are in the file but for
    /// line ends around them.
    pub(super) fn rows_of<'a>(&'a self, digests: &'a [u128]) -> impl Iterator<Item = &'a [u8]> {
        let rows = self.rows.iter().filter(|row| digests.binary_search(&row.digest).is_ok());
        let places = std::iter::once(&self.header).chain(rows.map(|row| &row.place));
        places.map(|place| {
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            let row = &self.data[place.clone()];
            let begin = row.iter().position(|byte| !is_line_end(byte)).unwrap_or(row.len());
            let end = row.iter().rposition(|byte| !is_line_end(byte)).map_or(begin, |it| it + 1);
            &row[begin..end]
        })
    }
}

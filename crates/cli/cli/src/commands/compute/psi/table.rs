//! A column of a CSV file.

use std::collections::BTreeSet;
use std::path::Path;

use console::CommandFailure;

/// The different values of a column, or of the only one, without spaces around them; empty ones are
/// left out.
///
/// # Errors
/// If the file cannot be read, or has no such column.
pub(super) fn column(
    path: &Path,
    name: Option<&str>,
    delimiter: u8,
) -> Result<BTreeSet<String>, CommandFailure> {
    let wrong = |error: &csv::Error| {
        let path = path.display();
        CommandFailure::Usage(match error.kind() {
            csv::ErrorKind::Utf8 { pos, .. } => {
                let line = pos.as_ref().map_or(1, csv::Position::line);
                format!("{path}: line {line} is not in UTF-8: convert it, with iconv for example")
            }
            _ => format!("{path}: {error}"),
        })
    };
    let file = std::fs::File::open(path).map_err(|error| CommandFailure::reading(path, &error))?;
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(file);
    let header = reader.headers().map_err(|error| wrong(&error))?;
    let place = match name {
        Some(name) => header.iter().position(|column| column.trim() == name),
        None => (header.len() == 1).then_some(0),
    };
    let Some(at) = place else {
        let columns: Vec<&str> = header.iter().collect();
        let (path, columns) = (path.display(), columns.join(", "));
        let what = name
            .map_or("which column? give --column".to_owned(), |name| format!("no column {name}"));
        let missing = CommandFailure::Usage(format!("{path}: {what}; the columns are {columns}"));
        return Err(match header.len() {
            1 => missing.and("--delimiter sets the character between columns"),
            _ => missing,
        });
    };
    let mut values = BTreeSet::new();
    for row in reader.records() {
        let row = row.map_err(|error| wrong(&error))?;
        let value = row.get(at).unwrap_or_default().trim();
        if !value.is_empty() {
            values.insert(value.to_owned());
        }
    }
    Ok(values)
}

//! Advice that is appended to errors of a full disk.

use std::io;

use rusqlite::ErrorCode;

/// The advice.
const ADVICE: &str = "make room there, and start the server again";

/// The advice for a file's error, if its disk is full.
pub(super) fn advice_on_file(error: &io::Error) -> Option<&'static str> {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    is_full.then_some(ADVICE)
}

/// The advice for a database's error, if its disk is full.
pub(super) fn advice_on_database(error: &rusqlite::Error) -> Option<&'static str> {
    (error.sqlite_error_code() == Some(ErrorCode::DiskFull)).then_some(ADVICE)
}

/// The end of an error's text: the advice, if there is one.
pub(super) fn appended(advice: Option<&str>) -> String {
    advice.map_or_else(String::new, |advice| format!("; {advice}"))
}

//! Advice that is appended to errors of a full disk.

use std::io;

use rusqlite::ErrorCode;

/// The advice.
const ADVICE: &str = "; make room there, and start the server again";

/// The advice for a file's error. Empty unless its disk is full.
pub(super) fn advice_on_file(error: &io::Error) -> &'static str {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    if is_full { ADVICE } else { "" }
}

/// The advice for a database's error. Empty unless its disk is full.
pub(super) fn advice_on_database(error: &rusqlite::Error) -> &'static str {
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) { ADVICE } else { "" }
}

//! What errors of a full disk say to do.

use std::io;

use rusqlite::ErrorCode;

/// Follows the error of a full disk.
const ADVICE: &str = "; make room there, and start the server again";

/// What follows the error of a file: nothing unless its disk is full.
pub(super) fn advice_on_file(error: &io::Error) -> &'static str {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    if is_full { ADVICE } else { "" }
}

/// What follows the error of a database: nothing unless its disk is full.
pub(super) fn advice_on_database(error: &rusqlite::Error) -> &'static str {
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) { ADVICE } else { "" }
}

//! What fuzz targets do with the log's database.

use std::path::Path;

use super::store::LogStore;
use crate::log::Height;

/// The database of a log opens and is read, or an error is returned.
pub fn open_log(path: &Path) {
    let Ok(store) = LogStore::open(path, Height(0)) else { return };
    // Both may be damaged.
    let _ = (store.records(), store.decided(store.last()));
}

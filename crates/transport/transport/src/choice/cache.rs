//! The cache file for measured paths.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use keys::storage::{self, Durability};
use rustix::fs::{FlockOperation, flock};

use super::remembered::RememberedPaths;
use crate::user_state;

/// The largest valid length of the file.
const MAX_FILE_LEN: u64 = 4 << 20;

/// The mode of files that only the user can read, because they show whom the user connects to.
const PRIVATE: u32 = 0o600;

/// The file `transport/paths.json` in the user's state directory. If it cannot be used, nothing
/// fails: paths are measured again.
#[derive(Clone, Debug)]
pub(super) struct PathCache(Option<PathBuf>);

impl PathCache {
    /// In `$XDG_STATE_HOME/sunder`, or `~/.local/state/sunder`.
    pub(super) fn of_user() -> Self {
        Self(user_state::directory())
    }

    /// No file: nothing is kept.
    pub(super) fn none() -> Self {
        Self(None)
    }

    #[cfg(test)]
    pub(super) fn at(directory: PathBuf) -> Self {
        Self(Some(directory))
    }

    /// Reads the cached paths.
    pub(super) fn read(&self) -> RememberedPaths {
        let Some(directory) = &self.0 else { return RememberedPaths::default() };
        let file = directory.join("paths.json");
        let is_ours = fs::metadata(&file).is_ok_and(|it| it.len() <= MAX_FILE_LEN);
        let bytes = if is_ours { fs::read(&file).unwrap_or_default() } else { Vec::new() };
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Changes the cached paths. Processes that do this at the same time wait for each other, and a
    /// reader sees the state before or after a change.
    pub(super) fn update(&self, change: impl FnOnce(&mut RememberedPaths)) {
        if let Err(error) = self.try_update(change) {
            tracing::debug!(%error, "cannot write the cache of paths");
        }
    }

    fn try_update(&self, change: impl FnOnce(&mut RememberedPaths)) -> io::Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        user_state::create(directory)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(PRIVATE);
        let lock = options.open(directory.join("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut paths = self.read();
        change(&mut paths);
        // There is no sync to disk, so that a connecting program does not wait for it. A file that
        // a crash of the host has damaged counts as empty.
        let (path, content) = (directory.join("paths.json"), serde_json::to_vec(&paths)?);
        storage::replace(&path, &content, PRIVATE, Durability::Cached)
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;
    use crate::model::NetworkPath;
    use crate::probe::PacketLosses;

    #[test]
    fn what_is_remembered_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let cache = PathCache::at(directory.path().join("state"));
        assert_eq!(cache.read(), RememberedPaths::default());
        let path = NetworkPath::assumed(Duration::from_millis(30), 123_456.789);
        cache
            .update(|paths| paths.record_measurement("a", &path, true, PacketLosses::default(), 5));
        let paths = PathCache::at(directory.path().join("state")).read();
        assert_eq!(paths.get("a").unwrap().path, path);
        let file = directory.path().join("state/paths.json");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, b"{\"a\": 5}").unwrap();
        assert_eq!(cache.read(), RememberedPaths::default(), "a wrong file is none");
        cache
            .update(|paths| paths.record_measurement("b", &path, true, PacketLosses::default(), 5));
        assert!(cache.read().get("b").is_some());
    }

    #[test]
    fn updates_at_the_same_time_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = PathCache::at(directory.path().to_owned());
        let path = NetworkPath::assumed(Duration::from_millis(30), 1e6);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (cache, path) = (&cache, &path);
                scope.spawn(move || {
                    for i in 0..8 {
                        let key = format!("{thread} {i}");
                        cache.update(|it| {
                            it.record_measurement(&key, path, true, PacketLosses::default(), 5);
                        });
                        assert!(cache.read().get(&key).is_some());
                    }
                });
            }
        });
        let paths = cache.read();
        let all = (0..8).flat_map(|thread| (0..8).map(move |i| format!("{thread} {i}")));
        assert!(all.into_iter().all(|key| paths.get(&key).is_some()));
    }

    #[test]
    fn without_a_place_nothing_is_remembered() {
        let cache = PathCache(None);
        cache.update(|_| panic!("there is nothing to change"));
        assert_eq!(cache.read(), RememberedPaths::default());
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        PathCache::at(file).update(|_| panic!("a file is no directory"));
    }
}

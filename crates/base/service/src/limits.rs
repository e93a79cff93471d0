//! The limit of open files, and how many streams fit into it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// The descriptors that a process needs besides those of its streams.
const SPARE_FILES: usize = 64;

/// The number of descriptors that a configuration needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFileBudget {
    /// The largest number of streams.
    pub streams: usize,
    /// Descriptors of a stream: one for each channel, and one for the application.
    pub files_per_stream: usize,
    /// Connections that wait for a stream.
    pub waiting: usize,
}

impl OpenFileBudget {
    /// Raises the limit of open files as far as the system allows. If that is not enough, returns
    /// what is possible, and logs a warning if there are fewer streams.
    #[must_use]
    pub fn raise_limit_and_fit(self) -> Self {
        let Some(limit) = raise_open_files() else { return self };
        let possible = self.fit_limit(usize::try_from(limit).unwrap_or(usize::MAX));
        if possible.streams < self.streams {
            warn!(
                "{} streams need {} open files, but the system allows {limit}: {} streams are \
                 possible; lower max_streams, or raise the limit (LimitNOFILE= in a unit of \
                 systemd, or ulimit -Hn)",
                self.streams,
                self.needed(),
                possible.streams
            );
        }
        possible
    }

    fn needed(self) -> usize {
        self.streams
            .saturating_mul(self.files_per_stream)
            .saturating_add(self.waiting + SPARE_FILES)
    }

    /// The part that fits into `limit` descriptors. Waiting connections get at most a quarter of
    /// them.
    fn fit_limit(self, limit: usize) -> Self {
        if self.needed() <= limit {
            return self;
        }
        let waiting = self.waiting.min(limit / 4).max(1);
        let left = limit.saturating_sub(waiting + SPARE_FILES);
        Self { streams: self.streams.min(left / self.files_per_stream).max(1), waiting, ..self }
    }
}

/// Raises the limit of open files as far as it goes without privileges. Returns it, if there is
/// one.
pub fn raise_open_files() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return limits.current;
    }
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    // If the system does not allow that, the limit is unchanged.
    if setrlimit(Resource::Nofile, raised).is_ok() { limits.maximum } else { limits.current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_fit_the_open_files() {
        let wanted = OpenFileBudget { streams: 4096, files_per_stream: 4, waiting: 8192 };
        assert_eq!(wanted.fit_limit(4096 * 4 + 8192 + SPARE_FILES), wanted);
        for limit in [64, 256, 1024, 4096, 20_000] {
            let possible = wanted.fit_limit(limit);
            assert!(possible.streams >= 1 && possible.streams < wanted.streams, "{possible:?}");
            assert!(possible.needed() <= limit.max(SPARE_FILES + 32), "{limit}: {possible:?}");
        }
    }
}

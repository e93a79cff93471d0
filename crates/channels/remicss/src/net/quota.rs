//! The quota thread: counts what the channels carry, keeps it in a file, and leaves out channels
//! whose quotas are used up.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keys::storage::{self, Durability};
use model::ChannelSubset;
use tracing::{info, warn};

use super::TunnelStatusSource;
use super::error::TunnelError;
use super::planning::PlanningCommand;
use super::shared::lock;
use super::status_source::PeerStatusSource;
use crate::config::{ChannelQuota, TunnelChannelConfig};
use crate::protocol::control::quota::{QUOTA_WARNING_PERCENT, QuotaChange, QuotaFile};
use crate::protocol::endpoint::client_demultiplexer::TunnelPeerId;
use crate::status::QuotaStatus;

/// How often channels are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// How often the file is written, in counts, if nothing else requires it.
const COUNTS_PER_SAVE: u32 = 10;

/// How often a failure to write the file is logged, in attempts.
const FAILURES_PER_LOG: u32 = 60;

/// The file of usages, which could be written.
pub(super) struct OpenedQuotaFile {
    path: PathBuf,
    file: QuotaFile,
}

/// The thread.
pub(super) struct QuotaThread {
    opened: OpenedQuotaFile,
    configured: Arc<Mutex<Vec<TunnelChannelConfig>>>,
    sources: Arc<Mutex<Vec<PeerStatusSource>>>,
    shown: Arc<Mutex<Vec<Option<QuotaStatus>>>>,
    planning: Sender<PlanningCommand>,
    /// The bytes that each peer's counters had on each channel, sent and received.
    counted: BTreeMap<TunnelPeerId, Vec<[u64; 2]>>,
    left_out: ChannelSubset,
    failures: u32,
}

impl OpenedQuotaFile {
    /// Reads the file, if there is one, and writes it again, to know that it can be written.
    ///
    /// # Errors
    /// If it cannot be read or written, or is damaged. The quotas would not be kept then.
    pub(super) fn open(path: &Path) -> Result<Self, TunnelError> {
        let refused = |reason| TunnelError::QuotaFile { path: path.to_owned(), reason };
        let file = match fs::read_to_string(path) {
            Ok(text) => QuotaFile::parse(&text).map_err(refused)?,
            Err(error) if error.kind() == ErrorKind::NotFound => QuotaFile::default(),
            Err(error) => return Err(refused(error.to_string())),
        };
        let opened = Self { path: path.to_owned(), file };
        opened
            .save()
            .map_err(|source| TunnelError::QuotaFileWrite { path: path.to_owned(), source })?;
        Ok(opened)
    }

    /// The thread that counts the channels of these peers.
    pub(super) fn watch(
        self,
        configured: &Arc<Mutex<Vec<TunnelChannelConfig>>>,
        status: &TunnelStatusSource,
        planning: &Sender<PlanningCommand>,
    ) -> QuotaThread {
        QuotaThread {
            opened: self,
            configured: Arc::clone(configured),
            sources: Arc::clone(&status.peers),
            shown: Arc::clone(&status.quotas),
            planning: planning.clone(),
            counted: BTreeMap::new(),
            left_out: ChannelSubset::EMPTY,
            failures: 0,
        }
    }

    fn save(&self) -> std::io::Result<()> {
        storage::replace(&self.path, self.file.text().as_bytes(), 0o600, Durability::Synced)
    }
}

impl QuotaThread {
    /// Counts until the other end of `stops` is dropped.
    pub(super) fn run(mut self, stops: &Receiver<()>) {
        let mut counts = 0;
        loop {
            let has_changed = self.count(now_unix_s());
            counts += 1;
            if has_changed || counts % COUNTS_PER_SAVE == 0 {
                self.save();
            }
            match stops.recv_timeout(COUNT_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.count(now_unix_s());
        self.save();
    }

    /// Counts what the channels have carried, and leaves out those whose quotas are used up.
    /// Returns whether a quota has become used up or available.
    fn count(&mut self, unix_s: u64) -> bool {
        let configured = lock(&self.configured).clone();
        let sources = lock(&self.sources).clone();
        let carried = self.carried(&sources, &configured);
        let (mut left_out, mut has_changed) = (ChannelSubset::EMPTY, false);
        let mut shown = Vec::new();
        for (index, (channel, bytes)) in configured.iter().zip(carried).enumerate() {
            let Some(quota) = channel.quota else {
                shown.push(None);
                continue;
            };
            let usage = self.opened.file.channel(&name(channel));
            let change = usage.add(quota, bytes, unix_s);
            has_changed |= change.is_some();
            if let Some(change) = change {
                log(index + 1, quota, change);
            }
            if usage.is_used_up(quota) {
                left_out = left_out.with(index);
            }
            #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
            let since = |at: u64| unix_s.saturating_sub(at) as f64;
            shown.push(Some(QuotaStatus {
                bytes: quota.bytes,
                period: quota.period,
                used_bytes: usage.used_bytes(),
                used_up_s: usage.used_up_at().map(since),
            }));
        }
        *lock(&self.shown) = shown;
        // Clients may be new, so each time.
        for source in &sources {
            lock(&source.shared).left_out = left_out;
        }
        if left_out != self.left_out {
            self.left_out = left_out;
            // If the planner has ended, this thread is about to end, too.
            let _ = self.planning.send(PlanningCommand::LeftOut(left_out));
        }
        has_changed
    }

    /// The bytes of IP packets that each channel has carried since the last time, to and from all
    /// peers.
    fn carried(
        &mut self,
        sources: &[PeerStatusSource],
        configured: &[TunnelChannelConfig],
    ) -> Vec<u64> {
        let mut carried = vec![0; configured.len()];
        self.counted.retain(|id, _| sources.iter().any(|source| source.id == *id));
        for source in sources {
            let before = self.counted.entry(source.id).or_default();
            before.resize(configured.len(), [0; 2]);
            let sent = lock(&source.sending).sender.ip_bytes;
            let received = lock(&source.receiving).channels.clone();
            for (index, channel) in configured.iter().enumerate() {
                let headers = if channel.local.is_ipv4() { 28 } else { 48 };
                let received = received
                    .get(index)
                    .map_or(0, |counts| counts.bytes + headers * counts.datagrams);
                let [out, r#in] = &mut before[index];
                carried[index] += increase(out, sent[index]) + increase(r#in, received);
            }
        }
        carried
    }

    fn save(&mut self) {
        if let Err(error) = self.opened.save() {
            if self.failures.is_multiple_of(FAILURES_PER_LOG) {
                let path = self.opened.path.display();
                warn!("cannot write {path}: {error}; what is used of quotas is lost at a restart");
            }
            self.failures += 1;
        } else {
            self.failures = 0;
        }
    }
}

/// How much a counter has increased. A new association counts from 0.
fn increase(before: &mut u64, now: u64) -> u64 {
    let increase = if now >= *before { now - *before } else { now };
    *before = now;
    increase
}

/// The name of a channel in the file: it stays the same if channels are added or reordered.
fn name(channel: &TunnelChannelConfig) -> String {
    // A client's own port is not configured.
    let end = match channel.peer {
        Some(server) if channel.local.port() == 0 => from_to(channel.local, server),
        _ => channel.local.to_string(),
    };
    match &channel.device {
        Some(device) => format!("{end} {device}"),
        None => end,
    }
}

fn from_to(own: SocketAddr, server: SocketAddr) -> String {
    if own.ip().is_unspecified() { server.to_string() } else { format!("{} {server}", own.ip()) }
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Logs a change of a channel's quota.
#[expect(clippy::cast_precision_loss, reason = "the quota in GB")]
fn log(number: usize, quota: ChannelQuota, change: QuotaChange) {
    let (gb, period) = (quota.bytes as f64 / 1e9, quota.period.name());
    match change {
        QuotaChange::NearlyUsedUp => {
            warn!("channel {number}: {QUOTA_WARNING_PERCENT} % of its {gb} GB a {period} are used");
        }
        QuotaChange::UsedUp => {
            warn!("channel {number}: its {gb} GB a {period} are used up: it is left out");
        }
        QuotaChange::Available => info!("channel {number}: its quota is available again"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::config::TunnelConfig;

    const CONFIG: &str = "kappa = 1\nmu = 1\naddresses = []\nquota_file = \"q\"\n\
        [[channel]]\nserver = \"192.0.2.1:6521\"\ndevice = \"eth0\"\nquota_gb = 0.001\n\
        [[channel]]\nserver = \"192.0.2.2:6521\"\nsource = \"192.0.2.9\"\n";

    /// 2026-11-29, 12:00.
    const NOON: u64 = 1_795_953_600;

    fn source() -> PeerStatusSource {
        PeerStatusSource {
            id: TunnelPeerId(1),
            client: None,
            shared: Arc::default(),
            sending: Arc::default(),
            receiving: Arc::default(),
            plan: Arc::default(),
        }
    }

    fn thread(path: &Path, source: &PeerStatusSource) -> (QuotaThread, Receiver<PlanningCommand>) {
        let (planning, commands) = mpsc::channel();
        let thread = QuotaThread {
            opened: OpenedQuotaFile::open(path).unwrap(),
            configured: Arc::new(Mutex::new(TunnelConfig::from_toml(CONFIG).unwrap().channels)),
            sources: Arc::new(Mutex::new(vec![source.clone()])),
            shown: Arc::default(),
            planning,
            counted: BTreeMap::new(),
            left_out: ChannelSubset::EMPTY,
            failures: 0,
        };
        (thread, commands)
    }

    #[test]
    fn a_used_up_quota_is_left_out_over_restarts_until_the_month_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tunnel.quota");
        let source = source();
        let (mut first, commands) = thread(&path, &source);
        lock(&source.sending).sender.ip_bytes = [600_000; 16];
        assert!(!first.count(NOON));
        // The second association counts from 0.
        lock(&source.sending).sender.ip_bytes = [150_000; 16];
        assert!(!first.count(NOON + 1), "three quarters");
        assert_eq!(lock(&first.shown)[0].unwrap().used_bytes, 750_000);
        assert!(lock(&first.shown)[1].is_none());
        lock(&source.sending).sender.ip_bytes = [400_000; 16];
        assert!(first.count(NOON + 2));
        let left_out = ChannelSubset::EMPTY.with(0);
        let Ok(PlanningCommand::LeftOut(channels)) = commands.try_recv() else { panic!() };
        assert_eq!((channels, lock(&source.shared).left_out), (left_out, left_out));
        first.save();

        let again = self::source();
        let (mut second, commands) = thread(&path, &again);
        assert!(!second.count(NOON + 62), "it was used up before");
        assert!(matches!(commands.try_recv(), Ok(PlanningCommand::LeftOut(it)) if it == left_out));
        assert_eq!(lock(&second.shown)[0].unwrap().used_up_s, Some(60.0));
        assert!(second.count(NOON + 2 * 86_400), "December");
        assert!(matches!(commands.try_recv(), Ok(PlanningCommand::LeftOut(it)) if it.is_empty()));
        assert!(lock(&again.shared).left_out.is_empty());
    }

    #[test]
    fn a_damaged_or_unwritable_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tunnel.quota");
        fs::write(&path, "{").unwrap();
        let refused = OpenedQuotaFile::open(&path).err().unwrap().to_string();
        assert!(refused.contains("remove it to count the quotas from 0"), "{refused}");
        let missing = directory.path().join("none/tunnel.quota");
        let refused = OpenedQuotaFile::open(&missing).err().unwrap().to_string();
        assert!(refused.contains("give `quota_file` a path"), "{refused}");
    }

    #[test]
    fn channels_keep_their_names() {
        let channels = TunnelConfig::from_toml(CONFIG).unwrap().channels;
        let names: Vec<String> = channels.iter().map(name).collect();
        assert_eq!(names, ["192.0.2.1:6521 eth0", "192.0.2.9 192.0.2.2:6521"]);
    }
}

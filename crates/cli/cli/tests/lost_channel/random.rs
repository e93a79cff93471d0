//! Channels of open streams that fail in random sequences.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lab::LinkDirection;

use crate::testbed::{End, LINKS, Service, TOPOLOGY, Testbed};

/// The longest silence while as many channels work as a stream needs.
const MAX_SILENCE: Duration = Duration::from_secs(3);

/// How many sequences run at once.
const AT_ONCE: u64 = 10;

/// How long a sequence takes.
const SEQUENCE: Duration = Duration::from_secs(120);

/// How long streams last without enough channels: 90 s, from when the loss is noticed.
const LASTS: Duration = Duration::from_secs(88);

/// The next change of a link.
struct Link {
    name: &'static str,
    is_cut: bool,
    changes_at: Duration,
    /// What has changed.
    changes: Vec<String>,
}

impl Link {
    fn change(&mut self, testbed: &Testbed, random: &mut fastrand::Rng) {
        self.is_cut = !self.is_cut;
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        if !self.is_cut {
            testbed.cut(self.name, &LinkDirection::BOTH, false);
            self.changes.push(format!("{now} {} is whole", self.name));
            self.changes_at += Duration::from_millis(2_000 + random.u64(..30_000));
            return;
        }
        let directions: &[LinkDirection] = match random.u8(..4) {
            0 => &[LinkDirection::Forward],
            1 => &[LinkDirection::Back],
            _ => &LinkDirection::BOTH,
        };
        testbed.cut(self.name, directions, true);
        self.changes.push(format!("{now} {} loses all {directions:?}", self.name));
        let outage = [500, 3_000, 10_000, 40_000][random.usize(..4)];
        self.changes_at += Duration::from_millis(outage + random.u64(..500));
    }
}

/// Runs a sequence. Returns the longest silence, and how many streams ended that had not enough
/// channels.
fn sequence(seed: u64) -> (Duration, u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let threshold = 1 + random.usize(..3);
    let settings = [format!("threshold = {threshold}"), format!("min_channels = {threshold}")];
    let testbed =
        Testbed::start(TOPOLOGY, settings.each_ref().map(String::as_str), Service::Speaks);
    let mut links = LINKS.map(|name| {
        let changes_at = Duration::from_millis(1_000 + random.u64(..15_000));
        Link { name, is_cut: false, changes_at, changes: Vec::new() }
    });
    let (mut download, begin) = (testbed.download(), Instant::now());
    let (mut enough_since, mut longest, mut ended) = (Some(begin), Duration::ZERO, 0);
    while begin.elapsed() < SEQUENCE {
        for link in &mut links {
            if begin.elapsed() >= link.changes_at {
                link.change(&testbed, &mut random);
            }
        }
        if links.iter().filter(|link| !link.is_cut).count() < threshold {
            enough_since = None;
        } else {
            let since = *enough_since.get_or_insert_with(Instant::now);
            let silence = since.max(download.last()).elapsed();
            assert!(
                silence <= MAX_SILENCE,
                "seed {seed}, k = {threshold}: silent for {silence:.1?}, {:.1?} after the start: {:#?}, {:#?}",
                begin.elapsed(),
                links.each_ref().map(|link| &link.changes),
                End::BOTH.map(|end| testbed.log(end))
            );
            longest = longest.max(silence);
        }
        if let Some((_, reason)) = download.end() {
            let silence = download.last().elapsed();
            assert!(
                silence >= LASTS,
                "seed {seed}, k = {threshold}: {reason} after {silence:.1?} without data, and \
                 {:.1?} after enough channels worked: {:#?}",
                enough_since.map(|since| since.elapsed()),
                End::BOTH.map(|end| testbed.log(end))
            );
            (download, ended) = (testbed.download(), ended + 1);
        }
        thread::sleep(Duration::from_millis(20));
    }
    (longest, ended)
}

/// `SUNDER_SOAK_S` seconds of sequences, or the one of `SUNDER_SEED`.
pub(crate) fn streams_outlast_random_sequences() {
    let given = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match given("SUNDER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..given("SUNDER_SOAK_S").unwrap_or(120) * AT_ONCE / SEQUENCE.as_secs(),
    };
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let (longest, ended) = sequence(seed);
                    println!("seed {seed}: longest silence {longest:.1?}, {ended} streams ended");
                }
            });
        }
    });
}

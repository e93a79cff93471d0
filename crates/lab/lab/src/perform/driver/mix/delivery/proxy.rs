//! The proxy, a process that runs `sunder mix`, and its reports about rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use keys::{IdentityPublicKey, IdentitySecretKey};
use mix::MixExchangeKind;
use mix::proxy::{MixProxyStatus, ProxyGroupStatus};
use rustix::process::Signal;

use super::super::error_text;
use super::{JOINING_INTERVAL_MS, MixDeliveryOptions, SLOT_LEN};
use crate::host::EmulatedHost;
use crate::perform::command::ProgramCommand;
use crate::perform::program::ProgramProcess;

/// The least interval of queries of the proxy's status.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often the status is queried in a round.
const POLLS_OF_ROUND: u32 = 4;

/// The file for the proxy's output.
const LOG: &str = "proxy.log";

/// The time limit for the first status after the proxy listens, and the interval of queries.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const START_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The time limit for the proxy to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What a proxy has done during the measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxyRounds {
    /// The durations of rounds of all groups: the last round at each query.
    pub(super) times: Vec<Duration>,
    /// The numbers of participants of these rounds.
    participants: Vec<usize>,
    /// The number of exchanges that were done in time.
    pub(super) exchanges: u64,
    /// The processor time of the process.
    pub(super) processor: Duration,
    /// The most memory of the process that a query has shown.
    pub(super) memory_bytes: u64,
    /// From the signal that ended it until all members took part again; zero without a restart.
    pub(super) rejoin_time: Duration,
}

impl ProxyRounds {
    pub(super) fn mean_participants(&self) -> f64 {
        let all: usize = self.participants.iter().sum();
        all as f64 / self.participants.len().max(1) as f64
    }
}

/// The proxy.
pub(super) struct ProxyProcess<'a> {
    host: &'a EmulatedHost,
    place: PathBuf,
    command: ProgramCommand,
    key: IdentityPublicKey,
    administrators: Vec<IdentityPublicKey>,
    /// The number of members of each group.
    sizes: BTreeMap<String, usize>,
    /// The groups whose rounds are measured.
    measured: BTreeSet<String>,
    program: ProgramProcess,
    /// The last status of the groups, and the processor time at that time.
    before: Option<(BTreeMap<String, ProxyGroupStatus>, Duration)>,
    poll_interval: Duration,
    next_poll: Instant,
    rounds: ProxyRounds,
    /// When it was stopped, until all members take part again.
    stopped: Option<Instant>,
}

impl<'a> ProxyProcess<'a> {
    /// Starts it with groups of these administrators.
    pub(super) fn start(
        host: &'a EmulatedHost,
        place: &Path,
        options: &MixDeliveryOptions,
        administrators: &[IdentityPublicKey],
    ) -> Result<Self, String> {
        let key = IdentitySecretKey::create(&place.join("proxy.key")).map_err(error_text)?.public();
        let (intervals, slot_len) = match options.joining_ms {
            None => (options.intervals(), options.slot_len),
            Some(least) => {
                ([JOINING_INTERVAL_MS.max(least), least], options.slot_len.min(SLOT_LEN))
            }
        };
        let path = place.join("proxy.toml");
        let config = config(options, administrators, intervals, slot_len)?;
        fs::write(&path, config).map_err(error_text)?;
        let command = [&options.sunder, "mix", "--config", &path.display().to_string()];
        let command = ProgramCommand::new(command.map(str::to_owned).to_vec());
        let program = ProgramProcess::start(Some(host), &command, &place.join(LOG), None)?;
        let mut proxy = Self {
            host,
            place: place.to_owned(),
            command,
            key,
            administrators: administrators.to_vec(),
            sizes: options.group_names().zip(options.sizes()).collect(),
            measured: options.group_names().take(options.groups).collect(),
            program,
            before: None,
            poll_interval: POLL_INTERVAL
                .max(Duration::from_millis(options.min_interval_ms) / POLLS_OF_ROUND),
            next_poll: Instant::now(),
            rounds: ProxyRounds::default(),
            stopped: None,
        };
        proxy.wait_for_status()?;
        Ok(proxy)
    }

    pub(super) fn key(&self) -> IdentityPublicKey {
        self.key
    }

    /// Waits until all members of all groups take part in rounds.
    pub(super) fn wait_for_all(&mut self, deadline: Instant) -> Result<(), String> {
        loop {
            let groups = self.status()?;
            if self.all_participate(&groups) {
                return Ok(());
            }
            self.program.check()?;
            if Instant::now() > deadline {
                let those = groups.values().map(|group| group.participants.to_string());
                let those: Vec<String> = those.collect();
                let what = format!("has {} of {:?} participants", those.join(", "), self.sizes);
                return Err(self.program.error_with_output(&what));
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Whether all members took part in the last rounds. Records when they do so again after a
    /// restart.
    fn all_participate(&mut self, groups: &BTreeMap<String, ProxyGroupStatus>) -> bool {
        let have_all =
            groups.iter().all(|(name, it)| self.sizes.get(name) == Some(&it.participants));
        if have_all && let Some(stopped) = self.stopped.take() {
            self.rounds.rejoin_time = stopped.elapsed();
        }
        have_all
    }

    /// Starts the measurement of rounds.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.rounds = ProxyRounds::default();
        self.before = Some((self.status()?, self.program.processor_time()?));
        Ok(())
    }

    /// Queries its status, if that is due.
    pub(super) fn poll_status(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if now < self.next_poll {
            return Ok(());
        }
        self.next_poll = now + self.poll_interval;
        self.program.check()?;
        let (status, processor) = (self.whole_status()?, self.program.processor_time()?);
        let memory_bytes = status.load.memory_bytes.unwrap_or_default();
        let groups = by_name(status);
        self.all_participate(&groups);
        let rounds = &mut self.rounds;
        let (before, processor_before) = self.before.take().unwrap_or_default();
        for (name, group) in &groups {
            let (seen, exchanges) = before.get(name).map_or((0, 0), |it| (it.rounds, it.exchanges));
            if group.rounds != seen && self.measured.contains(name) {
                rounds.times.push(Duration::from_secs_f64(group.round_ms / 1e3));
                rounds.participants.push(group.participants);
            }
            rounds.exchanges += group.exchanges.saturating_sub(exchanges);
        }
        rounds.memory_bytes = rounds.memory_bytes.max(memory_bytes);
        rounds.processor += processor.saturating_sub(processor_before);
        self.before = Some((groups, processor));
        Ok(())
    }

    /// Returns the measurements since [`Self::begin`].
    pub(super) fn end(&mut self) -> Result<ProxyRounds, String> {
        self.next_poll = Instant::now();
        self.poll_status()?;
        Ok(std::mem::take(&mut self.rounds))
    }

    /// Stops it as a service is stopped, and starts it again.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        self.next_poll = Instant::now();
        self.poll_status()?;
        let stopped = Instant::now();
        self.program.signal(Signal::TERM)?;
        if self.program.wait(END_TIMEOUT)?.is_none() {
            return Err(self.program.error_with_output("did not end"));
        }
        let log = self.place.join(LOG);
        self.program = ProgramProcess::start(Some(self.host), &self.command, &log, None)?;
        self.wait_for_status()?;
        // Its counters begin at zero.
        self.before = None;
        self.stopped = Some(stopped);
        Ok(())
    }

    /// Stops it, and starts it again with the rounds that are measured.
    pub(super) fn restart_to_measure(
        &mut self,
        options: &MixDeliveryOptions,
    ) -> Result<(), String> {
        let (intervals, slot_len) = (options.intervals(), options.slot_len);
        let config = config(options, &self.administrators, intervals, slot_len)?;
        fs::write(self.place.join("proxy.toml"), config).map_err(error_text)?;
        self.restart()
    }

    /// Waits until it answers a status query.
    fn wait_for_status(&mut self) -> Result<(), String> {
        self.program.wait_for_output("proxy_key")?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.status() {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(self.program.error_with_output(&error));
                }
                Err(_) => sleep(START_POLL_INTERVAL),
            }
        }
    }

    /// The status of its groups, by their names.
    fn status(&self) -> Result<BTreeMap<String, ProxyGroupStatus>, String> {
        self.whole_status().map(by_name)
    }

    fn whole_status(&self) -> Result<MixProxyStatus, String> {
        let path = self.place.join("mix-proxy.sock");
        let mut answer = String::new();
        let asked = UnixStream::connect(&path).and_then(|mut it| it.read_to_string(&mut answer));
        asked.map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&answer).map_err(error_text)
    }
}

fn by_name(status: MixProxyStatus) -> BTreeMap<String, ProxyGroupStatus> {
    status.groups.into_iter().map(|group| (group.name.clone(), group)).collect()
}

/// The proxy's configuration, with the longest and the shortest round in ms, and the bytes of a
/// slot.
fn config(
    options: &MixDeliveryOptions,
    administrators: &[IdentityPublicKey],
    [interval_ms, min_interval_ms]: [u64; 2],
    slot_len: usize,
) -> Result<String, String> {
    let (port, terms, engine) = (options.address.port(), options.terms()?, &options.engine);
    let mut config =
        format!("identity = \"proxy.key\"\nlisten = \"0.0.0.0:{port}\"\nstate = \"proxy.state\"\n");
    let shape = terms.shape();
    let reads = match terms.exchange() {
        MixExchangeKind::Broadcast => String::new(),
        MixExchangeKind::Oblivious(_) => format!("reads = {}\n", shape.reads()),
    };
    let groups = options.group_names().zip(options.sizes()).zip(administrators);
    for ((name, size), administrator) in groups {
        // Writing to a text does not fail.
        let _ = write!(
            config,
            "[[group]]\nname = \"{name}\"\nadministrator = \"{administrator}\"\n\
             members = {}\nslots_per_member = {}\nslot_len = {slot_len}\n{reads}\
             interval_ms = {interval_ms}\nmin_interval_ms = {min_interval_ms}\n\
             engine = \"{engine}\"\n",
            size,
            shape.slots_per_member(),
        );
    }
    Ok(config)
}

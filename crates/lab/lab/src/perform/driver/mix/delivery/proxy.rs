//! The proxy, a process that runs `sunder mix`, and its reports about rounds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use keys::{IdentityPublicKey, IdentitySecretKey};
use mix::proxy::{MixProxyStatus, ProxyGroupStatus};
use rustix::process::Signal;

use super::super::error_text;
use super::MixDeliveryOptions;
use crate::host::EmulatedHost;
use crate::perform::command::ProgramCommand;
use crate::perform::program::ProgramProcess;

/// The interval of queries of the proxy's status.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
    members: usize,
    program: ProgramProcess,
    /// The last status of the groups, and the processor time at that time.
    before: Option<(BTreeMap<String, ProxyGroupStatus>, Duration)>,
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
        let port = options.address.port();
        let mut config = format!(
            "identity = \"proxy.key\"\nlisten = \"0.0.0.0:{port}\"\nstate = \"proxy.state\"\n"
        );
        let (shape, engine) = (*options.terms()?.shape(), &options.engine);
        for (name, administrator) in options.group_names().zip(administrators) {
            // Writing to a text does not fail.
            let _ = write!(
                config,
                "[[group]]\nname = \"{name}\"\nadministrator = \"{administrator}\"\n\
                 members = {}\nslots_per_member = {}\nreads = {}\nslot_len = {}\n\
                 interval_ms = {}\nmin_interval_ms = {}\nengine = \"{engine}\"\n",
                shape.members(),
                shape.slots_per_member(),
                shape.reads(),
                shape.slot_len(),
                options.interval_ms,
                options.min_interval_ms,
            );
        }
        let path = place.join("proxy.toml");
        fs::write(&path, config).map_err(error_text)?;
        let command = [&options.sunder, "mix", "--config", &path.display().to_string()];
        let command = ProgramCommand::new(command.map(str::to_owned).to_vec());
        let program = ProgramProcess::start(Some(host), &command, &place.join(LOG), None)?;
        let mut proxy = Self {
            host,
            place: place.to_owned(),
            command,
            key,
            members: options.members,
            program,
            before: None,
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
                let what = format!("has {} of {} participants", those.join(", "), self.members);
                return Err(self.program.error_with_output(&what));
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Whether all members took part in the last rounds. Records when they do so again after a
    /// restart.
    fn all_participate(&mut self, groups: &BTreeMap<String, ProxyGroupStatus>) -> bool {
        let have_all = groups.values().all(|group| group.participants == self.members);
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
        self.next_poll = now + POLL_INTERVAL;
        self.program.check()?;
        let (groups, processor) = (self.status()?, self.program.processor_time()?);
        self.all_participate(&groups);
        let rounds = &mut self.rounds;
        let (before, processor_before) = self.before.take().unwrap_or_default();
        for (name, group) in &groups {
            let (seen, exchanges) = before.get(name).map_or((0, 0), |it| (it.rounds, it.exchanges));
            if group.rounds != seen {
                rounds.times.push(Duration::from_secs_f64(group.round_ms / 1e3));
                rounds.participants.push(group.participants);
            }
            rounds.exchanges += group.exchanges.saturating_sub(exchanges);
        }
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
        let path = self.place.join("mix-proxy.sock");
        let mut answer = String::new();
        let asked = UnixStream::connect(&path).and_then(|mut it| it.read_to_string(&mut answer));
        asked.map_err(|error| format!("{}: {error}", path.display()))?;
        let status: MixProxyStatus = serde_json::from_str(&answer).map_err(error_text)?;
        Ok(status.groups.into_iter().map(|group| (group.name.clone(), group)).collect())
    }
}

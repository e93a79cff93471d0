//! Groups of servers that each run `sunder quorum node` on their own host, linked by a switch.

mod refreshing;
mod signing;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use keys::{IdentitySecretKey, storage};
use quorum::api::{ApiEncoding, QuorumApiClient};
use quorum::node::QuorumNodeStatus;
use quorum::nodes::parse_nodes;
use quorum::{QuorumBundle, QuorumShareFile, UnixSeconds, ceremony_files};
use random::RandomGenerator;
use rustix::process::Signal;
use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use super::super::{MeasurementDriver, host};
use super::{check_bits, combination, key};
use crate::disk::DiskDirectory;
use crate::link::EmulatedLinkConditions;
use crate::network::EmulatedNetwork;
use crate::perform::command::ProgramCommand;
use crate::perform::program::ProgramProcess;
use crate::trial::{HostPlan, LinkPlan, Trial};

pub(super) const REFRESH: MeasurementDriver = refreshing::DRIVER;
pub(super) const SIGN: MeasurementDriver = signing::DRIVER;

/// The host to which all others are linked.
const SWITCH: &str = "switch";

/// The port of links between servers.
const PORT: u16 = 6530;

/// The largest group whose key is shared by a polynomial.
const MAX_SERVERS: u8 = 31;

/// The time limit of each wait. A refresh of ten servers takes some seconds on four processors.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The interval of status queries.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of the network of servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuorumNetworkOptions {
    /// The program.
    sunder: PathBuf,
    /// The number of servers of a group, 3f+1.
    servers: u8,
    /// How the group shares its key.
    #[serde(default)]
    key: QuorumKeyMode,
    /// The number of bits of the modulus. An Ed25519 key has none: 0.
    #[serde(default)]
    modulus_bits: u32,
    /// The delay from one server to another, in ms.
    delay_ms: f64,
    /// The rate of each server's link, in Mbit/s.
    rate_mbit: f64,
}

/// How a group shares its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum QuorumKeyMode {
    /// An RSA key of which each subset of servers has a share.
    #[default]
    Rsa,
    /// An RSA key that is shared by a polynomial.
    RsaPolynomial,
    /// An Ed25519 key.
    Ed25519,
}

impl QuorumNetworkOptions {
    /// Checks them. The error is one line.
    fn check(&self) -> Result<(), String> {
        match self.key {
            QuorumKeyMode::Rsa => _ = combination(self.servers)?,
            QuorumKeyMode::RsaPolynomial | QuorumKeyMode::Ed25519 => {
                if self.servers % 3 != 1 || !(4..=MAX_SERVERS).contains(&self.servers) {
                    return Err(format!(
                        "servers is {}; give 4, 7, 10 and so on up to {MAX_SERVERS}",
                        self.servers
                    ));
                }
            }
        }
        match (self.key, self.modulus_bits) {
            (QuorumKeyMode::Ed25519, 0) => {}
            (QuorumKeyMode::Ed25519, bits) => {
                return Err(format!("modulus_bits is {bits}; leave it out for an Ed25519 key"));
            }
            (_, bits) => check_bits(bits)?,
        }
        self.conditions().checked().map_err(|error| error.to_string())?;
        Ok(())
    }

    /// The conditions of the link between a server and the switch.
    fn conditions(&self) -> EmulatedLinkConditions {
        let (rate_mbit, delay_ms) = (Some(self.rate_mbit), self.delay_ms / 2.0);
        EmulatedLinkConditions { rate_mbit, delay_ms, ..EmulatedLinkConditions::default() }
    }

    /// Adds the hosts of `servers` servers to a trial.
    fn add_hosts(&self, servers: usize, trial: &mut Trial) {
        let switch = HostPlan { forwards: true, ..HostPlan::default() };
        trial.hosts.insert(SWITCH.into(), switch);
        for name in (1..=servers).map(host_name) {
            let link = LinkPlan {
                hosts: [name.clone(), SWITCH.into()],
                mtu: 1500,
                congestion: None,
                both: Some(self.conditions()),
                forward: None,
                back: None,
                tap: None,
            };
            trial.hosts.insert(name.clone(), HostPlan::default());
            trial.links.insert(name, link);
        }
    }
}

/// The servers of the next group.
#[derive(Clone, Copy, Debug, Default)]
struct JoiningServers {
    count: usize,
    /// Whether the first group's servers have them in their configurations, so that there are links
    /// with them before the refresh.
    linked: bool,
}

/// The name of a server's host, and of its link.
fn host_name(number: usize) -> String {
    format!("server-{number}")
}

/// Running servers, by their numbers from 1: a group, and those of the next group.
struct RunningServers<'a> {
    site: QuorumNetworkOptions,
    network: &'a EmulatedNetwork,
    /// They are killed before their directory is removed.
    running: BTreeMap<usize, ProgramProcess>,
    /// The directory for the servers' stores. `{files}` is in memory, but stores must be on a disk.
    directory: DiskDirectory,
    runtime: Runtime,
}

impl<'a> RunningServers<'a> {
    /// Performs the ceremony for the first group, starts its servers and those that join, and waits
    /// until the group is linked and has signed its header.
    fn start(
        site: QuorumNetworkOptions,
        joining: JoiningServers,
        network: &'a EmulatedNetwork,
    ) -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(text)?;
        let directory = DiskDirectory::new().map_err(text)?;
        let mut servers = Self { site, network, running: BTreeMap::new(), directory, runtime };
        let group = usize::from(servers.site.servers);
        let all: Vec<usize> = (1..=group + joining.count).collect();
        servers.prepare(group, &all, joining.linked)?;
        let (first, next) = all.split_at(group);
        servers.run(first)?;
        if servers.site.key == QuorumKeyMode::Ed25519 && !next.is_empty() {
            servers.wait(1, "generate the key", |status| status.health.ok)?;
            let bundle = servers.runtime.block_on(servers.client(1).bundle()).map_err(text)?;
            fs::write(servers.path("joining.bundle"), bundle).map_err(text)?;
        }
        servers.run(next)?;
        for &number in &all {
            let links = match (number <= group, joining.linked) {
                (true, false) => group - 1,
                (true, true) => all.len() - 1,
                (false, true) => group,
                (false, false) => 0,
            };
            servers.wait(number, "be ready", |status| {
                let up = status.links.iter().filter(|link| link.up).count();
                let is_member = status.header_signed && status.health.ok;
                up >= links && (number > group || is_member)
            })?;
        }
        Ok(servers)
    }

    /// Writes all files.
    fn prepare(&self, group: usize, all: &[usize], linked: bool) -> Result<(), String> {
        let mut generator = RandomGenerator::seeded().map_err(text)?;
        let identities = all.iter().map(|number| {
            let key = IdentitySecretKey::create(&self.path(&format!("server-{number}.key")));
            key.map(|key| key.public().to_string()).map_err(text)
        });
        let identities = identities.collect::<Result<Vec<String>, String>>()?;
        let table = |name: &str, number: &usize| {
            let (identity, address) = (&identities[number - 1], self.address(*number)?);
            Ok(format!("[[{name}]]\nidentity = \"{identity}\"\naddress = \"{address}\"\n"))
        };
        let tables = |name: &str, numbers: &[usize]| {
            numbers.iter().map(|number| table(name, number)).collect::<Result<String, String>>()
        };
        let (first, next) = all.split_at(group);
        let members = parse_nodes(&tables("server", first)?).map_err(text)?;
        let time = UnixSeconds::from_system(SystemTime::now());
        let mode = self.site.key;
        if mode == QuorumKeyMode::Ed25519 {
            let bundle = QuorumBundle::founding(members, time);
            ceremony_files::write_bundle(&self.path("founding.bundle"), &bundle).map_err(text)?;
        } else {
            let key = key(self.site.modulus_bits)?;
            let files = if mode == QuorumKeyMode::RsaPolynomial {
                QuorumShareFile::deal_polynomial(&key, &members, time, &mut generator)
            } else {
                QuorumShareFile::deal(&key, &members, time, &mut generator)
            };
            ceremony_files::write(self.directory.path(), &files.map_err(text)?).map_err(text)?;
        }
        // A refresh to no other servers gives the same ones new shares.
        self.write("next.toml", &tables("server", if next.is_empty() { first } else { next })?)?;
        for number in all {
            let (address, is_first) = (self.address(*number)?, *number <= group);
            let from_ceremony = match (mode, is_first) {
                (QuorumKeyMode::Ed25519, true) => "bundle = \"founding.bundle\"\n".to_owned(),
                (QuorumKeyMode::Ed25519, false) => "bundle = \"joining.bundle\"\n".to_owned(),
                (_, true) => {
                    format!("public_key = \"public.pem\"\nshare = \"server-{number}.share\"\n")
                }
                (_, false) => "public_key = \"public.pem\"\n".to_owned(),
            };
            let peers = match (is_first, linked) {
                (true, false) => String::new(),
                (true, true) => tables("peer", next)?,
                (false, _) => tables("peer", first)?,
            };
            let config = format!(
                "identity = \"server-{number}.key\"\nmaster_key = \"server-{number}.key\"\n\
                 store = \"server-{number}.store\"\nlisten = [\"{address}\"]\n\
                 socket = \"server-{number}.api\"\nneed_delay_s = 300\n{from_ceremony}{peers}\
                 [[rule]]\nprefix = \"a message\"\n"
            );
            self.write(&format!("server-{number}.toml"), &config)?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file that only this user may read.
    fn write(&self, name: &str, content: &str) -> Result<(), String> {
        let path = self.path(name);
        let written = storage::create(&path, content.as_bytes(), 0o600);
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    fn address(&self, number: usize) -> Result<String, String> {
        let name = host_name(number);
        let address = self.network.address(&name, &name);
        let address = address.ok_or_else(|| format!("there is no link {name}"))?;
        Ok(format!("{address}:{PORT}"))
    }

    /// Starts these servers, or kills them and starts them again.
    fn run(&mut self, numbers: &[usize]) -> Result<(), String> {
        for &number in numbers {
            self.running.remove(&number);
            let config = self.path(&format!("server-{number}.toml"));
            let command = [&self.site.sunder, Path::new("quorum"), Path::new("node")];
            let command = command.into_iter().chain([Path::new("--config"), &config]);
            let command: Vec<String> = command.map(|it| it.display().to_string()).collect();
            let host = host(self.network, &host_name(number))?;
            let output = self.path(&format!("server-{number}.log"));
            let command = ProgramCommand::new(command);
            let program = ProgramProcess::start(Some(host), &command, &output, None)?;
            self.running.insert(number, program);
        }
        for number in numbers {
            self.program(*number)?.wait_for_output("listening on")?;
        }
        Ok(())
    }

    fn program(&mut self, number: usize) -> Result<&mut ProgramProcess, String> {
        self.running.get_mut(&number).ok_or_else(|| format!("server {number} does not run"))
    }

    /// Suspends these servers, so that they are silent.
    fn suspend(&mut self, numbers: &[usize]) -> Result<(), String> {
        numbers.iter().try_for_each(|number| self.program(*number)?.signal(Signal::STOP))
    }

    /// Resumes them.
    fn resume(&mut self, numbers: &[usize]) -> Result<(), String> {
        numbers.iter().try_for_each(|number| self.program(*number)?.signal(Signal::CONT))
    }

    /// Fails if a server has ended.
    fn check(&mut self) -> Result<(), String> {
        self.running.values_mut().try_for_each(ProgramProcess::check)
    }

    /// Waits until the status of a server is as expected.
    fn wait(
        &mut self,
        number: usize,
        expected: &str,
        is_reached: impl Fn(&QuorumNodeStatus) -> bool,
    ) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        while !is_reached(&self.status(number)?) {
            self.check()?;
            if Instant::now() > deadline {
                let expected = format!("did not {expected} in time");
                return Err(self.program(number)?.error_with_output(&expected));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The status of a server.
    fn status(&self, number: usize) -> Result<QuorumNodeStatus, String> {
        let path = self.path(&format!("quorum-server-{number}.sock"));
        let mut answer = String::new();
        let asked = UnixStream::connect(&path).and_then(|mut it| it.read_to_string(&mut answer));
        asked.map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&answer).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// When a server logged an event of an epoch; `None` if it has not.
    fn logged(&self, number: usize, event: &str, epoch: u64) -> Result<Option<SystemTime>, String> {
        let program = self.running.get(&number).ok_or("no such server")?;
        let (output, epoch) = (program.output()?, format!("epoch={epoch}"));
        let is_it =
            |line: &&str| line.contains(event) && line.split_whitespace().any(|word| word == epoch);
        let Some(line) = output.lines().find(is_it) else { return Ok(None) };
        let time = line.split_whitespace().next().unwrap_or_default();
        humantime::parse_rfc3339(time).map(Some).map_err(|error| format!("{line}: {error}"))
    }

    fn client(&self, number: usize) -> QuorumApiClient {
        QuorumApiClient::new(&self.path(&format!("server-{number}.api")))
    }

    /// Has a message signed at a server, and returns how long that took.
    fn sign(&self, number: usize, message: &str) -> Result<Duration, String> {
        let (client, message) = (self.client(number), message.to_owned());
        let encoding = match self.site.key {
            QuorumKeyMode::Ed25519 => ApiEncoding::Ed25519,
            QuorumKeyMode::Rsa | QuorumKeyMode::RsaPolynomial => ApiEncoding::Pkcs1,
        };
        let start = Instant::now();
        let signed = self.runtime.block_on(client.sign(message.into(), encoding));
        let took = start.elapsed();
        signed.map_err(|error| format!("server {number}: {error}"))?;
        Ok(took)
    }

    /// Approves a refresh to the servers that join, or to the same ones if there are none.
    fn approve(&self, number: usize) -> Result<(), String> {
        let next = fs::read_to_string(self.path("next.toml")).map_err(text)?;
        let approved = self.runtime.block_on(self.client(number).start_refresh(next));
        approved.map(|_| ()).map_err(|error| format!("server {number}: {error}"))
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

//! One trial of an experiment: a network, the programs on it, and what is measured.
//!
//! These are the concrete values; [docs/formats/experiment.md](../../../docs/formats/experiment.md)
//! says what each means, and how a file gives those of many trials.

mod read;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use serde::Deserialize;

use crate::link::Conditions;

/// A trial, as the file has it once every placeholder has its value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// The hosts, by name.
    pub hosts: BTreeMap<String, HostPlan>,
    /// The links, by name. The i-th in this order has the addresses 10.0.i.1 and 10.0.i.2.
    pub links: BTreeMap<String, LinkPlan>,
    /// The texts of the files in the trial's directory, by name.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The lengths of files of zero bytes in the same directory, by name.
    #[serde(default)]
    pub zeros: BTreeMap<String, u32>,
    /// What runs besides the measurement, in the order in which it is started.
    #[serde(default)]
    pub programs: Vec<ProgramPlan>,
    /// What is measured.
    pub measure: MeasurePlan,
}

/// A host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Whether it has IPv6, and its links for each address `a.b.c.d` also `fd00::a.b.c.d`.
    #[serde(default)]
    pub ipv6: bool,
    /// System parameters, by their path below `/proc/sys`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
}

/// A link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// The names of its two hosts.
    pub hosts: [String; 2],
    /// The longest packet, in bytes.
    #[serde(default = "ethernet")]
    pub mtu: u32,
    /// The congestion control of TCP connections over it.
    pub congestion: Option<String>,
    /// What it does in either direction, or
    pub both: Option<Conditions>,
    /// from the first host to the second and
    pub forward: Option<Conditions>,
    /// from the second to the first.
    pub back: Option<Conditions>,
    /// The file for what passes on the wire.
    pub tap: Option<String>,
}

/// A program that runs during the measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramPlan {
    /// The name of the host that it runs on.
    pub host: String,
    /// The program and its arguments.
    pub run: Vec<String>,
    /// The TCP port that is open on its host when it is ready.
    pub listens: Option<u16>,
    /// What it prints when it is ready.
    pub says: Option<String>,
    /// The values of swept keys that it is for; of others, any.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<toml::Value>>,
}

/// What is measured: by a program or by a driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurePlan {
    /// The name of the host that the program runs on.
    pub host: Option<String>,
    /// The program and its arguments.
    pub run: Option<Vec<String>>,
    /// The name of the driver.
    pub driver: Option<String>,
    /// The driver's settings.
    #[serde(default)]
    pub options: toml::Table,
    /// How long the program may take, in seconds, if not a minute.
    pub timeout_s: Option<f64>,
    /// What is read from the program's output, or which of the driver's values are kept; by name.
    pub values: BTreeMap<String, ValuePlan>,
}

/// A value that is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValuePlan {
    /// Where it is in JSON output (RFC 6901).
    pub json: Option<String>,
    /// The text that it stands after.
    pub after: Option<String>,
    /// What the number is multiplied by.
    #[serde(default = "one")]
    pub scale: f64,
    /// What it is measured in.
    #[serde(default)]
    pub unit: String,
}

/// Where a trial is performed.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// What the links' chances come from.
    pub seed: u64,
    /// The directory for the trial's files and its programs' output.
    pub files: &'a Path,
    /// The directory for results.
    pub results: &'a Path,
    /// The trial's number, which begins the names of taps' files.
    pub number: usize,
}

impl LinkPlan {
    /// What the link does forward and back.
    pub fn conditions(&self) -> [Conditions; 2] {
        [self.forward, self.back].map(|one| one.or(self.both).unwrap_or_default())
    }
}

/// The address of an end, 0 or 1, of the i-th link.
pub(crate) fn address(link: usize, end: usize) -> Ipv4Addr {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are at most 100 links with two ends"
    )]
    let address = Ipv4Addr::new(10, 0, link as u8, end as u8 + 1);
    address
}

fn ethernet() -> u32 {
    1500
}

fn one() -> f64 {
    1.0
}

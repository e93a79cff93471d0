//! One trial of an experiment: a network, the programs on it, and the measurement.
//!
//! These are concrete values; [docs/formats/experiment.md](../../../../docs/formats/experiment.md)
//! describes each, and how a file defines many trials.

pub(crate) mod read;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::link::EmulatedLinkConditions;

/// A trial, after every placeholder was replaced by its value.
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
    /// The programs besides the measurement, in the order in which they start.
    #[serde(default)]
    pub programs: Vec<ProgramPlan>,
    /// The measurement.
    pub measure: MeasurePlan,
}

/// A host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// The site at which it is, if the experiment runs at sites. `None`: the one of its own name.
    pub site: Option<String>,
    /// Whether it has IPv6. Each address `a.b.c.d` of its links then has an `fd00::a.b.c.d`.
    #[serde(default)]
    pub ipv6: bool,
    /// Whether it forwards packets between its links, as a switch: the hosts at their other ends
    /// reach each other through it.
    #[serde(default)]
    pub forwards: bool,
    /// System parameters, by their path relative to `/proc/sys`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
}

/// A link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// The names of its two hosts.
    pub hosts: [String; 2],
    /// The MTU, in bytes.
    #[serde(default = "ethernet")]
    pub mtu: u32,
    /// The congestion control of TCP connections over it.
    pub congestion: Option<String>,
    /// The conditions in both directions. Excludes the following two.
    pub both: Option<EmulatedLinkConditions>,
    /// The conditions from the first host to the second.
    pub forward: Option<EmulatedLinkConditions>,
    /// The conditions from the second host to the first.
    pub back: Option<EmulatedLinkConditions>,
    /// The file to which all transmitted packets are written.
    pub tap: Option<String>,
}

/// A program that runs during the measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramPlan {
    /// The host on which it runs.
    pub host: String,
    /// The program and its arguments.
    pub run: Vec<String>,
    /// The TCP port that is open on its host when the program is ready.
    pub listens: Option<u16>,
    /// What it prints when it is ready.
    pub says: Option<String>,
    /// The values of swept keys for which it runs; without a key, for all its values.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<toml::Value>>,
}

/// A measurement by a program or a driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurePlan {
    /// The host on which the program runs.
    pub host: Option<String>,
    /// The program and its arguments.
    pub run: Option<Vec<String>>,
    /// The name of the driver.
    pub driver: Option<String>,
    /// The driver's settings.
    #[serde(default)]
    pub options: toml::Table,
    /// The time limit of the program, in seconds. `None`: a minute.
    pub timeout_s: Option<f64>,
    /// The values to read from the program's output, or to keep of the driver's, by name.
    pub values: BTreeMap<String, ValuePlan>,
    /// The texts to read from the same document, by name.
    #[serde(default)]
    pub texts: BTreeMap<String, TextPlan>,
}

/// A measured value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValuePlan {
    /// Its JSON pointer in the output (RFC 6901).
    pub json: Option<String>,
    /// The text before it in the output.
    pub after: Option<String>,
    /// The factor by which the number is multiplied.
    #[serde(default = "one")]
    pub scale: f64,
    /// Its unit.
    #[serde(default)]
    pub unit: String,
}

/// A text that is kept beside the measured values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextPlan {
    /// Its JSON pointer in the output (RFC 6901).
    pub json: String,
}

/// The seed and the directories of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialContext<'a> {
    /// The seed of the links' random losses and delays.
    pub seed: u64,
    /// The directory for the trial's files and its programs' output.
    pub files: &'a Path,
    /// The directory for results.
    pub results: &'a Path,
    /// The trial's number, with which the names of taps' files begin.
    pub number: usize,
}

impl LinkPlan {
    /// The conditions forward and back.
    pub fn conditions(&self) -> [EmulatedLinkConditions; 2] {
        [self.forward, self.back].map(|one| one.or(self.both).unwrap_or_default())
    }
}

/// The network that has the addresses of all links.
pub(crate) fn all_links() -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 16)
}

/// The address of end 0 or 1 of the i-th link.
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

//! Drivers: measurements that need more than the output of one program.
//!
//! A driver is a function on a network. `ALL` lists the drivers. To add one, add a file in
//! `driver/` and a line there.

mod accuracy;
pub(crate) mod compute;
pub(super) mod datagrams;
mod flow;
mod mix;
mod quorum;
mod round_trips;
mod scripts;

use std::collections::BTreeMap;
use std::path::Path;

use crate::host::EmulatedHost;
use crate::network::EmulatedNetwork;
use crate::perform::trial_network::TrialNetwork;
use crate::trial::{MeasurePlan, Trial, ValuePlan};

/// What a driver measured.
#[derive(Clone, Debug)]
pub(crate) enum DriverValues {
    /// Its values, by name.
    Named(BTreeMap<&'static str, f64>),
    /// The same without those that there are not here: times of packets between machines whose
    /// clocks differ, or times of more servers than there are.
    NamedInPart(BTreeMap<&'static str, f64>),
    /// A document in which each value has a JSON pointer.
    Document {
        content: serde_json::Value,
        /// Whether no value may be missing: the run was not cut short.
        is_whole: bool,
    },
}

impl DriverValues {
    /// The document, if there is one.
    pub(crate) fn document(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Named(_) | Self::NamedInPart(_) => None,
            Self::Document { content, .. } => Some(content),
        }
    }

    /// A value of the trial, scaled; `None` if the run was cut short before there was one, or it
    /// cannot be measured where the trial runs.
    ///
    /// # Errors
    /// If the driver does not give it, in one line.
    pub(crate) fn read(&self, name: &str, plan: &ValuePlan) -> Result<Option<f64>, String> {
        let number = match self {
            Self::Named(values) | Self::NamedInPart(values) => values.get(name).copied(),
            Self::Document { content, .. } => {
                plan.json.as_ref().and_then(|pointer| content.pointer(pointer)?.as_f64())
            }
        };
        let may_lack =
            matches!(self, Self::Document { is_whole: false, .. } | Self::NamedInPart(_));
        if number.is_none() && !may_lack {
            return Err(format!("the driver gives no {name}"));
        }
        Ok(number.map(|number| number * plan.scale))
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasurementDriver {
    /// Its name in experiment files.
    pub(crate) name: &'static str,
    /// The names of the values that it gives; none if it gives a document.
    pub(crate) values: &'static [&'static str],
    /// The settings of `[measure.options]` that name hosts.
    pub(crate) hosts: &'static [&'static str],
    /// The settings that are paths.
    pub(crate) paths: &'static [DriverPath],
    /// Adds the hosts and links that the settings imply to a trial; the error is one line.
    pub(crate) network: fn(&toml::Table, &mut Trial) -> Result<(), String>,
    /// Checks the settings of `[measure.options]`; the error is one line.
    pub(crate) check: fn(&toml::Table) -> Result<(), String>,
    /// Measures with the settings of `[measure.options]`.
    pub(crate) measure: DriverMeasure,
}

/// A setting that is a path, relative to the experiment's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverPath {
    /// The setting of `[measure.options]`.
    pub(crate) option: &'static str,
    /// Checks what is there, before the first trial; the error is one line.
    pub(crate) check: fn(&toml::Table) -> Result<(), String>,
}

/// The function by which a driver measures, and the networks for which it is. It returns the values
/// by name; the error is one line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DriverMeasure {
    /// It uses sockets of the hosts, or the links themselves.
    Emulated(fn(&EmulatedNetwork, &toml::Table) -> Result<DriverValues, String>),
    /// It needs emulated links, on this machine or between sites.
    Linked(fn(&TrialNetwork<'_>, &toml::Table) -> Result<DriverValues, String>),
    /// It only starts programs, on any network.
    Programs {
        measure: fn(&TrialNetwork<'_>, &toml::Table) -> Result<DriverValues, String>,
        /// Checks that what the settings request can run at sites, where links are emulated or not.
        check_at_sites: fn(&toml::Table, bool) -> Result<(), String>,
    },
}

pub use scripts::check_script_archive;

/// Every driver.
pub(crate) const ALL: [MeasurementDriver; 13] = [
    accuracy::DRIVER,
    compute::DRIVER,
    flow::DRIVER,
    mix::DELIVERY,
    mix::EXCHANGE,
    mix::MILLIONAIRES,
    mix::SIZES,
    quorum::NODE_REFRESH,
    quorum::NODE_SIGN,
    quorum::REFRESH,
    quorum::SIGN,
    round_trips::DRIVER,
    scripts::DRIVER,
];

/// A driver, by name.
pub(crate) fn find(name: &str) -> Option<MeasurementDriver> {
    ALL.into_iter().find(|driver| driver.name == name)
}

/// Makes the paths of a driver's settings relative to a directory, that of the experiment's file.
pub(crate) fn resolve_paths(measure: &mut MeasurePlan, directory: &Path) {
    let paths = measure.driver.as_deref().and_then(find).map_or(&[][..], |driver| driver.paths);
    for DriverPath { option, .. } in paths {
        if let Some(toml::Value::String(path)) = measure.options.get_mut(*option) {
            *path = directory.join(&*path).to_string_lossy().into_owned();
        }
    }
}

/// Checks what is at the paths of a driver's settings. The error is one line.
pub(crate) fn check_paths(measure: &MeasurePlan) -> Result<(), String> {
    let paths = measure.driver.as_deref().and_then(find).map_or(&[][..], |driver| driver.paths);
    paths.iter().try_for_each(|path| (path.check)(&measure.options))
}

/// A host that the settings name.
fn host<'a>(network: &'a EmulatedNetwork, name: &str) -> Result<&'a EmulatedHost, String> {
    network.host(name).ok_or_else(|| format!("measure.options: there is no host {name}"))
}

/// Adds no hosts.
#[expect(clippy::unnecessary_wraps, reason = "as other drivers' functions")]
fn no_hosts(_: &toml::Table, _: &mut Trial) -> Result<(), String> {
    Ok(())
}

/// Parses a driver's settings as `T`; the error is the message of the TOML library.
fn options<T: serde::de::DeserializeOwned>(table: &toml::Table) -> Result<T, String> {
    T::deserialize(table.clone()).map_err(|error| error.message().trim().to_owned())
}

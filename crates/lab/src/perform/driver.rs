//! Drivers: measurements that take more than one program's output.
//!
//! A driver is a function on a network. Those that come with Sunder are in `ALL`; one more is a
//! file in `driver/` and a line there.

mod accuracy;
mod datagrams;
mod flow;
mod round_trips;

use std::collections::BTreeMap;

use crate::network::Network;

/// What a driver measured, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(pub(crate) BTreeMap<&'static str, f64>);

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driver {
    /// Its name in experiment files.
    pub(crate) name: &'static str,
    /// The names of the values that it gives.
    pub(crate) values: &'static [&'static str],
    /// The settings of `[measure.options]` that name hosts.
    pub(crate) hosts: &'static [&'static str],
    /// Says what is wrong with the settings of `[measure.options]`, in one line.
    pub(crate) check: fn(&toml::Table) -> Result<(), String>,
    /// Measures on a network, with the settings of `[measure.options]`: the values by name, or in
    /// one line why there are none.
    pub(crate) measure: fn(&Network, &toml::Table) -> Result<Values, String>,
}

/// Every driver.
pub(crate) const ALL: [Driver; 3] = [accuracy::DRIVER, flow::DRIVER, round_trips::DRIVER];

/// A driver, by name.
pub(crate) fn find(name: &str) -> Option<Driver> {
    ALL.into_iter().find(|driver| driver.name == name)
}

/// A driver's settings, of type `T`, or the message of the TOML library.
fn options<T: serde::de::DeserializeOwned>(table: &toml::Table) -> Result<T, String> {
    T::deserialize(table.clone()).map_err(|error| error.message().trim().to_owned())
}

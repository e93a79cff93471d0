//! Changes the settings of a tunnel that runs.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use thiserror::Error;

use super::goal;
use super::planning::{LiveSettings, PlanningCommand};
use super::shared::lock;
use crate::config::{TunnelChannelConfig, TunnelConfig};

/// Why the settings of a tunnel that runs stay as they are. Each text is one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TunnelReloadError {
    /// A setting has changed that is read at the start only.
    #[error("`{key}` has changed, which needs a restart of the tunnel")]
    NeedsRestart {
        /// Its key in the configuration.
        key: &'static str,
    },
    /// The privacy floor would be below the one on which the ends have agreed.
    #[error(
        "min_threshold = {found} is below {agreed}, which the ends agree on until a restart; without \
         `min_threshold` it is kappa rounded down"
    )]
    BelowFloor {
        /// The new floor.
        found: u8,
        /// The floor of the handshake.
        agreed: u8,
    },
    /// The tunnel has ended.
    #[error("the tunnel has ended")]
    Ended,
}

/// Changes the settings of a tunnel that runs. Clones change those of the same tunnel.
#[derive(Clone)]
pub struct TunnelReloader {
    /// The configuration with which the tunnel was opened.
    pub(super) opened: Arc<TunnelConfig>,
    pub(super) risks: Arc<Mutex<Vec<f64>>>,
    pub(super) planning: Sender<PlanningCommand>,
}

impl TunnelReloader {
    /// Applies the settings that can change while the tunnel runs: `kappa`, `mu`, `objective`,
    /// `prefer`, `scheduler`, the bounds, `min_threshold` (not below that of the start), and the
    /// `risk` of each channel. They hold for packets that are sent from now on. No packet is lost.
    ///
    /// # Errors
    /// If another setting has changed too. Then nothing changes.
    pub fn reload(&self, config: &TunnelConfig) -> Result<(), TunnelReloadError> {
        let agreed = self.opened.min_threshold;
        if let Some(key) = changed_key(&self.opened, config) {
            return Err(TunnelReloadError::NeedsRestart { key });
        }
        if config.min_threshold < agreed {
            return Err(TunnelReloadError::BelowFloor { found: config.min_threshold, agreed });
        }
        let settings = LiveSettings::of(config);
        let risks = settings.risks.clone();
        let sent = self.planning.send(PlanningCommand::Settings(settings));
        sent.map_err(|_| TunnelReloadError::Ended)?;
        *lock(&self.risks) = risks;
        Ok(())
    }
}

impl LiveSettings {
    /// Those of a configuration.
    pub(super) fn of(config: &TunnelConfig) -> Self {
        Self {
            goal: goal(config),
            scheduler_kind: config.scheduler,
            risks: config.channels.iter().map(|channel| channel.risk).collect(),
        }
    }
}

/// The first setting that differs, of those that are read at the start only.
fn changed_key(opened: &TunnelConfig, new: &TunnelConfig) -> Option<&'static str> {
    let channels = opened.channels.iter().zip(&new.channels);
    let differ = |same: fn(&TunnelChannelConfig, &TunnelChannelConfig) -> bool| {
        channels.clone().any(|(one, other)| !same(one, other))
    };
    let fixed = [
        ("channel", opened.channels.len() != new.channels.len() || opened.end != new.end),
        ("channel", differ(|one, other| (one.local, one.peer) == (other.local, other.peer))),
        ("device", differ(|one, other| one.device == other.device)),
        ("rate_mbit", differ(|one, other| one.rate_bps == other.rate_bps)),
        ("min_channels", opened.min_channels != new.min_channels),
        ("tamper_code", opened.tamper_code != new.tamper_code),
        ("rng", opened.rng != new.rng),
        ("order", opened.order != new.order),
        ("reassembly_mib", opened.reassembly_bytes != new.reassembly_bytes),
        ("key", opened.key != new.key),
        ("roaming", opened.roaming != new.roaming),
        ("device", opened.device != new.device),
        ("addresses", opened.addresses != new.addresses),
        ("routes", opened.routes != new.routes),
        ("fail_closed", opened.fail_closed != new.fail_closed),
        ("direct", opened.direct != new.direct),
        ("allowed", opened.allowed != new.allowed),
        ("mtu", opened.mtu != new.mtu),
    ];
    fixed.into_iter().find_map(|(key, is_changed)| is_changed.then_some(key))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const CONFIG: &str = r#"
        kappa = 2
        mu = 2.5
        addresses = ["10.9.0.2/24"]
        [[channel]]
        server = "192.0.2.1:6521"
        risk = 0.1
        [[channel]]
        server = "192.0.2.2:6521"
        [[channel]]
        server = "192.0.2.3:6521"
    "#;

    fn config(from: &str, to: &str) -> TunnelConfig {
        assert!(CONFIG.contains(from), "{from}");
        TunnelConfig::from_toml(&CONFIG.replacen(from, to, 1)).unwrap()
    }

    #[test]
    fn only_the_settings_of_what_is_sent_change_while_it_runs() {
        let (planning, commands) = mpsc::channel();
        let opened = Arc::new(config("kappa", "kappa"));
        let reloader = TunnelReloader { opened, risks: Arc::default(), planning };
        for (from, to) in [
            ("kappa = 2", "kappa = 3\nobjective = \"loss\"\nprefer = \"redundancy\""),
            ("mu = 2.5", "mu = 3\nscheduler = \"dynamic\""),
            ("risk = 0.1", "risk = 0.3"),
        ] {
            let text = if from == "kappa = 2" { ("mu = 2.5", "mu = 3") } else { ("mu", "mu") };
            let new = CONFIG.replacen(text.0, text.1, 1).replacen(from, to, 1);
            let new = TunnelConfig::from_toml(&new).unwrap();
            assert_eq!(reloader.reload(&new), Ok(()), "{to}");
            let Ok(PlanningCommand::Settings(settings)) = commands.try_recv() else { panic!() };
            assert_eq!((settings.goal.kappa, settings.goal.mu), (new.kappa, new.mu));
            assert_eq!(*lock(&reloader.risks), settings.risks);
        }
        for (from, to, key) in [
            ("10.9.0.2/24", "10.9.0.3/24", "addresses"),
            ("192.0.2.3:6521", "192.0.2.3:6522", "channel"),
            ("mu = 2.5", "mu = 2.5\ntamper_code = false", "tamper_code"),
            ("mu = 2.5", "mu = 2.5\nroutes = [\"10.8.0.0/16\"]", "routes"),
            ("risk = 0.1", "rate_mbit = 5", "rate_mbit"),
            ("risk = 0.1", "device = \"eth0\"", "device"),
        ] {
            let refused = Err(TunnelReloadError::NeedsRestart { key });
            assert_eq!(reloader.reload(&config(from, to)), refused, "{to}");
        }
        let below = Err(TunnelReloadError::BelowFloor { found: 1, agreed: 2 });
        assert_eq!(reloader.reload(&config("kappa = 2", "kappa = 1.5")), below);
        assert!(commands.try_recv().is_err(), "nothing has changed");
        drop(commands);
        assert_eq!(reloader.reload(&config("kappa", "kappa")), Err(TunnelReloadError::Ended));
    }
}

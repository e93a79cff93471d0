//! `sunder plan --probe`: measures the channels to the server of a tunnel.

use std::fmt::Write as _;
use std::path::Path;

use console::CommandFailure;
use remicss::config::{TunnelChannelConfig, TunnelEnd};
use remicss::{MeasuredChannel, TunnelConfig, measure_channels};

use super::tunnel_file;
use crate::commands::tunnel::read_keys;

/// Measures, and prints a file for `--channels`.
///
/// # Errors
/// If the file is no configuration of a client, a name cannot be looked up, a channel cannot be
/// used, or none is answered.
pub(super) fn run(path: &Path) -> Result<(), CommandFailure> {
    let refused = |text: &str| CommandFailure::Usage(format!("{}: {text}", path.display()));
    let Some((_, config)) = tunnel_file::read(path)? else {
        return Err(refused("--probe needs the configuration of a tunnel"));
    };
    if config.end == TunnelEnd::Server {
        return Err(refused("run --probe at the end that connects, whose channels have `server`"));
    }
    let key = read_keys(path, &config)?.pop();
    let measured = measure_channels(&config, key)
        .map_err(|error| CommandFailure::Failed(error.to_string()))?;
    if measured.iter().all(|channel| channel.answered == 0) {
        return Err(CommandFailure::Failed(String::from(
            "the server does not answer on any channel: check that it runs, that its ports are \
             open, and that key and order of channels are the same at both ends",
        )));
    }
    console::print(file(&config, &measured).as_bytes())
}

/// The file, with what is not known.
fn file(config: &TunnelConfig, measured: &[MeasuredChannel]) -> String {
    let mut text = String::from(
        "# Measured by short datagrams to the server and back, without load. Not known:\n\
         # - the risk: nobody can measure it. 1, where none is configured, is certain;\n\
         # - in which direction datagrams are lost, and the delay of each direction:\n\
         #   loss and delay are those of half the round trip;\n\
         # - whether channels share a fate, or a bottleneck when all are used at a time;\n\
         # - the rate under lasting load: a policer lets short trains pass. It is the\n\
         #   rate of the slower direction.\n",
    );
    for (index, (channel, measured)) in config.channels.iter().zip(measured).enumerate() {
        text += &table(index + 1, channel, measured);
    }
    text
}

fn table(number: usize, channel: &TunnelChannelConfig, measured: &MeasuredChannel) -> String {
    let to = channel.server.as_ref().map(|server| format!(" to {server}")).unwrap_or_default();
    let by = channel.device.as_ref().map(|device| format!(" by {device}")).unwrap_or_default();
    let MeasuredChannel { sent, answered, .. } = *measured;
    let Some(round_trip_ms) = measured.round_trip_ms else {
        return format!(
            "\n# Channel {number}{to}{by} is left out: no answer to {sent} datagrams.\n"
        );
    };
    let kept = f64::from(answered) / f64::from(sent.max(1));
    // Each direction, if both lose the same.
    let loss = 1.0 - kept.sqrt();
    let mut text = format!(
        "\n[[channel]] #{to}{by}\nname = \"{number}\"\nrisk = {}{}\n",
        if channel.risk > 0.0 { channel.risk } else { 1.0 },
        if channel.risk > 0.0 { " # as configured" } else { " # not known" }
    );
    let _ = writeln!(text, "loss = {loss:.4} # {answered} of {sent} round trips");
    let _ = writeln!(text, "delay_ms = {:.3}", round_trip_ms / 2.0);
    let _ = match (channel.rate_bps, measured.rate_mbit) {
        (Some(bps), _) => writeln!(text, "rate = {} # as configured", mbit(bps)),
        (None, Some(rate)) if measured.is_rate_at_least => {
            writeln!(text, "rate = {rate:.1} # at least")
        }
        (None, Some(rate)) => writeln!(text, "rate = {rate:.1}"),
        (None, None) => writeln!(text, "# rate: add it; too many datagrams of trains were lost"),
    };
    if channel.cost_per_gb > 0.0 {
        let _ = writeln!(text, "cost_per_gb = {}", channel.cost_per_gb);
    }
    if channel.priority > 1 {
        let _ = writeln!(text, "priority = {}", channel.priority);
    }
    if let Some(fate) = &channel.shared_fate {
        let _ = writeln!(text, "shared_fate = {}", toml::Value::from(fate.as_str()));
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "up to 1e12")]
fn mbit(bps: u64) -> f64 {
    bps as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use planning::{ChannelsFile, PlanChannels};

    use super::*;

    const CONFIG: &str = "kappa = 1\nmu = 2\naddresses = []\n\
        [[channel]]\nserver = \"192.0.2.1:1\"\ndevice = \"eth0\"\nrisk = 0.1\nshared_fate = \"a\"\n\
        [[channel]]\nserver = \"192.0.2.2:1\"\nrate_mbit = 50\npriority = 2\nshared_fate = \"a\"\n\
        [[channel]]\nserver = \"third.example:1\"\n";

    #[test]
    fn the_file_is_one_for_channels() {
        let config = TunnelConfig::from_toml(CONFIG).unwrap();
        let good = MeasuredChannel {
            sent: 200,
            answered: 162,
            round_trip_ms: Some(30.0),
            rate_mbit: Some(20.0),
            is_rate_at_least: false,
        };
        let silent = MeasuredChannel { answered: 0, round_trip_ms: None, rate_mbit: None, ..good };
        let text =
            file(&config, &[good, MeasuredChannel { is_rate_at_least: true, ..good }, silent]);
        assert!(
            text.contains("# Channel 3 to third.example:1 is left out: no answer to 200"),
            "{text}"
        );
        let read: ChannelsFile = toml::from_str(&text).unwrap();
        let channels = PlanChannels::new(&read.channel, &read.group).unwrap();
        let [first, second] = channels.set.channels() else { panic!("{text}") };
        assert_eq!((first.risk(), first.delay_ms(), first.rate()), (0.1, 15.0, 20.0));
        assert!((first.loss() - 0.1).abs() < 1e-9, "{text}");
        assert_eq!((second.risk(), second.rate()), (1.0, 50.0));
        assert_eq!(channels.priorities, [1, 2]);
        assert_eq!(channels.set.shared_fates().len(), 1);
    }
}

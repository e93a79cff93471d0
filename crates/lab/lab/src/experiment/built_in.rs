//! The built-in experiments.

/// The name and the text of each.
const ALL: [(&str, &str); 55] = [
    ("links", include_str!("../../experiments/links.toml")),
    ("capacity", include_str!("../../experiments/capacity.toml")),
    ("capacity-tcp", include_str!("../../experiments/capacity-tcp.toml")),
    ("channels", include_str!("../../experiments/channels.toml")),
    ("micss-throughput", include_str!("../../experiments/micss-throughput.toml")),
    ("micss-latency", include_str!("../../experiments/micss-latency.toml")),
    ("micss-loss", include_str!("../../experiments/micss-loss.toml")),
    ("micss-web", include_str!("../../experiments/micss-web.toml")),
    ("micss-web-slower", include_str!("../../experiments/micss-web-slower.toml")),
    ("micss-sizes", include_str!("../../experiments/micss-sizes.toml")),
    ("micss-opening", include_str!("../../experiments/micss-opening.toml")),
    ("remicss-rate", include_str!("../../experiments/remicss-rate.toml")),
    ("remicss-rate-slower", include_str!("../../experiments/remicss-rate-slower.toml")),
    ("remicss-loss", include_str!("../../experiments/remicss-loss.toml")),
    ("remicss-delay", include_str!("../../experiments/remicss-delay.toml")),
    ("remicss-delay-slower", include_str!("../../experiments/remicss-delay-slower.toml")),
    ("remicss-identical", include_str!("../../experiments/remicss-identical.toml")),
    ("remicss-learning", include_str!("../../experiments/remicss-learning.toml")),
    ("remicss-plans", include_str!("../../experiments/remicss-plans.toml")),
    ("remicss-unequal", include_str!("../../experiments/remicss-unequal.toml")),
    ("remicss-order", include_str!("../../experiments/remicss-order.toml")),
    ("quorum-sign", include_str!("../../experiments/quorum-sign.toml")),
    ("quorum-refresh", include_str!("../../experiments/quorum-refresh.toml")),
    ("quorum-refresh-4", include_str!("../../experiments/quorum-refresh-4.toml")),
    ("quorum-servers", include_str!("../../experiments/quorum-servers.toml")),
    ("quorum-node-sign", include_str!("../../experiments/quorum-node-sign.toml")),
    ("quorum-node-refresh", include_str!("../../experiments/quorum-node-refresh.toml")),
    ("quorum-node-servers", include_str!("../../experiments/quorum-node-servers.toml")),
    ("quorum-modes-sign", include_str!("../../experiments/quorum-modes-sign.toml")),
    ("quorum-modes-refresh", include_str!("../../experiments/quorum-modes-refresh.toml")),
    ("sabul-libudt", include_str!("../../experiments/sabul-libudt.toml")),
    ("transport-table", include_str!("../../experiments/transport-table.toml")),
    ("transport-grid", include_str!("../../experiments/transport-grid.toml")),
    ("transport-fairness", include_str!("../../experiments/transport-fairness.toml")),
    ("transport-core", include_str!("../../experiments/transport-core.toml")),
    ("transport-ends", include_str!("../../experiments/transport-ends.toml")),
    ("compute-circuits", include_str!("../../experiments/compute-circuits.toml")),
    ("compute-published", include_str!("../../experiments/compute-published.toml")),
    ("compute-links", include_str!("../../experiments/compute-links.toml")),
    ("compute-buffers", include_str!("../../experiments/compute-buffers.toml")),
    ("compute-delay", include_str!("../../experiments/compute-delay.toml")),
    ("compute-slower", include_str!("../../experiments/compute-slower.toml")),
    ("compute-loss", include_str!("../../experiments/compute-loss.toml")),
    ("compute-slower-loss", include_str!("../../experiments/compute-slower-loss.toml")),
    ("compute-gmw", include_str!("../../experiments/compute-gmw.toml")),
    ("compute-sha1", include_str!("../../experiments/compute-sha1.toml")),
    ("compute-path", include_str!("../../experiments/compute-path.toml")),
    ("mix-millionaires", include_str!("../../experiments/mix-millionaires.toml")),
    ("mix-sizes", include_str!("../../experiments/mix-sizes.toml")),
    ("mix-exchange", include_str!("../../experiments/mix-exchange.toml")),
    ("mix-slots", include_str!("../../experiments/mix-slots.toml")),
    ("mix-delivery", include_str!("../../experiments/mix-delivery.toml")),
    ("mix-restart", include_str!("../../experiments/mix-restart.toml")),
    ("mix-profiles", include_str!("../../experiments/mix-profiles.toml")),
    ("mix-scale", include_str!("../../experiments/mix-scale.toml")),
];

/// The name and the text of each built-in experiment.
pub fn built_in() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.into_iter()
}

/// About how many minutes a built-in experiment takes on two idle processors, if that is known.
pub fn built_in_minutes(name: &str) -> Option<u64> {
    MINUTES.iter().find(|(known, _)| *known == name).map(|(_, minutes)| *minutes)
}

/// They are not in the files: results belong to a file with a certain SHA-256. Those of experiments
/// without stored results are calculated from similar ones. With repeated attempts a run takes up
/// to three times as long.
const MINUTES: [(&str, u64); 42] = [
    ("links", 4),
    ("capacity", 3),
    ("capacity-tcp", 3),
    ("channels", 6),
    ("micss-throughput", 5),
    ("micss-latency", 2),
    ("micss-loss", 18),
    ("micss-web", 80),
    ("micss-web-slower", 35),
    ("micss-sizes", 4),
    ("micss-opening", 6),
    ("remicss-rate", 35),
    ("remicss-rate-slower", 105),
    ("remicss-loss", 130),
    ("remicss-delay", 18),
    ("remicss-delay-slower", 75),
    ("remicss-identical", 15),
    ("remicss-learning", 36),
    ("remicss-unequal", 7),
    ("remicss-order", 6),
    ("remicss-plans", 15),
    ("quorum-refresh-4", 20),
    ("quorum-servers", 2),
    ("quorum-node-servers", 3),
    ("transport-grid", 340),
    ("transport-table", 20),
    ("transport-core", 2),
    ("transport-ends", 5),
    ("transport-fairness", 38),
    ("compute-links", 80),
    ("compute-published", 1),
    ("compute-buffers", 15),
    ("compute-slower", 50),
    ("compute-slower-loss", 40),
    ("compute-gmw", 7),
    ("compute-sha1", 20),
    ("mix-millionaires", 18),
    ("mix-slots", 8),
    ("mix-delivery", 21),
    ("mix-restart", 2),
    ("mix-profiles", 45),
    ("mix-scale", 30),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_experiments_have_times() {
        for (name, minutes) in MINUTES {
            assert!(minutes > 0 && ALL.iter().any(|(known, _)| *known == name), "{name}");
        }
    }
}

//! TCP over channels whose delays differ much.

use std::time::Duration;

use crate::load::LoadKind;
use crate::loaded_tunnel::{LoadedTunnel, TunnelSetting, undisturbed};

/// Four links with different delays.
const UNEQUAL: &str = r#"
measure = { driver = "accuracy", values = {} }
[hosts.client]
[hosts.server]
[links.a]
hosts = ["client", "server"]
both = { rate_mbit = 20, delay_ms = 1 }
[links.b]
hosts = ["client", "server"]
both = { rate_mbit = 20, delay_ms = 4 }
[links.c]
hosts = ["client", "server"]
both = { rate_mbit = 20, delay_ms = 10 }
[links.d]
hosts = ["client", "server"]
both = { rate_mbit = 20, delay_ms = 60 }
"#;

const LINKS: [&str; 4] = ["a", "b", "c", "d"];

/// Three links, of which the distant one adds half to the rate at kappa = mu = 2.
const DISTANT: &str = r#"
measure = { driver = "accuracy", values = {} }
[hosts.client]
[hosts.server]
[links.a]
hosts = ["client", "server"]
both = { rate_mbit = 20, delay_ms = 6 }
[links.b]
hosts = ["client", "server"]
both = { rate_mbit = 20, delay_ms = 9 }
[links.c]
hosts = ["client", "server"]
both = { rate_mbit = 20, delay_ms = 40 }
"#;

/// The rate of each link, in Mbit/s.
const RATE_MBIT: u32 = 20;

/// The duration of a measurement: longer than BBR keeps the lowest round trip.
const MEASURED: Duration = Duration::from_secs(15);

/// The least rate of one connection, in Mbit/s of payload. UDP gets 31.
const MIN_RATE_MBIT: f64 = 20.0;

/// The same over the links with a distant one. UDP gets 28, and 18 without the distant one.
const MIN_DISTANT_RATE_MBIT: f64 = 23.0;

pub(crate) fn one_bbr_connection_fills_channels_of_unequal_delay() {
    assert_one_connection_gets(MIN_RATE_MBIT, || start("auto", LoadKind::ONE_FLOW));
}

pub(crate) fn one_bbr_connection_fills_a_distant_channel() {
    let setting = TunnelSetting {
        topology: DISTANT,
        links: &LINKS[..3],
        settings: "kappa = 2\nmu = 2",
        rate_mbit: Some(RATE_MBIT),
    };
    assert_one_connection_gets(MIN_DISTANT_RATE_MBIT, || {
        LoadedTunnel::start(setting, LoadKind::ONE_FLOW, &[])
    });
}

fn assert_one_connection_gets(rate_mbit: f64, start: impl Fn() -> LoadedTunnel) {
    let (rate, why) = undisturbed(|| {
        let tunnel = start();
        let rate = tunnel.rate_for(MEASURED);
        let why = tunnel.disturbance().filter(|_| rate < rate_mbit);
        ((rate, why.clone()), why)
    });
    assert!(rate >= rate_mbit, "{rate:.1} Mbit/s; {why:?}");
}

/// Prints the rate of each congestion control.
pub(crate) fn congestion_controls_over_unequal_delays() {
    println!("| order | load | Mbit/s |\n|---|---|---|");
    for order in ["auto", "off"] {
        let tcp =
            |flows| ["bbr", "cubic", "reno"].map(|congestion| LoadKind::Tcp { flows, congestion });
        for load in [LoadKind::Udp(34.0)].into_iter().chain(tcp(1)).chain(tcp(8)) {
            let rate = undisturbed(|| {
                let tunnel = start(order, load);
                (tunnel.rate_for(MEASURED), tunnel.disturbance())
            });
            println!("| {order} | {load} | {rate:.1} |");
        }
    }
}

/// Starts a tunnel over the four channels.
fn start(order: &str, load: LoadKind) -> LoadedTunnel {
    let settings = &format!("kappa = 2\nmu = 2.5\norder = \"{order}\"");
    let rate_mbit = Some(RATE_MBIT);
    LoadedTunnel::start(
        TunnelSetting { topology: UNEQUAL, links: &LINKS, settings, rate_mbit },
        load,
        &[],
    )
}

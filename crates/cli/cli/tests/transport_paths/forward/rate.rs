//! What a forward costs, beside the transport itself.

use std::process::Command;

use super::{ForwardBed, LOCAL, SERVICE, TRANSPORTS, sunder};
use crate::emulation::until;

/// The bytes of a measurement.
const BYTES: u64 = 60_000_000;

/// The measurements of each, which alternate.
const ROUNDS: usize = 5;

/// The rate of `iperf3` through a forward is at least 0.9 of that of `sunder transport measure`.
pub(crate) fn compared() {
    let mut bed = ForwardBed::new("rate_mbit = 100, delay_ms = 55, queue_ms = 200");
    let mut iperf = Command::new("iperf3");
    iperf.args(["--server", "--forceflush", "--port", &SERVICE.to_string()]);
    let _iperf = bed.start("server", "iperf3", &mut iperf);
    until("iperf3 listens", || bed.log("iperf3").contains("listening"));
    let address = bed.network.address("server", "a").unwrap();
    let mut serve = sunder(&bed.directory, "server");
    serve.args(["transport", "serve", "--listen", &format!("{address}:7001")]);
    let _serve = bed.start("server", "serve", &mut serve);
    until("it serves", || bed.log("serve").contains("key "));
    let key = bed.log("serve").split("key ").nth(1).unwrap().trim().to_owned();
    for transport in TRANSPORTS {
        bed.forward(transport);
        let (mut through, mut alone) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut client = Command::new("iperf3");
            client.args(["--client", "127.0.0.1", "--port", &LOCAL.to_string(), "--json"]);
            client.args(["--bytes", &BYTES.to_string()]);
            let report: serde_json::Value = serde_json::from_str(&bed.run(&mut client)).unwrap();
            let seconds = report["end"]["sum_received"]["seconds"].as_f64().unwrap();
            let bytes = report["end"]["sum_received"]["bytes"].as_f64().unwrap();
            through.push(bytes * 8e-6 / seconds);
            let mut measure = sunder(&bed.directory, "client");
            measure.args(["transport", "measure", &format!("{address}:7001"), "--key", &key]);
            measure.args(["--transport", transport, "--json", "--send", &BYTES.to_string()]);
            let report: serde_json::Value = serde_json::from_str(&bed.run(&mut measure)).unwrap();
            // Without the handshake, as iperf3 counts.
            let seconds =
                report["complete_s"].as_f64().unwrap() - report["connected_s"].as_f64().unwrap();
            #[expect(clippy::cast_precision_loss, reason = "it is far below 2^53")]
            alone.push(BYTES as f64 * 8e-6 / seconds);
        }
        through.sort_by(f64::total_cmp);
        alone.sort_by(f64::total_cmp);
        let (through, alone) = (through[ROUNDS / 2], alone[ROUNDS / 2]);
        println!(
            "{transport}: {through:.1} Mbit/s forwarded, {alone:.1} Mbit/s alone, {:.3}",
            through / alone
        );
        assert!(through >= 0.9 * alone, "{transport}: {through} of {alone} Mbit/s");
    }
}

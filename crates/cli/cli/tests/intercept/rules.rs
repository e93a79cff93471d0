//! The rules exist while they are needed, and not longer.

use crate::topology::{Program, SUNDER, Topology};

const WEB: &str =
    "intercept = \"ip daddr 10.0.0.0/8 tcp dport {80, 443}\"\nintercept_from = [\"lan\"]";

/// All rules and routes in a host's kernel.
pub(crate) fn kernel_rules(topology: &Topology, host: &str) -> String {
    let rules = topology.ask(host, "nft", &["-s", "list", "ruleset"]);
    let policies = topology.ask(host, "ip", &["rule"]) + &topology.ask(host, "ip", &["-6", "rule"]);
    rules + &policies
}

pub(crate) fn installed_rules_match_printed_rules() {
    let topology = Topology::new();
    let before = kernel_rules(&topology, "client");
    let config = topology.proxy_toml(WEB);
    let arguments = ["proxy", "--print-rules", "--config", config.to_str().unwrap()];
    let printed = topology.ask("client", SUNDER, &arguments);
    assert_eq!(kernel_rules(&topology, "client"), before, "printing changes nothing");
    // Another host accepts the printed rules.
    let rules = topology.write("rules", &printed);
    topology.ask("user", "nft", &["-f", rules.to_str().unwrap()]);
    let _server = topology.serve("[]");
    let _proxy = topology.proxy(WEB);
    assert_eq!(kernel_rules(&topology, "user"), kernel_rules(&topology, "client"));
}

pub(crate) fn a_stop_removes_the_rules() {
    let topology = Topology::new();
    let before = kernel_rules(&topology, "client");
    let _server = topology.serve("[]");
    let proxy = topology.proxy(WEB);
    assert_ne!(kernel_rules(&topology, "client"), before);
    proxy.stop();
    assert_eq!(kernel_rules(&topology, "client"), before);
}

pub(crate) fn the_next_start_removes_the_rules_of_a_killed_proxy() {
    let topology = Topology::new();
    let before = kernel_rules(&topology, "client");
    let _server = topology.serve("[]");
    let proxy = topology.proxy(WEB);
    let installed = kernel_rules(&topology, "client");
    drop(proxy);
    assert_eq!(kernel_rules(&topology, "client"), installed, "nobody has removed them yet");
    // Nothing leaves in the clear in the meantime.
    assert!(topology.fetch("client", topology.v4("server", "a").into(), "").is_err());
    // A proxy with another port reports the rules and leaves them alone: they may be wanted.
    let doctor = topology.run("client", SUNDER, &["doctor"]).stdout;
    let doctor = String::from_utf8(doctor).unwrap();
    assert!(doctor.contains("nft delete table inet sunder_522"), "{doctor}");
    let other = topology.proxy(&format!("{WEB}\nintercept_port = 6600"));
    other.wait_for("nft delete table inet sunder_522", 1);
    other.stop();
    assert_eq!(kernel_rules(&topology, "client"), installed);
    let proxy = topology.proxy(WEB);
    assert_eq!(kernel_rules(&topology, "client"), installed, "once, not twice");
    assert!(!proxy.log().contains("nft delete"), "{}", proxy.log());
    proxy.stop();
    assert_eq!(kernel_rules(&topology, "client"), before);
}

/// The rules change in one transaction, or not at all, so nothing leaves in the clear.
pub(crate) fn sighup_changes_the_rules() {
    let topology = Topology::new();
    let _server = topology.serve("[]");
    let before = kernel_rules(&topology, "client");
    let proxy = topology.proxy(WEB);
    let first = kernel_rules(&topology, "client");
    topology.proxy_toml("intercept = \"tcp dport 22\"");
    proxy.signal("-HUP");
    proxy.wait_for("the configuration was read again", 1);
    let second = kernel_rules(&topology, "client");
    assert!(second != first && second.contains("tcp dport 22"), "{second}");
    // nft rejects this expression.
    topology.proxy_toml("intercept = \"tcp dport nonsense\"");
    proxy.signal("-HUP");
    proxy.wait_for("the configuration before stays in force", 1);
    assert_eq!(kernel_rules(&topology, "client"), second);
    // Another port.
    topology.proxy_toml("intercept = \"tcp dport 22\"\nintercept_port = 6523");
    proxy.signal("-HUP");
    proxy.wait_for("the configuration was read again", 2);
    let rules = topology.ask("client", "nft", &["list", "ruleset"]);
    assert!(rules.contains("sunder_6523") && !rules.contains("sunder_522"), "{rules}");
    // No interception any more.
    topology.proxy_toml("socks = \"127.0.0.1:1080\"");
    proxy.signal("-HUP");
    proxy.wait_for("the configuration was read again", 3);
    assert_eq!(kernel_rules(&topology, "client"), before);
    proxy.stop();
}

/// Each proxy has its own rules.
pub(crate) fn two_proxies_keep_separate_rules() {
    let topology = Topology::new();
    let _server = topology.serve("[]");
    let first = topology.proxy(WEB);
    let alone = kernel_rules(&topology, "client");
    let second = topology.proxy("intercept = \"tcp dport 22\"\nintercept_port = 6523");
    assert_ne!(kernel_rules(&topology, "client"), alone);
    second.stop();
    assert_eq!(kernel_rules(&topology, "client"), alone);
    first.stop();
}

pub(crate) fn channels_on_one_interface_are_reported() {
    let topology = Topology::new();
    let router = topology.v4("user", "lan").to_string();
    topology.ask("client", "ip", &["route", "add", "198.51.100.0/24", "via", &router]);
    let log_of = |servers: [&str; 2]| {
        let channels = servers.map(|server| format!("[[channel]]\nserver = \"{server}:7000\"\n"));
        let config =
            topology.write("two.toml", format!("socks = \"127.0.0.1:0\"\n{}", channels.concat()));
        let config = config.to_str().unwrap();
        let proxy = topology.start("client", SUNDER, &["proxy", "--config", config]);
        proxy.wait_for("listening on", 1);
        proxy.log()
    };
    let (a, b) = (topology.v4("server", "a").to_string(), topology.v4("server", "b").to_string());
    assert!(!log_of([&a, &b]).contains("warning: channels"));
    assert!(log_of([&a, "10.0.0.77"]).contains("channels 1 and 2 are both on a: "));
    let six = format!("[{}]", topology.v6("server", "b"));
    assert!(log_of([&b, &six]).contains("channels 1 and 2 are both on b: "));
    let by_router = log_of(["198.51.100.1", "198.51.100.2"]);
    assert!(by_router.contains(&format!("both on lan, to {router}: ")), "{by_router}");
}

/// The message of a proxy that cannot start.
fn refused(topology: &Topology, settings: &str) -> String {
    let config = topology.proxy_toml(settings);
    let arguments = ["proxy", "--config", config.to_str().unwrap()];
    let mut proxy: Program = topology.start("client", SUNDER, &arguments);
    assert!(!proxy.ended_well());
    proxy.log()
}

pub(crate) fn without_capabilities_nothing_remains() {
    let topology = Topology::new();
    let before = kernel_rules(&topology, "client");
    let config = topology.proxy_toml(WEB);
    let as_nobody = ["--bounding-set=-net_admin", "--", SUNDER, "proxy", "--config"];
    let arguments = [&as_nobody[..], &[config.to_str().unwrap()]].concat();
    let output = topology.run("client", "setpriv", &arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("CAP_NET_ADMIN"), "{stderr}");
    assert_eq!(kernel_rules(&topology, "client"), before);
    // The rules can be printed, unchecked.
    let printing = [&arguments[..], &["--print-rules"]].concat();
    let printed = topology.run("client", "setpriv", &printing);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert!(printed.status.success() && stderr.contains("the rules are not checked"), "{stderr}");
    assert!(printed.stdout.starts_with(b"table inet sunder_522 {"), "{stderr}");
}

pub(crate) fn invalid_nft_expressions_are_refused() {
    let topology = Topology::new();
    let before = kernel_rules(&topology, "client");
    let message = refused(&topology, "intercept = \"tcp dport no-such-service\"");
    assert!(message.contains("error: nft refuses: "), "{message}");
    let config = topology.proxy_toml("intercept = \"tcp dport no-such-service\"");
    let arguments = ["proxy", "--print-rules", "--config", config.to_str().unwrap()];
    let printed = topology.run("client", SUNDER, &arguments);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!((printed.status.code(), printed.stdout.len()), (Some(1), 0), "{stderr}");
    assert!(stderr.contains("error: nft refuses: "), "{stderr}");
    let message = refused(&topology, "intercept = \"tcp dport 80; flush ruleset\"");
    assert!(
        message.contains(
            "line 1: intercept = \"tcp dport 80; flush ruleset\": give an nft expression"
        ),
        "{message}"
    );
    assert_eq!(kernel_rules(&topology, "client"), before);
}

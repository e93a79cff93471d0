//! Runs the guide's examples, with other addresses.

use std::fs;
use std::process::Command;

use super::processes::{Service, web_server};
use super::service::{curl, fetched, pattern};
use crate::common::free_port;

const GUIDE: &str = include_str!("../../../../../../docs/guides/micss.md");

/// Replaces the guide's addresses by those of this machine.
fn localised(text: &str, places: &[(&str, String)]) -> String {
    places.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The TOML blocks of the guide.
fn configurations(guide: &str) -> Vec<&str> {
    let blocks = guide.split("```toml\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0).collect()
}

/// The output of `sunder COMMAND` according to the guide.
fn printed(guide: &str, command: &str) -> Vec<String> {
    let mut lines =
        guide.lines().skip_while(|line| !line.starts_with(&format!("    $ sunder {command} ")));
    lines.next();
    let lines = lines.map_while(|line| line.strip_prefix("    listening on "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_examples_in_the_guide_are_correct() {
    let body = pattern(1_000_000);
    let web = web_server(body.clone(), body.len()).port();
    let (socks, forward) = (free_port(), free_port());
    let channel = |host: &str| format!("{host}:{}", free_port());
    let guide = localised(
        GUIDE,
        &[
            ("192.0.2.10:7000", channel("127.0.0.11")),
            ("198.51.100.10:7000", channel("127.0.0.12")),
            ("203.0.113.10:7000", channel("127.0.0.13")),
            ("192.0.2.20", "127.0.0.20".into()),
            ("wlan0", "lo".into()),
            ("wwan0", "lo".into()),
            ("localhost:80", format!("localhost:{web}")),
            ("//localhost/", format!("//localhost:{web}/")),
            ("127.0.0.1:1080", format!("127.0.0.1:{socks}")),
            ("127.0.0.1:8080", format!("127.0.0.1:{forward}")),
        ],
    );
    let [
        serve,
        proxy,
        with_forward,
        with_udp,
        with_udp_services,
        with_bypass,
        with_intercept,
        with_others,
        with_intercepted_udp,
        with_services_of_a_browser,
        with_refused,
        with_threshold,
        with_proxy_protocol,
        with_client_address,
        with_pool,
        with_peer,
        with_directory,
        with_backup,
    ] = configurations(&guide)[..]
    else {
        panic!("eighteen configurations")
    };
    let server = Service::start("serve", serve, 3);
    assert_eq!(server.listening, printed(&guide, "serve"));
    {
        let proxy = Service::start("proxy", proxy, 1);
        assert_eq!(proxy.listening, printed(&guide, "proxy"));
    }
    let (before, after) = proxy.split_at(proxy.find("[[channel]]").unwrap());
    let settings = [before, with_udp, with_bypass, with_client_address, with_forward, after];
    let tables = [with_pool, with_peer, with_backup];
    let _proxy = Service::start("proxy", &[settings.concat(), tables.concat()].concat(), 2);
    let services =
        ["listen = [\"127.0.0.1:0\"]\n", with_proxy_protocol, with_udp_services].concat();
    assert!(micss::config::MicssServerConfig::from_toml(&services).is_ok(), "{services}");
    let found = format!("socks = \"127.0.0.1:0\"\n{with_directory}");
    assert!(micss::config::MicssClientConfig::from_toml(&found).is_ok(), "{found}");
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("proxy.toml"),
        [with_intercepted_udp, with_others, with_refused, with_threshold, proxy].concat(),
    )
    .unwrap();
    let intercepting = [with_intercept, proxy].concat();
    assert!(micss::config::MicssClientConfig::from_toml(&intercepting).is_ok(), "{intercepting}");
    let services = ["listen = [\"127.0.0.1:0\"]\n", with_services_of_a_browser].concat();
    assert!(micss::config::MicssServerConfig::from_toml(&services).is_ok(), "{services}");
    let command = guide.lines().find(|line| line.ends_with("--print-rules")).unwrap();
    let rules = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(command.split_whitespace().skip(2))
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(rules.status.success() && rules.stdout.starts_with(b"table inet sunder_522 {"));
    let commands: Vec<_> =
        guide.lines().filter_map(|line| line.strip_prefix("    $ curl ")).collect();
    assert_eq!(commands.len(), 2);
    for command in commands {
        let output = curl(command.split_whitespace()).output().unwrap();
        assert!(fetched(&output) == body, "curl {command}");
    }
}

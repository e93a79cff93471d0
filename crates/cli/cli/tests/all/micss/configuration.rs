//! Wrong and unwise configurations.

use std::net::TcpListener;

use super::processes::{Service, sunder};
use super::service::configuration;

/// Runs `sunder COMMAND --config FILE`, which must fail with this code. Returns its one-line
/// message.
fn refused(command: &str, file: &str, code: i32) -> String {
    let output = sunder([command, "--config", file]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

#[test]
fn a_wrong_configuration_is_refused_in_one_line() {
    let channel = "[[channel]]\nserver = \"127.0.0.1:7000\"\n";
    for (command, text, expected) in [
        (
            "serve",
            "listen = [\"127.0.0.1:0\"]\nallow = []\nport = 1\n",
            "line 3: unknown field `port`",
        ),
        ("serve", "listen = [\"127.0.0.1\"]\nallow = []\n", "line 1: invalid socket address"),
        ("serve", "listen = []\nallow = []\n", "0 channels: give 1 to 16"),
        ("serve", "listen = [\"127.0.0.1:0\"]\n", "missing field `allow`"),
        ("serve", "listen = [\"127.0.0.1:0\"]\nallow = [\"a b:1\"]\n", "line 2: allow = \"a b:1\""),
        ("serve", "listen = {\n", "line 1: "),
        (
            "proxy",
            &format!("socks = \"127.0.0.1:0\"\nbypass = [\"0.0.0.0/0\"]\n{channel}"),
            "line 2: bypass: \"0.0.0.0/0\": this would let everything leave directly",
        ),
        (
            "proxy",
            &format!("socks = \"127.0.0.1:0\"\nbypass = [\"*\"]\n{channel}"),
            "line 2: bypass: \"*\": write a network, an address, a name, or *.NAME",
        ),
        (
            "proxy",
            &format!("intercept = \"tcp dport 80\"\nsocks_udp = true\n{channel}"),
            "line 2: socks_udp without socks: set socks, or leave this out",
        ),
        (
            "proxy",
            &format!("socks = \"127.0.0.1:0\"\nintercept_udp = \"udp dport 53\"\n{channel}"),
            "line 2: intercept_udp without intercept: set intercept for TCP, or leave this out",
        ),
        (
            "proxy",
            &format!("socks = \"127.0.0.1:0\"\nswitch_back_after_s = 9\n{channel}"),
            "line 2: switch_back_after_s without a [[backup_server]]: add one",
        ),
        (
            "serve",
            "listen = [\"127.0.0.1:0\"]\nallow = [\"localhost:80\"]\nproxy_protocol = [\"localhost:81\"]\n",
            "line 3: proxy_protocol: localhost:81 is not in allow",
        ),
        ("proxy", "socks = \"127.0.0.1:0\"\n", "0 channels: give 1 to 16"),
        ("proxy", "socks = \"127.0.0.1:0\"\nchannel = []\n", "0 channels: give 1 to 16"),
        ("proxy", channel, "nothing to listen on"),
        ("proxy", &format!("socks = \"local\"\n{channel}"), "line 1: invalid socket address"),
        ("proxy", &format!("sock = \"127.0.0.1:0\"\n{channel}"), "line 1: unknown field `sock`"),
        ("proxy", &format!("{channel}rng = \"os\"\n"), "line 3: unknown field `rng`"),
    ] {
        let file = configuration(text);
        let path = file.path().to_str().unwrap();
        let message = refused(command, path, 2);
        assert!(
            message.starts_with(&format!("error: {path}")) && message.contains(expected),
            "{message}"
        );
        assert!(message.contains(&format!("sunder {command} --help")), "{message}");
    }
}

#[test]
fn a_missing_configuration_is_refused_in_one_line() {
    for command in ["serve", "proxy"] {
        assert!(refused(command, "/no/such/file", 2).contains("no such file: /no/such/file"));
        assert!(refused(command, "/", 2).contains("/ is a directory"));
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let server = configuration(&format!("listen = [\"127.0.0.1:0\", \"{address}\"]\nallow = []\n"));
    let client = configuration(&format!(
        "socks = \"{address}\"\n[[channel]]\nserver = \"127.0.0.1:1\"\n[[channel]]\nserver = \"127.0.0.2:1\"\n"
    ));
    for (command, file) in [("serve", server), ("proxy", client)] {
        let message = refused(command, file.path().to_str().unwrap(), 1);
        assert!(message.contains(&format!("cannot listen on {address}")), "{message}");
    }
}

#[test]
fn the_help_has_an_example() {
    for (command, expected) in [("serve", "min_channels = 3"), ("proxy", "[[channel]]")] {
        let help = String::from_utf8(sunder([command, "--help"]).output().unwrap().stdout).unwrap();
        assert!(help.contains(expected), "{help}");
    }
}

#[test]
fn a_proxy_with_one_channel_warns() {
    let channel = "[[channel]]\nserver = \"127.0.0.1:7000\"\n";
    let config = format!("socks = \"0.0.0.0:0\"\n{channel}{channel}");
    let proxy = Service::start("proxy", &config, 1);
    proxy.wait_for("warning: channels 1 and 2 are both to 127.0.0.1");
    proxy.wait_for("warning: anyone who can reach 0.0.0.0:0 can use SOCKS5");
}

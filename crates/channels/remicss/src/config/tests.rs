//! Accepted and rejected configurations.

use super::*;

const CLIENT: &str = r#"
    kappa = 1.5
    mu = 2
    addresses = ["10.9.0.2/24", "fd00::2/64"]
    routes = ["10.8.0.0/16"]
    [[channel]]
    server = "192.0.2.1:6521"
    source = "192.0.2.7"
    risk = 0.1
    rate_mbit = 100
    [[channel]]
    server = "[2001:db8::1]:6521"
    device = "wwan0"
"#;

const SERVER: &str = r#"
    kappa = 2
    mu = 2
    key = "tunnel.key"
    addresses = []
    [[channel]]
    listen = "192.0.2.1:6521"
    client = "192.0.2.2"
    [[channel]]
    listen = "198.51.100.1:6521"
    client = "198.51.100.2"
"#;

#[test]
fn min_channels_is_at_least_the_floor() {
    let with = |least: &str| {
        let settings = format!("kappa = 1.5\nmin_channels = {least}");
        TunnelConfig::from_toml(&CLIENT.replace("kappa = 1.5", &settings))
    };
    for least in [1, 2] {
        assert_eq!(with(&least.to_string()).unwrap().min_channels, least);
    }
    for least in ["0", "3", "-1"] {
        let message = with(least).unwrap_err().to_string();
        assert_eq!(message, format!("min_channels = {least}: give 1 to 2"));
    }
    let floor = SERVER.replace("kappa = 2", "kappa = 2\nmin_channels = 1");
    let message = TunnelConfig::from_toml(&floor).unwrap_err().to_string();
    assert_eq!(message, "min_channels = 1: give 2 to 2");
}

#[test]
fn either_end_is_read() {
    let client = TunnelConfig::from_toml(CLIENT).unwrap();
    assert_eq!(
        (client.end, client.min_threshold, client.device.as_str()),
        (TunnelEnd::Client, 1, "sunder0")
    );
    assert_eq!(client.channels[0].local, "192.0.2.7:0".parse().unwrap());
    assert_eq!(client.channels[0].rate_bps, Some(100_000_000));
    assert_eq!(client.channels[1].local, "[::]:0".parse().unwrap());
    assert_eq!(client.addresses[1], "fd00::2/64".parse().unwrap());
    let networks = ["10.9.0.0/24", "fd00::/64", "10.8.0.0/16"];
    assert_eq!(client.allowed, networks.map(|network| network.parse().unwrap()));
    let narrow = CLIENT.replacen("[[channel]]", "allowed = [\"10.9.0.1/32\"]\n[[channel]]", 1);
    let allowed = TunnelConfig::from_toml(&narrow).unwrap().allowed;
    assert_eq!(allowed, ["10.9.0.1/32".parse().unwrap()]);
    let server = TunnelConfig::from_toml(SERVER).unwrap();
    assert_eq!((server.end, server.min_threshold), (TunnelEnd::Server, 2));
    assert_eq!((client.min_channels, server.min_channels), (2, 2), "all");
    assert_eq!(server.channels[1].peer, Some("198.51.100.2:0".parse().unwrap()));
}

#[test]
fn a_server_may_have_a_name_unless_this_host_is_closed() {
    let text = CLIENT.replace("192.0.2.1:6521", "vpn.example.com:6521");
    let channels = TunnelConfig::from_toml(&text).unwrap().channels;
    assert_eq!(channels[0].server_name(), Some("vpn.example.com"));
    assert_eq!((channels[0].peer, channels[1].server_name()), (None, None));
    assert_eq!(channels[0].local, "192.0.2.7:0".parse().unwrap());
    let closed = text.replace("mu = 2", "mu = 2\nfail_closed = true");
    let error = TunnelConfig::from_toml(&closed).unwrap_err().to_string();
    assert!(error.contains("`fail_closed` needs the addresses of servers, not names"), "{error}");
    let addressed = closed.replace("vpn.example.com", "192.0.2.1");
    assert!(TunnelConfig::from_toml(&addressed).unwrap().fail_closed);
}

#[test]
fn invalid_settings_are_rejected_with_a_fix() {
    let cases = [
        (CLIENT, "kappa = 1.5", "kappa = 0.5", "kappa = 0.5: give 1 to 2"),
        (CLIENT, "kappa = 1.5", "kappa = nan", "kappa = NaN: give 1 to 2"),
        (CLIENT, "mu = 2", "mu = 1.4", "mu = 1.4: give 1.5 to 2"),
        (CLIENT, "mu = 2", "mu = 2\nmin_threshold = 2", "min_threshold = 2: give 1 to 1"),
        (CLIENT, "risk = 0.1", "risk = 1.1", "risk = 1.1: give 0 to 1"),
        (CLIENT, "rate_mbit = 100", "rate_mbit = 0", "rate_mbit = 0: give 0.001 to 1000000"),
        (CLIENT, "/24", "/33", "\"10.9.0.2/33\": give an address"),
        (CLIENT, "mu = 2", "mu = 2\ndevice = \"a/b\"", "is not the name of a device"),
        (CLIENT, "source = \"192.0.2.7\"", "source = \"::1\"", "must both be IPv4"),
        (CLIENT, "source = \"192.0.2.7\"", "client = \"192.0.2.7\"", "at the other end"),
        (CLIENT, "source =", "sauce =", "unknown field `sauce`"),
        (SERVER, "client = \"198.51.100.2\"", "server = \"198.51.100.2:1\"", "channel 2 has both"),
        (SERVER, "listen = \"198", "server = \"198", "channel 2 has `server`, where others"),
        (SERVER, "kappa = 2", "kappa = 2\nmtu = 100", "mtu = 100: give 576 to 65000"),
        (SERVER, "kappa = 2", "kappa = 2\nmtu = 70000", "mtu = 70000: give 576 to 65000"),
        (SERVER, "kappa = 2", "kappa = 2\nmtu = 1400.5", "expected a whole number"),
        (SERVER, "kappa = 2", "kappa = 2\nmin_threshold = -1", "-1: give 1 to 2"),
        (SERVER, "kappa = 2", "kappa = \"2\"", "expected a number"),
        (SERVER, "kappa = 2", "kappa = 3", "kappa = 3: give 1 to 2, or more channels"),
        (SERVER, "addresses = []", "addresses = 5", "give a list, as in [\"10.9.0.2/24\"]"),
        (SERVER, "client = \"192.0.2.2\"", "", "some channels have a `client` address"),
        (SERVER, "kappa = 2", "kappa = 2\nroaming = true", "`client` says what they are"),
        (CLIENT, "mu = 2", "mu = 2\nroaming = true", "`roaming` is for the end that has `listen`"),
        (SERVER, "[[channel]]", "[[channel]]\nmin_threshold = 1", "above the first [[channel]]"),
        (SERVER, "192.0.2.1:6521", "a.example:1", "give ADDRESS:PORT, as in 192.0.2.10:6521"),
        (CLIENT, "192.0.2.1:6521", "192.0.2.1", "give ADDRESS:PORT or NAME:PORT"),
        (CLIENT, "192.0.2.1:6521", "a.example", "give ADDRESS:PORT or NAME:PORT"),
        (CLIENT, "192.0.2.1:6521", "a.example:0", "give ADDRESS:PORT or NAME:PORT"),
        (CLIENT, "192.0.2.7", "a.example", "\"a.example\": give an address, as in 192.0.2.20"),
        (CLIENT, "10.8.0.0/16", "10.8.0.1/16", "10.8.0.1/16 has host bits: write 10.8.0.0/16"),
    ];
    for (text, from, to, expected) in cases {
        assert!(text.contains(from), "{from}");
        let error = TunnelConfig::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    let table = "kappa = 1\nmu = 1\naddresses = []\n[channel]\nlisten = \"127.0.0.1:1\"";
    let message = TunnelConfig::from_toml(table).unwrap_err().to_string();
    assert_eq!(message, "write [[channel]], with two brackets");
    let none =
        TunnelConfig::from_toml("kappa = 1\nmu = 1\naddresses = []\nchannel = []").unwrap_err();
    assert_eq!(none.to_string(), "0 channels: give 1 to 16");
}

#[test]
fn a_server_needs_a_client_and_distinct_addresses() {
    let server = |channels: &[&str]| {
        let channel = |text: &&str| format!("[[channel]]\n{text}\n");
        let channels: String = channels.iter().map(channel).collect();
        let text = format!("kappa = 1\nmu = 1\naddresses = []\nkey = \"key\"\n{channels}");
        TunnelConfig::from_toml(&text).map_err(|error| error.to_string())
    };
    for same in [
        ["listen = \"192.0.2.1:1\"", "listen = \"192.0.2.1:1\""],
        ["listen = \"0.0.0.0:1\"", "listen = \"192.0.2.1:1\""],
        ["listen = \"192.0.2.1:1\"", "listen = \"[::]:1\""],
        ["listen = \"0.0.0.0:1\"\ndevice = \"a\"", "listen = \"0.0.0.0:1\"\ndevice = \"a\""],
    ] {
        let message = server(&same).unwrap_err();
        assert!(message.starts_with("channels 1 and 2 have the same address"), "{message}");
    }
    for different in [
        ["listen = \"192.0.2.1:1\"", "listen = \"192.0.2.1:2\""],
        ["listen = \"0.0.0.0:1\"", "listen = \"[2001:db8::1]:1\""],
        ["listen = \"0.0.0.0:1\"\ndevice = \"a\"", "listen = \"0.0.0.0:1\"\ndevice = \"b\""],
    ] {
        assert!(server(&different).is_ok(), "{different:?}");
    }
    assert!(server(&["listen = \"192.0.2.1:1\""]).is_ok(), "one channel is allowed");
    let open = SERVER.replace("key =", "#").replace("client =", "#");
    let message = TunnelConfig::from_toml(&open).unwrap_err().to_string();
    assert!(message.contains("anyone could be the client"), "{message}");
}

#[test]
fn networks_that_are_reached_directly_are_parts_of_closed_ones() {
    let with = |settings: &str| {
        let text = CLIENT.replacen("[[channel]]", &format!("{settings}\n[[channel]]"), 1);
        TunnelConfig::from_toml(&text)
    };
    let closed = with("fail_closed = true\ndirect = [\"10.8.1.0/24\", \"fd00::/96\"]").unwrap();
    assert!(closed.fail_closed && closed.direct.len() == 2);
    let networks = ["10.9.0.0/24", "fd00::/64", "10.8.0.0/16"].map(|it| it.parse().unwrap());
    assert_eq!(closed.networks().collect::<Vec<_>>(), networks);
    assert!(!with("").unwrap().fail_closed);
    for (settings, expected) in [
        ("direct = [\"10.8.1.0/24\"]", "`direct` goes with `fail_closed = true`"),
        ("fail_closed = true\ndirect = [\"10.7.0.0/16\"]", "10.7.0.0/16 is not in `routes`"),
        (
            "fail_closed = true\ndirect = [\"10.0.0.0/8\"]",
            "10.0.0.0/8 contains a whole network of `addresses` or `routes`",
        ),
        ("fail_closed = true\ndirect = [\"10.8.1.1/24\"]", "10.8.1.1/24 has host bits"),
        (
            "fail_closed = true\ndevice = \"a*\"",
            "`fail_closed` needs devices whose names are plain",
        ),
        ("device = \"wwan0\"", "device = \"wwan0\" is the uplink of channel 2"),
    ] {
        let message = with(settings).unwrap_err().to_string();
        assert!(message.contains(expected), "{settings}: {message}");
    }
    let nothing = SERVER.replace("kappa = 2", "kappa = 2\nfail_closed = true");
    let message = TunnelConfig::from_toml(&nothing).unwrap_err().to_string();
    assert!(message.contains("`fail_closed` closes nothing"), "{message}");
}

#[test]
fn bounds_need_risks_and_the_planned_scheduler() {
    let with = |settings: &str| {
        TunnelConfig::from_toml(&CLIENT.replacen(
            "[[channel]]",
            &format!("{settings}\n[[channel]]"),
            1,
        ))
    };
    let bounds = with("max_risk = 0.02\nmax_loss = 0.1\nmax_delay_ms = 40\nmin_rate_mbit = 5");
    let bounds = bounds.unwrap().bounds;
    assert_eq!((bounds.max_risk, bounds.max_loss), (Some(0.02), Some(0.1)));
    assert_eq!((bounds.max_delay_ms, bounds.min_rate_mbit), (Some(40.0), Some(5.0)));
    for (settings, expected) in [
        ("max_risk = 1.5", "max_risk = 1.5: give 0 to 1"),
        ("max_loss = -1", "max_loss = -1: give 0 to 1"),
        ("max_loss = 0.1\nscheduler = \"dynamic\"", "the dynamic scheduler keeps no bounds"),
    ] {
        let message = with(settings).unwrap_err().to_string();
        assert!(message.contains(expected), "{settings}: {message}");
    }
    let unknown = SERVER.replace("kappa = 2", "kappa = 2\nmax_risk = 0.1");
    let message = TunnelConfig::from_toml(&unknown).unwrap_err().to_string();
    assert!(message.contains("`max_risk` needs the `risk` of the channels"), "{message}");
}

#[test]
fn objectives_are_one_or_a_list() {
    use PlanObjective::{Delay, Loss, Privacy};

    let with = |value: &str| {
        let settings = format!("objective = {value}\n[[channel]]");
        TunnelConfig::from_toml(&CLIENT.replacen("[[channel]]", &settings, 1))
    };
    for (value, expected) in [
        ("\"loss\"", vec![Loss]),
        ("[\"delay\"]", vec![Delay]),
        ("[\"loss\", \"delay\", \"privacy\"]", vec![Loss, Delay, Privacy]),
    ] {
        assert_eq!(with(value).unwrap().objectives, expected);
    }
    assert_eq!(TunnelConfig::from_toml(CLIENT).unwrap().objectives, [Privacy]);
    for (value, expected) in [
        ("[]", "no objective is given"),
        ("[\"loss\", \"loss\"]", "this objective is given twice"),
        ("[\"rate\"]", "unknown variant `rate`"),
        ("\"rate\"", "unknown variant `rate`"),
    ] {
        let message = with(value).unwrap_err().to_string();
        assert!(message.contains(expected), "{value}: {message}");
    }
}

const CLIENTS: &str = r#"
    kappa = 2
    mu = 2
    addresses = ["10.9.0.1/24", "fd00::1/64"]
    roaming = true
    [[channel]]
    listen = "192.0.2.1:6521"
    [[channel]]
    listen = "198.51.100.1:6521"
    [[client]]
    name = "a"
    key = "a.key"
    networks = ["10.9.0.2/32", "fd00::2/128"]
    [[client]]
    name = "b"
    key = "b.key"
    networks = ["10.9.0.3/32", "192.168.1.0/24"]
"#;

#[test]
fn a_server_may_have_several_clients() {
    let server = TunnelConfig::from_toml(CLIENTS).unwrap();
    assert_eq!((server.end, server.key, server.between_clients), (TunnelEnd::Server, None, false));
    let names: Vec<&str> = server.clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(server.reassembly_bytes, 1 << 20);
    let one = TunnelConfig::from_toml(SERVER).unwrap();
    assert!(one.clients.is_empty() && one.reassembly_bytes == 16 << 20);
}

#[test]
fn clients_that_cannot_be_distinguished_are_refused() {
    for (from, to, expected) in [
        ("name = \"b\"", "name = \"a\"", "clients 1 and 2 have the same name"),
        ("\"b.key\"", "\"a.key\"", "clients 1 and 2 have the same key"),
        ("10.9.0.3/32", "10.9.0.2/32", "10.9.0.2/32 is also a network of a"),
        ("10.9.0.3/32", "fd00::2/127", "fd00::2/127 overlaps fd00::2/128, a network of a"),
        ("10.9.0.3/32", "10.9.0.0/31", "contains 10.9.0.1, which is this end's own address"),
        ("\"10.9.0.3/32\", \"192.168.1.0/24\"", "", "the client has no networks"),
        ("192.168.1.0/24", "192.168.1.3/24", "192.168.1.3/24 has host bits"),
        ("name = \"b\"", "name = \"b b\"", "\"b b\" is not a name of a client"),
        ("name = \"b\"", "", "missing field `name`"),
        ("roaming = true", "key = \"one.key\"", "`key` is for a tunnel with one client"),
        ("roaming = true", "allowed = []", "`allowed` is for a tunnel with one client"),
    ] {
        assert!(CLIENTS.contains(from), "{from}");
        let refused = TunnelConfig::from_toml(&CLIENTS.replace(from, to)).unwrap_err().to_string();
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    let addressed = CLIENTS.replace("roaming = true", "").replace(
        "listen = \"192.0.2.1:6521\"",
        "listen = \"192.0.2.1:6521\"\nclient = \"192.0.2.2\"",
    );
    let refused = TunnelConfig::from_toml(&addressed).unwrap_err().to_string();
    assert!(refused.contains("a channel has `client`, and there are several"), "{refused}");
    let client = "\n[[client]]\nname = \"a\"\nkey = \"a.key\"\nnetworks = [\"10.9.0.9/32\"]\n";
    let refused = TunnelConfig::from_toml(&format!("{CLIENT}{client}")).unwrap_err().to_string();
    assert!(refused.contains("`[[client]]` at the end that connects"), "{refused}");
    let lonely = SERVER.replace("mu = 2", "mu = 2\nbetween_clients = true");
    let refused = TunnelConfig::from_toml(&lonely).unwrap_err().to_string();
    assert!(refused.contains("`between_clients` is for a server with `[[client]]`"), "{refused}");
    let mut many = CLIENTS.to_owned();
    for number in 0..MAX_CLIENTS {
        let (a, b) = (number / 256, number % 256);
        let client = format!(
            "[[client]]\nname = \"n{number}\"\nkey = \"{number}\"\nnetworks = [\"10.8.{a}.{b}/32\"]\n"
        );
        many.push_str(&client);
    }
    let refused = TunnelConfig::from_toml(&many).unwrap_err().to_string();
    assert!(refused.contains("258 clients: give 256 at most"), "{refused}");
}

#[test]
fn limits_of_channels_are_read() {
    let text = CLIENT
        .replace("mu = 2", "mu = 2\nquota_file = \"used\"\nobjective = [\"cost\", \"privacy\"]")
        .replace(
            "risk = 0.1",
            "risk = 0.1\nshared_fate = \"a\"\ncost_per_gb = 5\nquota_gb = 1.5\nquota_period = \"day\"",
        )
        .replace("device = \"wwan0\"", "device = \"wwan0\"\nshared_fate = \"a\"\npriority = 2");
    let config = TunnelConfig::from_toml(&text).unwrap();
    let [first, second] = &config.channels[..] else { panic!() };
    let quota = ChannelQuota { bytes: 1_500_000_000, period: QuotaPeriod::Day };
    assert_eq!((first.quota, first.priority, second.priority), (Some(quota), 1, 2));
    assert_eq!((second.quota, first.cost_per_gb), (None, 5.0));
    assert_eq!(config.objectives, [PlanObjective::Cost, PlanObjective::Privacy]);
    assert_eq!(fates(&config.channels).sets(), [model::ChannelSubset::first(2)]);
}

#[test]
fn limits_that_contradict_others_are_refused() {
    let first = |settings: &str| CLIENT.replace("risk = 0.1", &format!("risk = 0.1\n{settings}"));
    let all = |settings: &str| CLIENT.replace("mu = 2", &format!("mu = 2\n{settings}"));
    for (text, expected) in [
        (first("shared_fate = \"a\""), "only one channel has the shared_fate \"a\""),
        (first("shared_fate = \"\""), "\"\" is not a name"),
        (first("quota_gb = 5"), "a channel has `quota_gb`, and there is no `quota_file`"),
        (first("quota_period = \"day\""), "`quota_period` goes with `quota_gb`"),
        (first("quota_gb = 0"), "quota_gb = 0"),
        (first("priority = 0"), "priority = 0"),
        (first("cost_per_gb = -1"), "cost_per_gb = -1"),
        (all("objective = \"cost\""), "needs the `cost_per_gb` of the channels"),
        (first("priority = 2").replace("mu = 2", "mu = 2\nscheduler = \"dynamic\""), "priorities"),
    ] {
        let message = TunnelConfig::from_toml(&text).unwrap_err().to_string();
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

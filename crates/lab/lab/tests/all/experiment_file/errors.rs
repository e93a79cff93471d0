//! The errors in invalid experiment files.

use std::path::Path;

use sunder_lab::{Experiment, ExperimentError};

use super::{GOOD, parse};

/// The error in an experiment, if there is one.
fn check(text: &str) -> Result<(), ExperimentError> {
    Experiment::parse(Path::new("some/bad.toml"), text).map(|_| ())
}

/// The error after a replacement in the valid file.
fn refused(good: &str, bad: &str) -> ExperimentError {
    assert!(GOOD.contains(good), "{good}");
    check(&GOOD.replacen(good, bad, 1)).expect_err(bad)
}

/// A replacement in the valid file: the old and the new text; the key that the error names, and a
/// part of its message.
const BAD: &[(&str, &str, &str, &str)] = &[
    // The file.
    ("about =", "about", "line 2", "not TOML"),
    ("about =", "abbout =", "abbout", "about"),
    ("repetitions = 2", "repetitions = 0", "repetitions", "at least 1"),
    ("repetitions = 2", "attempts = 0", "attempts", "at least 1"),
    ("repetitions = 2", "seeds = 0", "seeds", "at least 1"),
    ("repetitions = 2", "repetitions = 2\nseeds = 3", "seeds", "leave out one"),
    ("repetitions = 2", "seed = -1", "seed", "a whole number from 0 to 9223372036854775807"),
    ("about = \"A test\"", "about = \"A\\ntest\"", "about", "one line"),
    ("about = \"A test\"", "about = \"A test\"\nabout = \"A\"", "line 3", "about"),
    ("[hosts.server]", "[hots.server]", "hots", "hosts"),
    // Swept keys.
    ("loss = [0, 0.5]", "loss = []", "sweep.loss", "one at least"),
    ("loss = [0, 0.5]", "loss = { from = 0, to = 1, step = 0 }", "sweep.loss.step", "more than 0"),
    ("loss = [0, 0.5]", "loss = { from = 0, to = 1, step = 1e-9 }", "sweep.loss", "larger steps"),
    ("loss = [0, 0.5]", "loss = { from = 2, to = 1, step = 1 }", "sweep", "before its end"),
    (
        "loss = [0, 0.5]",
        "loss = { from = \"{path}\", to = 1, step = 1 }",
        "sweep.loss.from",
        "no number",
    ),
    ("loss = [0, 0.5]", "loss = { from = 0, to = 1, step = 1, by = 2 }", "sweep.loss", "by"),
    (
        "loss = [0, 0.5]",
        "loss = { from = 0, to = 1, step = 0.5 }",
        "programs[1].only.loss",
        "in steps",
    ),
    ("loss = [0, 0.5]", "loss = 0", "sweep.loss", "[..]"),
    ("loss = [0, 0.5]", "loss = [nan]", "sweep.loss", "finite"),
    ("loss = [0, 0.5]", "loss = [[1]]", "sweep.loss", "named values"),
    ("loss = [0, 0.5]", "loss = [0, 0.0]", "sweep.loss", "twice"),
    ("loss = [0, 0.5]", "loss = [0]\n\"a b\" = [1]", "sweep.a b", "letters"),
    ("loss = [0, 0.5]", "loss = [0]\nfiles = [1]", "sweep.files", "another name"),
    ("loss = [0, 0.5]", "loss = [0]\nport = [1]", "sweep.path", "port"),
    ("loss = [0, 0.5]", "loss = [0]\nlate_ms = [1]", "sweep.late_ms", "two columns"),
    ("loss = [0, 0.5]", "loss = [0]\nspeed = [1]", "sweep.speed", "two columns"),
    ("port = 80 }", "path = 80 }", "sweep.path", "another name"),
    ("direct = { through = [], port = 80 }", "direct = 1", "sweep.path.direct", "KEY = VALUE"),
    // Placeholders.
    ("{client.a}", "{client.c}", "measure.run[2]", "{client.a}"),
    ("{server.b}:", "{server.c}:", "sweep.path.proxied.through[1]", "{server.b}"),
    ("[], port = 80", "[]", "files.page.json", "path = direct"),
    ("{{\"port\"", "{\"port\"", "files.page.json", "{{"),
    ("'{{\"", "'{through} {{\"", "files.page.json", "list"),
    ("\"{path}\"}}'", "\"{path}\"}'", "files.page.json", "}}"),
    // Hosts and links.
    ("[hosts.server]", "[hosts.server]\ncolour = 1", "hosts.server.colour", "sysctl"),
    ("[hosts.server]", "[hosts.server]\n[hosts.Caps]", "hosts.Caps", "a-z"),
    (
        "[hosts.server]",
        "[hosts.server]\nsysctl = { \"/proc/a\" = 1 }",
        "hosts.server.sysctl",
        "net/ipv4",
    ),
    (
        "[links.b]",
        "[links.a-name-far-too-long]\nhosts = [\"client\", \"server\"]\n[links.b]",
        "links.a-name-far-too-long",
        "15",
    ),
    ("[links.b]", "[links.lo]\nhosts = [\"client\", \"server\"]\n[links.b]", "links.lo", "not lo"),
    ("[\"server\", \"client\"]", "[\"server\", \"sever\"]", "links.a.hosts", "[hosts.sever]"),
    ("[\"server\", \"client\"]", "[\"client\", \"client\"]", "links.a.hosts", "joins two"),
    ("[hosts.server]", "[hosts.server]\nforwards = true", "links.b", "client's second link"),
    (
        "[\"server\", \"client\"]",
        "[\"a\", \"b\", \"c\"]",
        "links.a.hosts",
        "names 3 hosts; a link joins two",
    ),
    (
        "[links.b]",
        "[links.all]\nhosts = [\"client\", \"server\"]\n[links.b]",
        "links.all",
        "another name",
    ),
    (
        "[links.b]",
        "[links.default]\nhosts = [\"client\", \"server\"]\n[links.b]",
        "links.default",
        "another name",
    ),
    ("tap = \"wire", "mtu = 575\ntap = \"wire", "links.a.mtu", "576 to 65535"),
    ("tap = \"wire", "mtu = 65536\ntap = \"wire", "links.a.mtu", "576 to 65535"),
    ("tap = \"wire", "both = {}\ntap = \"wire", "links.a.both", "forward"),
    ("tap = \"wire", "tap = \"../wire", "links.a.tap", "wire.pcapng"),
    ("rate_mbit = 10 }", "rate_mbit = 10 }\ntap = \"wire.pcapng\"", "links.b.tap", "another"),
    ("loss = [0, 0.5]", "loss = [0, 1.5]", "links.b.both.loss", "with loss = 1.5"),
    ("rate_mbit = 20", "rate_mbit = -2", "links.a.forward.rate_mbit", "0.001"),
    ("rate_mbit = 20", "rate = 20", "links.a.forward.rate", "rate_mbit"),
    ("rate_mbit = 20", "rate_mbit = \"20\"", "links.a.forward.rate_mbit", "expected a number"),
    // Files and programs.
    ("\"port\" =", "\"../port\" =", "files.../port", "without /"),
    ("host = \"server\"", "host = \"sever\"", "programs[0].host", "[hosts.sever]"),
    ("run = [\"sh\"]", "run = []", "programs[1].run", "PROGRAM"),
    ("run = [\"sh\"]", "run = [\"\"]", "programs[1].run", "PROGRAM"),
    ("run = [\"sh\"]", "ran = [\"sh\"]", "programs[1].ran", "run"),
    ("listens = \"{port}\"", "listens = 0", "programs[0].listens", "65535"),
    ("listens = \"{port}\"", "listens = 65536", "programs[0].listens", "from 0 to 65535"),
    ("listens = \"{port}\"", "listens = 80\nsays = \"ready\"", "programs[0].says", "one of them"),
    ("listens = \"{port}\"", "says = \"\"", "programs[0].says", "is empty"),
    ("[[programs]]", "[zeros]\npage = 4294967296\n[[programs]]", "zeros.page", "to 4294967295"),
    ("host = \"server\"", "host = \"\"", "programs[0].host", "is empty; name a host"),
    ("[\"proxied\"]", "[\"proxy\"]", "programs[1].only.path", "direct, proxied"),
    ("only = { path", "only = { way", "programs[1].only.way", "loss, path"),
    // The measurement.
    (
        "run = [\"sh\", \"{through}\", \"{client.a}\", \"{port}\", 2.5]",
        "",
        "measure",
        "run or driver",
    ),
    ("[measure]\n", "[measure]\ndriver = \"accuracy\"\n", "measure", "one of them"),
    ("[measure]\n", "[measure]\noptions = { a = 1 }\n", "measure.options", "arguments"),
    ("[measure]\n", "[measure]\ntimeout_s = 0\n", "measure.timeout_s", "above 0"),
    (
        "[hosts.server]",
        "[hosts.server]\nsysctl = { \"vm/swappiness\" = 1 }",
        "hosts.server.sysctl",
        "net/ipv4",
    ),
    (
        "[measure]\nhost = \"client\"",
        "[measure]\nhost = \"cleint\"",
        "measure.host",
        "[hosts.cleint]",
    ),
    ("[measure]\nhost = \"client\"", "[measure]", "measure.host", "missing"),
    ("json = \"/speed\"", "", "measure.values.speed", "json or after"),
    (
        "json = \"/speed\"",
        "json = \"/speed\", after = \"x\"",
        "measure.values.speed",
        "json or after",
    ),
    ("json = \"/speed\"", "json = \"speed\"", "measure.values.speed.json", "begin it with /"),
    ("after = \"files:\"", "after = \"\"", "measure.values.files.after", "empty"),
    ("scale = 2", "scale = inf", "measure.values.files.scale", "finite"),
    (
        "[predict]",
        "[measure.texts]\nwhy = { json = \"why\" }\n[predict]",
        "measure.texts.why.json",
        "begin it with /",
    ),
    ("[predict]", "[measure.texts]\nwhy = { after = \"why\" }\n[predict]", "texts.why", "json"),
    // Predictions and graphs.
    (
        "speed = \"slowest-channel\"",
        "spead = \"slowest-channel\"",
        "predict.spead",
        "[measure.values]",
    ),
    ("speed = \"slowest-channel\"", "speed = \"slowest\"", "predict.speed", "slowest-channel"),
    ("speed = \"slowest-channel\"", "files = \"slowest-channel\"", "predict.files", "Mbit/s"),
    ("x = \"loss\"", "x = \"lost\"", "plots[0].x", "lost"),
    ("x = \"loss\"", "x = \"path\"", "plots[0].x", "path"),
    ("y = \"speed\"", "y = \"spead\"", "plots[0].y", "[measure.values]"),
    ("y = \"speed\"", "y = \"speed_*\"", "plots[0].y", "[measure.values]"),
    ("lines = \"path\"", "lines = \"port\"", "plots[0].lines", "loss, path"),
    ("lines = \"path\"", "each = \"way\"", "plots[0].each", "loss, path"),
    ("lines = \"path\"", "", "plots[0]", "lines or each"),
    (
        "lines = \"path\"",
        "lines = \"loss\"\nwhere = { path = [\"direct\"] }",
        "plots[0].lines",
        "in another way",
    ),
    ("lines = \"path\"", "lines = \"path\"\neach = \"path\"", "plots[0].each", "in another way"),
    ("lines = \"path\"", "where = { path = [1] }", "plots[0].where.path", "direct, proxied"),
    ("lines = \"path\"", "where = { path = [] }", "plots[0].where", "nothing to draw"),
    ("title = \"Speed\"", "title = \"?\"", "plots[0].title", "another title"),
];

#[test]
fn errors_name_the_key_and_the_fix() {
    for (good, bad, key, remedy) in BAD {
        let error = refused(good, bad);
        let line = error.to_string();
        println!("{line}");
        assert!(line.starts_with("some/bad.toml: "), "{line}");
        assert!(error.key.contains(key), "{bad}: {key} is not the key of: {line}");
        assert!(line.contains(remedy), "{bad}: {remedy} is not in: {line}");
        assert!(!line.contains('\n'), "{line}");
    }
}

#[test]
fn two_graphs_have_two_files() {
    let plot = GOOD.split_once("[[plots]]").unwrap().1;
    let error = check(&format!("{GOOD}\n[[plots]]{plot}")).unwrap_err();
    assert_eq!(error.key, "plots[1].title");
}

#[test]
fn the_number_of_trials_is_bounded() {
    let many: Vec<String> = (0..400).map(|i| i.to_string()).collect();
    let text = GOOD
        .replace("[0, 0.5]\n", &format!("[0, 0.5]\nmany = [{}]\nmore = [{0}]\n", many.join(", ")));
    let error = check(&text).unwrap_err();
    assert_eq!(error.key, "sweep");
    assert!(error.problem.contains("50000"), "{error}");

    let link = |i| format!("[links.l{i}]\nhosts = [\"client\", \"server\"]\n");
    let links: String = (0..99).map(link).collect();
    assert_eq!(check(&format!("{GOOD}{links}")).unwrap_err().key, "links");
}

#[test]
fn impossible_file_names_are_rejected() {
    let long = "n".repeat(256);
    for (good, bad, key, remedy) in [
        ("[[programs]]", format!("{long} = \"\"\n[[programs]]"), "files", "200 bytes"),
        ("[[programs]]", format!("[zeros]\n{long} = 1\n[[programs]]"), "zeros", "200 bytes"),
        ("\"Speed\"", format!("\"{long}\""), "plots[0].title", "shorter title"),
        ("wire.pcapng", format!("{long}.pcapng"), "links.a.tap", "wire.pcapng"),
    ] {
        let error = refused(good, &bad);
        assert!(error.key.starts_with(key) && error.problem.contains(remedy), "{error}");
    }
}

#[test]
fn error_messages_are_short() {
    let long = "x".repeat(5000);
    for bad in [format!("{long} = 1\nabout ="), format!("repetitions = \"{long}\"\nabout =")] {
        let line = refused("about =", &bad).to_string();
        assert!(line.len() < 1500, "{line}");
    }
    for (good, bad, problem) in [
        ("rate_mbit = 20", "rate_mbit = -1e300", "-1e300 cannot be"),
        ("[measure]\n", "[measure]\ntimeout_s = 1e300\n", "1e300 cannot be"),
    ] {
        let line = refused(good, bad).to_string();
        assert!(line.contains(problem), "{line}");
    }
}

#[test]
fn predictors_name_the_keys_they_need() {
    let predict = |predictor: &str, unit: &str, keys: &str| {
        let text = GOOD.replace("slowest-channel", predictor);
        let text = text.replace("unit = \"Mbit/s\"", &format!("unit = \"{unit}\""));
        let text = text.replace("port = 80 }", &format!("port = 80{keys} }}"));
        let text = text.replace("port = 1080 }", &format!("port = 1080{keys} }}"));
        check(&text).map_err(|error| {
            assert_eq!(error.key, "predict.speed");
            error.problem
        })
    };
    let requests = |keys: &str| predict("requests", "requests/s", keys);
    let message = requests("").unwrap_err();
    assert!(message.starts_with("requests needs the key clients; add it to [sweep]"), "{message}");
    assert_eq!(requests(", clients = 1, size = 0, round_trips = 2"), Ok(()));
    let message = requests(", clients = 0, size = 0, round_trips = 2").unwrap_err();
    assert!(
        message.starts_with("requests needs a number from 1 on as clients, not 0"),
        "{message}"
    );
    assert!(requests(", clients = \"many\", size = 0, round_trips = 2").is_err());
    assert!(requests(", clients = nan, size = 0, round_trips = 2").is_err());
    assert!(predict("datagrams", "Mbit/s", ", bitrate = -1").is_err());
    assert_eq!(predict("datagrams", "Mbit/s", ", bitrate = 1"), Ok(()));

    let loss = |keys: &str| predict("optimal-loss", "", keys);
    assert_eq!(loss(", kappa = 1.5, mu = 2, min_threshold = 1"), Ok(()));
    let message = loss(", kappa = 1, mu = 2.5").unwrap_err();
    assert!(message.contains("from 1 to 2 as mu"), "there are two links: {message}");
    assert!(loss(", kappa = 2, mu = 1").unwrap_err().contains("from 1 to 1 as kappa"));
    assert!(loss(", kappa = 1, mu = 2, min_threshold = 2").unwrap_err().contains("min_threshold"));
}

#[test]
fn options_of_groups_that_cannot_be_are_refused() {
    let of = |options: &str| {
        let text = format!(
            "about = \"A test\"\n[hosts]\n[measure]\ndriver = \"quorum-refresh\"\noptions = {{ {options} }}\n\
             [measure.values]\nold = {{}}\n"
        );
        check(&text).map_err(|error| error.to_string())
    };
    assert_eq!(of("servers = 4, modulus_bits = 1024, paper_range = true"), Ok(()));
    for (options, what) in [
        ("servers = 5, modulus_bits = 1024, paper_range = true", "give 4, 7, 10 or 13"),
        ("servers = 16, modulus_bits = 1024, paper_range = true", "19079424"),
        ("servers = 4, modulus_bits = 1000, paper_range = true", "modulus_bits is 1000"),
        ("servers = 4, modulus_bits = 1024", "paper_range"),
    ] {
        assert!(of(options).unwrap_err().contains(what), "{options}: {:?}", of(options));
    }
}

#[test]
fn options_of_running_groups_that_cannot_be_are_refused() {
    let of = |driver: &str, site: &str, more: &str| {
        let site = format!("{{ sunder = \"/sunder\", rate_mbit = 100, {site} }}");
        let text = format!(
            "about = \"A test\"\n[hosts]\n[measure]\ndriver = \"quorum-node-{driver}\"\n\
             options = {{ site = {site}, {more} }}\n[measure.values]\n"
        );
        let value = if driver == "sign" { "usual = {}\n" } else { "old = {}\n" };
        check(&(text + value)).map_err(|error| error.to_string())
    };
    let site = "servers = 4, modulus_bits = 2048, delay_ms = 1";
    assert_eq!(of("sign", site, "signatures = 1, rounds = 1"), Ok(()));
    assert_eq!(of("refresh", site, "linked = true"), Ok(()));
    for (driver, from, to, more, what) in [
        ("sign", "4", "5", "signatures = 1, rounds = 1", "give 4, 7, 10 or 13"),
        ("sign", "2048", "2000", "signatures = 1, rounds = 1", "modulus_bits is 2000"),
        ("sign", "= 1", "= -1", "signatures = 1, rounds = 1", "delay_ms"),
        ("sign", "= 1", "= 1, links = 1", "signatures = 1, rounds = 1", "links"),
        ("sign", "", "", "signatures = 0, rounds = 1", "signatures is 0"),
        ("sign", "", "", "signatures = 1, rounds = 10001", "rounds is 10001"),
        ("refresh", "", "", "linked = true, same = true", "leave linked out"),
    ] {
        let error = of(driver, &site.replacen(from, to, 1), more).unwrap_err();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn drivers_accept_only_their_own_values() {
    let driven = |driver: &str, value: &str| {
        let text =
            "about = \"x\"\n[hosts.a]\n[hosts.b]\n[links.l]\nhosts = [\"a\", \"b\"]\n[measure]\n";
        let text = format!("{text}driver = \"{driver}\"\n[measure.values]\n{value}\n");
        check(&text).map_err(|error| error.key)
    };
    let options = |client: &str| {
        format!(
            "mean = {{}}\n[measure.options]\nclient = \"{client}\"\nserver = \"b\"\nport = 80\n\
             seconds = 1\nconnect = \"10.0.0.2:80\"\n"
        )
    };
    let computing = |value: &str, limit: &str| {
        format!(
            "{value}\n[measure.options]\nsunder = \"sunder\"\ngarbler = \"a\"\nevaluator = \"b\"\n\
             address = \"10.0.0.1:7000\"\ncircuit = \"mincut\"\nlimit_s = {limit}\n"
        )
    };
    for (driver, value, expected) in [
        ("compute", &*computing("time = { json = \"/time_s\" }", "60"), Ok(())),
        ("compute", &computing("time = {}", "60"), Err("measure.values.time")),
        (
            "compute",
            &computing("time = { json = \"time_s\" }", "60"),
            Err("measure.values.time.json"),
        ),
        ("compute", &computing("time = { after = \"x\" }", "60"), Err("measure.values.time")),
        ("compute", &computing("time = { json = \"/time_s\" }", "0"), Err("measure.options")),
        (
            "compute",
            &computing(
                "time = { json = \"/time_s\" }\n[measure.texts]\nwhy = { json = \"/a\" }",
                "60",
            ),
            Ok(()),
        ),
        ("accuracy", "loss = {}\n[measure.texts]\na = { json = \"/a\" }", Err("measure.texts")),
        ("accuracy", "loss = {}", Ok(())),
        ("acuracy", "loss = {}", Err("measure.driver")),
        ("accuracy", "lost = {}", Err("measure.values.lost")),
        ("accuracy", "loss = { after = \"x\" }", Err("measure.values.loss")),
        ("round-trips", &options("a"), Ok(())),
        ("round-trips", &options("c"), Err("measure.options.client")),
    ] {
        assert_eq!(driven(driver, value), expected.map_err(str::to_owned), "{driver}: {value}");
    }
}

#[test]
fn missing_programs_are_named_with_their_package() {
    let missing = |program: &str| {
        let text = GOOD.replace("\"sh\", \"{through}\"", &format!("\"{program}\""));
        parse(&text).find_programs().map_err(|error| error.to_string())
    };
    assert_eq!(missing("sh"), Ok(()));
    assert_eq!(missing("/bin/sh"), Ok(()));
    for (program, expected) in [
        ("/nowhere/wrk", "apt install wrk"),
        ("/nowhere/wrk", "measure.run"),
        ("no-such-program", "no-such-program is not in PATH"),
        ("bin/sh", "from / on"),
        ("/tmp", "/tmp is not a program"),
        ("/etc/passwd", "/etc/passwd is not executable"),
    ] {
        let message = missing(program).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }

    let second = GOOD.replace("run = [\"sh\"]", "run = [\"no-such-program\"]");
    assert_eq!(parse(&second).find_programs().unwrap_err().key, "programs[1].run");
}

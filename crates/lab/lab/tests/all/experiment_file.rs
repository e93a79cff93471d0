//! Experiment files: valid ones, and the errors in invalid ones.

use std::collections::BTreeMap;
use std::path::Path;

use sunder_lab::experiment::{built_in, run_with};
use sunder_lab::{Experiment, ExperimentError, Trial, TrialContext, TrialMeasurement};

/// An experiment that uses every part of the format.
const GOOD: &str = r#"
about = "A test"
repetitions = 2

[sweep]
loss = [0, 0.5]
[sweep.path]
direct = { through = [], port = 80 }
proxied = { through = ["--proxy", "{server.b}:{loss}"], port = 1080 }

[hosts.client]
sysctl = { "net/ipv4/ip_forward" = 1 }
[hosts.server]

[links.b]
hosts = ["client", "server"]
both = { loss = "{loss}", rate_mbit = 10 }
[links.a]
hosts = ["server", "client"]
forward = { rate_mbit = 20 }
tap = "wire.pcapng"

[files]
"page.json" = '{{"port": {port}, "path": "{path}"}}'
"port" = "{port}"

[[programs]]
host = "server"
run = ["{sunder}", "serve", "{files}/page.json", 7]
listens = "{port}"
[[programs]]
host = "client"
run = ["sh"]
only = { path = ["proxied"], loss = [0.0] }

[measure]
host = "client"
run = ["sh", "{through}", "{client.a}", "{port}", 2.5]
[measure.values]
speed = { unit = "Mbit/s", json = "/speed" }
files = { after = "files:", scale = 2 }

[predict]
speed = "slowest-channel"

[[plots]]
title = "Speed"
x = "loss"
y = "speed"
lines = "path"
"#;

fn parse(text: &str) -> Experiment {
    Experiment::parse(Path::new("test.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

/// The error in an experiment, if there is one.
fn check(text: &str) -> Result<(), ExperimentError> {
    Experiment::parse(Path::new("some/bad.toml"), text).map(|_| ())
}

/// The error after a replacement in the valid file.
fn refused(good: &str, bad: &str) -> ExperimentError {
    assert!(GOOD.contains(good), "{good}");
    check(&GOOD.replacen(good, bad, 1)).expect_err(bad)
}

/// Measures 1 for each value.
fn ones(trial: &Trial) -> TrialMeasurement {
    let values = trial.measure.values.keys().map(|name| (name.clone(), 1.0));
    TrialMeasurement { values: values.collect(), ..TrialMeasurement::default() }
}

/// The trials of an experiment, in their order.
fn trials(text: &str) -> Vec<Trial> {
    let mut trials = Vec::new();
    let place = tempfile::tempdir().unwrap();
    let measure = |trial: &Trial, _: TrialContext<'_>| {
        trials.push(trial.clone());
        Ok(ones(trial))
    };
    run_with(&parse(text), place.path(), |_| {}, measure).unwrap();
    trials
}

#[test]
fn the_documented_example_is_valid() {
    let page = include_str!("../../../../../docs/formats/experiment.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(parse(example).trials(), 3 * 3 * 2);
}

#[test]
fn built_in_experiments_have_a_name_and_a_description() {
    for (name, text) in built_in() {
        let experiment = Experiment::parse(Path::new(&format!("{name}.toml")), text).unwrap();
        assert_eq!(experiment.name(), name);
        assert!(!experiment.about().is_empty() && !experiment.about().contains('\n'));
    }
}

#[test]
fn the_last_key_varies_fastest_and_repetitions_slowest() {
    let order: Vec<(f64, bool)> = trials(GOOD)
        .iter()
        .map(|trial| (trial.links["b"].both.unwrap().loss, trial.files["port"] == "1080"))
        .collect();
    let once = [(0.0, false), (0.0, true), (0.5, false), (0.5, true)];
    assert_eq!(order, [once, once].concat());
}

#[test]
fn keys_keep_the_order_of_the_file() {
    let text = GOOD.replace("loss = [0, 0.5]\n", "zebra = [1]\nloss = [0, 0.5]\nant = [1, 2]\n");
    let text = text.replace("lines = \"path\"", "lines = \"path\"\nwhere = { ant = [1] }");
    let place = tempfile::tempdir().unwrap();
    let measure = |trial: &Trial, _: TrialContext<'_>| Ok(ones(trial));
    let results = run_with(&parse(&text), place.path(), |_| {}, measure).unwrap();
    assert_eq!(results.keys, ["zebra", "loss", "ant", "path"]);
    let values: Vec<&str> = results.values.iter().map(|value| value.name.as_str()).collect();
    assert_eq!(values, ["speed", "files"]);
}

#[test]
fn a_range_can_begin_at_an_earlier_key() {
    let swept = "kappa = [1, 1.75]\nmu = { from = \"{kappa}\", to = 2, step = 0.1 }\n";
    let text = GOOD.replace("loss = [0, 0.5]\n", swept).replace("loss = [0.0]", "kappa = [1]");
    let text = text.replace("loss = \"{loss}\"", "delay_ms = \"{mu}\"").replace("{loss}", "{mu}");
    let text =
        text.replace("x = \"loss\"", "x = \"mu\"").replace("repetitions = 2", "repetitions = 1");
    let mus: Vec<f64> =
        trials(&text).iter().map(|trial| trial.links["b"].both.unwrap().delay_ms).collect();
    let expected = (0..=10).map(|i| 1.0 + f64::from(i) / 10.0).chain([1.75, 1.85, 1.95]);
    // One for each of two paths.
    assert_eq!(
        mus,
        expected.flat_map(|mu| [mu, mu]).map(|mu| (mu * 1e9).round() / 1e9).collect::<Vec<_>>()
    );
}

#[test]
fn without_a_sweep_there_is_one_point() {
    let text = "about = \"x\"\n[hosts.a]\n[measure]\nhost = \"a\"\nrun = [\"sh\"]\n\
                [measure.values]\nv = { after = \"v\" }\n";
    assert_eq!(trials(text).len(), 1);
}

#[test]
fn placeholders_have_the_expected_types() {
    let trials = trials(GOOD);
    let (direct, proxied) = (&trials[2], &trials[3]);
    assert_eq!((direct.programs[0].listens, proxied.programs[0].listens), (Some(80), Some(1080)));
    assert_eq!(direct.files["page.json"], r#"{"port": 80, "path": "direct"}"#);
    assert_eq!(direct.files["port"], "80");
    assert_eq!(direct.hosts["client"].sysctl["net/ipv4/ip_forward"], "1");
    // Links are numbered by name: a is 10.0.0.0/24, and its first host is the server.
    let run = |trial: &Trial| trial.measure.run.clone().unwrap();
    assert_eq!(run(direct), ["sh", "10.0.0.2", "80", "2.5"]);
    assert_eq!(run(proxied), ["sh", "--proxy", "10.0.1.2:0.5", "10.0.0.2", "1080", "2.5"]);
    let sunder = std::env::current_exe().unwrap();
    let command = [sunder.to_str().unwrap(), "serve", "/dev/shm/trial/page.json", "7"];
    assert_eq!(direct.programs[0].run, command);
    // A value named like a section of texts still has numbers.
    assert!((direct.measure.values["files"].scale - 2.0).abs() < 1e-9);
}

#[test]
fn programs_run_only_for_their_values() {
    let count = |trial: &Trial| trial.programs.len();
    assert_eq!(trials(GOOD)[..4].iter().map(count).collect::<Vec<_>>(), [1, 2, 1, 1]);
}

#[test]
fn figures_of_the_paper_are_beside_the_measurements() {
    let text = GOOD
        .replace("speed = \"slowest-channel\"", "speed = \"published\"")
        .replace("port = 80 }", "port = 80, published_speed = 7.5 }");
    let directory = tempfile::tempdir().unwrap();
    let measure = |trial: &Trial, _: TrialContext<'_>| Ok(ones(trial));
    let results = run_with(&parse(&text), directory.path(), |_| {}, measure).unwrap();
    let published: Vec<Option<f64>> =
        results.trials.iter().map(|trial| trial.predictions.get("speed").copied()).collect();
    assert_eq!(published[..4], [Some(7.5), None, Some(7.5), None]);
    let table = std::fs::read_to_string(directory.path().join("results.csv")).unwrap();
    assert!(table.starts_with("repetition,loss,path,speed,speed_published,files,files_predicted,"));
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
    assert_eq!(of("servers = 4, modulus_bits = 1024, paper_range = true, place = 4"), Ok(()));
    for (options, what) in [
        ("servers = 5, modulus_bits = 1024, paper_range = true", "give 4, 7, 10 or 13"),
        ("servers = 16, modulus_bits = 1024, paper_range = true", "19079424"),
        ("servers = 4, modulus_bits = 1000, paper_range = true", "modulus_bits is 1000"),
        ("servers = 4, modulus_bits = 1024, paper_range = true, place = 5", "place is 5"),
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
    assert_eq!(of("refresh", site, "linked = true, place = 4"), Ok(()));
    for (driver, from, to, more, what) in [
        ("sign", "4", "5", "signatures = 1, rounds = 1", "give 4, 7, 10 or 13"),
        ("sign", "2048", "2000", "signatures = 1, rounds = 1", "modulus_bits is 2000"),
        ("sign", "= 1", "= -1", "signatures = 1, rounds = 1", "delay_ms"),
        ("sign", "= 1", "= 1, links = 1", "signatures = 1, rounds = 1", "links"),
        ("sign", "", "", "signatures = 0, rounds = 1", "signatures is 0"),
        ("sign", "", "", "signatures = 1, rounds = 10001", "rounds is 10001"),
        ("refresh", "", "", "linked = true, place = 5", "place is 5"),
    ] {
        let error = of(driver, &site.replacen(from, to, 1), more).unwrap_err();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn the_slowest_channel_is_predicted() {
    let place = tempfile::tempdir().unwrap();
    let measured = || TrialMeasurement {
        values: BTreeMap::from([("speed".into(), 1.0)]),
        ..TrialMeasurement::default()
    };
    let predicted = |text: &str| {
        let out = place.path().join(text.len().to_string());
        let results = run_with(&parse(text), &out, |_| {}, |_, _| Ok(measured())).unwrap();
        results.trials[0].predictions.get("speed").copied()
    };
    assert_eq!(predicted(GOOD), Some(10.0 * 1448.0 / 1500.0));
    assert_eq!(predicted(&GOOD.replace(", rate_mbit = 10", "")), Some(20.0 * 1448.0 / 1500.0));
    let free = GOOD.replace(", rate_mbit = 10", "").replace("rate_mbit = 20", "delay_ms = 20");
    assert_eq!(predicted(&free), None);
    // A rate in the opposite direction does not limit the data.
    let back = free.replace("forward =", "back = { rate_mbit = 5 }\nforward =");
    assert_eq!(predicted(&back), None);
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

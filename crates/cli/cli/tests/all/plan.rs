//! `sunder plan`: the properties of channels, as JSON and as text.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The paper's Diverse setup, whose loss and delay are negligible, with invented risks.
const DIVERSE: &str = "--channel z=0.5,l=0,d=0,r=5 --channel z=0.4,l=0,d=0,r=20 \
    --channel z=0.3,l=0,d=0,r=60 --channel z=0.2,l=0,d=0,r=65 --channel z=0.1,l=0,d=0,r=100";

/// The paper's three channels in IV-E.
const THREE: &str = "--channel z=0.1,l=0,d=2,r=5 --channel z=0.1,l=0,d=9,r=5 \
    --channel z=0.1,l=0,d=10,r=5";

/// Three channels that differ in every property.
const MIXED: &str = "--channel z=0.1,l=0.01,d=2.5,r=100,name=fibre \
    --channel z=0.3,l=0.005,d=9,r=40,name=dsl --channel z=0.2,l=0.02,d=30,r=20,name=lte";

const FILE: &str =
    "[[channel]]\nname = \"fibre\"\nrisk = 0.1\nloss = 0.01\ndelay_ms = 2.5\nrate = 100
[[channel]]\nname = \"dsl\"\nz = 0.3\nl = 0.005\nd = 9\nr = 40
[[channel]]\nname = \"lte\"\nz = 0.2\nl = 0.02\nd = 30\nr = 20\n";

const GROUP: &str = "[[group]]\nchannels = [\"fibre\", \"dsl\"]\nrisk = 0.05\nloss = 0.001\n";

/// Runs `sunder plan` with these arguments, separated by spaces.
fn plan(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("plan").args(arguments.split_whitespace()).stdin(Stdio::null());
    command.output().unwrap()
}

fn succeed(arguments: &str) -> String {
    let output = plan(arguments);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
    assert_eq!(output.status.code(), Some(0), "{arguments}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&succeed(&format!("{arguments} --json"))).unwrap()
}

/// Runs it with wrong arguments. Returns its one-line message.
fn refused(arguments: &str) -> String {
    let output = plan(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments}");
    assert_eq!(stderr.lines().count(), 1, "{arguments}: {stderr}");
    stderr
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn assert_near(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() < 1e-6 * expected.abs().max(1e-3), "{value}, not {expected}");
}

fn keys(document: &Value) -> Vec<&str> {
    document.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Checks that the schedule is valid and has the means in the document.
fn check_schedule(document: &Value) {
    let (mut whole, mut kappa, mut mu) = (0.0, 0.0, 0.0);
    for entry in document["schedule"].as_array().unwrap() {
        assert_eq!(keys(entry), ["channels", "k", "p"]);
        let (k, p) = (entry["k"].as_u64().unwrap(), entry["p"].as_f64().unwrap());
        let k = u32::try_from(k).unwrap();
        let m = u32::try_from(entry["channels"].as_array().unwrap().len()).unwrap();
        assert!(k >= 1 && k <= m && p > 0.0, "{entry}");
        whole += p;
        kappa += p * f64::from(k);
        mu += p * f64::from(m);
    }
    assert!((whole - 1.0).abs() < 1e-9);
    assert_near(&document["kappa"], kappa);
    assert_near(&document["mu"], mu);
}

#[test]
fn the_papers_rates_on_diverse_channels() {
    // R_C by Theorem 4, by hand: the minimum of 5 / (mu - 4), 25 / (mu - 3), 85 / (mu - 2) and so
    // on.
    for (mu, rate) in
        [(1.0, 250.0), (2.0, 125.0), (3.0, 75.0), (3.4, 85.0 / 1.4), (4.0, 25.0), (5.0, 5.0)]
    {
        assert_near(&json(&format!("{DIVERSE} --mu {mu}"))["rate"], rate);
        let document = json(&format!("{DIVERSE} --kappa 1 --mu {mu} --objective rate"));
        assert_near(&document["rate"], rate);
        check_schedule(&document);
    }
    assert_near(&json(DIVERSE)["best"]["rate"], 250.0);
}

#[test]
fn limited_schedules_can_cost_delay() {
    let free = json(&format!("{THREE} --kappa 2 --mu 3 --objective delay"));
    let limited = json(&format!("{THREE} --kappa 2 --mu 3 --objective delay --limited"));
    assert_near(&free["delay"], 6.0);
    assert_near(&limited["delay"], 9.0);
    assert_eq!(limited["schedule"], serde_json::json!([{"k": 2, "channels": [0, 1, 2], "p": 1.0}]));
    check_schedule(&free);
}

#[test]
fn the_document_has_its_keys() {
    let schedule = ["delay", "delivered_delay", "gap", "kappa", "loss", "mu", "names", "rate"];
    let rest = ["risk", "schedule", "utilisation"];
    for asked in ["--kappa 1.5 --mu 2 --objective privacy", "--objective loss", "--max-risk 0.05"] {
        let document = json(&format!("{MIXED} {asked}"));
        assert_eq!(keys(&document), [&schedule[..], &rest[..]].concat(), "{asked}");
        assert_eq!(document["names"], serde_json::json!(["fibre", "dsl", "lte"]));
        assert!(document["gap"].as_f64().unwrap() < 1e-6);
        check_schedule(&document);
    }

    let document = json(&format!("{MIXED} --kappa 1.5 --mu 2"));
    check_schedule(&document);
    assert_near(&document["rate"], 60.0);
    assert_near(&document["best_at_full_rate"]["rate"], 60.0);
    assert_eq!(document["utilisation"].as_array().unwrap().len(), 3);
    assert_eq!(document["gap"], Value::Null);
    for property in ["risk", "loss", "delay", "delivered_delay"] {
        let value = |document: &Value| document[property].as_f64().unwrap();
        assert!(value(&document["best"]) <= value(&document["best_at_full_rate"]) + 1e-9);
        assert!(value(&document["best_at_full_rate"]) <= value(&document) + 1e-9);
    }
}

#[test]
fn without_requirements_the_best_values_are_shown() {
    let document = json(MIXED);
    assert_eq!(keys(&document), ["best", "names"]);
    let best = &document["best"];
    assert_near(&best["risk"], 0.1 * 0.3 * 0.2);
    assert_near(&best["loss"], 0.01 * 0.005 * 0.02);
    assert_near(&best["delay"], 2.5);
    assert_near(&best["rate"], 160.0);
    let arriving = 1.0 - 0.01 * 0.005 * 0.02;
    let weighted = 0.99 * 2.5 + 0.01 * 0.995 * 9.0 + 0.01 * 0.005 * 0.98 * 30.0;
    assert_near(&best["delay_over_all"], weighted / arriving);
}

#[test]
fn the_first_objective_matters_most() {
    let asked = format!("{MIXED} --kappa 1.5 --mu 2");
    let both = json(&format!("{asked} --objective privacy --objective rate"));
    let private = json(&format!("{asked} --objective privacy"));
    assert_near(&both["risk"], private["risk"].as_f64().unwrap());
    let both = json(&format!("{asked} --objective rate --objective privacy"));
    let full = json(&format!("{asked} --full-rate --objective privacy"));
    assert_near(&both["rate"], 60.0);
    assert_near(&both["risk"], full["risk"].as_f64().unwrap());
}

#[test]
fn a_file_is_equivalent_to_options() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("channels.toml");
    let asked = "--kappa 1.5 --mu 2 --objective privacy";
    fs::write(&path, FILE).unwrap();
    let ungrouped = json(&format!("--channels {} {asked}", name(&path)));
    assert_eq!(ungrouped, json(&format!("{MIXED} {asked}")));

    fs::write(&path, [FILE, GROUP].concat()).unwrap();
    let grouped = json(&format!("--channels {} {asked}", name(&path)));
    let group = "--group z=0.05,l=0.001,channels=fibre+dsl";
    assert_eq!(grouped, json(&format!("{MIXED} {group} {asked}")));
    assert!(grouped["risk"].as_f64() > ungrouped["risk"].as_f64());
}

#[test]
fn the_example_of_the_help_runs() {
    let help = succeed("--help");
    let example = help.split_once("  sunder plan ").unwrap().1.split("\n\n").next().unwrap();
    let report = succeed(&example.replace("\\\n", " "));
    assert!(report.starts_with("Least risk: 1 in 7.538 symbols is read"), "{report}");
    let file = help.split_once("--channels:\n").unwrap().1;
    let place = TempDir::new().unwrap();
    let path = place.path().join("channels.toml");
    fs::write(&path, file).unwrap();
    assert_eq!(
        json(&format!("--channels {}", name(&path)))["names"],
        serde_json::json!(["fibre", "dsl"])
    );
}

#[test]
fn the_default_output_is_a_table() {
    let asked = "--kappa 1.5 --mu 2 --objective privacy --full-rate";
    let expected = "Least risk: 1 in 7.538 symbols is read, with kappa 1.5, mu 2, the full rate

  risk   0.1327     1 in 7.538
  loss   0.5949 %   1 in 168
  delay  5.863 ms   over all symbols
         5.866 ms   over the symbols that arrive
  rate   60 Mbit/s
  kappa  1.5
  mu     2

  symbols  k of m  channels
  33.33 %  1 of 1  fibre
  33.33 %  2 of 3  fibre + dsl + lte
  16.67 %  1 of 2  fibre + dsl
  16.67 %  2 of 2  fibre + dsl

  channel        rate   used
  fibre    100 Mbit/s   60 %
  dsl       40 Mbit/s  100 %
  lte       20 Mbit/s  100 %
";
    assert_eq!(succeed(&format!("{MIXED} {asked}")), expected);
}

#[test]
fn a_simulation_agrees_with_the_formulas() {
    let document = json(&format!("{MIXED} --kappa 1.5 --mu 2 --simulate 200000"));
    let simulation = &document["simulation"];
    assert_eq!(simulation["symbols"], 200_000);
    for property in ["risk", "loss", "delay", "delivered_delay"] {
        let (found, value) = (&simulation[property], document[property].as_f64().unwrap());
        // Far beyond the 99 % interval, so that the test passes with any seed.
        let width = found["high"].as_f64().unwrap() - found["low"].as_f64().unwrap();
        let mean = found["mean"].as_f64().unwrap();
        assert!((mean - value).abs() < 1.5 * width, "{property}: {found}, not {value}");
    }
    let report = succeed(&format!("{MIXED} --objective rate --simulate 1000"));
    assert!(report.contains("simulated, 1,000 symbols"), "{report}");
    assert!(refused(&format!("{MIXED} --simulate 10")).contains("--simulate needs a schedule"));
}

#[test]
fn sensitivity_says_what_matters() {
    let asked = format!("{MIXED} --kappa 1.5 --mu 2 --objective rate --sensitivity");
    let sensitivity = &json(&asked)["sensitivity"];
    assert_eq!(sensitivity["property"], "rate");
    assert_near(&sensitivity["now"], 60.0);
    let effects = sensitivity["effects"].as_array().unwrap();
    assert_eq!(effects.len(), 12);
    assert_eq!(effects[7]["channel"], 1);
    assert_eq!(effects[7]["quantity"], "rate");
    assert_near(&effects[7]["value"], 64.0);
    assert_near(&effects[0]["value"], 60.0);
    assert!(succeed(&asked).contains("dsl  rate  64 Mbit/s  +6.667 %"));
}

#[test]
fn plots_are_written_once() {
    let place = TempDir::new().unwrap();
    for (file, front) in [("properties.svg", ""), ("front.svg", "--front rate,risk")] {
        let path = place.path().join(file);
        let asked = format!("{MIXED} --plot {} {front}", name(&path));
        succeed(&asked);
        let svg = fs::read_to_string(&path).unwrap();
        assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{svg}");
        assert!(refused(&asked).contains("exists; move it away"));
        assert_eq!(fs::read_to_string(&path).unwrap(), svg);
    }
    let nowhere = place.path().join("missing/plot.svg");
    assert!(refused(&format!("{MIXED} --plot {}", name(&nowhere))).contains("no such directory"));
    for front in ["rate", "rate,rate", "rate,speed"] {
        assert!(refused(&format!("{MIXED} --plot x.svg --front {front}")).contains("--front"));
    }
    assert!(refused(&format!("{MIXED} --front rate,risk")).contains("--plot"));
}

#[test]
fn infeasible_bounds_are_reported() {
    for (asked, expected) in [
        ("--max-risk 0.001", "--max-risk 0.001 cannot be met"),
        ("--max-risk 0.001", "the least risk is 0.006"),
        ("--kappa 1.5 --mu 2 --max-loss 0.001", "the least loss is 0.002674"),
        ("--max-delay 1", "the least delay is 2.5 ms"),
        ("--mu 2 --min-rate 70", "--min-rate 70 cannot be met"),
        ("--mu 2 --min-rate 70", "the highest rate is 60 Mbit/s"),
        ("--min-rate 100 --max-risk 0.01", "--max-risk 0.01 cannot be met"),
    ] {
        let message = refused(&format!("{MIXED} {asked}"));
        assert!(message.contains(expected), "{message}");
    }
    // The value in the message is feasible.
    let message = refused(&format!("{MIXED} --min-rate 100 --max-risk 0.01"));
    let least = message.trim().rsplit(' ').next().unwrap();
    let document = json(&format!("{MIXED} --min-rate 100 --max-risk {least}"));
    assert!(document["rate"].as_f64().unwrap() >= 100.0 * (1.0 - 1e-6));
}

#[test]
fn wrong_options_are_refused_in_one_line() {
    let many = "--channel z=0,l=0,d=0,r=1 ".repeat(64);
    for (arguments, expected) in [
        ("", "there is no channel"),
        (many.as_str(), "64 channels are more than"),
        ("--channel z=1.5,l=0,d=0,r=1", "risk z = 1.5"),
        ("--channel z=-0.1,l=0,d=0,r=1", "risk z = -0.1"),
        ("--channel z=NaN,l=0,d=0,r=1", "risk z = NaN"),
        ("--channel z=0,l=1,d=0,r=1", "loss l = 1"),
        ("--channel z=0,l=nan,d=0,r=1", "loss l = NaN"),
        ("--channel z=0,l=0,d=-1,r=1", "delay d = -1"),
        ("--channel z=0,l=0,d=inf,r=1", "delay d = inf"),
        ("--channel z=0,l=0,d=0,r=0", "rate r = 0"),
        ("--channel z=0,l=0,d=0,r=-5", "rate r = -5"),
        ("--channel z=0,l=0,d=0", "r is missing"),
        ("--channel l=0,d=0,r=1", "z is missing"),
        ("--channel z=0,l=0,d=0,r=much", "r = much is not a number"),
        ("--channel z=0,l=0,d=0,r=1,x=2", "x is unknown"),
        ("--channel z=0,z=0,l=0,d=0,r=1", "z is given twice"),
        ("--channel z", "\"z\" is not KEY=VALUE"),
        ("--channel z=0,l=0,d=0,r=1,name=", "is not a valid name"),
        ("--channel z=0,l=0,d=0,r=1,name=2 --channel z=0,l=0,d=0,r=1", "two channels are named 2"),
        ("--channels x.toml --channel z=0,l=0,d=0,r=1", "exclude each other"),
        ("--channels /no/such/file", "no such file: /no/such/file"),
    ] {
        let message = refused(arguments);
        assert!(message.contains(expected), "{arguments}: {message}");
    }
    for (arguments, expected) in [
        ("--kappa 3 --mu 2", "kappa = 3 is more than mu = 2"),
        ("--kappa 1 --mu 4", "mu = 4 is more than the number of channels, 3"),
        ("--kappa 4 --objective rate", "kappa = 4 is more than the number of channels, 3"),
        ("--kappa 0.5 --mu 2", "kappa = 0.5"),
        ("--kappa nan --mu 2", "kappa = NaN"),
        ("--mu 0", "mu = 0"),
        ("--mu inf", "mu = inf"),
        ("--kappa two", "--kappa"),
        ("--full-rate --objective loss", "--mu"),
        ("--limited --mu 2", "--kappa"),
        ("--limited", "--kappa"),
        ("--objective speed", "--objective"),
        ("--max-risk 2", "--max-risk 2"),
        ("--max-loss=-1", "--max-loss -1"),
        ("--min-rate nan", "--min-rate NaN"),
        ("--simulate 0 --mu 2", "--simulate"),
        ("--group z=0,l=0,channels=fibre", "at least two channels"),
        ("--group z=0,l=0,channels=fibre+isdn", "channel isdn, which does not exist"),
        ("--group z=0,l=0,channels=dsl+dsl", "channel dsl twice"),
        ("--group z=2,l=0,channels=dsl+lte", "risk z = 2"),
        ("--group z=0,l=1,channels=dsl+lte", "loss l = 1"),
        ("--group z=0,channels=dsl+lte", "l is missing"),
        ("--speed", "--speed"),
    ] {
        let message = refused(&format!("{MIXED} {arguments}"));
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

#[test]
fn wrong_files_are_refused_in_one_line() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("channels.toml");
    for (text, expected) in [
        ("", "there is no channel"),
        ("[[channel]\n", "line 1"),
        ("[[channel]]\nz = 0.1\nl = 0\nd = 1\n", "missing field `rate`"),
        ("[[channel]]\nz = 0.1\nl = 0\nd = 1\nr = 1\nx = 1\n", "line 6: unknown field `x`"),
        ("[[channel]]\nz = 0.1\nrisk = 0.1\nl = 0\nd = 1\nr = 1\n", "duplicate field"),
        ("[[channel]]\nz = \"a\"\nl = 0\nd = 1\nr = 1\n", "line 2: z: invalid type"),
        ("[[channel]]\nz = nan\nl = 0\nd = 1\nr = 1\n", "risk z = NaN"),
        ("[[channel]]\nz = 0\nl = 1\nd = 1\nr = 1\n", "loss l = 1"),
        ("[[channel]]\nname = \"a,b\"\nz = 0\nl = 0\nd = 1\nr = 1\n", "is not a valid name"),
        ("[[chanel]]\nz = 0\n", "unknown field `chanel`"),
        (&[FILE, "[[group]]\nchannels = [\"a\"]\nz = 0\n"].concat(), "missing field `loss`"),
        (&[FILE, FILE].concat(), "two channels are named fibre"),
    ] {
        fs::write(&path, text).unwrap();
        let message = refused(&format!("--channels {}", name(&path)));
        assert!(message.contains(expected) && message.contains(name(&path)), "{text}: {message}");
    }
}

const LIMITS: &str = "[[channel]]\nname = \"fibre\"\nrisk = 0.1\nloss = 0.01\ndelay_ms = 5\nrate = 100
cost_per_gb = 1\nshared_fate = \"company\"
[[channel]]\nname = \"dsl\"\nrisk = 0.2\nloss = 0.01\ndelay_ms = 9\nrate = 40\nshared_fate = \"company\"
[[channel]]\nname = \"lte\"\nrisk = 0.2\nloss = 0.02\ndelay_ms = 30\nrate = 20\ncost_per_gb = 10
priority = 2\n";

#[test]
fn a_shared_fate_raises_the_risk_to_that_of_any_of_its_channels() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("limits.toml");
    fs::write(&file, LIMITS).unwrap();
    let file = name(&file);
    // Both shares are seen if one of the channels is: 1 - 0.9 * 0.8.
    let document = json(&format!("--channels {file} --kappa 2 --mu 2 --objective privacy"));
    assert_near(&document["risk"], 0.28);
    assert_near(&document["cost_per_gb"], 1.0);
    assert_eq!(document["names"], serde_json::json!(["fibre", "dsl"]), "the backup is not needed");
    let wrong = LIMITS.replacen("shared_fate = \"company\"", "", 1);
    let alone = directory.path().join("alone.toml");
    fs::write(&alone, wrong).unwrap();
    let refused = refused(&format!("--channels {} --objective loss", name(&alone)));
    assert!(refused.contains("only one channel has the shared_fate \"company\""), "{refused}");
}

#[test]
fn a_backup_is_planned_with_if_others_are_not_enough() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("limits.toml");
    fs::write(&file, LIMITS).unwrap();
    let file = name(&file);
    let names = |request: &str| json(&format!("--channels {file} {request}"))["names"].clone();
    assert_eq!(names("--max-risk 0.3"), serde_json::json!(["fibre", "dsl"]));
    // Two channels of one fate are seen with 0.28.
    assert_eq!(names("--max-risk 0.08"), serde_json::json!(["fibre", "dsl", "lte"]));
    assert_eq!(names("--kappa 1 --mu 3"), serde_json::json!(["fibre", "dsl", "lte"]));
}

#[test]
fn the_least_price_is_found_within_bounds() {
    let channels = "--channel z=0.1,l=0.01,d=5,r=10,name=a,cost_per_gb=1 \
                    --channel z=0.1,l=0.01,d=5,r=10,name=b,cost_per_gb=5";
    let cost = |request: &str| {
        json(&format!("{channels} --objective cost {request}"))["cost_per_gb"].as_f64().unwrap()
    };
    assert!((cost("--kappa 1 --mu 1") - 1.0).abs() < 1e-6);
    // Half of the symbols on each.
    assert!((cost("--kappa 1 --mu 1 --min-rate 20") - 3.0).abs() < 1e-6);
    let refused = refused(&format!("{channels} --kappa 2 --mu 2 --max-cost 5"));
    assert!(refused.contains("--max-cost 5 cannot be met"), "{refused}");
    assert!(refused.contains("the least price of a GB is 6"), "{refused}");
}

#[test]
fn a_plan_is_written_as_the_settings_of_a_tunnel() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("limits.toml");
    fs::write(&file, LIMITS).unwrap();
    let request = "--max-risk 0.2 --objective loss --kappa 2 --mu 2.5 --toml";
    let text = succeed(&format!("--channels {} {request}", name(&file)));
    for line in [
        "kappa = 2\n",
        "mu = 2.5\n",
        "max_risk = 0.2\n",
        "objective = \"loss\"\n",
        "[[channel]] # fibre\n",
        "shared_fate = \"company\"\n",
        "priority = 2\n",
        "rate_mbit = 20\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // With addresses it is a configuration, of which the plan can be made again and written back.
    let addresses = "addresses = [\"10.9.0.2/24\"]\n";
    let tunnel = format!("{addresses}# kept\n{}", text.replace("ADDRESS", "192.0.2.1"));
    let path = directory.path().join("tunnel.toml");
    fs::write(&path, &tunnel).unwrap();
    let again = succeed(&format!("--channels {} --kappa 3 --mu 3 --toml", name(&path)));
    assert_eq!(again.lines().count(), tunnel.lines().count(), "{again}");
    assert!(again.contains("# kept\n") && again.contains("\nmu = 3\n"), "{again}");
    assert!(again.contains("\nmax_risk = 0.2\n"), "{again}");
    // A bound that the options have replaced, and the plan breaks, does not stay.
    let open = plan(&format!("--channels {} --kappa 1 --mu 3 --toml", name(&path)));
    let [open, notes] = [open.stdout, open.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(open.contains("# This plan does not keep it: max_risk = 0.2\n"), "{open}");
    assert!(notes.contains("does not keep the file's max_risk"), "{notes}");
    let groups = format!("{MIXED} --group z=0.1,l=0,channels=fibre+dsl --max-risk 0.5 --toml");
    assert!(refused(&groups).contains("a tunnel has no groups"));
}

#[test]
fn a_probe_needs_the_configuration_of_a_client() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("three.toml");
    fs::write(&file, FILE).unwrap();
    let refused_file = refused(&format!("--channels {} --probe", name(&file)));
    assert!(refused_file.contains("--probe needs the configuration of a tunnel"), "{refused_file}");
    let server = "kappa = 1\nmu = 1\naddresses = []\nallowed = [\"10.9.0.0/24\"]\n\
                  [[channel]]\nlisten = \"127.0.0.1:1\"\nclient = \"127.0.0.1\"\n";
    fs::write(&file, server).unwrap();
    let refused_server = refused(&format!("--channels {} --probe", name(&file)));
    assert!(refused_server.contains("run --probe at the end that connects"), "{refused_server}");
}

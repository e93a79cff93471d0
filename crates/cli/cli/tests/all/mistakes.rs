//! A hundred mistakes of users. Each answer is one line that names the cause and the remedy.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The arguments, the exit code, and what the answer has to contain.
type Mistake = (&'static str, i32, &'static [&'static str]);

const COMMANDS: &[Mistake] = &[
    ("splt plan.txt", 2, &["no command splt", "did you mean split?"]),
    ("frobnicate", 2, &["sunder has no command frobnicate", "sunder --help"]),
    ("--config proxy.toml", 2, &["no option --config", "sunder --help"]),
    ("--jsn", 2, &["no option --jsn", "sunder --help"]),
    ("help splt", 2, &["splt"]),
    ("transport sned plan.txt", 2, &["sunder transport has no command sned", "send"]),
    ("quorum nodes", 2, &["did you mean node?"]),
    ("key sho tunnel.key", 2, &["did you mean show?"]),
    ("init tunel", 2, &["did you mean tunnel?"]),
    ("lab rn links", 2, &["sunder lab has no command rn", "sunder lab --help"]),
    ("circuit inf aes128", 2, &["did you mean info?"]),
    ("streams prox", 2, &["did you mean proxy?"]),
    ("demo chanels", 2, &["[JOB] chanels", "did you mean channels?"]),
    ("demo sign --f 9", 2, &["--f", "--file"]),
];

const FILES: &[Mistake] = &[
    ("split plan.txt", 2, &["give -k <K> and -m <M>", "usage: sunder split"]),
    ("split -k 2 plan.txt", 2, &["give -m <M>"]),
    ("split -k 2 -m 3", 2, &["give <FILE>"]),
    ("split -k 4 -m 3 plan.txt", 2, &["k = 4", "m = 3"]),
    ("split -k 0 -m 3 plan.txt", 2, &["-k <K> 0", "from 1 to 255"]),
    ("split -k two -m 3 plan.txt", 2, &["-k <K> two", "give a whole number"]),
    ("split -k 2.5 -m 3 plan.txt", 2, &["-k <K> 2.5", "give a whole number"]),
    ("split -k 2 -m 300 plan.txt", 2, &["-m <M> 300", "from 1 to 255"]),
    ("split --k 2 -m 3 plan.txt", 2, &["no option --k", "write -k"]),
    ("split -k 2 -m 3 none.txt", 2, &["no such file: none.txt", "check its name"]),
    ("split -k 2 -m 3 .", 2, &["is a directory", "name a file in it"]),
    ("split -k 2 -m 3 --out none plan.txt", 2, &["no such directory: none", "create it first"]),
    ("split -k 2 -m 3 --scheme xor plan.txt", 2, &["needs every share", "k = 2 must equal m = 3"]),
    ("split -k 2 -m 3 --scheme shamier plan.txt", 2, &["shamir, xor", "did you mean shamir?"]),
    ("split -k 2 -m 3 --rng fast plan.txt", 2, &["--rng <RNG> fast", "seeded, os"]),
    ("split -k 2 -m 3 plan.txt other.txt", 2, &["other.txt is one argument too many"]),
    ("split -k 2 -k 3 -m 3 plan.txt", 2, &["-k <K>", "only once"]),
    ("split -k 2 -m 3 plan.txt", 2, &["plan.txt.1.share", "exists"]),
    ("join", 2, &["give <SHARE>...", "usage: sunder join"]),
    ("join plan.txt.1.share", 2, &["too few shares: 1 of the 2", "give 1 more"]),
    ("join plan.txt", 2, &["there is no share", "plan.txt"]),
    ("join none.share plan.txt.2.share", 2, &["no such file: none.share", "check its name"]),
    ("join plan.txt.1.share plan.txt.1.share", 2, &["given twice", "give each share once"]),
    (
        "join --out none/x plan.txt.1.share plan.txt.2.share",
        2,
        &["no such directory: none", "create it first"],
    ),
    ("join plan.txt.1.share plan.txt.2.share", 2, &["plan.txt exists", "--out"]),
    ("join plan.txt.1.share other.txt.2.share", 3, &["do not belong together", "give enough"]),
    ("check", 2, &["give <SHARE>..."]),
    ("check none", 2, &["no such file: none", "check its name"]),
    ("check --jsno plan.txt.1.share", 2, &["no option --jsno", "did you mean --json?"]),
];

const CONFIGURATIONS: &[Mistake] = &[
    ("proxy", 2, &["give --config <FILE>", "usage: sunder proxy"]),
    ("proxy proxy.toml", 2, &["name the configuration with --config", "--config proxy.toml"]),
    ("serve serve.toml", 2, &["sunder serve --config serve.toml"]),
    ("tunnel tunnel.toml", 2, &["sunder tunnel --config tunnel.toml"]),
    ("mix mix.toml", 2, &["sunder mix --config mix.toml"]),
    ("chat chat.toml", 2, &["sunder chat --config chat.toml"]),
    ("doctor proxy.toml", 2, &["sunder doctor --config proxy.toml"]),
    ("streams proxy proxy.toml", 2, &["--config proxy.toml"]),
    ("proxy --config none.toml", 2, &["no such file: none.toml", "check its name"]),
    ("doctor --config none.toml", 2, &["no such file: none.toml", "check its name"]),
    ("proxy --config .", 2, &["is a directory", "name a file in it"]),
    ("proxy --config serve.toml", 2, &["of sunder serve", "sunder serve --config serve.toml"]),
    ("serve --config proxy.toml", 2, &["of sunder proxy", "sunder proxy --config proxy.toml"]),
    ("tunnel --config proxy.toml", 2, &["of sunder proxy", "sunder proxy --config proxy.toml"]),
    ("mix --config serve.toml", 2, &["of sunder serve", "sunder serve --config serve.toml"]),
    ("chat --config proxy.toml", 2, &["of sunder proxy", "sunder proxy --config proxy.toml"]),
    ("quorum node --config proxy.toml", 2, &["sunder proxy --config proxy.toml"]),
    ("proxy --config unquoted.toml", 2, &["line 1", "socks = \"127.0.0.1:1080\""]),
    ("proxy --config single.toml", 2, &["line 2", "write [[channel]], with two brackets"]),
    ("proxy --config misspelt.toml", 2, &["line 1", "unknown field `sock`", "`socks`"]),
    ("proxy --config chanel.toml", 2, &["unknown field `chanel`", "`channel`"]),
    ("proxy --config list.toml", 2, &["line 1", "expected a string", "socks = \"127.0.0.1:"]),
    ("proxy --config below.toml", 2, &["above the first [[channel]]"]),
    ("proxy --config threshold.toml", 2, &["threshold = 3", "give 1 to the number of channels"]),
    ("proxy --config twice.toml", 2, &["duplicate key", "leave one of them"]),
    ("proxy --config noport.toml", 2, &["line 1", "socks", "127.0.0.1:1080"]),
    ("proxy --config names.toml", 2, &["line 5", "name localhost too", "of its own"]),
    ("proxy --config bytes.toml", 2, &["must be text"]),
    ("proxy --config network.toml", 2, &["line 1", "intercept", "as in: tcp dport { 80, 443 }"]),
    ("serve --config text.toml", 2, &["give a list", "[\""]),
    ("serve --config any.toml", 2, &["line 2", "*:80", "all addresses of a network, as in"]),
    ("serve --config same.toml", 2, &["127.0.0.1:7000", "twice"]),
    ("serve --config word.toml", 2, &["os is not in quotes", "rng = \"os\""]),
    ("tunnel --config home.toml", 2, &["~", "write the whole path"]),
    ("tunnel close --config uplink.toml", 2, &["the device lo", "a name of its own"]),
    ("tunnel --config two.toml", 2, &["kappa", "number"]),
    ("tunnel --config nokey.toml", 2, &["key none.key: no such file", "sunder key new none.key"]),
];

const NUMBERS: &[Mistake] = &[
    ("plan", 2, &["there is no channel", "--channel"]),
    ("plan --channel z=0.1", 2, &["l is missing", "loss"]),
    ("plan --channel 0.1,0.01,5,100", 2, &["\"0.1\" is not KEY=VALUE"]),
    (
        "plan --channel x=1,z=0.1,l=0,d=5,r=100",
        2,
        &["x is unknown", "z, l, d, r, name, cost_per_gb, shared_fate and priority"],
    ),
    ("plan --channel z=1.1,l=0,d=5,r=100", 2, &["risk z = 1.1", "within 0 to 1"]),
    ("plan --channel z=0.1,l=1,d=5,r=100", 2, &["loss l = 1", "leave out a channel"]),
    ("plan --channel z=0.1,l=0,d=5ms,r=100", 2, &["d = 5ms", "delay in ms"]),
    ("plan --channel z=0.1,l=0,d=5,r=100M", 2, &["r = 100M", "rate in Mbit/s"]),
    ("plan --channel z=0.1,z=0.2,l=0,d=5,r=1", 2, &["z is given twice"]),
    ("plan --channel z=0.1,risk=0.2,l=0,d=5,r=1", 2, &["z and risk are the same", "give one"]),
    ("plan --channel z=a,l=0,d=5,r=1", 2, &["z = a", "write 0.01 or 1%"]),
    ("plan --channel z=0.1,l=0,d=5,r=1 --max-risk low", 2, &["--max-risk <Z> low", "0.01 or 1%"]),
    ("plan --channel z=0.1,l=0,d=5,r=1 --kappa x", 2, &["--kappa <X> x", "give a number"]),
    ("plan --channel z=0.1,l=0,d=5,r=1 --kappa 2 --mu 2", 2, &["mu = 2", "channels, 1"]),
    (
        "plan --channel z=0.1,l=0,d=5,r=1 --max-risk 0.01",
        2,
        &["cannot be met", "least risk is 0.1"],
    ),
    ("plan --channel z=0.1,l=0,d=5,r=1 --objective speed", 2, &["privacy, loss, delay"]),
    ("plan --channel z=0.1,l=0,d=5,r=1 --plot a.png", 2, &["is an SVG", "write a.svg"]),
    ("plan --channel z=0.1,l=0,d=5,r=1 --plot none/a.svg", 2, &["no such directory", "--plot"]),
    ("plan --channels none.toml", 2, &["no such file: none.toml", "check its name"]),
    (
        "plan --channels serve.toml",
        2,
        &["of sunder serve, not of sunder plan", "give another file"],
    ),
];

const OTHERS: &[Mistake] = &[
    ("transport send plan.txt", 2, &["name a file and, last, the receiver's address"]),
    ("transport send none.txt 127.0.0.1:7", 2, &["no such file: none.txt", "check its name"]),
    ("transport send plan.txt 127.0.0.1:7", 2, &["--key <KEY> is missing", "copy the command"]),
    ("transport send plan.txt 127.0.0.1:7 --key abc", 2, &["--key", "use the 64 digits"]),
    ("transport send plan.txt 127.0.0.1:7 --insecure --transport tpc", 2, &["tpc", "choose auto"]),
    ("transport receive --listen 127.0.0.1:7000", 2, &["give --out <DIR>"]),
    ("transport receive --listen 7000 --out .", 2, &["7000", "give HOST:PORT"]),
    (
        "transport receive --listen 127.0.0.1:0 --out none",
        2,
        &["none is not a directory", "create it"],
    ),
    ("transport relay --listen :7100", 2, &["--listen <ADDR> :7100", "an IP address and a port"]),
    ("transport forward --listen 127.0.0.1:0", 2, &["give <HOST:PORT>", "usage:"]),
    ("circuit info aes", 2, &["aes is neither a file nor one of aes128, sha256, mincut"]),
    ("circuit info plan.txt", 2, &["plan.txt: line 1", "Bristol format?"]),
    ("circuit draw aes128 --out x.png", 2, &["is an SVG", "write x.svg"]),
    ("compute --role boss --circuit aes128", 2, &["garbler, evaluator"]),
    (
        "compute --role garbler --circuit aes128 --input 00 --listen 127.0.0.1:0",
        2,
        &["the input must have 16 bytes, not 1"],
    ),
    (
        "compute psi none.csv --column email --role garbler --listen 127.0.0.1:0",
        2,
        &["no such file: none.csv", "check its name"],
    ),
    (
        "compute psi table.csv --column email --role garbler --listen 127.0.0.1:0",
        2,
        &["no column email", "the columns are mail, name"],
    ),
    ("key new", 2, &["give <FILE>", "usage: sunder key new"]),
    ("key new tunnel.key", 2, &["tunnel.key exists", "name another file"]),
    ("key show none.key", 2, &["no such file", "sunder key new none.key"]),
    ("key show .", 2, &["key .:", "name a file in it"]),
    ("key show plan.txt", 2, &["64 hexadecimal digits"]),
    ("init proxy --out proxy.toml", 2, &["proxy.toml exists", "--out"]),
    ("init proxy --server 192.0.2.1", 2, &["--server", "give HOST:PORT, such as"]),
    ("init proxy --server 0.0.0.0:7000 --out x.toml", 2, &["no address of another host", "give"]),
    ("init tunnel --listen 0.0.0.0:6521", 2, &["every address of this host", "with --server"]),
    ("init tunnel --network 10.9.0.0/24", 2, &["leave out the length of the prefix: 10.9.0.0"]),
    ("init tunnel --network office", 2, &["give an IPv4 address, such as"]),
    ("tunnel join 'sunder-tunnel,kappa=2", 2, &["its end is missing", "copy it again"]),
    ("quorum init", 2, &["give --nodes <FILE>", "--bundle <FILE>"]),
    ("quorum sign plan.txt", 2, &["give --socket <PATH>"]),
    ("quorum ssh-agent", 2, &["give --socket <PATH>", "--listen <PATH>"]),
    ("quorum sign --socket none plan.txt", 1, &["no server answers at none", "running"]),
    ("doctor proxy", 2, &["proxy is one argument too many", "usage: sunder doctor"]),
    ("status --watch --json", 2, &["--watch", "--json", "leave one of them out"]),
    ("lab run none", 2, &["there is no experiment none", "sunder lab list"]),
    ("lab run none.toml", 2, &["no such file: none.toml", "check its name"]),
    ("lab run serve.toml", 2, &["unknown field `listen`", "docs/formats/experiment.md"]),
    ("lab draw links", 2, &["no results", "sunder lab run links"]),
    ("lab serve --listen 80", 2, &["--listen <ADDR> 80", "an IP address and a port"]),
    ("directory add", 2, &["give --config <FILE>", "<PEER>"]),
    ("demo --file none", 2, &["no such file: none", "check its name"]),
];

#[test]
fn mistakes_in_commands_are_answered_with_the_remedy() {
    assert_answered(COMMANDS);
}

#[test]
fn mistakes_with_files_are_answered_with_the_remedy() {
    assert_answered(FILES);
}

#[test]
fn mistakes_in_configurations_are_answered_with_the_remedy() {
    assert_answered(CONFIGURATIONS);
}

#[test]
fn mistakes_in_numbers_are_answered_with_the_remedy() {
    assert_answered(NUMBERS);
}

#[test]
fn other_mistakes_are_answered_with_the_remedy() {
    assert_answered(OTHERS);
    let all = [COMMANDS, FILES, CONFIGURATIONS, NUMBERS, OTHERS];
    assert!(all.iter().map(|mistakes| mistakes.len()).sum::<usize>() >= 100);
}

/// Makes the mistakes in a directory with some files, and checks the answers.
fn assert_answered(mistakes: &[Mistake]) {
    let place = tempfile::tempdir().unwrap();
    write_files(place.path());
    let mut wrong = String::new();
    for (arguments, code, words) in mistakes {
        let Output { status, stderr, .. } = sunder(place.path(), arguments);
        let errors = String::from_utf8(stderr).unwrap();
        let errors: Vec<&str> = errors.lines().filter(|line| line.starts_with("error")).collect();
        let missing: Vec<_> = words
            .iter()
            .filter(|word| !errors.first().is_some_and(|it| it.contains(**word)))
            .collect();
        if errors.len() != 1 || status.code() != Some(*code) || !missing.is_empty() {
            writeln!(wrong, "$ sunder {arguments}\n{errors:?}\n{status}, without {missing:?}")
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn sunder(place: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(arguments.split(' ')).current_dir(place);
    command.env("XDG_STATE_HOME", place).env("XDG_CONFIG_HOME", place).output().unwrap()
}

fn write_files(place: &Path) {
    let write = |name: &str, text: &str| fs::write(place.join(name), text).unwrap();
    let channel = "[[channel]]\nserver = \"127.0.0.1:7000\"\n";
    let socks = "socks = \"127.0.0.1:1080\"\n";
    let allow = "allow = [\"127.0.0.1:80\"]\n";
    let tunnel = "kappa = 1\nmu = 1\naddresses = [\"10.9.0.2/24\"]\n";
    write("plan.txt", "Meet at the bridge at eight.\n");
    write("other.txt", "Meet at the well at nine.\n");
    write("table.csv", "mail,name\na@example.com,A\n");
    write("proxy.toml", &[socks, channel].concat());
    write("unquoted.toml", &["socks = 127.0.0.1:1080\n", channel].concat());
    write("single.toml", &[socks, &channel.replace("[[channel]]", "[channel]")].concat());
    write("misspelt.toml", &["sock = \"127.0.0.1:1080\"\n", channel].concat());
    write("chanel.toml", &[socks, &channel.replace("channel", "chanel")].concat());
    write("list.toml", &["socks = [\"127.0.0.1:1080\"]\n", channel].concat());
    write("below.toml", &[channel, socks].concat());
    write("threshold.toml", &[socks, "threshold = 3\n", channel].concat());
    write("twice.toml", &[socks, socks, channel].concat());
    let named = channel.replace("127.0.0.1", "localhost");
    write("names.toml", &[socks, &named, &named].concat());
    write("noport.toml", &["socks = \"127.0.0.1\"\n", channel].concat());
    fs::write(place.join("bytes.toml"), [0xFF, 0xFE]).unwrap();
    write("network.toml", &["intercept = \"10.0.0.0/8\"\n", channel].concat());
    write("serve.toml", &["listen = [\"127.0.0.1:7000\"]\n", allow].concat());
    write("any.toml", "listen = [\"127.0.0.1:7000\"]\nallow = [\"*:80\"]\n");
    write("text.toml", &["listen = \"127.0.0.1:7000\"\n", allow].concat());
    write("same.toml", &["listen = [\"127.0.0.1:7000\", \"127.0.0.1:7000\"]\n", allow].concat());
    write("word.toml", &["listen = [\"127.0.0.1:7000\"]\nrng = os\n", allow].concat());
    write("home.toml", &[tunnel, "key = \"~/none.key\"\n", channel].concat());
    write("nokey.toml", &[tunnel, "key = \"none.key\"\n", channel].concat());
    let closed = "fail_closed = true\ndevice = \"lo\"\n";
    write("uplink.toml", &[tunnel, closed, channel].concat());
    write("two.toml", &["kappa = \"two\"\nmu = 1\n", channel].concat());
    assert!(sunder(place, "split -k 2 -m 3 plan.txt").status.success());
    assert!(sunder(place, "split -k 2 -m 3 other.txt").status.success());
    assert!(sunder(place, "key new tunnel.key").status.success());
}

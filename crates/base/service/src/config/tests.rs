//! Tests of the reported problems and their places.

use super::*;

const KEYS: ConfigKeys = ConfigKeys(&[&[
    key("", "listen", "[\"192.0.2.10:7000\"]"),
    key("", "least", "2"),
    key("", "rng", "\"seeded\""),
    key("", "rate", "2.5"),
    key("", "wipe", "true"),
    key("", "pool", "{ size = 4 }"),
    key("pool", "size", "4"),
    key("", "channel", "[{ server = \"192.0.2.10:7000\" }]"),
    key("channel", "server", "\"192.0.2.10:7000\""),
    key("channel", "source", "\"192.0.2.20\""),
]]);

/// Reads all keys; returns the problems, each with its line, place and fix.
fn problem_texts(text: &str) -> Vec<String> {
    let reader = |table: &ConfigTable<'_>| {
        let listen = table.require("listen").and_then(|listen| listen.list()).unwrap_or_default();
        for address in &listen {
            address.parsed::<std::net::SocketAddr>();
        }
        table.get("least").and_then(|least| least.integer_in::<u8>(1..=16));
        table.get("rng").and_then(|rng| rng.choice(&[("seeded", 1), ("os", 2)]));
        table.get("rate").and_then(|rate| rate.number());
        table.get("wipe").and_then(|wipe| wipe.flag());
        if let Some(pool) = table.get("pool").and_then(|pool| pool.table()) {
            pool.get("size")
                .and_then(|size| size.integer_in_explained::<usize>(0..=9, "less than 10"));
        }
        for channel in table.tables("channel") {
            channel.require("server").and_then(|server| server.text());
            let advice = "give an address";
            channel.get("source").and_then(|it| it.parsed_or::<std::net::IpAddr>(advice));
        }
        Some(())
    };
    let problems = match read(text, KEYS, reader) {
        Ok(()) => return Vec::new(),
        Err(problems) => problems,
    };
    let problem_text = |problem: ConfigProblem| {
        let line = problem.line(text).map(|line| format!("{line}, ")).unwrap_or_default();
        format!("{line}{}: {} -> {}", problem.key, problem.what, problem.fix)
    };
    problems.into_iter().map(problem_text).collect()
}

/// Checks that exactly these problems are reported, each given by its beginning and its end.
fn assert_problems(text: &str, expected: &[(&str, &str)]) {
    let problems = problem_texts(text);
    assert_eq!(problems.len(), expected.len(), "{text}\n{problems:#?}");
    for (problem, (start, end)) in problems.iter().zip(expected) {
        assert!(problem.starts_with(start) && problem.ends_with(end), "{start} {end}: {problem}");
    }
}

#[test]
fn what_is_right_has_no_problem() {
    assert_problems(
        "listen = [\"127.0.0.1:1\"]\nleast = 0x10\nrng = \"os\"\nrate = 2\nwipe = false\n\
         pool.size = 3\n[[channel]]\nserver = \"\"\nsource = \"::1\"\n",
        &[],
    );
}

#[test]
fn a_problem_is_reported_once_however_often_its_value_is_read() {
    let text = "least = \"x\"\n[[channel]]\nservr = \"192.0.2.1:1\"\n";
    let reader = |table: &ConfigTable<'_>| -> Option<()> {
        for _ in 0..2 {
            table.get("least").and_then(|least| least.integer_in::<u8>(1..=16));
            table.tables("channel");
        }
        Some(())
    };
    let problems = read(text, KEYS, reader).unwrap_err();
    assert_eq!(problems.into_iter().count(), 2);
}

#[test]
fn every_problem_has_its_place_and_fix() {
    let text = "listen = [\n  \"127.0.0.1:1\",\n  \"x\",\n]\nleast = 17\nrng = \"dice\"\n\
                rate = \"2\"\nwipe = 1\npool.size = 10\n[[channel]]\n[[channel]]\nserver = 1\n\
                source = \"here\"\n";
    assert_problems(
        text,
        &[
            ("3, listen 2: invalid socket address", "as in: listen = [\"192.0.2.10:7000\"]"),
            ("5, least: least = 17 ->", "give 1 to 16"),
            ("6, rng: unknown value `dice` ->", "write one of \"seeded\" or \"os\""),
            ("7, rate: invalid type: string \"2\", expected a number", "rate = 2.5"),
            ("8, wipe: invalid type: integer `1`, expected a boolean", "wipe = true"),
            ("9, pool, size: size = 10 ->", "give less than 10"),
            ("10, channel 1: `server` is missing", "add server = \"192.0.2.10:7000\""),
            ("12, channel 2, server: invalid type: integer `1`", "server = \"192.0.2.10:7000\""),
            ("13, channel 2, source: \"here\" ->", "give an address"),
        ],
    );
}

#[test]
fn unknown_keys_are_advised_on_and_misspelt_ones_read_as_meant() {
    let text = "listens = [\"x\"]\nsize = 1\ncolour = 2\n[[channel]]\nserver = \"\"\nserver_ = 2\n\
                rng = \"os\"\n";
    assert_problems(
        text,
        &[
            ("1, listens: unknown key `listens`", "write `listen`"),
            ("1, listen 1: invalid socket address", "listen = [\"192.0.2.10:7000\"]"),
            ("2, size: unknown key", "put it below a [pool]"),
            ("3, colour: unknown key", "listen, least, rng, rate, wipe, pool, channel"),
            ("6, channel 1, server_: unknown key", "write `server`"),
            (
                "7, channel 1, rng: unknown key",
                "put it above the first [[...]]: it is a setting of the whole",
            ),
        ],
    );
}

#[test]
fn what_is_not_toml_does_not_hide_the_rest() {
    let text = "listen = \nrng = \"os\"\nrng = \"os\"\nleast = 0\n";
    assert_problems(
        text,
        &[
            ("1, listen: ", "write it as in: listen = [\"192.0.2.10:7000\"]"),
            ("3, rng: duplicate key", "leave one of them"),
            ("4, least: least = 0", "give 1 to 16"),
        ],
    );
    for text in ["listen = [\n", "[[channel\nserver = 1\n", "least = 99999999999999999999\n"] {
        assert!(!problem_texts(text).is_empty(), "{text}");
    }
}

#[test]
fn whatever_the_text_reading_ends() {
    for text in [
        "channel = [1, \"a\", {}, [], { server = 1 }]\n",
        "channel = 1\npool = []\nlisten = {}\n",
        "[[pool]]\nsize = 1\n[[pool]]\n",
        "[channel]\nserver = \"192.0.2.1:1\"\n",
        "listen = { a = { b = [[[]]] } }\n\"\" = nan\n",
        "",
        "=",
        "\u{feff}\r\n\u{0}",
    ] {
        assert!(!problem_texts(text).is_empty(), "{text}");
    }
}

#[test]
fn one_line_names_the_place_once() {
    let line = |text: &str| {
        let reader = |table: &ConfigTable<'_>| {
            table.require("least").and_then(|least| least.integer_in::<u8>(1..=16));
            let listen = table.get("listen").and_then(|listen| listen.list()).unwrap_or_default();
            for address in &listen {
                address.parsed::<std::net::SocketAddr>();
            }
            Some(())
        };
        read(text, KEYS, reader).unwrap_err().first().in_one_line(text)
    };
    assert_eq!(line("\nleast = 0\n"), ", line 2: least = 0: give 1 to 16");
    assert_eq!(line("leats = 1\n").split(',').next_back(), Some(" `channel`"));
    assert!(line("leats = 1\n").starts_with(", line 1: unknown field `leats`, expected one of"));
    assert_eq!(line(""), ": missing field `least`");
    let fix = "write it as in: listen = [\"192.0.2.10:7000\"]";
    let address = format!("invalid socket address syntax: {fix}");
    assert_eq!(line("least = 1\nlisten = [\"x\"]"), format!(", line 2: {address}"));
    assert_eq!(line("least = 1\nlisten = [\n\"x\"]"), format!(", line 3: {address}"));
    let unquoted = "rng is not in quotes";
    assert!(line("least = 1\nrng = rng\n").starts_with(&format!(", line 2: {unquoted}")));
}

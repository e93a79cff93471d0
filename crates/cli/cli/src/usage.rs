//! Errors of usage, in one line: the mistake, and what to write instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use console::CommandFailure;

/// A usage error of the parser as a line for people.
pub(crate) fn failure(error: &clap::Error) -> CommandFailure {
    let usage = Usage::of(error);
    let message = match missing_feature(error) {
        Some((name, feature)) => {
            format!("this program was built without {name}: build it with --features {feature}")
        }
        None => explained(error, &usage).unwrap_or_else(|| unexplained(error, &usage)),
    };
    CommandFailure::Usage(message)
}

/// The usage of the command in which the mistake is.
struct Usage {
    /// The command: `sunder transport send`.
    command: String,
    /// The whole line: `sunder transport send [OPTIONS] <WHAT>...`.
    line: String,
}

impl Usage {
    fn of(error: &clap::Error) -> Self {
        let text = match error.get(ContextKind::Usage) {
            Some(ContextValue::StyledStr(usage)) => usage.to_string(),
            _ => String::new(),
        };
        let line = text.lines().next().unwrap_or_default().trim_start_matches("Usage:").trim();
        let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let words = line.split(' ').take_while(|word| is_name(word) && !word.starts_with('-'));
        let command = words.collect::<Vec<_>>().join(" ");
        // Some errors have no usage.
        let command = if command.is_empty() { "sunder".to_owned() } else { command };
        Self { command, line: line.to_owned() }
    }

    /// Whether the command is given a configuration.
    fn has_config(&self) -> bool {
        self.line.contains("--config <FILE>") || self.command == "sunder doctor"
    }

    fn help(&self) -> String {
        format!("{} --help shows what is possible", self.command)
    }
}

/// The mistake and its remedy, for the usual mistakes.
fn explained(error: &clap::Error, usage: &Usage) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    Some(match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let found = text(ContextKind::InvalidSubcommand)?;
            let meant = suggestion(error, ContextKind::SuggestedSubcommand);
            match meant {
                _ if usage.has_config() && is_file_name(found) => config_advice(found, usage),
                Some(meant) => format!(
                    "{} has no command {found}; did you mean {meant}? {}",
                    usage.command,
                    usage.help()
                ),
                None => format!("{} has no command {found}; {}", usage.command, usage.help()),
            }
        }
        ErrorKind::UnknownArgument => {
            unknown_argument(text(ContextKind::InvalidArg)?, error, usage)
        }
        ErrorKind::MissingRequiredArgument => {
            let ContextValue::Strings(missing) = error.get(ContextKind::InvalidArg)? else {
                return None;
            };
            format!("give {}; usage: {}", missing.join(" and "), usage.line)
        }
        ErrorKind::ValueValidation => {
            let (argument, value) =
                (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
            let why = std::error::Error::source(error)?.to_string();
            format!("{argument} {value}: {}", plain_reason(&why, value))
        }
        ErrorKind::InvalidValue => {
            let argument = text(ContextKind::InvalidArg)?;
            let value = text(ContextKind::InvalidValue)?;
            if value.is_empty() {
                return Some(format!("{argument}: the value is missing; {}", usage.help()));
            }
            let ContextValue::Strings(possible) = error.get(ContextKind::ValidValue)? else {
                return None;
            };
            let meant = suggestion(error, ContextKind::SuggestedValue);
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            format!("{argument} {value}: choose one of {}{meant}", possible.join(", "))
        }
        ErrorKind::ArgumentConflict => {
            let argument = text(ContextKind::InvalidArg)?;
            let other = match error.get(ContextKind::PriorArg)? {
                ContextValue::String(other) => other.clone(),
                ContextValue::Strings(others) => others.join(" and "),
                _ => return None,
            };
            if other == argument {
                return Some(format!("give {argument} only once"));
            }
            format!("{argument} and {other} exclude each other; leave one of them out")
        }
        _ => return None,
    })
}

fn unknown_argument(found: &str, error: &clap::Error, usage: &Usage) -> String {
    if !found.starts_with('-') {
        return if usage.has_config() && is_file_name(found) {
            config_advice(found, usage)
        } else {
            format!("{found} is one argument too many; usage: {}", usage.line)
        };
    }
    let letter = found.strip_prefix("--").filter(|name| name.chars().count() == 1);
    match (letter, suggestion(error, ContextKind::SuggestedArg)) {
        (Some(letter), _) if usage.line.contains(&format!("-{letter} ")) => {
            format!("there is no option {found}; write -{letter}")
        }
        (_, Some(meant)) => {
            format!("{} has no option {found}; did you mean {meant}?", usage.command)
        }
        _ => format!("{} has no option {found}; {}", usage.command, usage.help()),
    }
}

/// The nearest known name.
fn suggestion(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(name) => Some(name.clone()),
        // They are ordered by similarity.
        ContextValue::Strings(names) => names.last().cloned(),
        _ => None,
    }
}

fn is_file_name(word: &str) -> bool {
    word.contains(['.', '/'])
}

fn config_advice(file: &str, usage: &Usage) -> String {
    format!("name the configuration with --config: {} --config {file}", usage.command)
}

/// The reason of a parser of Rust's library, in words that say what to write.
fn plain_reason(why: &str, value: &str) -> String {
    let percent = value.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match why {
        "invalid float literal" | "cannot parse float from empty string" => match percent {
            Some(percent) => format!("write a proportion: {}", percent / 100.0),
            None => "give a number".into(),
        },
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "give a whole number".into()
        }
        "number too large to fit in target type" => "the number is too large".into(),
        "invalid socket address syntax" => {
            "give an IP address and a port, such as 127.0.0.1:7000 or [::1]:7000".into()
        }
        "invalid IP address syntax" => "give an IP address, such as 192.0.2.1".into(),
        "invalid IPv4 address syntax" => match value.split_once('/') {
            Some((address, _)) => format!("leave out the length of the prefix: {address}"),
            None => "give an IPv4 address, such as 10.9.0.0".into(),
        },
        "not HOST:PORT" => "give HOST:PORT, such as vpn.example.com:6521".into(),
        _ => match why.split_once(" is not in ").and_then(|(_, range)| range.split_once("..=")) {
            Some((least, most)) => format!("give a number from {least} to {most}"),
            None => why.to_owned(),
        },
    }
}

/// The parser's own message, without its usage text.
fn unexplained(error: &clap::Error, usage: &Usage) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.starts_with("For more information"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let message = words.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    format!("{message}; {}", usage.help())
}

/// A subcommand or demonstration that this program was built without, and its Cargo feature.
fn missing_feature(error: &clap::Error) -> Option<(String, &'static str)> {
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    let name = kinds.into_iter().find_map(|kind| error.get(kind))?.to_string();
    let feature = match name.as_str() {
        "plan" | "tunnel" if cfg!(not(feature = "tunnel")) => "tunnel",
        "circuit" | "compute" if cfg!(not(feature = "compute")) => "compute",
        "chat" | "mix" if cfg!(not(feature = "mix")) => "mix",
        "quorum" | "sign" if cfg!(not(feature = "quorum")) => "quorum",
        "directory" if cfg!(not(feature = "directory")) => "directory",
        "transport" if cfg!(not(feature = "transport")) => "transport",
        _ => return None,
    };
    Some((name, feature))
}

//! Runs the program `nft`, which installs rules in the kernel.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use super::program;

/// The name of the program.
const NFT: &str = "nft";

/// Advice for when the kernel denies permission.
const RIGHTS: &str = "; run this as root, or with CAP_NET_ADMIN";

/// Installs rules, in one transaction.
///
/// # Errors
/// If the program is missing or the kernel rejects the rules. Then nothing has changed.
pub fn apply(rules: &str) -> io::Result<()> {
    run(&["-f", "-"], rules).map(drop)
}

/// Checks rules, without installing them.
///
/// # Errors
/// If the program is missing or the kernel would reject the rules.
pub fn check(rules: &str) -> io::Result<()> {
    run(&["--check", "-f", "-"], rules).map(drop)
}

/// The contents of a table of the family `inet`, without the values of its counters.
///
/// # Errors
/// If there is no such table, or it cannot be listed.
pub fn list_table(name: &str) -> io::Result<String> {
    run(&["--stateless", "list", "table", "inet", name], "")
}

/// The names of the tables of the family `inet`. Empty if they cannot be listed.
pub fn list_tables() -> Vec<String> {
    let tables = run(&["list", "tables", "inet"], "").unwrap_or_default();
    let names = tables.lines().filter_map(|line| line.strip_prefix("table inet "));
    names.map(str::to_owned).collect()
}

/// Runs the program with this input. Returns its output.
///
/// # Errors
/// If the program is missing, or fails: its message, in one line.
fn run(arguments: &[&str], input: &str) -> io::Result<String> {
    let named = |error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "; install the package nftables",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot run {NFT}: {error}{advice}"))
    };
    let found = program::find(NFT).ok_or(io::ErrorKind::NotFound).map_err(io::Error::from);
    let mut child = Command::new(found.map_err(named)?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(named)?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the program does not read its input, its error message says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(named)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let (kind, advice) = if message.contains("not permitted") {
        (io::ErrorKind::PermissionDenied, RIGHTS)
    } else {
        (io::ErrorKind::Other, "")
    };
    Err(io::Error::new(kind, format!("{NFT} refuses: {}{advice}", reason(&message))))
}

/// The first line of the program's message, and the rule that it refers to, which nft prints below.
fn reason(message: &str) -> String {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("no reason given");
    match (first.split_once(": Error: "), lines.next()) {
        (Some((_place, error)), Some(rule)) => format!("{error}, in: {rule}"),
        _ => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_rule_and_not_where_it_was_read() {
        let message = "/dev/stdin:6:30-37: Error: Could not resolve service\n\
                    \t\ttcp dport nonsense redirect to :6522\n\t\t          ^^^^^^^^\n";
        let expected = "Could not resolve service, in: tcp dport nonsense redirect to :6522";
        assert_eq!(reason(message), expected);
        assert_eq!(reason("RTNETLINK answers: File exists\n"), "RTNETLINK answers: File exists");
        assert_eq!(reason(""), "no reason given");
    }
}

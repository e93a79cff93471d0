//! The commands to review what waits: `pending`, `show`, `withdraw`; and `bundle`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use quorum::api::{PendingRegistration, PendingReview};
use quorum::policy::MessageDigest;

use super::clients::QuorumSocketOptions;
use super::files::write_new;
use super::page::lists;

/// How many of the first bytes of a message are shown.
const SHOWN_BYTES: usize = 24;

/// Shows the registrations that were not used yet at each server, and proposed lists of servers.
///
/// A registration waits until its file is signed for a user of its server, expires or is withdrawn.
/// All of this server are shown, and the newest 128 of each other one. Each server names its own
/// registrations: a faulty one can hide or invent its own, and none of the others'. A list of
/// servers is shown with its difference to the current list, and with the servers that have signed
/// their approval. Any socket of the server will do.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum pending --socket /run/sunder/quorum-office/api")]
pub(super) struct QuorumPendingArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

/// Prints a registered file, to review it.
///
/// Ask the server where it was registered. A server keeps files of at most 64 KiB, 64 MiB in all,
/// until their registration expires or is withdrawn. The file is printed as it is: do not print it
/// on a terminal.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum show --socket /run/sunder/quorum-office/api \\
             SHA256 > file")]
pub(super) struct QuorumShowArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The SHA-256 of the file, as `sunder quorum pending` shows it
    digest: String,
}

/// Withdraws the registration of a file, so that this server does not sign it any more.
///
/// Ask the server where it was registered, at its `register_socket` or `admin_socket`, or at
/// `socket` if it has no others. Signatures that were made remain valid.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum withdraw --socket /run/sunder/quorum-office/api \\
             SHA256")]
pub(super) struct QuorumWithdrawArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The SHA-256 of the file, as `sunder quorum pending` shows it
    digest: String,
}

/// Writes a bundle of the current group to a new file, for servers that join by a refresh.
///
/// It has the public key and the list of servers, and no shares, so anyone may read it.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum bundle --socket /run/sunder/quorum-office/api \\
             group.bundle
Then, on each new server:
sunder init quorum --listen 192.0.2.21:6530 --joins group.bundle")]
pub(super) struct QuorumBundleArguments {
    #[command(flatten)]
    server: QuorumSocketOptions,
    /// The file to write
    file: PathBuf,
}

pub(super) fn pending(arguments: &QuorumPendingArguments) -> Result<(), CommandFailure> {
    let review = arguments.server.ask(async |client| client.pending().await)?;
    if arguments.json {
        return console::print_json(&review);
    }
    console::print(page(&review).trim_end().as_bytes())
}

pub(super) fn show(arguments: &QuorumShowArguments) -> Result<(), CommandFailure> {
    let digest = parse_digest(&arguments.digest)?;
    let message = arguments.server.ask(async |client| client.registered_message(digest).await)?;
    if MessageDigest::of(&message) != digest {
        let what = "the server has sent other bytes: their SHA-256 is not this one";
        return Err(CommandFailure::Refused(what.into()));
    }
    let mut out = io::stdout().lock();
    let written = out.write_all(&message).and_then(|()| out.flush());
    written.map_err(|error| CommandFailure::Failed(format!("cannot write: {error}")))
}

pub(super) fn withdraw(arguments: &QuorumWithdrawArguments) -> Result<(), CommandFailure> {
    let digest = parse_digest(&arguments.digest)?;
    arguments.server.ask(async |client| client.withdraw(digest).await)?;
    console::print_line(&format!("SHA-256 {digest} is withdrawn here"))
}

pub(super) fn bundle(arguments: &QuorumBundleArguments) -> Result<(), CommandFailure> {
    let bundle = arguments.server.ask(async |client| client.bundle().await)?;
    write_new(&arguments.file, &bundle)
}

fn parse_digest(digits: &str) -> Result<MessageDigest, CommandFailure> {
    MessageDigest::from_hex(digits).ok_or_else(|| {
        let what = format!("{digits} is not a SHA-256, which has 64 hexadecimal digits");
        CommandFailure::Usage(what)
    })
}

/// What waits, for people.
fn page(review: &PendingReview) -> String {
    let mut page = if review.registrations.is_empty() {
        "no registrations wait\n".to_owned()
    } else {
        let head = ["server", "SHA-256", "bytes", "user", "until", "begins with"];
        let rows = review.registrations.iter().map(row);
        let sides = [
            ColumnAlignment::Left,
            ColumnAlignment::Left,
            ColumnAlignment::Right,
            ColumnAlignment::Right,
            ColumnAlignment::Left,
            ColumnAlignment::Left,
        ];
        let rows: Vec<[String; 6]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
        aligned(&sides, &rows)
    };
    for source in &review.servers {
        let shown =
            review.registrations.iter().filter(|it| it.identity == source.identity).count() as u64;
        let server = number(source.server);
        if source.age_s.is_none() {
            let _ = writeln!(page, "server {server} has not said what waits there");
        } else if source.registrations > shown {
            let more = source.registrations - shown;
            let _ = writeln!(page, "server {server} has {more} more: ask it for all of them");
        }
    }
    page + &lists(review)
}

fn number(server: Option<u64>) -> String {
    server.map_or_else(|| "-".into(), |server| server.to_string())
}

fn row(it: &PendingRegistration) -> [String; 6] {
    let first = base16ct::lower::decode_vec(&it.first).unwrap_or_default();
    let shown = &first[..first.len().min(SHOWN_BYTES)];
    [
        number(it.server),
        it.digest.clone(),
        it.len.map_or_else(|| "-".into(), |len| len.to_string()),
        it.uid.map_or_else(|| "-".into(), |uid| uid.to_string()),
        it.until.clone(),
        // Another server chooses these bytes, which must not control the terminal.
        shown.escape_ascii().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use quorum::api::{ListChange, ListChangeKind, PendingSource, ProposedList};

    use super::*;

    #[test]
    fn a_page_shows_what_waits_and_escapes_the_bytes_of_others() {
        let registration = PendingRegistration {
            server: Some(2),
            identity: "0a".repeat(32),
            digest: "0b".repeat(32),
            len: Some(7),
            first: base16ct::lower::encode_string(b"\x1b[2Jx\n"),
            uid: None,
            registered: "2026-11-29T00:00:00Z".into(),
            until: "2026-12-06T00:00:00Z".into(),
        };
        let source = |server, registrations, age_s| PendingSource {
            server: Some(server),
            identity: "0a".repeat(32),
            registrations,
            age_s,
        };
        let change = ListChange {
            change: ListChangeKind::Moved,
            identity: "0c".repeat(32),
            address: "192.0.2.9:1".parse().unwrap(),
            before: Some("192.0.2.1:1".parse().unwrap()),
        };
        let list = ProposedList {
            group: "0d".repeat(32),
            epoch: 2,
            approved_by: vec![3],
            needed: 2,
            begun: false,
            until: None,
            servers: Vec::new(),
            changes: vec![change],
        };
        let review = PendingReview {
            registrations: vec![registration],
            servers: vec![source(2, 5, Some(1)), source(3, 0, None)],
            lists: vec![list],
        };
        let page = page(&review);
        assert!(page.contains("\\x1b[2Jx\\n") && !page.contains('\x1b'), "{page}");
        let more = "server 2 has 4 more: ask it for all of them\nserver 3 has not said";
        assert!(page.contains(more), "{page}");
        assert!(page.contains("for epoch 2, approved by 3 (1 of 2):\n  > 0c0c"), "{page}");
        assert!(page.contains("from 192.0.2.1:1 to 192.0.2.9:1\n"), "{page}");
    }
}

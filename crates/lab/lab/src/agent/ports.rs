//! The ports that the programs of a trial have opened.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::perform::sockets::{TABLES, waiting_sockets};

/// The open ports of all processes of the sandbox but this one: 0 for TCP or 1 for UDP, and the
/// number. Where the sandbox has no `/proc` of its own, those of other processes of this user
/// count, too.
pub(super) fn open_ports() -> Vec<(u8, u16)> {
    let inodes = inodes_of_others();
    ports("/proc/self/net", |inode| inodes.contains(inode))
}

/// The open ports in the network of this thread: 0 for TCP or 1 for UDP, and the number.
pub(super) fn ports_of_network() -> Vec<(u8, u16)> {
    ports("/proc/thread-self/net", |_| true)
}

/// The open ports of a directory with the kernel's tables, of the sockets that count.
fn ports(tables: &str, is_counted: impl Fn(&str) -> bool) -> Vec<(u8, u16)> {
    let mut ports = BTreeSet::new();
    for (table, state) in TABLES {
        // Without IPv6 there are no such tables.
        let text = fs::read_to_string(format!("{tables}/{table}")).unwrap_or_default();
        for socket in waiting_sockets(&text, state).filter(|it| is_counted(it.inode)) {
            let port = socket.local.rsplit(':').next();
            let port = port.and_then(|port| u16::from_str_radix(port, 16).ok());
            ports.extend(port.map(|port| (u8::from(table.starts_with("udp")), port)));
        }
    }
    ports.into_iter().collect()
}

/// The numbers of the sockets that other processes have.
fn inodes_of_others() -> BTreeSet<String> {
    let own = inodes(Path::new("/proc/self"));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let processes = processes.filter(|it| it.file_name().to_str().is_some_and(is_process));
    let others = processes.flat_map(|it| inodes(&it.path()));
    others.filter(|inode| !own.contains(inode)).collect()
}

/// The numbers of the sockets that a process has.
fn inodes(process: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let inode = |link: std::path::PathBuf| {
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(inode.to_owned())
    };
    links.filter_map(inode).collect()
}

//! Tables of nftables, the packet filter of Linux: installs them by the program `nft`, and notices
//! when other programs change them.
//!
//! A table is installed in one transaction: either all of its rules are in force, or nothing has
//! changed. It stays when the process ends, even after `kill -9`.
//!
//! ```
//! assert_eq!(sunder_nftables::removal("own"), "add table inet own\ndelete table inet own\n");
//! ```
//!
//! # Map
//!
//! - `run`: runs `nft`. `program`: finds it, only in directories with an absolute path.
//! - `tables`: the tables that this process has installed, and their changes by other programs.

mod program;
mod run;
mod tables;

pub use run::{apply, check, list_table, list_tables};
pub use tables::InstalledNftTables;

/// The input of `nft` that removes a table, whether it exists or not.
pub fn removal(table: &str) -> String {
    format!("add table inet {table}\ndelete table inet {table}\n")
}

//! Who may use a socket of the API, and for what.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{Gid, Mode, chmod, chown};
use serde::{Deserialize, Serialize};

/// The file with the groups of this host.
const GROUPS: &str = "/etc/group";

/// The user and the group of a process that has connected to a socket, as the kernel states them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiCaller {
    /// The user ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The ID of its first group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// The operations that a socket allows, besides reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApiPermissions {
    /// To request signatures.
    pub sign: bool,
    /// To register messages and withdraw registrations.
    pub register: bool,
    /// To approve and cancel refreshes, and to withdraw registrations and approvals.
    pub administer: bool,
}

impl ApiPermissions {
    /// All operations.
    pub const ALL: Self = Self { sign: true, register: true, administer: true };
}

/// The users who may connect to a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SocketAccess {
    /// The user as whom the server runs, and root.
    #[default]
    Owner,
    /// Additionally, the members of the group of the server's process.
    Group,
    /// Additionally, the members of the group with this name or number. The server's process must
    /// be a member of it, or run as root.
    NamedGroup(String),
}

impl SocketAccess {
    /// Gives the file of a socket, which only its owner can use so far, to these users.
    ///
    /// # Errors
    /// If there is no such group, or the process is not one of its members.
    pub(super) fn apply(&self, socket: &Path) -> io::Result<()> {
        if let Self::NamedGroup(name) = self {
            let gid = group_id(name)?;
            chown(socket, None, Some(Gid::from_raw(gid))).map_err(|error| {
                let what = format!(
                    "the group {name} cannot get {}: {error}; make the server's user a member of \
                     it (SupplementaryGroups={name} in the unit of systemd)",
                    socket.display()
                );
                io::Error::new(io::ErrorKind::PermissionDenied, what)
            })?;
        }
        let mode = if *self == Self::Owner { 0o600 } else { 0o660 };
        Ok(chmod(socket, Mode::from_raw_mode(mode))?)
    }
}

/// The number of a group of this host. Its name can be its number.
fn group_id(name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string(GROUPS)?;
    group_in(&groups, name).ok_or_else(|| {
        let what = format!(
            "there is no group {name} in {GROUPS}: create it with `groupadd {name}`, or give its \
             number"
        );
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}

/// The number of a group in the text of group(5).
fn group_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_number_of_its_line() {
        let groups = "root:x:0:\nsunder-sign:x:1005:alice,bob\nbroken\nsunder:x:7:\n";
        assert_eq!(group_in(groups, "sunder-sign"), Some(1005));
        assert_eq!(group_in(groups, "sunder"), Some(7));
        assert_eq!(group_in(groups, "alice"), None);
        assert_eq!(group_in(groups, "broken"), None);
        assert_eq!(group_id("4242").unwrap(), 4242);
        let missing = group_id("no such group").unwrap_err().to_string();
        assert!(missing.contains("groupadd no such group"), "{missing}");
    }
}

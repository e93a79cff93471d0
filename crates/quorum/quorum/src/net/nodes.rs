//! A list of the servers of a group in TOML: a `NODES.toml`, specified in `docs/formats/quorum.md`.

use std::collections::HashSet;
use std::net::SocketAddr;

use keys::IdentityPublicKey;
use service::config::{ConfigKey, ConfigKeys, ConfigProblems, ConfigTable, key, read};

use crate::protocol::group::{QuorumGroup, QuorumGroupError, QuorumMember};

/// The keys of a `NODES.toml`.
pub const NODES_KEYS: &[ConfigKey] = &[
    key(
        "",
        "server",
        "[{ identity = \"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\", \
         address = \"192.0.2.1:6530\" }]",
    ),
    key(
        "server",
        "identity",
        "\"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\"",
    ),
    key("server", "address", "\"192.0.2.1:6530\""),
];

/// Reads the servers of a group, in the order of their indices.
///
/// # Errors
/// All errors in the list.
pub fn parse_nodes(text: &str) -> Result<QuorumGroup, ConfigProblems> {
    read(text, ConfigKeys(&[NODES_KEYS]), |table| {
        let servers = table.tables("server");
        let members: Vec<Option<QuorumMember>> = servers.iter().map(read_server).collect();
        refuse_repeated_address(table, &members);
        let size = QuorumGroup::check_size(table.count("server"));
        let made = size.and_then(|()| {
            // An invalid server has already been reported.
            members.into_iter().collect::<Option<_>>().map(QuorumGroup::new).transpose()
        });
        made.unwrap_or_else(|error| {
            let fix = match error {
                QuorumGroupError::Size(_) => "add or leave out a [[server]]",
                QuorumGroupError::SameIdentity(..) => "give each server a key of its own",
            };
            table.refuse(error.to_string(), fix);
            None
        })
    })
}

/// The text of a list of servers.
pub fn nodes_text(servers: &[QuorumMember]) -> String {
    let server = |it: &QuorumMember| {
        format!("[[server]]\nidentity = \"{}\"\naddress = \"{}\"\n", it.identity, it.address)
    };
    servers.iter().map(server).collect::<Vec<_>>().join("\n")
}

/// A server in one line: its identity and its address with `@` between them.
pub fn server_line(server: &QuorumMember) -> String {
    format!("{}@{}", server.identity, server.address)
}

/// Reads a server from the line that [`server_line`] makes.
///
/// # Errors
/// What is wrong, in one line.
pub fn parse_server_line(line: &str) -> Result<QuorumMember, String> {
    let form = || {
        format!(
            "\"{line}\" is not a server: give the line IDENTITY@ADDRESS that `sunder init quorum` \
             has printed there"
        )
    };
    let (identity, address) = line.trim().split_once('@').ok_or_else(form)?;
    let identity = identity.parse().map_err(|_| form())?;
    let address = address.parse().map_err(|_| form())?;
    Ok(QuorumMember { identity, address })
}

/// Refuses an address that two servers have: nobody could reach one of them.
fn refuse_repeated_address(table: &ConfigTable<'_>, members: &[Option<QuorumMember>]) {
    let mut known = HashSet::new();
    for member in members.iter().flatten() {
        if !known.insert(member.address) {
            let what = format!("two servers have the address {}", member.address);
            table.refuse(what, "give each server the address at which the others reach it");
        }
    }
}

fn read_server(table: &ConfigTable<'_>) -> Option<QuorumMember> {
    let fix = "give the 64 digits that `sunder quorum identity FILE` says on that server";
    let identity = table.require("identity").and_then(|it| it.parsed_or::<IdentityPublicKey>(fix));
    let address = table.require("address");
    let address = address.and_then(|it| {
        let address = it.parsed_or::<SocketAddr>("give an IP address and a port")?;
        if address.ip().is_unspecified() || address.port() == 0 {
            it.refuse(
                format!("\"{address}\" is not an address that others can connect to"),
                "give the IP address and the port at which the others reach the server",
            );
            return None;
        }
        Some(address)
    });
    Some(QuorumMember { identity: identity?, address: address? })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use keys::IdentitySecretKey;

    use super::*;
    use crate::protocol::group::GroupKeyKind;

    fn nodes(count: u8) -> String {
        (0..count).fold(String::new(), |mut text, i| {
            let identity = IdentitySecretKey::new(&[i + 1; 32]).public();
            let _ = write!(text, "[[server]]\nidentity = \"{identity}\"\n");
            let _ = writeln!(text, "address = \"192.0.2.{}:6530\"", i + 1);
            text
        })
    }

    #[test]
    fn the_servers_have_the_order_of_the_file() {
        let group = parse_nodes(&nodes(7)).unwrap();
        assert_eq!(group.members().len(), 7);
        assert_eq!(group.members()[6].identity, IdentitySecretKey::new(&[7; 32]).public());
        assert_eq!(group.members()[6].address.to_string(), "192.0.2.7:6530");
    }

    #[test]
    fn a_server_in_one_line_is_the_same_in_a_list() {
        let group = parse_nodes(&nodes(4)).unwrap();
        let lines: Vec<String> = group.members().iter().map(server_line).collect();
        let members: Vec<_> = lines.iter().map(|line| parse_server_line(line).unwrap()).collect();
        assert_eq!(parse_nodes(&nodes_text(&members)).unwrap(), group);
        for wrong in ["", "x", "00@192.0.2.1:1", &lines[0].replace(":6530", "")] {
            assert!(parse_server_line(wrong).unwrap_err().contains("IDENTITY@ADDRESS"), "{wrong}");
        }
    }

    #[test]
    fn all_problems_are_found() {
        let problems_of = |text: &str| -> Vec<String> {
            parse_nodes(text).unwrap_err().iter().map(ToString::to_string).collect()
        };
        let five = problems_of(&nodes(5));
        assert_eq!(
            five,
            ["a group has 4, 7, 10 or 13 servers, not 5; one with a key that is shared by a \
                 polynomial may also have 16, 19 and so on up to 31: add or leave out a [[server]]"]
        );
        // Groups that are too large for an RSA key.
        let refused = |count| {
            let group = parse_nodes(&nodes(count)).unwrap();
            assert_eq!(group.check_key(GroupKeyKind::Ed25519), Ok(()));
            assert_eq!(group.check_key(GroupKeyKind::RsaPolynomial), Ok(()));
            group.check_key(GroupKeyKind::Rsa).unwrap_err().to_string()
        };
        let sixteen = refused(16);
        assert!(
            sixteen.contains("has 4368 shares, and a refresh 19079424 subshares"),
            "{sixteen:?}"
        );
        let costs = "about 19 hours of processor time and 243 GB of memory";
        assert!(sixteen.contains(costs), "{sixteen:?}");
        assert!(refused(19).contains("about 31 days of processor time and 9 TB"));
        assert!(problems_of(&nodes(34))[0].contains("not 34"));
        assert!(problems_of(&nodes(254))[0].contains("not 254"));
        assert_eq!(problems_of("").len(), 1);
        let wrong = nodes(4).replacen("192.0.2.1:6530", "0.0.0.0:6530", 1);
        let wrong = wrong.replacen("192.0.2.2:6530", "example.org:6530", 1);
        let second = IdentitySecretKey::new(&[2; 32]).public().to_string();
        let wrong = wrong.replacen(&second, "22", 1);
        assert_eq!(problems_of(&wrong).len(), 3, "{:?}", problems_of(&wrong));
        let first = IdentitySecretKey::new(&[1; 32]).public().to_string();
        let twice = problems_of(&nodes(4).replacen(&second, &first, 1));
        assert!(twice[0].contains("servers 1 and 2 have the same identity key"), "{twice:?}");
        let twice = problems_of(&nodes(4).replacen("192.0.2.2:6530", "192.0.2.3:6530", 1));
        assert!(twice[0].starts_with("two servers have the address 192.0.2.3:6530"), "{twice:?}");
    }
}

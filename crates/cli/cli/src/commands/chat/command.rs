//! What a line of input means: a message to somebody, or a command.

use console::is_deceptive;
use mix::membership::{GroupAddress, MemberName, ProxyAddress};

use super::wrap::has_unclear_width;

/// A line of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatInputCommand {
    /// Sends a message to a member, a named group, or all.
    Say { to: String, text: String },
    /// Selects this receiver for further messages.
    SpeakTo(String),
    /// Sends a file.
    Send { to: String, path: String },
    /// Saves a file that was offered.
    Accept(u32),
    /// Drops a file that was offered.
    Decline(u32),
    /// Drops messages that have not left yet, to this receiver or to all.
    Cancel(Option<String>),
    /// Shows the named groups.
    Groups,
    /// Names a group of members; none: it is forgotten.
    SetGroup { name: MemberName, members: Vec<String> },
    /// Shows the safety number of a member, or compares it with this one.
    Verify { name: String, number: Option<String> },
    /// Accepts the new key of a member.
    Trust(String),
    /// Makes an invitation for a person of this name, or of any name.
    Invite { name: MemberName, is_any_name: bool },
    /// Takes a member out of the group.
    Remove(MemberName),
    /// Makes a member an administrator.
    Admin(MemberName),
    /// Takes a member from the administrators.
    Unadmin(MemberName),
    /// Makes a member an administrator in this one's place.
    HandOver(MemberName),
    /// Announces another address and key of the proxy.
    Proxy(Box<ProxyAddress>),
    /// Leaves the group.
    Leave,
    /// Lists the members.
    Members,
    /// Shows what can be entered.
    Help,
    /// Ends the chat.
    Quit,
}

/// What can be entered.
pub(super) const HELP: &str = "\
@NAME TEXT sends TEXT to a member, to a group or to all; TEXT alone goes to the same again. \
Commands: /members, /group NAME MEMBER ..., /groups, /ungroup NAME, /cancel, /send NAME FILE, \
/accept NUMBER, /decline NUMBER, /verify NAME, /trust NAME, /leave, /help, /quit; of \
administrators: /invite NAME, /remove NAME, /admin NAME, /unadmin NAME, /handover NAME, \
/proxy HOST:PORT KEY";

impl ChatInputCommand {
    /// Reads a line; `partner` is the member spoken to last. Nothing if the line is empty.
    ///
    /// # Errors
    /// The error message, if the line is invalid.
    pub(super) fn parse(line: &str, partner: Option<&str>) -> Result<Option<Self>, String> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(None);
        }
        if let Some(command) = line.strip_prefix('/') {
            return Self::slash(command).map(Some);
        }
        if let Some(addressed) = line.strip_prefix('@') {
            let (name, text) = addressed.split_once(char::is_whitespace).unwrap_or((addressed, ""));
            if name.is_empty() {
                return Err("a name is missing after @".into());
            }
            let (to, text) = (normal(name), text.trim().to_owned());
            let entered = if text.is_empty() { Self::SpeakTo(to) } else { Self::Say { to, text } };
            return Ok(Some(entered));
        }
        match partner {
            Some(partner) => Ok(Some(Self::Say { to: partner.into(), text: line.into() })),
            None => Err("start with @ and a name: @NAME TEXT".into()),
        }
    }

    fn slash(command: &str) -> Result<Self, String> {
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let argument = argument.trim();
        let mut words = argument.split_whitespace();
        let first = words.next().map(normal);
        let rest: Vec<&str> = words.collect();
        let needs = |what: &str| format!("/{name} needs {what}");
        let member = || {
            let name = MemberName::new(first.as_deref().unwrap_or_default());
            name.map_err(|error| error.to_string())
        };
        let one_name = || match &first {
            Some(first) if rest.is_empty() => Ok(first.clone()),
            _ => Err(needs("one name")),
        };
        let number = || argument.parse().map_err(|_| needs("the number of the file"));
        match (name, &first) {
            ("invite", Some(_)) if rest.is_empty() || rest == ["any-name"] => {
                Ok(Self::Invite { name: member()?, is_any_name: !rest.is_empty() })
            }
            (
                "invite" | "remove" | "ungroup" | "verify" | "admin" | "unadmin" | "handover",
                None,
            ) => Err(needs("a name")),
            ("remove", Some(_)) if rest.is_empty() => member().map(Self::Remove),
            ("admin", Some(_)) if rest.is_empty() => member().map(Self::Admin),
            ("unadmin", Some(_)) if rest.is_empty() => member().map(Self::Unadmin),
            ("handover", Some(_)) if rest.is_empty() => member().map(Self::HandOver),
            ("proxy", _) => Self::proxy(argument),
            ("group", _) if rest.is_empty() => {
                Err(needs("a name and members: /group team bob carol"))
            }
            ("group", Some(_)) => {
                let members = rest.iter().map(|name| normal(name)).collect();
                Ok(Self::SetGroup { name: member()?, members })
            }
            ("ungroup", Some(_)) if rest.is_empty() => {
                Ok(Self::SetGroup { name: member()?, members: Vec::new() })
            }
            ("groups", None) => Ok(Self::Groups),
            ("cancel", None) => Ok(Self::Cancel(None)),
            ("cancel", Some(_)) => one_name().map(|name| Self::Cancel(Some(name))),
            ("verify", Some(name)) => {
                let number = (!rest.is_empty()).then(|| rest.concat());
                Ok(Self::Verify { name: name.clone(), number })
            }
            ("trust", _) => one_name().map(Self::Trust),
            ("send", Some(to)) if !rest.is_empty() => {
                // The name of the file may contain spaces.
                let path = argument.split_once(char::is_whitespace).map_or("", |(_, path)| path);
                Ok(Self::Send { to: to.clone(), path: path.trim().to_owned() })
            }
            ("send", _) => Err(needs("a name and a file")),
            ("accept", _) => number().map(Self::Accept),
            ("decline", _) => number().map(Self::Decline),
            ("leave", None) => Ok(Self::Leave),
            ("members", None) => Ok(Self::Members),
            ("help", None) => Ok(Self::Help),
            ("quit", None) => Ok(Self::Quit),
            _ => Err(format!("there is no command /{command}; /help lists them")),
        }
    }
}

impl ChatInputCommand {
    fn proxy(argument: &str) -> Result<Self, String> {
        let words: Vec<&str> = argument.split_whitespace().collect();
        let address = match words[..] {
            [address, key] if GroupAddress::is_proxy_address(address) => {
                key.parse().ok().map(|key| ProxyAddress { address: address.to_owned(), key })
            }
            _ => None,
        };
        let address = address.map(Box::new).map(Self::Proxy);
        address.ok_or_else(|| "/proxy needs the proxy's HOST:PORT and its key".to_owned())
    }
}

/// A name as the group has it: a keyboard may compose letters differently.
fn normal(name: &str) -> String {
    let name = name.strip_prefix('@').unwrap_or(name);
    MemberName::new(name).map_or_else(|_| name.to_owned(), |name| name.to_string())
}

/// The text on one line of a terminal: without what is [deceptive](is_deceptive), or could leave
/// its row.
pub(super) fn visible(text: &str) -> String {
    let replaced = |c: char| match c {
        '\n' | '\t' => ' ',
        _ if is_deceptive(c) || has_unclear_width(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    };
    text.chars().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let say = |to: &str, text: &str| ChatInputCommand::Say { to: to.into(), text: text.into() };
        let name = |name: &str| MemberName::new(name).unwrap();
        let invite =
            |one: &str, is_any_name| ChatInputCommand::Invite { name: name(one), is_any_name };
        let group = |one: &str, members: &[&str]| {
            let members = members.iter().copied().map(str::to_owned).collect();
            ChatInputCommand::SetGroup { name: name(one), members }
        };
        let verify = |number| ChatInputCommand::Verify { name: "bob".into(), number };
        for (line, partner, expected) in [
            ("@bob hello there ", None, Some(say("bob", "hello there"))),
            ("hello", Some("bob"), Some(say("bob", "hello"))),
            ("@carol hello", Some("bob"), Some(say("carol", "hello"))),
            ("@bob", None, Some(ChatInputCommand::SpeakTo("bob".into()))),
            ("  ", None, None),
            ("/remove @bob", None, Some(ChatInputCommand::Remove(MemberName::new("bob").unwrap()))),
            ("/admin @bob", None, Some(ChatInputCommand::Admin(name("bob")))),
            ("/unadmin bob", None, Some(ChatInputCommand::Unadmin(name("bob")))),
            ("/handover bob", None, Some(ChatInputCommand::HandOver(name("bob")))),
            ("/invite dora", None, Some(invite("dora", false))),
            ("/invite dora any-name", None, Some(invite("dora", true))),
            ("/group team @bob carol", None, Some(group("team", &["bob", "carol"]))),
            ("/ungroup team", None, Some(group("team", &[]))),
            ("/groups", None, Some(ChatInputCommand::Groups)),
            ("/cancel", None, Some(ChatInputCommand::Cancel(None))),
            ("/cancel @bob", None, Some(ChatInputCommand::Cancel(Some("bob".into())))),
            ("/verify bob", None, Some(verify(None))),
            ("/verify bob 12345 67890", None, Some(verify(Some("1234567890".into())))),
            ("/trust bob", None, Some(ChatInputCommand::Trust("bob".into()))),
            ("/accept 7", None, Some(ChatInputCommand::Accept(7))),
            ("/decline 7", None, Some(ChatInputCommand::Decline(7))),
            (
                "/send bob  a plan.txt",
                None,
                Some(ChatInputCommand::Send { to: "bob".into(), path: "a plan.txt".into() }),
            ),
            ("/quit", Some("bob"), Some(ChatInputCommand::Quit)),
        ] {
            assert_eq!(ChatInputCommand::parse(line, partner), Ok(expected), "{line}");
        }
        for (line, error) in [
            ("hello", "start with @"),
            ("@ hello", "a name is missing"),
            ("/remove", "needs a name"),
            ("/invite", "needs a name"),
            ("/quit now", "no command /quit now"),
            ("/invite dora any", "no command"),
            ("/group team", "needs a name and members"),
            ("/ungroup", "needs a name"),
            ("/cancel bob carol", "needs one name"),
            ("/verify", "needs a name"),
            ("/trust", "needs one name"),
            ("/send bob", "needs a name and a file"),
            ("/accept x", "needs the number"),
        ] {
            assert!(ChatInputCommand::parse(line, None).unwrap_err().contains(error), "{line}");
        }
    }

    #[test]
    fn a_text_cannot_control_the_terminal() {
        assert_eq!(visible("a\x1b[2J\u{202E}b\nc"), "a\u{FFFD}[2J\u{FFFD}b c");
        // One cell here, and more in terminals.
        assert_eq!(visible("\u{d4e}\u{11a84}a⌚\u{FE0E}"), "\u{FFFD}\u{FFFD}a⌚\u{FFFD}");
        // Marks, and characters that are joined on purpose.
        for text in ["e\u{301}", "👨‍👩‍👧", "❤\u{FE0F}", "हिन्दी", "لا"]
        {
            assert_eq!(visible(text), text);
        }
    }
}

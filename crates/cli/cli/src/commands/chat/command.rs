//! What a line of input means: a message to somebody, or a command.

use console::is_deceptive;
use mix::membership::MemberName;

/// A line of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatInputCommand {
    /// Sends a message.
    Say { to: String, text: String },
    /// Selects this member for further messages.
    SpeakTo(String),
    /// Makes an invitation for a person of this name.
    Invite(MemberName),
    /// Takes a member out of the group.
    Remove(MemberName),
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
@NAME TEXT sends TEXT to a member, TEXT alone to the same member again. Commands: /members, \
/invite NAME, /remove NAME, /leave, /help, /quit";

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
            let (to, text) = (name.to_owned(), text.trim().to_owned());
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
        let member = || {
            let name = MemberName::new(argument.strip_prefix('@').unwrap_or(argument));
            name.map_err(|error| error.to_string())
        };
        match (name, argument) {
            ("invite" | "remove", "") => Err(format!("/{name} needs a name")),
            ("invite", _) => member().map(Self::Invite),
            ("remove", _) => member().map(Self::Remove),
            ("leave", "") => Ok(Self::Leave),
            ("members", "") => Ok(Self::Members),
            ("help", "") => Ok(Self::Help),
            ("quit", "") => Ok(Self::Quit),
            _ => Err(format!("there is no command /{command}; /help lists them")),
        }
    }
}

/// The text on one line of a terminal: without what is [deceptive](is_deceptive).
pub(super) fn visible(text: &str) -> String {
    let replaced = |c: char| match c {
        '\n' | '\t' => ' ',
        _ if is_deceptive(c) => char::REPLACEMENT_CHARACTER,
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
        for (line, partner, expected) in [
            ("@bob hello there ", None, Some(say("bob", "hello there"))),
            ("hello", Some("bob"), Some(say("bob", "hello"))),
            ("@carol hello", Some("bob"), Some(say("carol", "hello"))),
            ("@bob", None, Some(ChatInputCommand::SpeakTo("bob".into()))),
            ("  ", None, None),
            ("/remove @bob", None, Some(ChatInputCommand::Remove(MemberName::new("bob").unwrap()))),
            (
                "/invite dora",
                None,
                Some(ChatInputCommand::Invite(MemberName::new("dora").unwrap())),
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
        ] {
            assert!(ChatInputCommand::parse(line, None).unwrap_err().contains(error), "{line}");
        }
    }

    #[test]
    fn a_text_cannot_control_the_terminal() {
        assert_eq!(visible("a\x1b[2J\u{202E}b\nc"), "a\u{FFFD}[2J\u{FFFD}b c");
    }
}

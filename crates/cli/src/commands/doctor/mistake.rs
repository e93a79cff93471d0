//! A mistake in a configuration, and the message of one in two parts.

use super::finding::Finding;

/// A mistake, and its line if it has one.
pub(crate) struct Mistake {
    pub(crate) line: Option<usize>,
    pub(crate) finding: Finding,
}

/// The two parts of a refusal: what is wrong, and what to write, if it says that.
pub(crate) fn parted(message: &str) -> (String, Option<String>) {
    if let Some((what, values)) = message.split_once(", expected ")
        && what.starts_with("unknown variant")
    {
        let values = values.strip_prefix("one of ").unwrap_or(values).replace('`', "\"");
        return (what.replace("variant", "value"), Some(format!("write one of {values}")));
    }
    let verbs = ["give", "write", "set", "let", "name", "add"];
    let begins = |text: &str| verbs.iter().any(|verb| text.starts_with(&format!("{verb} ")));
    if begins(message) {
        return ("it is something else that is needed here".into(), Some(message.into()));
    }
    let ends = message.match_indices([':', ';']).map(|(end, _)| end);
    let mut parts =
        ends.filter_map(|end| Some((&message[..end], message[end + 1..].strip_prefix(' ')?)));
    match parts.find(|(_, rest)| begins(rest)) {
        Some((what, fix)) => {
            let is_word = what.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let what = if is_word { "something is missing, or too much" } else { what };
            (what.into(), Some(fix.into()))
        }
        None => (message.into(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_wrong_and_what_to_write() {
        for (message, what, fix) in [
            ("kappa = 5: give 1 to 3", "kappa = 5", Some("give 1 to 3")),
            ("\"a:1\": give ADDRESS:PORT, as in x", "\"a:1\"", Some("give ADDRESS:PORT, as in x")),
            ("a is twice; name it once", "a is twice", Some("name it once")),
            ("a: none: give one", "a: none", Some("give one")),
            ("a: give b, or c", "something is missing, or too much", Some("give b, or c")),
            (
                "`source` goes with `server`; here it does not",
                "`source` goes with `server`; here it does not",
                None,
            ),
        ] {
            assert_eq!(parted(message), (what.to_owned(), fix.map(str::to_owned)));
        }
        assert_eq!(parted("give a list").1.unwrap(), "give a list");
    }
}

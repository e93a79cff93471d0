//! `sunder --help`: the commands in groups.

use std::fmt::Write as _;

use clap::Command;

/// The groups of commands, in the order of the help.
const GROUPS: &[(&str, &[&str])] = &[
    ("Files", &["split", "join", "check"]),
    (
        "Streams and packets over several channels",
        &["serve", "proxy", "directory", "tunnel", "plan"],
    ),
    ("Between two parties", &["transport", "compute", "circuit"]),
    ("Groups of servers or people", &["quorum", "mix", "chat"]),
    ("This host", &["demo", "init", "key", "status", "doctor", "lab"]),
];

/// The command, with a help that lists its subcommands in groups.
pub(crate) fn with_groups(command: Command) -> Command {
    let heading = *command.get_styles().get_header();
    let name_style = *command.get_styles().get_literal();
    let mut list = String::new();
    for (title, names) in GROUPS {
        let known = names.iter().filter_map(|name| command.find_subcommand(name));
        let mut lines = String::new();
        for known in known {
            let name = known.get_name();
            let about = known.get_about().map(ToString::to_string).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = writeln!(lines, "  {name_style}{name:<9}{name_style:#}  {about}");
        }
        if !lines.is_empty() {
            let _ = write!(list, "{heading}{title}:{heading:#}\n{lines}\n");
        }
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\
         {heading}Options:{heading:#}\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn command() -> Command {
        with_groups(crate::Cli::command())
    }

    #[test]
    fn each_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = command();
        for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = subcommand.get_name();
            let place = grouped.iter().position(|known| *known == name);
            grouped.swap_remove(place.unwrap_or_else(|| panic!("{name} is in no group")));
        }
        if cfg!(feature = "default") {
            assert_eq!(grouped, Vec::<&str>::new());
        }
    }

    #[test]
    fn the_overview_fits_in_80_columns() {
        let help = command().render_help().to_string();
        let list = help.split("Options:").next().unwrap();
        assert!(list.contains("Files:\n  split      Splits a file"), "{help}");
        for line in list.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

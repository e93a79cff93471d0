//! `sunder manual`: writes the man pages and the completions of shells, for packages.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use console::CommandFailure;

/// Writes the man pages, and the completions for bash, zsh and fish.
///
/// They are written to the places that they have below `/usr/local/share`: `man/man1`,
/// `bash-completion/completions`, `zsh/site-functions` and `fish/vendor_completions.d`.
#[derive(clap::Args)]
#[command(hide = true, after_help = "Example: sunder manual --out /usr/local/share")]
pub(crate) struct Arguments {
    /// The directory for them; missing directories are created
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes all files.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    write_all(&arguments.out).map_err(|error| {
        CommandFailure::Failed(format!("cannot write to {}: {error}", arguments.out.display()))
    })
}

fn write_all(out: &Path) -> io::Result<()> {
    // Nobody looks up the page of a subcommand `help`.
    let mut command = crate::Cli::command().disable_help_subcommand(true);
    command.build();
    let pages = out.join("man/man1");
    fs::create_dir_all(&pages)?;
    write_man_pages(&command, &pages)?;
    for (shell, file) in [
        (Shell::Bash, "bash-completion/completions/sunder"),
        (Shell::Zsh, "zsh/site-functions/_sunder"),
        (Shell::Fish, "fish/vendor_completions.d/sunder.fish"),
    ] {
        let path = out.join(file);
        fs::create_dir_all(path.parent().unwrap_or(out))?;
        clap_complete::generate(shell, &mut command, "sunder", &mut File::create(path)?);
    }
    Ok(())
}

/// Writes the page of a command, and of its subcommands at every level.
fn write_man_pages(command: &Command, directory: &Path) -> io::Result<()> {
    let man = Man::new(command.clone()).source(concat!("sunder ", env!("SUNDER_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_long_help().or(command.get_after_help()) {
        write_notes(&notes.to_string(), &mut page)?;
    }
    fs::write(directory.join(man.get_filename()), page)?;
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_man_pages(subcommand, directory)?;
    }
    Ok(())
}

/// Writes the text at the end of `--help`, with its examples, line by line as it is there.
fn write_notes(notes: &str, page: &mut Vec<u8>) -> io::Result<()> {
    writeln!(page, ".SH NOTES\n.nf")?;
    for line in notes.lines() {
        // `\&` is empty: a line that begins with a dot or an apostrophe would be a request.
        writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    writeln!(page, ".fi")
}

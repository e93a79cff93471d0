//! `sunder tunnel join`.

use std::io::{self, Read as _};
use std::path::PathBuf;

use console::CommandFailure;
use zeroize::Zeroizing;

use super::Tunnel;
use super::ends::KEY_FILE;
use super::join_line::{MAX_LINE_LEN, TunnelJoinLine};
use crate::new_files::{NewKeyFile, check, check_absent, write};
use crate::uplink_devices::{DEVICES_NOTE, check_devices};

/// Writes the configuration and the key of the client, from the line of `sunder init tunnel`.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder tunnel join --device eth0 --device wlan0 'sunder-tunnel,kappa=2,...'
Then, as root: sunder tunnel --config tunnel.toml")]
pub(super) struct Arguments {
    /// The line that `sunder init tunnel` has printed; `-` is standard input, which keeps the key
    /// out of the history of a shell
    #[arg(value_name = "LINE")]
    line: String,
    /// This host's network device for each channel, in their order
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// The configuration; the key is in a directory beside it
    #[arg(long, value_name = "FILE", default_value = "tunnel.toml")]
    out: PathBuf,
}

/// Writes the files.
///
/// # Errors
/// If the line is wrong, or a file exists or cannot be written.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let (out, devices) = (&arguments.out, &arguments.device);
    let key_file = NewKeyFile::of(out, KEY_FILE)?;
    check_absent(&[out, &key_file.path])?;
    let line =
        if arguments.line == "-" { read_line()? } else { Zeroizing::new(arguments.line.clone()) };
    let line = TunnelJoinLine::parse(&line).map_err(CommandFailure::Usage)?;
    check_devices(devices.len(), line.ends.channels.len())?;
    let text = line.ends.client(&key_file.value, devices);
    check::<Tunnel>(&text, out)?;
    key_file.write(&line.key)?;
    write(&text, out)?;
    if devices.is_empty() {
        console::note(DEVICES_NOTE);
    }
    let out = out.display();
    console::note(&format!("{out} is written; start it as root with this command:"));
    console::print_line(&format!("sunder tunnel --config {out}"))
}

/// The line on standard input.
fn read_line() -> Result<Zeroizing<String>, CommandFailure> {
    // One byte more than a line may have, so that one that is too long is refused.
    let max_len = MAX_LINE_LEN + 1;
    let mut text = Zeroizing::new(String::with_capacity(max_len));
    let read = io::stdin().lock().take(max_len as u64).read_to_string(&mut text);
    read.map_err(|error| CommandFailure::Failed(format!("cannot read standard input: {error}")))?;
    Ok(text)
}

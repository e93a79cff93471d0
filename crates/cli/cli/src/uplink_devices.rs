//! The devices of a host's uplinks, for the commands that write configurations.

use console::CommandFailure;

/// What to know if no devices were named.
pub(crate) const DEVICES_NOTE: &str =
    "the system's routes choose the uplink of each channel; --device names them";

/// Checks that there is a device for each channel, or none at all.
///
/// # Errors
/// If it is another number.
pub(crate) fn check_devices(devices: usize, channels: usize) -> Result<(), CommandFailure> {
    if devices == 0 || devices == channels {
        return Ok(());
    }
    let message = format!(
        "{channels} channels need --device for each, in their order, or none; {devices} are given"
    );
    Err(CommandFailure::Usage(message))
}

//! A command in a virtual machine: starts QEMU in a sandbox, boots the guest, and enforces the
//! limits that the guest does not.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::sandbox::{CommandSandbox, SandboxPlan, wait_readable};
use super::{CommandPlace, KILL, StopRequest, TERMINATE, WATCH_INTERVAL, in_step, means, output};
use crate::bubblewrap::{SandboxView, arguments};
use crate::command::{ContainedEnd, ContainedExit, ContainmentError};
use crate::limits::{ContainmentLimit, ContainmentLimits};
use crate::machine::control::{GuestMessage, GuestMessages};
use crate::machine::{
    self, BOOT_TIMEOUT, EmulatorDescriptors, GuestCommand, GuestMachine, MAX_GUEST_INTERFACES,
    MachineFiles, MachineProcessor, PreparedMachine,
};
use crate::watchdog::processor_time_of_tree;

/// The time in which a guest sends the rest of the output after its command has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// What QEMU and the guest's kernel can print, in bytes.
const MAX_CONSOLE: u64 = 64 << 10;

/// The descriptors that the supervisor and QEMU share.
struct GuestPorts {
    control: UnixStream,
    output: UnixStream,
}

/// Runs a command in a guest. Calls `report` when it has started.
pub(super) fn run(
    place: &CommandPlace<'_>,
    files: &MachineFiles,
    command: &GuestCommand<'_>,
    output: File,
    report: impl FnOnce(String),
) -> Result<ContainedEnd, ContainmentError> {
    let CommandPlace { bwrap, groups, workspace, limits, filter, owner, request } = *place;
    if command.machine.interfaces.len() > MAX_GUEST_INTERFACES {
        let most = format!("a virtual machine has {MAX_GUEST_INTERFACES} interfaces at most");
        return Err(ContainmentError::NoMachine(most));
    }
    let machine = PreparedMachine::new(files, workspace, command, limits, owner)
        .map_err(in_step("prepare a virtual machine"))?;
    let pair = || UnixStream::pair().map_err(in_step("make a socket"));
    let [(control, guest_control), (printed, guest_output)] = [pair()?, pair()?];
    let console = output.try_clone().map_err(in_step("share a file"))?;
    let (from, to) = super::pipe().map_err(in_step("make a pipe"))?;
    let (printed_too_much, has_started) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let too_much = &printed_too_much;
        let most = limits.output_mib << 20;
        let console = BootConsole { output: console, has_started: &has_started };
        scope.spawn(move || output::copy(from, console, MAX_CONSOLE, &AtomicBool::new(false)));
        let ports = GuestPorts { control: guest_control, output: guest_output };
        let descriptors = EmulatorDescriptors {
            control: ports.control.as_raw_fd(),
            output: ports.output.as_raw_fd(),
            devices: devices(command.machine),
        };
        let inherited =
            [&[descriptors.control, descriptors.output], &descriptors.devices[..]].concat();
        let own = machine::arguments(&machine, &command.machine.interfaces, &descriptors);
        let run = [vec![files.emulator.to_string_lossy().into_owned()], own].concat();
        let outer = machine::limits_of_emulator(limits);
        let is_hardware = machine.processor == MachineProcessor::Hardware;
        let plan = SandboxPlan {
            groups,
            limits: &outer,
            filter,
            owner,
            group: is_hardware.then(machine::kvm_group).flatten(),
            inherited: &inherited,
        };
        let view = SandboxView::Machine(machine.processor);
        let arguments = |given| arguments(workspace, view, &run, given);
        let mut sandbox = CommandSandbox::start(bwrap, arguments, to, &plan)?;
        // QEMU has these ends now, and closes them when it ends.
        drop(ports);
        let copy = move || output::copy(OwnedFd::from(printed), output, most, too_much);
        let printing = scope.spawn(copy);
        sandbox.release().map_err(in_step("start a virtual machine"))?;
        let mut guest = RunningGuest { sandbox, control, messages: GuestMessages::default() };
        guest.boot(request)?;
        has_started.store(true, Ordering::Relaxed);
        guest.start()?;
        report(format!("{}; around it {}", machine.processor.describe(), means(groups)));
        let end = guest.watch(place, too_much).map_err(in_step("watch a virtual machine"))?;
        // QEMU has ended, and with it the output. A panic of the thread was printed.
        let _ = printing.join();
        let is_too_much =
            too_much.load(Ordering::Relaxed) && matches!(end.exit, ContainedExit::Code(_));
        let output = ContainedExit::Limit(ContainmentLimit::Output);
        Ok(if is_too_much { ContainedEnd { exit: output, ..end } } else { end })
    })
}

fn devices(machine: &GuestMachine) -> Vec<RawFd> {
    machine.interfaces.iter().map(|interface| interface.device.as_raw_fd()).collect()
}

/// Takes what QEMU and the kernel print. Before the command starts, it is the output: it says why a
/// guest does not boot. Afterwards it is dropped, because the output is that of the command.
struct BootConsole<'a> {
    output: File,
    has_started: &'a AtomicBool,
}

impl Write for BootConsole<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_started.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// A guest, and the sandbox of its QEMU.
struct RunningGuest {
    sandbox: CommandSandbox,
    control: UnixStream,
    messages: GuestMessages,
}

/// What a guest has said.
enum GuestReport {
    Messages(Vec<GuestMessage>),
    /// It has ended, or has sent an invalid message.
    Gone,
}

impl RunningGuest {
    /// Waits until the guest has booted.
    fn boot(&mut self, request: &StopRequest) -> Result<(), ContainmentError> {
        let deadline = Instant::now() + BOOT_TIMEOUT;
        loop {
            let report = self.receive(WATCH_INTERVAL).map_err(in_step("boot a guest"))?;
            match report {
                GuestReport::Messages(messages) if messages.is_empty() => {}
                GuestReport::Messages(messages) if messages == [GuestMessage::Ready] => break,
                _ => return Err(ContainmentError::NotBooted),
            }
            if request.level() == KILL {
                return Err(ContainmentError::NotBooted);
            }
            if Instant::now() > deadline {
                let processor_time = processor_time_of_tree(self.sandbox.first_process());
                return Err(ContainmentError::NotBootedInTime { processor_time });
            }
        }
        Ok(())
    }

    /// Lets the command start.
    fn start(&mut self) -> Result<(), ContainmentError> {
        self.control.write_all(b"go\n").map_err(in_step("start a contained command"))
    }

    /// Waits until the command has ended or is to end, and ends the machine.
    fn watch(
        mut self,
        place: &CommandPlace<'_>,
        printed_too_much: &AtomicBool,
    ) -> io::Result<ContainedEnd> {
        let mut progress = GuestProgress::new(*place.limits);
        let exit = loop {
            match self.receive(WATCH_INTERVAL)? {
                GuestReport::Messages(messages) => {
                    for message in messages {
                        progress.take(message, Instant::now(), place.request);
                    }
                }
                GuestReport::Gone => {
                    // QEMU may have been killed for its memory. Without that, the command has made
                    // its own kernel fail.
                    let reached = place.groups.reached();
                    break reached.map_or(ContainedExit::Killed, ContainedExit::Limit);
                }
            }
            let too_much = printed_too_much.load(Ordering::Relaxed);
            let output = too_much.then_some(ContainmentLimit::Output);
            if let Some(exit) = progress.exit(output, Instant::now()) {
                break exit;
            }
            match place.request.level() {
                KILL => break ContainedExit::Killed,
                TERMINATE if !progress.is_asked => {
                    progress.is_asked = true;
                    // A guest that has failed is seen to be gone next.
                    let _ = self.control.write_all(b"terminate\n");
                }
                _ => {}
            }
        };
        let time = progress.time(Instant::now());
        self.sandbox.end()?;
        Ok(ContainedEnd { exit, time })
    }

    /// What the guest has said, or says within this time.
    fn receive(&mut self, timeout: Duration) -> io::Result<GuestReport> {
        if !wait_readable(self.control.as_fd(), timeout)? {
            return Ok(GuestReport::Messages(Vec::new()));
        }
        let mut piece = [0; 1024];
        let length = match self.control.read(&mut piece) {
            Ok(0) => return Ok(GuestReport::Gone),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Ok(GuestReport::Gone);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Ok(GuestReport::Messages(Vec::new()));
            }
            Err(error) => return Err(error),
        };
        Ok(self.messages.receive(&piece[..length]).map_or(GuestReport::Gone, GuestReport::Messages))
    }
}

/// How far a guest's command is.
struct GuestProgress {
    limits: ContainmentLimits,
    /// When it was let start, and when it has started.
    released: Instant,
    began: Option<Instant>,
    ended: Option<Instant>,
    limit: Option<ContainmentLimit>,
    code: Option<i32>,
    is_asked: bool,
}

impl GuestProgress {
    fn new(limits: ContainmentLimits) -> Self {
        Self {
            limits,
            released: Instant::now(),
            began: None,
            ended: None,
            limit: None,
            code: None,
            is_asked: false,
        }
    }

    fn take(&mut self, message: GuestMessage, now: Instant, request: &StopRequest) {
        match message {
            GuestMessage::Started => self.began = self.began.or(Some(now)),
            GuestMessage::Open => request.has_open_port.store(true, Ordering::Relaxed),
            GuestMessage::Limit(limit) => self.limit = self.limit.or(Some(limit)),
            GuestMessage::Ended => self.ended = self.ended.or(Some(now)),
            GuestMessage::Code(code) => self.code = self.code.or(Some(code)),
            GuestMessage::Ready => {}
        }
    }

    /// The time of the command until it has ended, or until now.
    fn time(&self, now: Instant) -> Duration {
        self.ended.unwrap_or(now).duration_since(self.began.unwrap_or(self.released))
    }

    /// How it has ended, or must end.
    fn exit(&self, output: Option<ContainmentLimit>, now: Instant) -> Option<ContainedExit> {
        let is_late = self.time(now) > self.limits.time;
        let drains_too_long = self.ended.is_some_and(|it| now > it + DRAIN_TIMEOUT);
        let time = (is_late || drains_too_long).then_some(ContainmentLimit::Time);
        let limit = self.limit.or(output).map(ContainedExit::Limit);
        limit.or(self.code.map(ContainedExit::Code)).or(time.map(ContainedExit::Limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_adds_nothing_to_the_output_of_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        let has_started = AtomicBool::new(false);
        let output = File::create(&path).unwrap();
        let mut console = BootConsole { output, has_started: &has_started };
        console.write_all(b"no root device").unwrap();
        has_started.store(true, Ordering::Relaxed);
        console.write_all(b"a clock is slow").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"no root device");
    }

    #[test]
    fn the_time_is_that_of_the_command_and_not_of_what_follows() {
        let limits =
            ContainmentLimits { time: Duration::from_secs(5), ..ContainmentLimits::default() };
        let mut progress = GuestProgress::new(limits);
        let request = StopRequest::default();
        let began = progress.released + Duration::from_secs(1);
        let at = |seconds| began + Duration::from_secs(seconds);
        progress.take(GuestMessage::Started, began, &request);
        assert_eq!(progress.exit(None, at(5)), None);
        let late = Some(ContainedExit::Limit(ContainmentLimit::Time));
        assert_eq!(progress.exit(None, at(6)), late);
        progress.take(GuestMessage::Ended, at(3), &request);
        // The guest sends the rest of the output.
        assert_eq!(progress.exit(None, at(40)), None);
        assert_eq!(progress.exit(None, at(64)), late);
        progress.take(GuestMessage::Code(7), at(41), &request);
        assert_eq!(progress.exit(None, at(41)), Some(ContainedExit::Code(7)));
        assert_eq!(progress.time(at(41)), Duration::from_secs(3));
        progress.take(GuestMessage::Limit(ContainmentLimit::Disk), at(41), &request);
        let disk = Some(ContainedExit::Limit(ContainmentLimit::Disk));
        assert_eq!(progress.exit(None, at(41)), disk);
        assert!(!request.has_opened_port());
        progress.take(GuestMessage::Open, at(41), &request);
        assert!(request.has_opened_port());
    }
}

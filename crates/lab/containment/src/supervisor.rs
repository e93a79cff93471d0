//! The thread of a contained command. It has namespaces of its own, in which it prepares the
//! command's files and starts `bwrap`, and it stays until the command has ended: the kernel then
//! removes its mounts, and `bwrap` ends with it.

// Namespaces, and code between fork and exec, need unsafe calls.
#![allow(unsafe_code)]

mod guest;
mod output;
mod sandbox;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::bubblewrap::{FOLDER, SandboxView, arguments, find_bubblewrap};
use crate::cgroup::CommandGroups;
use crate::command::{ContainedCommand, ContainedEnd, ContainedExit, ContainmentError};
use crate::filter::{self, FilterExceptions};
use crate::limits::{ContainmentLimit, ContainmentLimits};
use crate::machine::{self, GuestCommand, MachineFiles};
use crate::upload::{UploadBounds, UploadOwner};
use crate::watchdog::use_of_tree;
use crate::workspace::CommandWorkspace;
use sandbox::{CommandSandbox, SandboxPlan};

/// The interval at which limits and requests are looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// The user and group of contained commands, if this process may choose one. No other program is
/// known to use them.
const CONTAINED_OWNER: UploadOwner = UploadOwner { user: 65_533, group: 65_533 };

/// The processes beyond the limit that a user can have where the watchdog counts them.
const MORE_PROCESSES: u32 = 8;

/// The exit code of a command, or of a shell whose last program it is, that the kernel has ended
/// because a file would be larger than the disk limit. Nothing of it is written, so that the disk
/// is not full.
const FILE_TOO_LARGE: i32 = 128 + libc::SIGXFSZ;

/// Whether a command is to end, and what is known of it meanwhile.
#[derive(Debug, Default)]
pub(crate) struct StopRequest {
    level: AtomicU8,
    /// Whether a port has been open in its virtual machine.
    has_open_port: AtomicBool,
}

const TERMINATE: u8 = 1;
const KILL: u8 = 2;

impl StopRequest {
    pub(crate) fn terminate(&self) {
        self.level.fetch_max(TERMINATE, Ordering::Relaxed);
    }

    pub(crate) fn kill(&self) {
        self.level.store(KILL, Ordering::Relaxed);
    }

    pub(crate) fn has_opened_port(&self) -> bool {
        self.has_open_port.load(Ordering::Relaxed)
    }

    fn level(&self) -> u8 {
        self.level.load(Ordering::Relaxed)
    }
}

/// What is made for a command before it starts.
#[derive(Clone, Copy)]
struct CommandPlace<'a> {
    bwrap: &'a Path,
    groups: &'a CommandGroups,
    workspace: &'a CommandWorkspace,
    limits: &'a ContainmentLimits,
    filter: &'a [u8],
    owner: Option<UploadOwner>,
    request: &'a StopRequest,
}

/// Runs a command. Calls `report` when it has started, with the means by which it is limited.
pub(crate) fn run(
    command: ContainedCommand,
    request: &StopRequest,
    report: impl FnOnce(String),
) -> Result<ContainedEnd, ContainmentError> {
    let bwrap = find_bubblewrap().ok_or(ContainmentError::NotInstalled)?;
    let ContainedCommand {
        run,
        folder,
        directory,
        program,
        network,
        machine,
        limits,
        output,
        scratch,
    } = command;
    let files = machine.as_ref().map(|_| MachineFiles::find()).transpose();
    let files = files.map_err(ContainmentError::NoMachine)?;
    enter(&network).map_err(in_step("make namespaces for a contained command"))?;
    let outer = if machine.is_some() { machine::limits_of_emulator(&limits) } else { limits };
    // They are removed after the workspace, whose files count as their memory.
    let groups = CommandGroups::new(&outer);
    let owner = owner();
    let workspace = CommandWorkspace::new(&scratch, &outer, owner)
        .map_err(in_step("make a file system for a contained command"))?;
    if let Some(program) = program {
        workspace.show(&program).map_err(in_step("show a contained command a program"))?;
    }
    folder.unpack_for(&workspace.path("folder"), &UploadBounds::of_limits(&limits), owner)?;
    let exceptions =
        FilterExceptions { memory: groups.limit_memory(), own_filter: machine.is_some() };
    let filter = filter::program(exceptions)
        .map_err(|error| in_step("make a filter of system calls")(io::Error::other(error)))?;
    let directory: PathBuf = Path::new(FOLDER).components().chain(directory.components()).collect();
    let place = CommandPlace {
        bwrap: &bwrap,
        groups: &groups,
        workspace: &workspace,
        limits: &limits,
        filter: &filter,
        owner,
        request,
    };
    match (&machine, &files) {
        (Some(machine), Some(files)) => {
            let command = GuestCommand { run: &run, directory: &directory, machine };
            guest::run(&place, files, &command, output, report)
        }
        _ => run_in_sandbox(&place, &directory, run, output, report),
    }
}

/// Runs a command in a sandbox.
fn run_in_sandbox(
    place: &CommandPlace<'_>,
    directory: &Path,
    run: Vec<String>,
    output: File,
    report: impl FnOnce(String),
) -> Result<ContainedEnd, ContainmentError> {
    let CommandPlace { bwrap, groups, workspace, limits, filter, owner, request } = *place;
    let run = if groups.limit_processes() { run } else { with_process_limit(run, limits) };
    let (from, to) = pipe().map_err(in_step("make a pipe"))?;
    let printed_too_much = AtomicBool::new(false);
    thread::scope(|scope| {
        let (most, is_too_much) = (limits.output_mib << 20, &printed_too_much);
        scope.spawn(move || output::copy(from, output, most, is_too_much));
        let view = SandboxView::Folder(directory);
        let arguments = |given| arguments(workspace, view, &run, given);
        let plan = SandboxPlan { groups, limits, filter, owner, group: None, inherited: &[] };
        let mut sandbox = CommandSandbox::start(bwrap, arguments, to, &plan)?;
        let watch = CommandWatch { limits: *limits, groups, workspace, request };
        let began = sandbox.release().map_err(in_step("start a contained command"))?;
        report(means(groups));
        watch
            .until_end(&mut sandbox, began, &printed_too_much)
            .map_err(in_step("watch a contained command"))
    })
}

/// A pipe: the end from which it is read, and the other one.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Adds the step that failed to an error.
fn in_step(step: &'static str) -> impl Fn(io::Error) -> ContainmentError {
    move |error| ContainmentError::System(step, error)
}

/// Moves this thread into a network, and into a mount namespace of its own with a new `/proc`.
/// Parts of the existing one may be read-only, and then a user namespace could not mount its own.
fn enter(network: &OwnedFd) -> io::Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    // SAFETY: no descriptor and no memory becomes private to this thread. Its mounts and its
    // working directory do, and it does nothing but supervise one command.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    Ok(())
}

/// The user that a command runs as outside its namespace; `None` if only the present one exists.
fn owner() -> Option<UploadOwner> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let has = |line: &str| {
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (first..first + count).contains(&CONTAINED_OWNER.user.into())
    };
    map.lines().any(has).then_some(CONTAINED_OWNER)
}

/// The command with a limit of the processes of its user.
fn with_process_limit(run: Vec<String>, limits: &ContainmentLimits) -> Vec<String> {
    // A few more, so that the watchdog sees when there are too many.
    let limit = format!("--nproc={}", limits.processes.saturating_add(MORE_PROCESSES));
    [vec!["prlimit".into(), limit, "--".into()], run].concat()
}

/// By what the limits are enforced.
fn means(groups: &CommandGroups) -> String {
    let kinds = [
        (groups.limit_memory(), "memory"),
        (groups.limit_processes(), "processes"),
        (groups.limit_processors(), "processor time"),
    ];
    let of = |is_limited: bool| {
        let names = kinds.iter().filter(|(limited, _)| *limited == is_limited);
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    let interval = WATCH_INTERVAL.as_millis();
    match (of(true), of(false)) {
        (by_group, others) if others.is_empty() => format!("control groups: {by_group}"),
        (_, others) if others == "processor time" => {
            "control groups: memory, processes; processor time is not limited".into()
        }
        (by_group, _) if by_group.is_empty() => format!(
            "no control groups can be made here: memory and processes are looked at every {interval} \
             ms, and processor time is not limited"
        ),
        (by_group, others) => format!(
            "control groups: {by_group}; {others}: looked at every {interval} ms, or not limited"
        ),
    }
}

/// What is watched while a command runs.
struct CommandWatch<'a> {
    limits: ContainmentLimits,
    groups: &'a CommandGroups,
    workspace: &'a CommandWorkspace,
    request: &'a StopRequest,
}

impl CommandWatch<'_> {
    /// Waits until the command has ended or is to end, and ends its sandbox.
    fn until_end(
        &self,
        sandbox: &mut CommandSandbox,
        began: Instant,
        printed_too_much: &AtomicBool,
    ) -> io::Result<ContainedEnd> {
        let mut is_asked = false;
        let exit = loop {
            if let Some(code) = sandbox.wait(WATCH_INTERVAL)? {
                let is_too_large = code == FILE_TOO_LARGE;
                let reached = self
                    .reached(printed_too_much)
                    .or_else(|| is_too_large.then_some(ContainmentLimit::Disk));
                break reached.map_or(ContainedExit::Code(code), ContainedExit::Limit);
            }
            let reached = self
                .reached(printed_too_much)
                .or_else(|| self.reached_by_tree(sandbox.first_process()))
                .or((began.elapsed() > self.limits.time).then_some(ContainmentLimit::Time));
            if let Some(limit) = reached {
                break ContainedExit::Limit(limit);
            }
            match self.request.level() {
                KILL => break ContainedExit::Killed,
                TERMINATE if !is_asked => {
                    is_asked = true;
                    sandbox.terminate();
                }
                _ => {}
            }
        };
        let time = began.elapsed();
        sandbox.end()?;
        Ok(ContainedEnd { exit, time })
    }

    /// The limit that was reached, of those that the kernel counts.
    fn reached(&self, printed_too_much: &AtomicBool) -> Option<ContainmentLimit> {
        let is_full = || self.workspace.is_full().then_some(ContainmentLimit::Disk);
        let too_much = printed_too_much.load(Ordering::Relaxed);
        let output = too_much.then_some(ContainmentLimit::Output);
        self.groups.reached().or_else(is_full).or(output)
    }

    /// The limit that was reached, of those that no control group counts.
    fn reached_by_tree(&self, first_process: u32) -> Option<ContainmentLimit> {
        if self.groups.limit_memory() && self.groups.limit_processes() {
            return None;
        }
        let used = use_of_tree(first_process);
        let memory = used.memory + self.workspace.used();
        if !self.groups.limit_memory() && memory > self.limits.memory_mib << 20 {
            return Some(ContainmentLimit::Memory);
        }
        let is_many = !self.groups.limit_processes() && used.threads >= self.limits.processes;
        is_many.then_some(ContainmentLimit::Processes)
    }
}

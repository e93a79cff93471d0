//! Attacks of contained programs, in a real sandbox. Without user namespaces, `/dev/net/tun` or
//! `bwrap`, prints that the tests were skipped.

// A mount namespace of a thread needs an unsafe call.
#![allow(unsafe_code)]

mod attacks;

use std::env;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use attacks::{
    Attack, FORKS, HOST_PROCESS, IGNORING, LIMITS, LISTENING, MEMORY, PORT, REACH, READ,
    Surroundings, assert_given, assert_limit, groups, listen_on_the_host, performed, python,
    secret, tests,
};
use containment::{ContainedExit, ContainmentLimit, ContainmentLimits, find_bubblewrap};
use libtest_mimic::Arguments;
use rustix::mount::{MountFlags, mount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use sunder_lab::sandbox;

fn main() -> ExitCode {
    // Outside the sandbox, these listen while the tests run inside.
    let listening = env::var_os(PORT).is_none().then(listen_on_the_host);
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    drop(listening);
    if find_bubblewrap().is_none() {
        eprintln!("SKIPPED: these tests did not run: bwrap is not installed");
        return ExitCode::SUCCESS;
    }
    let tests = tests![
        a_program_runs_in_its_copy_of_the_folder,
        forks_without_end_are_stopped,
        memory_of_one_and_of_many_processes_is_limited,
        a_full_disk_and_too_many_files_are_stopped,
        groups_of_an_interrupted_run_are_removed,
        output_without_end_is_stopped,
        time_is_limited_although_signals_are_ignored,
        processor_time_is_limited,
        a_program_is_asked_to_end,
        limits_hold_without_control_groups,
        files_of_the_host_are_not_there,
        the_given_program_cannot_be_changed,
        nothing_outside_the_folder_can_be_written,
        networks_of_the_host_are_not_reachable,
        calls_that_leave_a_sandbox_are_not_answered,
        no_descriptor_is_inherited,
        an_attacker_is_reported_by_the_driver,
        without_containment_the_attacks_succeed,
    ];
    // One at a time: each checks that nothing is left.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// Runs a script, and checks that nothing of it is left.
fn attacked(
    script: &str,
    arguments: &[&str],
    limits: ContainmentLimits,
) -> (ContainedExit, String) {
    attacks::attacked(|| Attack::start(script, arguments, limits))
}

/// Checks that a script is stopped at a limit.
fn assert_stopped(limit: ContainmentLimit, script: &str, limits: ContainmentLimits) {
    assert_limit(limit, attacked(script, &[], limits));
}

fn a_program_runs_in_its_copy_of_the_folder() {
    let script = "echo said > file; cat file; pwd; id -u; echo $$; echo \"$1\" >&2; exit 7";
    let (exit, output) = attacked(script, &["an argument"], LIMITS);
    assert_eq!(exit, ContainedExit::Code(7), "{output}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..3], ["said", "/folder", "1000"]);
    assert_eq!(lines[4], "an argument");
    assert!(lines[3].parse::<u32>().unwrap() < 10, "{output}");
    let (exit, _) = attacked("kill -9 $$", &[], LIMITS);
    assert_eq!(exit, ContainedExit::Code(137));
}

fn forks_without_end_are_stopped() {
    if is_without_groups() {
        return;
    }
    assert_stopped(ContainmentLimit::Processes, FORKS, LIMITS);
    // Each process leaves the one that has started it.
    let daemons = "import os\nwhile True:\n  if os.fork() == 0:\n    os.setsid()\n";
    assert_stopped(ContainmentLimit::Processes, &python(daemons), LIMITS);
}

fn memory_of_one_and_of_many_processes_is_limited() {
    if is_without_groups() {
        return;
    }
    assert_stopped(ContainmentLimit::Memory, MEMORY, LIMITS);
    // 15 processes, each with less than the limit.
    let many = "import os, time\n\
                for i in range(15):\n  if os.fork() == 0: break\n\
                x = b'x' * (10 << 20)\ntime.sleep(1000)\n";
    assert_stopped(ContainmentLimit::Memory, &python(many), LIMITS);
    // Files count as memory.
    let files = "dd if=/dev/zero of=file bs=1M count=100; sleep 1000";
    let limits = ContainmentLimits { disk_mib: 1000, ..LIMITS };
    assert_stopped(ContainmentLimit::Memory, files, limits);
    // So does memory that belongs to no process.
    let shared = "import ctypes, os\n\
                  while True:\n  fd = os.memfd_create('m')\n  os.write(fd, b'x' * (1 << 20))\n";
    assert_stopped(ContainmentLimit::Memory, &python(shared), LIMITS);
}

fn a_full_disk_and_too_many_files_are_stopped() {
    for place in [".", "/tmp", "/dev/shm"] {
        let fill = format!("dd if=/dev/zero of={place}/file bs=64k; sleep 1000");
        assert_stopped(ContainmentLimit::Disk, &fill, LIMITS);
    }
    let files = "i=0; while : > file-$i; do i=$((i + 1)); done; sleep 1000";
    assert_stopped(ContainmentLimit::Disk, files, LIMITS);
    // A program that ends at once is reported, too.
    assert_stopped(ContainmentLimit::Disk, "dd if=/dev/zero of=file bs=64k; exit 0", LIMITS);
    // Of a request for more than the disk has, nothing is written.
    assert_stopped(ContainmentLimit::Disk, "fallocate --length 32M file", LIMITS);
}

fn groups_of_an_interrupted_run_are_removed() {
    if is_without_groups() {
        return;
    }
    // A program is killed without a chance to remove them: they are there, and nobody has locked
    // them.
    let attack = Attack::start("sleep 1000", &[], LIMITS);
    let used = groups(Path::new("/sys/fs/cgroup"));
    let left: Vec<PathBuf> =
        used.iter().map(|it| it.with_file_name("sunder-contained-interrupted")).collect();
    for directory in &left {
        // Groups of other programs are in the same directory.
        if let Err(error) = fs::create_dir(directory) {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
    }
    drop(attack);
    attacked("true", &[], LIMITS);
    assert!(!left.is_empty() && left.iter().all(|it| !it.exists()));
}

fn output_without_end_is_stopped() {
    assert_stopped(ContainmentLimit::Output, "trap '' PIPE TERM; yes; sleep 1000", LIMITS);
}

fn time_is_limited_although_signals_are_ignored() {
    let limits = ContainmentLimits { time: Duration::from_millis(700), ..LIMITS };
    assert_stopped(ContainmentLimit::Time, IGNORING, limits);
    // Stopped processes, and those in other sessions, too.
    let stopped = "setsid sleep 1000 & kill -STOP $$; sleep 1000";
    assert_stopped(ContainmentLimit::Time, stopped, limits);
}

fn processor_time_is_limited() {
    let burn = "import time\nbegan = time.monotonic()\n\
                while time.monotonic() < began + 2: pass\nprint(time.process_time())\n";
    let limits = ContainmentLimits { processors: 0.25, ..LIMITS };
    let (exit, output) = attacked(&python(burn), &[], limits);
    assert_eq!(exit, ContainedExit::Code(0), "{output}");
    let used: f64 = output.trim().parse().unwrap();
    let is_limited = has_groups();
    println!("{used} s of processor time in 2 s, limited: {is_limited}");
    assert!(used < 0.9 || !is_limited, "{used}");
}

/// Whether no control groups can be made; says so. The limits without them have a test of their
/// own.
fn is_without_groups() -> bool {
    let is_without = !has_groups();
    if is_without {
        println!("SKIPPED: no control groups can be made here");
    }
    is_without
}

/// Whether control groups can be made.
fn has_groups() -> bool {
    Attack::start("", &[], LIMITS).process.means() == ALL_GROUPS
}

const ALL_GROUPS: &str = "control groups: memory, processes, processor time";

fn a_program_is_asked_to_end() {
    let before = Surroundings::now();
    let attack =
        Attack::start("trap 'echo ends; exit 3' TERM; echo ready; sleep 1000 & wait", &[], LIMITS);
    attack.wait_for("ready");
    attack.process.terminate();
    let (end, output) = attack.end();
    assert_eq!((end.exit, output.as_str()), (ContainedExit::Code(3), "ready\nends\n"));
    let mut attack = Attack::start(IGNORING, &[], LIMITS);
    attack.wait_for("ready");
    attack.process.terminate();
    assert_eq!(attack.process.wait(Duration::from_millis(300)).unwrap(), None);
    attack.process.kill();
    assert_eq!(attack.end().0.exit, ContainedExit::Killed);
    // It also ends with the program that has started it.
    let attack = Attack::start(IGNORING, &[], LIMITS);
    attack.wait_for("ready");
    drop(attack);
    assert_eq!(Surroundings::now(), before);
}

/// Runs `work` in a thread without control groups.
fn without_groups(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no descriptor and no memory becomes private to this thread.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
            mount("tmpfs", "/sys/fs/cgroup", "tmpfs", MountFlags::RDONLY, None).unwrap();
            work();
        });
        thread.join().unwrap();
    });
}

fn limits_hold_without_control_groups() {
    without_groups(|| {
        let attack = Attack::start("", &[], LIMITS);
        let means = attack.process.means().to_owned();
        assert!(means.starts_with("no control groups can be made here"), "{means}");
        drop(attack);
        let staying = "import os, time\n\
                       while True:\n  try:\n    if os.fork() == 0: time.sleep(1000)\n  \
                       except OSError: time.sleep(1)\n";
        let limits = ContainmentLimits { memory_mib: 500, ..LIMITS };
        assert_stopped(ContainmentLimit::Processes, &python(staying), limits);
        let many = "import os, time\n\
                    for i in range(9):\n  if os.fork() == 0: break\n\
                    x = b'x' * (10 << 20)\ntime.sleep(1000)\n";
        assert_stopped(ContainmentLimit::Memory, &python(many), LIMITS);
        // One process cannot have more than the limit.
        let (exit, output) = attacked(MEMORY, &[], LIMITS);
        let is_stopped = exit == ContainedExit::Limit(ContainmentLimit::Memory);
        assert!(is_stopped || output.contains("MemoryError"), "{exit:?} {output}");
        let hidden = "import os\nos.memfd_create('m')\n";
        let (exit, output) = attacked(&python(hidden), &[], LIMITS);
        assert!(exit == ContainedExit::Code(1) && output.contains("not implemented"), "{output}");
    });
}

fn files_of_the_host_are_not_there() {
    let secret = secret();
    let secret = secret.path().to_str().unwrap();
    let outside = format!("/proc/1/root{secret}");
    let executable = env::current_exe().unwrap();
    let paths = [
        "/etc/shadow",
        secret,
        &outside,
        "../../../etc/shadow",
        "/proc/1/root/etc/shadow",
        executable.to_str().unwrap(),
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/net/tun",
        "/dev/fuse",
        "/proc/kcore",
        "/proc/1/mem",
        "/dev/vsock",
        "/dev/kvm",
    ];
    let (exit, output) = attacked(READ, &paths, LIMITS);
    assert_eq!((exit, output.as_str()), (ContainedExit::Code(0), ""));
    // The directories beside the base.
    let (_, output) =
        attacked("cd /; echo *; ls /etc; ls /home /root /var /run /sys /work", &[], LIMITS);
    assert_eq!(
        output.lines().next(),
        Some("bin dev etc folder lib lib64 proc sbin tmp usr"),
        "{output}"
    );
    assert!(!output.contains("shadow") && output.matches("No such file").count() == 6, "{output}");
}

fn the_given_program_cannot_be_changed() {
    assert_given(|script| attacked(script, &[], LIMITS));
}

fn nothing_outside_the_folder_can_be_written() {
    let write =
        "for path in / /usr /usr/bin /etc /dev /dev/pts /proc /proc/sys/kernel /bin /lib; do \
                 if touch $path/attack 2> /dev/null; then echo wrote $path; fi; done
                 for path in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /etc/passwd; do \
                 if (echo x > $path) 2> /dev/null; then echo wrote $path; fi; done
                 mount -t tmpfs tmpfs /tmp 2> /dev/null && echo mounted
                 mount -o remount,rw / 2> /dev/null && echo remounted
                 mknod device c 1 3 2> /dev/null && echo device
                 mknod device b 254 0 2> /dev/null && echo device
                 mkfifo pipe && cp /bin/true . && chmod u+s true && echo own";
    let (_, output) = attacked(write, &[], LIMITS);
    assert_eq!(output, "own\n");
}

fn networks_of_the_host_are_not_reachable() {
    let [port, name] = [PORT, HOST_PROCESS].map(|name| env::var(name).unwrap());
    let (_, output) = attacked(&python(REACH), &[&port, &name], LIMITS);
    assert_eq!(output, "['lo']\n");
}

/// Prints each call that is answered in another way than by an older kernel, and each kind of
/// socket that can be made.
const CALLS: &str = r"import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
calls = dict(ptrace=101, syslog=103, pivot_root=155, chroot=161, sync=162, acct=163, mount=165,
  umount2=166, swapon=167, reboot=169, init_module=175, quotactl=179, add_key=248, request_key=249,
  keyctl=250, unshare=272, perf_event_open=298, fanotify_init=300, name_to_handle_at=303,
  open_by_handle_at=304, setns=308, process_vm_readv=310, kcmp=312, finit_module=313, seccomp=317,
  bpf=321, userfaultfd=323, io_uring_setup=425, open_tree=428, move_mount=429, fsopen=430,
  fsmount=432, clone3=435, pidfd_getfd=438, mount_setattr=442, memfd_secret=447)
def refused(number, *arguments):
  ctypes.set_errno(0)
  return libc.syscall(number, *arguments, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.ENOSYS
for name, number in calls.items():
  if not refused(number, 0, 0): print(name)
# Namespaces, and the 32-bit interface of the processor (x32).
for flag in [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]:
  if not refused(56, flag | 17): print('clone', hex(flag))
if not refused(0x40000000 | 39): print('x32')
made = set()
for family in range(46):
  for kind in range(1, 6):
    for protocol in [0, 1, 4, 6, 16, 17, 58, 132, 255]:
      fd = libc.socket(family, kind, protocol)
      if fd >= 0:
        os.close(fd)
        made.add((family, kind))
print(sorted(made))
with open('/proc/self/status') as status:
  for line in status:
    if line.startswith(('CapPrm', 'CapEff', 'NoNewPrivs', 'Seccomp:')):
      print(line.split(':')[1].strip(), end=' ')
";

fn calls_that_leave_a_sandbox_are_not_answered() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIPPED: the numbers of the calls are those of x86-64");
        return;
    }
    let (exit, output) = attacked(&python(CALLS), &[], LIMITS);
    assert_eq!(exit, ContainedExit::Code(0), "{output}");
    let mut lines = output.lines();
    // Sockets of the sandbox (1: streams, datagrams, sequenced packets; raw ones are datagrams), of
    // the Internet (2 and 10: streams and datagrams), and for routes (16).
    let made =
        "[(1, 1), (1, 2), (1, 3), (1, 5), (2, 1), (2, 2), (10, 1), (10, 2), (16, 2), (16, 3)]";
    assert_eq!(lines.next(), Some(made), "{output}");
    let none = "0000000000000000";
    assert_eq!(lines.next(), Some(&*format!("{none} {none} 1 2 ")), "{output}");
    assert_eq!(lines.next(), None);
}

fn no_descriptor_is_inherited() {
    let secret = secret();
    let open = File::open(secret.path()).unwrap();
    // As a program that has started this one may have left it open.
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    let (_, output) =
        attacked(&python("import os\nprint(os.listdir('/proc/self/fd'))\n"), &[], LIMITS);
    // Standard input, output and error, and the directory that is read.
    assert_eq!(output, "['0', '1', '2', '3']\n");
    let (_, output) = attacked("readlink /proc/self/fd/1 /proc/self/fd/2", &[], LIMITS);
    assert!(output.lines().all(|line| line.starts_with("pipe:")), "{output}");
}

fn an_attacker_is_reported_by_the_driver() {
    let small = "limits = { memory_mib = 64, processes = 20, disk_mib = 16 }";
    let attacks = [(MEMORY, "memory"), (FORKS, "processes"), ("yes", "output")];
    // Without control groups, short bursts are refused and not reported.
    for (attack, name) in if has_groups() { &attacks[..] } else { &attacks[2..] } {
        let [result, limit, contained] = performed(LISTENING, attack, small);
        println!("{}", result.chars().take(80).collect::<String>());
        assert!(result.starts_with(&format!("client: stopped ({name}): more than")), "{result}");
        assert!(limit == *name && contained.contains("control groups"), "{limit} {contained}");
    }
    let short = format!("timeout_s = 0.5, {small}");
    let [result, limit, _] = performed(LISTENING, IGNORING, &short);
    println!("{result}");
    assert_eq!(
        (result.as_str(), limit.as_str()),
        ("client: stopped (time): more than 0.5 s: ready", "time")
    );
    // The parties reach each other, at their addresses only, and neither sees the other's files.
    let client = "echo mine > /tmp/mine; curl --silent --fail http://$1/pair-client.sh > got && \
                  cmp got pair-client.sh && ! curl --silent --max-time 2 http://127.0.0.1/ && \
                  ! curl --silent --fail http://$1/got && echo only";
    let [result, ..] = performed(LISTENING, client, small);
    assert_eq!(result, "ok");
    // A server that does not end.
    let server = format!("trap '' TERM INT HUP; {}", LISTENING.replace("exec", ""));
    let [result, ..] = performed(&server, "exit 0", small);
    assert_eq!(result, "ok");
}

fn without_containment_the_attacks_succeed() {
    let secret = secret();
    let script = format!(
        "set -- /etc/shadow {}\n{READ}\nmkdir m && mount -t tmpfs tmpfs m && echo mounted\nexit 1",
        secret.path().display()
    );
    let [result, _, contained] = performed(LISTENING, &script, "contain = false");
    println!("{result}");
    assert_eq!(contained, "not contained");
    let expected = format!("read {} mounted", secret.path().display());
    assert!(result.contains(&expected), "{result}");
    let is_root = fs::read("/etc/shadow").is_ok();
    assert_eq!(result.contains("read /etc/shadow"), is_root, "{result}");
    let [result, _, contained] = performed(LISTENING, &script, "contain = true");
    println!("{result}");
    assert!(contained != "not contained" && !result.contains("mounted"), "{result}");
    assert!(!result.contains("read "), "{result}");
}

//! Attacks of programs in virtual machines. Prints that the tests were skipped without user
//! namespaces, `/dev/net/tun`, `bwrap`, or what a virtual machine needs. A machine boots for
//! seconds in each, so that most run in `make soak` only.

mod attacks;

use std::env;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use attacks::{
    Attack, FORKS, HOST_PROCESS, IGNORING, LISTENING, MEMORY, PORT, REACH, READ, Surroundings,
    assert_given, assert_limit, listen_on_the_host, performed, python, secret, tests,
};
use containment::{
    ContainedExit, ContainmentError, ContainmentLimit, ContainmentLimits, GuestMachine,
    MachineFiles, MachineProcessor, find_bubblewrap,
};
use libtest_mimic::Arguments;
use sunder_lab::sandbox;

fn main() -> ExitCode {
    // Outside the sandbox, these listen while the tests run inside.
    let listening = env::var_os(PORT).is_none().then(listen_on_the_host);
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    drop(listening);
    let missing = MachineFiles::find().err();
    let no_bubblewrap = || find_bubblewrap().is_none().then(|| "bwrap is not installed".into());
    if let Some(missing) = missing.or_else(no_bubblewrap) {
        eprintln!("SKIPPED: these tests did not run: {missing}");
        return ExitCode::SUCCESS;
    }
    println!("virtual machines: {}", MachineProcessor::of_this_machine().describe());
    let arguments = Arguments::from_args();
    let mut tests =
        tests![a_program_runs_in_its_copy_of_the_folder, networks_of_the_host_are_not_reachable,];
    let of_soak = tests![
        a_signal_that_ends_a_program_is_its_exit_code,
        forks_without_end_are_stopped,
        memory_is_limited,
        a_full_disk_and_too_many_files_are_stopped,
        output_without_end_is_stopped_and_no_output_is_lost,
        time_is_limited_although_signals_are_ignored,
        a_program_is_asked_to_end,
        files_of_the_host_are_not_there,
        the_given_program_cannot_be_changed,
        nothing_outside_the_folder_can_be_written,
        the_kernel_is_the_guests_own,
        a_guest_that_does_not_boot_is_an_error,
        an_attacker_is_reported_by_the_driver,
        a_script_that_does_not_end_is_ended,
        two_machines_reach_each_other_at_their_addresses,
    ];
    if !arguments.include_ignored && !arguments.ignored {
        println!("ignored are tests of minutes: run them by `make soak` or with --include-ignored");
    }
    tests.extend(of_soak.into_iter().map(|test| test.with_ignored_flag(true)));
    // One at a time: each checks that nothing is left.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// Limits that are soon reached, on slow machines too.
const LIMITS: ContainmentLimits = ContainmentLimits {
    processes: 40,
    processors: 2.0,
    time: Duration::from_secs(120),
    ..attacks::LIMITS
};

fn start(script: &str, arguments: &[&str], limits: ContainmentLimits) -> Attack {
    let began = Instant::now();
    let machine = Some(GuestMachine::default());
    let attack = Attack::try_start(script, arguments, limits, machine).unwrap();
    println!("booted in {:.2} s", began.elapsed().as_secs_f64());
    attack
}

/// Runs a script, and checks that nothing of it is left.
fn attacked(
    script: &str,
    arguments: &[&str],
    limits: ContainmentLimits,
) -> (ContainedExit, String) {
    attacks::attacked(|| start(script, arguments, limits))
}

/// Checks that a script is stopped at a limit.
fn assert_stopped(limit: ContainmentLimit, script: &str, limits: ContainmentLimits) {
    assert_limit(limit, attacked(script, &[], limits));
}

fn a_program_runs_in_its_copy_of_the_folder() {
    let script = "echo said > file; cat file; pwd; id -u; id -G; hostname; \
                  echo \"$1\" >&2; cat run.sh | wc -l; exit 7";
    let (exit, output) = attacked(script, &["it's \"an\" $argument"], LIMITS);
    assert_eq!(exit, ContainedExit::Code(7), "{output}");
    let lines: Vec<&str> = output.lines().collect();
    let expected = ["said", "/folder", "1000", "1000", "contained", "it's \"an\" $argument", "0"];
    assert_eq!(lines, expected);
}

fn a_signal_that_ends_a_program_is_its_exit_code() {
    let (exit, _) = attacked("kill -9 $$", &[], LIMITS);
    assert_eq!(exit, ContainedExit::Code(137));
}

fn forks_without_end_are_stopped() {
    assert_stopped(ContainmentLimit::Processes, FORKS, LIMITS);
    let daemons = "import os\nwhile True:\n  if os.fork() == 0:\n    os.setsid()\n";
    assert_stopped(ContainmentLimit::Processes, &python(daemons), LIMITS);
}

fn memory_is_limited() {
    assert_stopped(ContainmentLimit::Memory, MEMORY, LIMITS);
    // Files count as memory.
    let files = "dd if=/dev/zero of=file bs=1M count=100; sleep 1000";
    let limits = ContainmentLimits { disk_mib: 1000, ..LIMITS };
    assert_stopped(ContainmentLimit::Memory, files, limits);
}

fn a_full_disk_and_too_many_files_are_stopped() {
    for place in [".", "/dev/shm"] {
        let fill = format!("dd if=/dev/zero of={place}/file bs=64k; sleep 1000");
        assert_stopped(ContainmentLimit::Disk, &fill, LIMITS);
    }
    let files = "i=0; while : > /tmp/file-$i; do i=$((i + 1)); done; sleep 1000";
    assert_stopped(ContainmentLimit::Disk, files, LIMITS);
    // A program that ends at once is reported, too.
    assert_stopped(ContainmentLimit::Disk, "dd if=/dev/zero of=file bs=64k; exit 0", LIMITS);
}

fn output_without_end_is_stopped_and_no_output_is_lost() {
    assert_stopped(ContainmentLimit::Output, "trap '' PIPE TERM; yes; sleep 1000", LIMITS);
    let (exit, output) = attacked("head -c 900000 /dev/zero; echo end", &[], LIMITS);
    assert_eq!((exit, output.len()), (ContainedExit::Code(0), 900_004));
    assert!(output.ends_with("\0end\n"));
}

fn time_is_limited_although_signals_are_ignored() {
    let limits = ContainmentLimits { time: Duration::from_secs(2), ..LIMITS };
    assert_stopped(ContainmentLimit::Time, IGNORING, limits);
    let stopped = "setsid sleep 1000 & kill -STOP $$; sleep 1000";
    assert_stopped(ContainmentLimit::Time, stopped, limits);
    // The time to boot does not count, and neither does a process that is left.
    let before = Surroundings::now();
    let (end, _) = start("sleep 1000 & sleep 1", &[], LIMITS).end();
    assert_eq!(end.exit, ContainedExit::Code(0));
    assert!((1.0..60.0).contains(&end.time.as_secs_f64()), "{:?}", end.time);
    println!("a second of sleep takes {:.2} s", end.time.as_secs_f64());
    assert_eq!(Surroundings::now(), before);
}

fn a_program_is_asked_to_end() {
    let before = Surroundings::now();
    let script = "trap 'echo ends; exit 3' TERM; echo ready; sleep 1000 & wait";
    let attack = start(script, &[], LIMITS);
    attack.wait_for("ready");
    attack.process.terminate();
    let (end, output) = attack.end();
    assert_eq!((end.exit, output.as_str()), (ContainedExit::Code(3), "ready\nends\n"));
    let mut attack = start(IGNORING, &[], LIMITS);
    attack.wait_for("ready");
    attack.process.terminate();
    assert_eq!(attack.process.wait(Duration::from_millis(300)).unwrap(), None);
    attack.process.kill();
    assert_eq!(attack.end().0.exit, ContainedExit::Killed);
    // It also ends with the program that has started it.
    let attack = start(IGNORING, &[], LIMITS);
    attack.wait_for("ready");
    drop(attack);
    assert_eq!(Surroundings::now(), before);
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
        "/proc/1/root/settings.sh",
        executable.to_str().unwrap(),
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/ttyS0",
        "/dev/vport0p1",
        "/dev/vport1p1",
        "/dev/kvm",
        "/dev/net/tun",
        "/proc/kcore",
        "/proc/1/mem",
        "/proc/1/environ",
        "/machine/kernel",
    ];
    let (exit, output) = attacked(READ, &paths, LIMITS);
    assert_eq!((exit, output.as_str()), (ContainedExit::Code(0), ""));
    let (_, output) =
        attacked("cd /; echo *; ls /etc; ls /home /root /var /run /sys /machine", &[], LIMITS);
    let listed = "bin dev etc folder lib lib64 proc sbin tmp usr";
    assert_eq!(output.lines().next(), Some(listed), "{output}");
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
                 grep -E 'CapPrm|CapEff|CapBnd|NoNewPrivs' /proc/self/status | cut -f 2
                 cp /bin/true . && echo own";
    let (_, output) = attacked(write, &[], LIMITS);
    let none = "0000000000000000";
    assert_eq!(output, format!("{none}\n{none}\n{none}\n1\nown\n"));
}

fn networks_of_the_host_are_not_reachable() {
    let [port, name] = [PORT, HOST_PROCESS].map(|name| env::var(name).unwrap());
    let (_, output) = attacked(&python(REACH), &[&port, &name], LIMITS);
    assert_eq!(output, "['lo']\n");
}

fn the_kernel_is_the_guests_own() {
    let own =
        "uname -r; cat /proc/sys/kernel/random/boot_id; cat /proc/sys/kernel/modules_disabled";
    let (_, output) = attacked(own, &[], LIMITS);
    let lines: Vec<&str> = output.lines().collect();
    let kernel = MachineFiles::find().unwrap().kernel;
    let kernel = kernel.file_name().unwrap().to_str().unwrap();
    assert_eq!(kernel, format!("vmlinuz-{}", lines[0]));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_ne!(lines[1], boot.trim());
    assert_eq!(lines[2], "1");
}

fn a_guest_that_does_not_boot_is_an_error() {
    let before = Surroundings::now();
    let parameters = vec![("net/ipv4/there_is_none".into(), "1".into())];
    let machine = GuestMachine { parameters, ..GuestMachine::default() };
    let Err(error) = Attack::try_start("true", &[], LIMITS, Some(machine)) else {
        panic!("it has started")
    };
    assert!(matches!(error, ContainmentError::NotBooted), "{error}");
    assert_eq!(Surroundings::now(), before);
}

/// Options of the driver.
const SMALL: &str = "contain = \"vm\", \
                     limits = { memory_mib = 64, processes = 40, disk_mib = 16, output_mib = 1 }";

fn an_attacker_is_reported_by_the_driver() {
    for (attack, name) in [(MEMORY, "memory"), ("yes", "output")] {
        let [result, limit, contained] = performed(LISTENING, attack, SMALL);
        println!("{} [{contained}]", result.chars().take(80).collect::<String>());
        assert!(result.starts_with(&format!("client: stopped ({name}): more than")), "{result}");
        assert!(limit == name && contained.starts_with("QEMU with"), "{limit} {contained}");
    }
}

fn a_script_that_does_not_end_is_ended() {
    let [result, limit, _] = performed(LISTENING, IGNORING, &format!("timeout_s = 2, {SMALL}"));
    assert_eq!(
        (result.as_str(), limit.as_str()),
        ("client: stopped (time): more than 2 s: ready", "time")
    );
    // A server that does not end.
    let server = format!("trap '' TERM INT HUP; {}", LISTENING.replace("exec", ""));
    let [result, ..] = performed(&server, "exit 0", SMALL);
    assert_eq!(result, "ok");
}

fn two_machines_reach_each_other_at_their_addresses() {
    let client = "echo mine > /tmp/mine; curl --silent --fail http://$1/pair-client.sh > got && \
                  cmp got pair-client.sh && ! curl --silent --max-time 2 http://127.0.0.1/ && \
                  ! curl --silent --fail http://$1/got && \
                  ip -4 -brief address show wire | grep -q \"$2/24\" && echo only";
    let [result, _, contained] = performed(LISTENING, client, "contain = \"vm\"");
    println!("{contained}");
    assert_eq!(result, "ok");
}

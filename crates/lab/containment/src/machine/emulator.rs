//! The arguments of QEMU.

use std::os::fd::RawFd;

use super::{GuestInterface, MachineProcessor, PreparedMachine};

/// Where the kernel and the first files of a guest are in the sandbox, and what the guest sees.
pub(crate) const MACHINE: &str = "/machine";
pub(crate) const BASE: &str = "/machine/base";

/// The kind of machine.
const KIND: &str = "q35,sata=off,smbus=off,vmport=off,usb=off";

/// The parameters of every guest's kernel, which ends at a panic. It must not take a busy host for
/// a fault: it would print where it waits.
const KERNEL_PARAMETERS: &str =
    "console=ttyS0 quiet panic=-1 nowatchdog rcupdate.rcu_cpu_stall_suppress=1";

/// The parameters of a kernel whose processor is translated. Such a kernel measures its timers
/// while the host runs other programs: it then takes the timer for a broken one and panics, or sets
/// a timer or its clock to a wrong speed and waits for minutes. With these, it tests no timer, and
/// takes its ticks and its time from the HPET, whose speed it can read.
const TRANSLATED_PARAMETERS: &str = "no_timer_check noapictimer tsc=unstable";

/// What QEMU is allowed by itself, beside the sandbox's filter.
const OWN_FILTER: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Descriptors that QEMU is given.
#[derive(Clone, Debug)]
pub(crate) struct EmulatorDescriptors {
    /// The socket for messages.
    pub(crate) control: RawFd,
    /// The socket for what the command prints.
    pub(crate) output: RawFd,
    /// The TAP devices of the interfaces.
    pub(crate) devices: Vec<RawFd>,
}

/// The arguments of QEMU, without its name.
pub(crate) fn arguments(
    machine: &PreparedMachine,
    interfaces: &[GuestInterface],
    descriptors: &EmulatorDescriptors,
) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    // Few devices: no disk, no screen, no USB. `microvm` has fewer still, but no timer by which its
    // kernel can find the speed of a translated processor: it hangs now and then.
    add(&["-nodefaults", "-no-user-config", "-no-reboot", "-machine", KIND]);
    match machine.processor {
        MachineProcessor::Hardware => add(&["-accel", "kvm", "-cpu", "host"]),
        MachineProcessor::Translated => {
            add(&["-accel", "tcg,thread=multi,tb-size=64", "-cpu", "max"]);
        }
    }
    add(&["-m", &format!("{}M", machine.memory_mib), "-smp", &machine.processors.to_string()]);
    add(&["-display", "none", "-monitor", "none", "-sandbox", OWN_FILTER]);
    add(&["-kernel", &format!("{MACHINE}/kernel"), "-initrd", &format!("{MACHINE}/initramfs")]);
    // What the kernel says about a failure is in the output.
    add(&["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    add(&["-append", &kernel_parameters(machine.processor)]);
    let base = format!("local,id=base,path={BASE},security_model=none,readonly=on,multidevs=remap");
    add(&["-fsdev", &base, "-device", "virtio-9p-pci,fsdev=base,mount_tag=base"]);
    add(&["-device", "virtio-serial-pci,max_ports=3"]);
    for (i, (name, fd)) in
        [("control", descriptors.control), ("output", descriptors.output)].iter().enumerate()
    {
        add(&["-chardev", &format!("socket,id={name},fd={fd}")]);
        let port = format!("virtserialport,chardev={name},name={name},nr={}", i + 1);
        add(&["-device", &port]);
    }
    for (i, (interface, fd)) in interfaces.iter().zip(&descriptors.devices).enumerate() {
        add(&["-netdev", &format!("tap,id=net{i},fd={fd}")]);
        let device = format!("virtio-net-pci,netdev=net{i},mac={},romfile=", interface.hardware());
        add(&["-device", &device]);
    }
    arguments
}

fn kernel_parameters(processor: MachineProcessor) -> String {
    match processor {
        MachineProcessor::Hardware => KERNEL_PARAMETERS.to_owned(),
        MachineProcessor::Translated => format!("{KERNEL_PARAMETERS} {TRANSLATED_PARAMETERS}"),
    }
}

//! The system calls that a contained command can make.
//!
//! An allow list: the kernel answers every other call with `ENOSYS`, as an older kernel would.
//! Sockets are of the Internet, of the sandbox (`AF_UNIX`), or ask for routes (`AF_NETLINK`). Not
//! on the list are, among others, namespaces and mounts, `ptrace`, `bpf`, `io_uring`,
//! `userfaultfd`, keys, handles of files, and `sync`, which would write back the host's file
//! systems. Nor is `clone3`, whose flags a filter cannot see: the C library then uses `clone`.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET,
    CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, ENOSYS, IPPROTO_ICMP, IPPROTO_ICMPV6,
    IPPROTO_MPTCP, IPPROTO_TCP, IPPROTO_UDP, NETLINK_ROUTE, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK,
    TIOCLINUX, TIOCSTI,
};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Lists system calls by their names.
macro_rules! calls {
    ($($name:ident)*) => { [$(libc::$name),*] };
}

/// Which calls a filter allows beside those that it always does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilterExceptions {
    /// The calls that take memory which belongs to no process.
    pub(crate) memory: bool,
    /// A filter of the process's own, with which QEMU narrows this one.
    pub(crate) own_filter: bool,
}

/// The filter as the kernel reads it.
///
/// # Errors
/// If this machine's architecture is unknown.
pub(crate) fn program(exceptions: FilterExceptions) -> Result<Vec<u8>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    rules.extend(always().map(|call| (call, Vec::new())));
    if exceptions.memory {
        rules.extend(memory().map(|call| (call, Vec::new())));
    }
    if exceptions.own_filter {
        rules.insert(libc::SYS_seccomp, Vec::new());
    }
    rules.insert(libc::SYS_socket, sockets()?);
    rules.insert(libc::SYS_socketpair, vec![rule(&[(0, Eq, AF_UNIX.into())])?]);
    rules.insert(libc::SYS_clone, vec![rule(&[(0, MaskedEq(NAMESPACES), 0)])?]);
    rules.insert(
        libc::SYS_ioctl,
        vec![rule(&[(1, Ne, TIOCSTI.cast_signed()), (1, Ne, TIOCLINUX.cast_signed())])?],
    );
    // The kernel's own answer to personality(-1) is the present one.
    rules.insert(libc::SYS_personality, vec![rule(&[(0, Eq, 0)])?, rule(&[(0, Eq, -1)])?]);
    let no_device = |mode: u8| -> Result<_, seccompiler::BackendError> {
        let kind = |kind: u32| vec![(mode, MaskedEq(S_IFMT.into()), kind.into())];
        let others = [S_IFREG, S_IFIFO, S_IFSOCK, 0];
        others.iter().map(|other| rule(&kind(*other))).collect::<Result<Vec<_>, _>>()
    };
    rules.insert(libc::SYS_mknodat, no_device(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_mknod, no_device(1)?);
    let refused = SeccompAction::Errno(ENOSYS.cast_unsigned());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(program
        .iter()
        .flat_map(|it| [&it.code.to_ne_bytes()[..], &[it.jt, it.jf], &it.k.to_ne_bytes()].concat())
        .collect())
}

/// Every flag of `clone` that makes a namespace.
const NAMESPACES: u64 = (CLONE_NEWCGROUP
    | CLONE_NEWIPC
    | CLONE_NEWNET
    | CLONE_NEWNS
    | CLONE_NEWPID
    | CLONE_NEWUSER
    | CLONE_NEWUTS) as u64;

/// The protocols of Internet sockets; 0 is the usual one of a type.
const INTERNET_PROTOCOLS: [i32; 6] =
    [0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_MPTCP];

/// The sockets that are allowed.
fn sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let internet = [AF_INET, AF_INET6].into_iter().flat_map(|family| {
        INTERNET_PROTOCOLS
            .iter()
            .map(move |protocol| rule(&[(0, Eq, family.into()), (2, Eq, i64::from(*protocol))]))
    });
    let others = [
        rule(&[(0, Eq, AF_UNIX.into())]),
        rule(&[(0, Eq, AF_NETLINK.into()), (2, Eq, NETLINK_ROUTE.into())]),
    ];
    internet.chain(others).collect()
}

/// A rule: every condition on the lower half of an argument holds.
fn rule(conditions: &[(u8, SeccompCmpOp, i64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = |(argument, operator, value): &(u8, SeccompCmpOp, i64)| {
        let value = value.cast_unsigned() & u64::from(u32::MAX);
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), value)
    };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}

/// The calls that are always allowed, with any arguments.
fn always() -> impl Iterator<Item = i64> {
    let common = calls![
        SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_getres
        SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect
        SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait
        SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat
        SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchmodat
        SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr
        SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate
        SYS_futex SYS_futex_waitv SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid
        SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid
        SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid SYS_get_robust_list SYS_getrusage
        SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid
        SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_kill
        SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek
        SYS_lsetxattr SYS_madvise SYS_membarrier SYS_mincore SYS_mkdirat SYS_mlock SYS_mlock2
        SYS_mmap SYS_mprotect SYS_mremap SYS_msync SYS_munlock SYS_munmap SYS_nanosleep
        SYS_newfstatat SYS_openat SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2
        SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_pselect6
        SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv
        SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_removexattr SYS_renameat SYS_renameat2
        SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask
        SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
        SYS_rt_tgsigqueueinfo SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getscheduler
        SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam
        SYS_sched_setscheduler SYS_sched_yield SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto
        SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid SYS_setpriority
        SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_set_robust_list SYS_setsid
        SYS_setsockopt SYS_set_tid_address SYS_setuid SYS_setxattr SYS_shutdown SYS_sigaltstack
        SYS_signalfd4 SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sysinfo SYS_tee SYS_tgkill
        SYS_timer_create SYS_timer_delete SYS_timerfd_create SYS_timerfd_gettime
        SYS_timerfd_settime SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_times
        SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_wait4 SYS_waitid
        SYS_write SYS_writev
    ];
    #[cfg(target_arch = "x86_64")]
    let older = calls![
        SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create
        SYS_epoll_wait SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp SYS_getrlimit
        SYS_inotify_init SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_open SYS_pause SYS_pipe SYS_poll
        SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_setrlimit SYS_signalfd SYS_stat SYS_symlink
        SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let older: [i64; 0] = [];
    common.into_iter().chain(older)
}

/// The calls that take memory which belongs to no process: only a control group counts it.
fn memory() -> impl Iterator<Item = i64> {
    calls![
        SYS_memfd_create SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_semctl SYS_semget SYS_semop
        SYS_semtimedop SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_fits_into_the_kernels_limit() {
        let all = FilterExceptions { memory: true, own_filter: true };
        let program = program(all).unwrap();
        assert!(program.len().is_multiple_of(8) && program.len() / 8 <= 4096, "{}", program.len());
    }

    #[test]
    fn calls_that_leave_a_sandbox_are_not_on_the_list() {
        let refused = calls![
            SYS_clone3 SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot
            SYS_ptrace SYS_bpf SYS_io_uring_setup SYS_userfaultfd SYS_keyctl SYS_add_key
            SYS_request_key SYS_open_by_handle_at SYS_name_to_handle_at SYS_perf_event_open
            SYS_process_vm_readv SYS_pidfd_getfd SYS_sync SYS_syncfs SYS_init_module SYS_reboot
            SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsmount SYS_mount_setattr SYS_acct
        ];
        let listed: Vec<i64> = always().chain(memory()).collect();
        assert!(refused.iter().all(|call| !listed.contains(call)));
    }
}

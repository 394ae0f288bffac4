//! Limits the system calls of a process that has opened all that it needs.

use super::Needs;

/// Forbids all system calls but those that loops, the control socket and the heart need, for the
/// calling thread and those that it starts.
///
/// # Errors
/// Why the calls cannot be forbidden.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub fn forbid(needs: Needs) -> Result<(), String> {
    filters::install(needs).map_err(|error| format!("system calls are not filtered ({error})"))
}

/// Forbids nothing: there are no filters for this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub fn forbid(_: Needs) -> Result<(), String> {
    Err("system calls are not filtered on this kind of processor".to_owned())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod filters {
    use std::collections::BTreeMap;

    use libc::c_long;
    use seccompiler::{
        BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch, apply_filter,
    };

    use super::Needs;

    /// System calls that are allowed with any arguments.
    const ALWAYS: &[c_long] = &[
        // Packets, requests and replies, on descriptors that are open.
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_lseek,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_accept4,
        libc::SYS_getsockopt,
        libc::SYS_setsockopt,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_shutdown,
        libc::SYS_close,
        libc::SYS_fcntl,
        libc::SYS_dup,
        libc::SYS_fstat,
        libc::SYS_ppoll,
        libc::SYS_eventfd2,
        // Memory. `mmap` and `mprotect` are below.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        // Threads. `clone` is below.
        libc::SYS_futex,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_geteuid,
        libc::SYS_getuid,
        libc::SYS_tgkill,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_restart_syscall,
        libc::SYS_membarrier,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_getcpu,
        // Time and random numbers.
        libc::SYS_clock_gettime,
        libc::SYS_clock_getres,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_gettimeofday,
        libc::SYS_getrandom,
    ];

    /// System calls for which the kernel kills the process: opening a file, starting a program, and
    /// reaching into another process.
    const DEADLY: &[c_long] = &[
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_open_by_handle_at,
        libc::SYS_unlinkat,
        libc::SYS_mkdirat,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_renameat2,
        libc::SYS_fchmodat,
        libc::SYS_fchownat,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_bpf,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_io_uring_setup,
    ];

    /// Older forms of allowed calls and of deadly ones, which only this kind of processor has.
    #[cfg(target_arch = "x86_64")]
    const OLDER: (&[c_long], &[c_long]) = (
        &[libc::SYS_poll, libc::SYS_accept, libc::SYS_dup2, libc::SYS_time],
        &[libc::SYS_open, libc::SYS_creat, libc::SYS_fork, libc::SYS_vfork, libc::SYS_unlink, libc::SYS_rename],
    );
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: (&[c_long], &[c_long]) = (&[libc::SYS_accept], &[]);

    /// Queries about interfaces, and FIONBIO, by which std makes sockets nonblocking.
    #[allow(clippy::unnecessary_cast, reason = "C libraries differ in the type of these numbers")]
    const IOCTLS: &[u64] = &[
        libc::SIOCGIFNAME as u64,
        libc::SIOCGIFINDEX as u64,
        libc::SIOCGIFFLAGS as u64,
        libc::SIOCGIFMTU as u64,
        libc::SIOCETHTOOL as u64,
        libc::FIONBIO as u64,
        libc::TCGETS as u64,
    ];
    /// The name of a thread, its timers, and names of memory (PR_SET_VMA, linux/prctl.h).
    const PRCTLS: &[u64] = &[libc::PR_SET_NAME as u64, libc::PR_SET_TIMERSLACK as u64, 0x5356_4d41];

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    pub fn install(needs: Needs) -> Result<(), Error> {
        let deadly: Rules = DEADLY.iter().chain(OLDER.1).map(|call| (*call, Vec::new())).collect();
        let mut known = allowed(needs)?;
        known.extend(deadly.keys().map(|call| (*call, Vec::new())));
        // The kernel runs both filters and takes the stricter answer.
        let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
        let rest = program(known, unknown, SeccompAction::Allow)?;
        let deadly = program(deadly, SeccompAction::Allow, SeccompAction::KillProcess)?;
        // The filter that is installed first must allow the call that installs the other.
        apply_filter(&deadly)?;
        apply_filter(&rest)
    }

    fn program(rules: Rules, other: SeccompAction, matching: SeccompAction) -> Result<BpfProgram, Error> {
        let here = TargetArch::try_from(std::env::consts::ARCH)?;
        Ok(SeccompFilter::new(rules, other, matching, here)?.try_into()?)
    }

    fn allowed(needs: Needs) -> Result<Rules, Error> {
        let mut rules: Rules = ALWAYS.iter().chain(OLDER.0).map(|call| (*call, Vec::new())).collect();
        let equal = |argument: u8, value: u64| {
            SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?])
        };
        let masked = |argument: u8, mask: u64, value: u64| {
            let compare = SeccompCmpOp::MaskedEq(mask);
            SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)?])
        };
        let one_of = |argument: u8, values: &[u64]| -> Result<Vec<SeccompRule>, Error> {
            Ok(values.iter().map(|value| equal(argument, *value)).collect::<Result<_, _>>()?)
        };
        rules.insert(libc::SYS_ioctl, one_of(1, IOCTLS)?);
        rules.insert(libc::SYS_prctl, one_of(0, PRCTLS)?);
        // No executable memory, and no child processes. `clone3` fails with ENOSYS, because its
        // flags lie in memory, which a filter cannot read. Libraries then use `clone`.
        let exec = libc::PROT_EXEC as u64;
        rules.insert(libc::SYS_mmap, vec![masked(2, exec, 0)?]);
        rules.insert(libc::SYS_mprotect, vec![masked(2, exec, 0)?]);
        let thread = libc::CLONE_THREAD as u64;
        rules.insert(libc::SYS_clone, vec![masked(0, thread, thread)?]);
        if needs.qdiscs {
            let families = [libc::AF_NETLINK, libc::AF_INET, libc::AF_UNIX].map(|family| family as u64);
            rules.insert(libc::SYS_socket, one_of(0, &families)?);
            // `bind` gives a netlink socket its address.
            rules.insert(libc::SYS_bind, Vec::new());
        }
        Ok(rules)
    }
}

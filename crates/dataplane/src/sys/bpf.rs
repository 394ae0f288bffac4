//! A BPF program of two instructions that drops everything that comes in at an interface.
//!
//! The bridge receives frames by a packet socket, and the kernel's network stack would handle the
//! same frames too. Packet sockets come before the ingress hook (`__netif_receive_skb_core`), so a
//! program that drops everything at the hook keeps frames only from the stack. It is attached by a
//! BPF link (tcx, Linux 6.6), which the kernel removes when the last descriptor is closed, also
//! after SIGKILL.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
/// The program comes before all others at the hook.
const BPF_F_BEFORE: u32 = 1 << 3;
const TCX_DROP: u64 = 2;

/// `mov r0, TCX_DROP` and `exit`: opcode in the low byte, immediate in the upper half (RFC 9669,
/// section 3).
const DROP: [u64; 2] = [0xb7 | TCX_DROP << 32, 0x95];

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative_fd: u32,
    padding: u32,
    expected_revision: u64,
}

/// Keeps the kernel's stack from handling what comes in at an interface, for as long as the
/// descriptor is open.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL or ENOSYS on a kernel without tcx.
pub fn drop_ingress(interface: u32) -> io::Result<OwnedFd> {
    let load = ProgLoad {
        prog_type: BPF_PROG_TYPE_SCHED_CLS,
        insn_cnt: DROP.len() as u32,
        insns: DROP.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"altq_drop\0\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: BPF_TCX_INGRESS,
    };
    let program = bpf(BPF_PROG_LOAD, &load)?;
    let link = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: interface,
        attach_type: BPF_TCX_INGRESS,
        flags: BPF_F_BEFORE,
        relative_fd: 0,
        padding: 0,
        expected_revision: 0,
    };
    // The link keeps the program loaded.
    bpf(BPF_LINK_CREATE, &link)
}

/// A bpf(2) command that returns a descriptor.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attributes` is the beginning of the kernel's bpf_attr for this command; the kernel
    // takes the rest as zero and reads no further than the given size. Its pointers are to statics.
    // Both commands return a new descriptor or an error. Neither std nor rustix has bpf(2).
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>());
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as libc::c_int)) }
    }
}

//! Loads and attaches BPF programs of a few instructions, and has the programs for the ingress hook
//! of a bridge's interfaces.
//!
//! The bridge receives frames by a packet socket, and the kernel's network stack would handle the
//! same frames too. Packet sockets come before the ingress hook (`__netif_receive_skb_core`), so a
//! program that drops everything at the hook keeps frames only from the stack. It is attached by a
//! BPF link (tcx, Linux 6.6), which the kernel removes when the last descriptor is closed, also
//! after SIGKILL. A second program does the same only until a deadline, which a process keeps
//! moving on; after it the program hands the frames to another interface. It is a filter of the
//! interface, which stays (`bridge/hook.rs`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
/// The program comes before all others at the hook.
const BPF_F_BEFORE: u32 = 1 << 3;
const TCX_DROP: u64 = 2;
/// The packet is taken away, without counting as dropped.
const TC_ACT_STOLEN: u64 = 4;

/// `mov r0, TCX_DROP` and `exit`: opcode in the low byte, immediate in the upper half (RFC 9669,
/// section 3).
const DROP: [u64; 2] = [0xb7 | TCX_DROP << 32, EXIT];
const EXIT: u64 = 0x95;

const BPF_MAP_TYPE_ARRAY: u32 = 2;
/// Processes may map the values.
const BPF_F_MMAPABLE: u32 = 1 << 10;
/// In the source register of a load: the immediate is the descriptor of a map, and the address of
/// the map's first value is loaded.
const BPF_PSEUDO_MAP_VALUE: u64 = 2;
/// Helper functions of the kernel (`enum bpf_func_id`).
const KTIME_GET_NS: u64 = 5;
const REDIRECT: u64 = 23;

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

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgQuery {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    padding: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

#[repr(C)]
struct GetById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct GetInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`, up to the name.
#[repr(C)]
struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    lengths: [u32; 2],
    instructions: [u64; 2],
    load_time: u64,
    uid: u32,
    map_count: u32,
    map_ids: u64,
    name: [u8; 16],
}

const _: () = assert!(size_of::<ProgInfo>() == 80 && size_of::<ProgQuery>() == 64);

/// The most programs at a hook that are listed (BPF_MPROG_MAX).
const MOST: usize = 64;

/// A program to load.
pub(super) struct Program<'a> {
    /// BPF_PROG_TYPE_…
    pub kind: u32,
    /// Where it is to be attached: BPF_… of `bpf_attach_type`.
    pub place: u32,
    /// BPF_F_…
    pub flags: u32,
    /// The index of the only interface that it may be attached to, or 0.
    pub interface: u32,
    /// Its name, which `bpftool prog` shows.
    pub name: [u8; 16],
    /// Its instructions.
    pub instructions: &'a [u64],
}

/// Loads a program. It is removed when nothing refers to it any more.
pub(super) fn load(program: &Program<'_>) -> io::Result<OwnedFd> {
    let load = ProgLoad {
        prog_type: program.kind,
        insn_cnt: program.instructions.len() as u32,
        insns: program.instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: program.flags,
        prog_name: program.name,
        prog_ifindex: program.interface,
        expected_attach_type: program.place,
    };
    descriptor(BPF_PROG_LOAD, &load)
}

/// Attaches a program to an interface for as long as the returned descriptor is open, which also
/// keeps the program loaded. `place` is a BPF_… of `bpf_attach_type`; `flags` are the flags for it.
pub(super) fn attach(program: BorrowedFd<'_>, interface: u32, place: u32, flags: u32) -> io::Result<OwnedFd> {
    let link = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: interface,
        attach_type: place,
        flags,
        relative_fd: 0,
        padding: 0,
        expected_revision: 0,
    };
    descriptor(BPF_LINK_CREATE, &link)
}

/// Makes a map from numbers below `entries` to descriptors. `kind` is a BPF_MAP_TYPE_…
pub(super) fn map_of_descriptors(kind: u32, entries: u32, name: [u8; 16]) -> io::Result<OwnedFd> {
    map(kind, 4, entries, 0, name)
}

/// Makes a map of one number, 0 at first, which programs read and processes map
/// ([`Number`](super::number::Number)).
///
/// # Errors
/// EPERM without CAP_BPF; EINVAL before Linux 5.5.
pub fn shared_number() -> io::Result<OwnedFd> {
    map(BPF_MAP_TYPE_ARRAY, 8, 1, BPF_F_MMAPABLE, *b"altq_until\0\0\0\0\0\0")
}

/// Makes a map from numbers below `entries` to values of `value_size` bytes.
fn map(kind: u32, value_size: u32, entries: u32, flags: u32, name: [u8; 16]) -> io::Result<OwnedFd> {
    let map = MapCreate {
        map_type: kind,
        key_size: 4,
        value_size,
        max_entries: entries,
        map_flags: flags,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: name,
    };
    descriptor(BPF_MAP_CREATE, &map)
}

/// Puts a descriptor into a map of [`map_of_descriptors`].
pub(super) fn put(map: BorrowedFd<'_>, key: u32, value: BorrowedFd<'_>) -> io::Result<()> {
    let value = value.as_raw_fd();
    let update = MapUpdate {
        map_fd: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &update).map(drop)
}

/// Keeps the kernel's stack from handling what comes in at an interface, for as long as the
/// descriptor is open. The program comes before all others at the hook.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL or ENOSYS on a kernel without tcx.
pub fn drop_ingress(interface: u32) -> io::Result<OwnedFd> {
    let (kind, place) = (BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_INGRESS);
    let (name, instructions) = (*b"altq_drop\0\0\0\0\0\0\0", &DROP);
    let program = load(&Program { kind, place, flags: 0, interface: 0, name, instructions })?;
    attach(program.as_fd(), interface, place, BPF_F_BEFORE)
}

/// Loads a program for a filter of incoming packets (direct action). Until a deadline by
/// CLOCK_MONOTONIC, the number of `until` (a map of [`shared_number`]), it drops them; after it it
/// hands them to the interface `to`.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN.
pub fn forward_program(to: u32, until: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (name, instructions) = (*b"altq_forward\0\0\0\0", &forward(to, until.as_raw_fd()));
    load(&Program { kind: BPF_PROG_TYPE_SCHED_CLS, place: 0, flags: 0, interface: 0, name, instructions })
}

/// The names of the programs that BPF links have attached to the ingress hook of an interface, in
/// the order in which they run. The interface's filters come after them.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN and CAP_SYS_ADMIN; EINVAL on a kernel without tcx.
pub fn at_ingress_hook(interface: u32) -> io::Result<Vec<String>> {
    let mut ids = [0_u32; MOST];
    let mut query = ProgQuery {
        target_ifindex: interface,
        attach_type: BPF_TCX_INGRESS,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: (&raw mut ids) as u64,
        count: MOST as u32,
        padding: 0,
        prog_attach_flags: 0,
        link_ids: 0,
        link_attach_flags: 0,
        revision: 0,
    };
    match bpf_mut(BPF_PROG_QUERY, &mut query) {
        // Nothing was ever attached there.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        done => done?,
    };
    ids.iter().take(query.count as usize).map(|id| name_of(*id)).collect()
}

/// The name of the program of this number.
fn name_of(id: u32) -> io::Result<String> {
    let program = descriptor(BPF_PROG_GET_FD_BY_ID, &GetById { id, next_id: 0, open_flags: 0 })?;
    let (lengths, instructions) = ([0; 2], [0; 2]);
    let (kind, tag, load_time, uid, map_count, map_ids, name) = (0, [0; 8], 0, 0, 0, 0, [0; 16]);
    let mut info = ProgInfo { kind, id, tag, lengths, instructions, load_time, uid, map_count, map_ids, name };
    let len = size_of_val(&info) as u32;
    let mut get = GetInfo { fd: program.as_raw_fd() as u32, len, info: (&raw mut info) as u64 };
    bpf_mut(BPF_OBJ_GET_INFO_BY_FD, &mut get)?;
    let name = info.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The instructions of [`forward_program`]: opcode in the low byte, then the destination register
/// (4 bits), the source register, 16 bits of offset, 32 of immediate (RFC 9669, section 3).
fn forward(to: u32, until: i32) -> [u64; 11] {
    let (r6, r6_source) = (6 << 8, 6 << 12);
    [
        // r6 = address of the number: two places for 64 bits of immediate.
        0x18 | r6 | BPF_PSEUDO_MAP_VALUE << 12 | u64::from(until as u32) << 32,
        0,
        // r6 = the number
        0x79 | r6 | r6_source,
        // r0 = the time
        0x85 | KTIME_GET_NS << 32,
        // if r0 >= r6, skip the next two
        0x3d | r6_source | 2 << 16,
        0xb7 | TC_ACT_STOLEN << 32,
        EXIT,
        // r1 = the other interface, r2 = 0: leave by it
        0xb7 | 1 << 8 | u64::from(to) << 32,
        0xb7 | 2 << 8,
        // r0 = what the hook is to do
        0x85 | REDIRECT << 32,
        EXIT,
    ]
}

/// A bpf(2) command that returns a descriptor.
fn descriptor<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the callers' commands return a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A bpf(2) command that answers into its attributes, or behind a pointer of theirs.
fn bpf_mut<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: as in `bpf`; besides, the kernel writes into `attributes`, which is borrowed for that
    // and whose fields take any bytes, and where its pointers lead: to arrays of the callers' that
    // are as long as they say, are written by nobody else and outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as libc::c_int) }
}

/// A bpf(2) command.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: `attributes` is the beginning of the kernel's bpf_attr for this command; the kernel
    // takes the rest as zero and reads no further than the given size. Its pointers are to values
    // that outlive the call, and the kernel only reads them. Neither std nor rustix has bpf(2).
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as libc::c_int) }
}

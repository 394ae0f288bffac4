//! A BPF program of a few instructions that hands the frames that come in at an interface to
//! sockets of AF_XDP, before the kernel's network stack has them.
//!
//! It looks up the socket of the frame's receive queue in a map and redirects the frame there;
//! without one, it drops the frame. It is attached by a BPF link (Linux 5.9), which the kernel
//! removes when the last descriptor is closed, also after SIGKILL.
//!
//! Between the ends of a veth pair the kernel carries a VLAN tag beside the frame, not in it. A
//! second form of the program asks the kernel for the tag (`bpf_xdp_metadata_rx_vlan_tag`, Linux
//! 6.8) and puts it back into the frame, behind the addresses. It may call that function because it
//! is bound to its interface (Documentation/networking/xdp-rx-metadata.rst of the kernel).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::bpf::{self, Program};

const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
/// How a program is attached (linux/if_link.h).
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// How often to try again at an interface that has another program, and how long to wait before
/// each attempt.
const TRIES: (usize, Duration) = (50, Duration::from_millis(10));

/// The kernel function that returns a frame's VLAN tag.
pub const TAG_OF: &str = "bpf_xdp_metadata_rx_vlan_tag";

/// Where an interface's program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made a packet of the frame.
    Native,
    /// In the kernel's stack, through which the frames of every driver pass.
    Generic,
}

/// An instruction (RFC 9669, section 3): opcode, target and source register, offset, immediate.
const fn code(opcode: u8, target: u8, source: u8, offset: i16, immediate: i32) -> u64 {
    opcode as u64
        | ((source << 4 | target) as u64) << 8
        | (offset as u16 as u64) << 16
        | (immediate as u32 as u64) << 32
}

/// `target = immediate`.
const fn set(target: u8, immediate: i32) -> u64 {
    code(0xb7, target, 0, 0, immediate)
}
/// `target = source`.
const fn copy(target: u8, source: u8) -> u64 {
    code(0xbf, target, source, 0, 0)
}
/// `target += immediate`.
const fn add(target: u8, immediate: i32) -> u64 {
    code(0x07, target, 0, 0, immediate)
}
/// `target =` the 32 bits at `source + offset`.
const fn word(target: u8, source: u8, offset: i16) -> u64 {
    code(0x61, target, source, offset, 0)
}
/// `target =` the 16 bits at `source + offset`.
const fn half(target: u8, source: u8, offset: i16) -> u64 {
    code(0x69, target, source, offset, 0)
}
/// The 16 bits at `target + offset =` source.
const fn store(target: u8, offset: i16, source: u8) -> u64 {
    code(0x6b, target, source, offset, 0)
}
/// The 64 bits at `target + offset = 0`.
const fn clear(target: u8, offset: i16) -> u64 {
    code(0x7a, target, 0, offset, 0)
}
/// Calls one of the kernel's helpers.
const fn call(helper: i32) -> u64 {
    code(0x85, 0, 0, 0, helper)
}
const EXIT: u64 = code(0x95, 0, 0, 0, 0);

/// Helpers of linux/bpf.h.
const ADJUST_HEAD: i32 = 44;
const REDIRECT_MAP: i32 = 51;
/// Bytes of `struct xdp_md` before a field.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;
const XDP_DROP: i32 = 1;

/// Redirects the frame whose context is in register `context` to the socket of its queue.
fn redirect(context: u8, map: BorrowedFd<'_>) -> [u64; 6] {
    [
        word(2, context, QUEUE),
        // A load of 64 bits takes two instructions; source 1 says that it is the descriptor of a
        // map (BPF_PSEUDO_MAP_FD).
        code(0x18, 1, 1, 0, map.as_raw_fd()),
        0,
        // What to do with the frame if there is no socket.
        set(3, XDP_DROP),
        call(REDIRECT_MAP),
        EXIT,
    ]
}

/// The same program, which first puts a tag that the kernel carries beside the frame into it.
/// `tag_of` is the number of [`TAG_OF`].
fn tag_and_redirect(map: BorrowedFd<'_>, tag_of: i32) -> Vec<u64> {
    let mut program = vec![
        copy(6, 1),
        // The tag's type and its control word, on the stack.
        clear(10, -8),
        clear(10, -16),
        copy(2, 10),
        add(2, -8),
        copy(3, 10),
        add(3, -16),
        // Source 2: a function of the kernel (BPF_PSEUDO_KFUNC_CALL).
        code(0x85, 0, 2, 0, tag_of),
        // If the result (32 bits) is not 0, there is no tag: go on to the redirection.
        code(0x56, 0, 0, 26, 0),
        // Add four bytes at the front.
        copy(1, 6),
        set(2, -4),
        call(ADJUST_HEAD),
        // No room: the frame is dropped.
        code(0x55, 0, 0, 28, 0),
        word(2, 6, DATA),
        word(3, 6, DATA_END),
        copy(4, 2),
        add(4, 16),
        // The frame is too short to have addresses: it is dropped.
        code(0x2d, 4, 3, 23, 0),
    ];
    for at in [0, 2, 4, 6, 8, 10] {
        program.extend([half(5, 2, at + 4), store(2, at, 5)]);
    }
    program.extend([
        half(5, 10, -8),
        store(2, 12, 5),
        half(5, 10, -16),
        // Turn the control word into network order. The type is in network order already.
        code(0xdc, 5, 0, 0, 16),
        store(2, 14, 5),
    ]);
    program.extend(redirect(6, map));
    program.extend([set(0, XDP_DROP), EXIT]);
    program
}

/// A map from receive queues to sockets, with room for so many queues.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL without CONFIG_XDP_SOCKETS.
pub fn sockets(queues: u32) -> io::Result<OwnedFd> {
    bpf::map_of_descriptors(BPF_MAP_TYPE_XSKMAP, queues, *b"altq_sockets\0\0\0\0")
}

/// Gives a receive queue its socket.
///
/// # Errors
/// Those of bpf(2).
pub fn give(sockets: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    bpf::put(sockets, queue, socket)
}

/// Hands the frames that come in at an interface to the sockets of a map, for as long as the
/// descriptor is open. With the number of [`TAG_OF`], tags that the kernel carries beside frames
/// are put back into them, which needs the native mode.
///
/// # Errors
/// EOPNOTSUPP if the driver has no XDP in this mode; EBUSY or EEXIST if another program is
/// attached; ERANGE, EINVAL and others if the driver refuses the interface's MTU or settings;
/// EPERM.
pub fn redirect_to(sockets: BorrowedFd<'_>, interface: u32, mode: Mode, tag_of: Option<u32>) -> io::Result<OwnedFd> {
    let (instructions, bound) = match tag_of {
        Some(number) => (tag_and_redirect(sockets, number as i32), true),
        None => (redirect(1, sockets).to_vec(), false),
    };
    let program = bpf::load(&Program {
        kind: BPF_PROG_TYPE_XDP,
        place: BPF_XDP,
        flags: if bound { BPF_F_XDP_DEV_BOUND_ONLY } else { 0 },
        interface: if bound { interface } else { 0 },
        name: *b"altq_redirect\0\0\0",
        instructions: &instructions,
    })?;
    let flags = match mode {
        Mode::Native => XDP_FLAGS_DRV_MODE,
        Mode::Generic => XDP_FLAGS_SKB_MODE,
    };
    let mut tries = 0;
    loop {
        match bpf::attach(program.as_fd(), interface, BPF_XDP, flags) {
            // When a process has just ended, the kernel may remove its program a moment later.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES.0 => std::thread::sleep(TRIES.1),
            other => return other,
        }
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opcode, target, source, offset, immediate.
    fn read(instruction: u64) -> (u8, u8, u8, i16, i32) {
        let bytes = instruction.to_le_bytes();
        let immediate = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        (bytes[0], bytes[1] & 15, bytes[1] >> 4, i16::from_le_bytes([bytes[2], bytes[3]]), immediate)
    }

    /// The fields stand where RFC 9669 3.1 puts them: opcode, registers, offset, immediate.
    #[test]
    fn an_instruction_is_laid_out_as_the_rfc_draws_it() {
        assert_eq!(code(0x69, 5, 10, -8, 0).to_le_bytes(), [0x69, 0xa5, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(set(2, -4).to_le_bytes(), [0xb7, 0x02, 0, 0, 0xfc, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn jumps_lead_to_the_redirection_and_to_the_end() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let program = tag_and_redirect(file.as_fd(), 4711);
        let target = |at: usize| (at as i64 + 1 + i64::from(read(program[at]).3)) as usize;
        let is_jump = |at: &usize| [0x55, 0x56, 0x2d].contains(&read(program[*at]).0);
        let jumps: Vec<usize> = (0..program.len()).filter(is_jump).collect();
        assert_eq!(jumps.len(), 3);
        // Without a tag the jump goes to the load of the queue's number. The two other jumps go to
        // `r0 = XDP_DROP`, after which the program ends.
        assert_eq!(program[target(jumps[0])], word(2, 6, QUEUE));
        for jump in &jumps[1..] {
            assert_eq!(program[target(*jump)..], [set(0, XDP_DROP), EXIT]);
        }
        assert_eq!(program.iter().filter(|one| read(**one) == (0x85, 0, 2, 0, 4711)).count(), 1);
    }

    /// Runs the part of the program between the check of the length and the redirection on a frame,
    /// with the tag's type and control word on the stack as the kernel would write them.
    #[test]
    fn the_tag_comes_behind_the_addresses() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let program = tag_and_redirect(file.as_fd(), 1);
        let begin = program.iter().position(|one| read(*one).0 == 0x2d).unwrap() + 1;
        let end = program.iter().position(|one| *one == word(2, 6, QUEUE)).unwrap();
        // The frame from its new beginning on: four free bytes, addresses, ethertype.
        let mut frame: Vec<u8> = [vec![0_u8; 4], (1..=12).collect::<Vec<u8>>(), vec![8, 0]].concat();
        let (kind, control) = (0x88a8_u16.to_be_bytes(), 0x2005_u16.to_ne_bytes());
        let mut register = 0_u16;
        for one in &program[begin..end] {
            match read(*one) {
                (0x69, 5, 10, -8, 0) => register = u16::from_ne_bytes(kind),
                (0x69, 5, 10, -16, 0) => register = u16::from_ne_bytes(control),
                (0x69, 5, 2, at, 0) => register = u16::from_ne_bytes([frame[at as usize], frame[at as usize + 1]]),
                (0x6b, 2, 5, at, 0) => frame[at as usize..at as usize + 2].copy_from_slice(&register.to_ne_bytes()),
                (0xdc, 5, 0, 0, 16) => register = register.to_be(),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(frame, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0xa8, 0x20, 5, 8, 0]);
    }
}

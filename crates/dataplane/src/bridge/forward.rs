//! Forwards the direction of a bridge that no link shapes: frames are sent in the order in which
//! they came.

use std::collections::VecDeque;

use crate::edge::{BATCH, Blocked, Edge, Want};
use crate::error::Error;
use crate::pool::Pool;
use crate::segment::{self, Super};
use crate::vnet::GSO_NONE;

/// The number of frames for which a direction without a link has room.
pub(super) const FRAMES: usize = 4 * BATCH;
/// For how many segments there is room: a super-packet of 64 KB has some 45 of the usual length.
const SEGMENTS: usize = 64 * BATCH;

/// Forwards frames until stopped.
///
/// # Errors
/// Those of the edge.
pub fn forward(mut edge: impl Edge) -> Result<(), Error> {
    let mut pool = edge.pool(FRAMES + SEGMENTS, FRAMES);
    pool.touch(BATCH, BATCH);
    // Frames that came, and those of them that are not made ready to leave yet.
    let mut came: Vec<u32> = Vec::with_capacity(BATCH);
    let mut ready: VecDeque<u32> = VecDeque::with_capacity(BATCH);
    let mut frames: Vec<u32> = Vec::with_capacity(BATCH);
    let mut parts = Vec::new();
    let mut blocked = None;
    let mut there = true;
    while !edge.stopped() {
        // Nothing is received while frames wait to be sent, so they queue up in the kernel's
        // receive buffer.
        let full = there && frames.is_empty() && ready.is_empty() && {
            edge.receive(&mut pool, &mut came)?;
            ready.extend(came.drain(..));
            ready.len() >= BATCH
        };
        if frames.is_empty() {
            while let Some(handle) = ready.pop_front() {
                if !sendable(&mut edge, &mut pool, handle, &mut parts, &mut frames) {
                    // There is room for its segments when those before it have left.
                    ready.push_front(handle);
                    break;
                }
            }
        }
        if !frames.is_empty() {
            let sent = edge.send(&mut pool, &frames, &[])?;
            for handle in frames.drain(..sent.done) {
                pool.free(handle);
            }
            blocked = sent.blocked;
        }
        if (full || !ready.is_empty()) && frames.is_empty() {
            continue;
        }
        let deadline = match blocked {
            Some(Blocked::Until(at)) if !frames.is_empty() => Some(at),
            _ => None,
        };
        let want = Want { frames: frames.is_empty(), room: !frames.is_empty() && blocked == Some(Blocked::Full) };
        let woken = edge.wait(deadline, want)?;
        there = woken.frames || !frames.is_empty();
    }
    Ok(())
}

/// Adds a frame to those that leave: a super-packet that the edge does not send as it is, in its
/// segments; one that nobody can send, not at all. False if others must leave before.
fn sendable(
    edge: &mut impl Edge,
    pool: &mut Pool,
    handle: u32,
    parts: &mut Vec<segment::Part>,
    frames: &mut Vec<u32>,
) -> bool {
    let vnet = *pool.vnet(handle);
    if vnet.kind() == GSO_NONE || !edge.holds_bytes() {
        frames.push(handle);
        return true;
    }
    match Super::read(&vnet, pool.head(handle), pool.len(handle)) {
        Some(whole) if whole.direct && edge.segments(&whole) => frames.push(handle),
        Some(whole) if segment::cut(pool, handle, &whole, 1, parts) => {
            frames.extend(parts.drain(..).map(|part| part.handle));
        }
        Some(_) if !frames.is_empty() => return false,
        _ => {
            edge.refuse(handle);
            pool.free(handle);
        }
    }
    true
}

//! Forwards the direction of a bridge that no link shapes: frames are sent in the order in which
//! they came.

use crate::edge::{BATCH, Blocked, Edge, Want};
use crate::error::Error;

/// The number of frames for which a direction without a link has room.
pub(super) const FRAMES: usize = 4 * BATCH;

/// Forwards frames until stopped.
///
/// # Errors
/// Those of the edge.
pub fn forward(mut edge: impl Edge) -> Result<(), Error> {
    let mut pool = edge.pool(FRAMES, FRAMES);
    let mut frames: Vec<u32> = Vec::with_capacity(BATCH);
    let mut blocked = None;
    let mut there = true;
    while !edge.stopped() {
        // Nothing is received while frames wait to be sent, so they queue up in the kernel's
        // receive buffer.
        let full = there && frames.is_empty() && {
            edge.receive(&mut pool, &mut frames)?;
            frames.len() >= BATCH
        };
        if !frames.is_empty() {
            let sent = edge.send(&mut pool, &frames, &[])?;
            for handle in frames.drain(..sent.done) {
                pool.free(handle);
            }
            blocked = sent.blocked;
        }
        if full && frames.is_empty() {
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

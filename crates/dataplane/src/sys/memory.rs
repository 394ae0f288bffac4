//! An allocator that uses large pages for large pieces of memory.
//!
//! The records of 100,000 classes take tens of megabytes, and each packet touches a few cache lines
//! far apart. With pages of 4 KiB the processor also waits for address translation. In this case
//! large pages cut the time for a packet by a third.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

/// Size and alignment of a large page: 2 MiB on x86-64, and on ARM with pages of 4 KiB.
const PAGE: usize = 2 << 20;

/// The system's allocator, except for pieces of 2 MiB and more. Those are mapped from the kernel,
/// aligned, with advice to use large pages (`MADV_HUGEPAGE`, madvise(2)). A kernel without large
/// pages uses small ones.
pub struct LargePages;

/// Gives memory that was freed back to the kernel, as far as the C library can (malloc_trim(3);
/// only glibc has it). Otherwise a process keeps what its largest work took, and holes between
/// pieces that stay.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes only memory that the allocator has and nobody uses, under its locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes to map from the kernel; `None` for pieces of the system's allocator.
fn large(layout: Layout) -> Option<usize> {
    if layout.size() < PAGE || layout.align() > PAGE {
        return None;
    }
    // A layout's size is at most isize::MAX, so this is less than usize::MAX.
    Some(layout.size().next_multiple_of(PAGE))
}

/// Maps `size` bytes, a multiple of [`PAGE`], aligned to it, zeroed. Null if there is no memory.
fn map(size: usize) -> *mut u8 {
    let Some(more) = size.checked_add(PAGE) else { return null_mut() };
    // SAFETY: a new private mapping at an address chosen by the kernel overlaps no memory in use.
    let start = unsafe {
        libc::mmap(null_mut(), more, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return null_mut();
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(PAGE);
    let after = PAGE - before;
    // SAFETY: what is unmapped lies within the mapping just made, before and behind the aligned
    // piece that is kept; `before` is a multiple of the page size, as `start` and PAGE are, and at
    // most PAGE.
    unsafe {
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        let kept = start.add(before);
        if after > 0 {
            libc::munmap(kept.add(size).cast(), after);
        }
        // Only advice: a kernel that does not know it ignores it.
        libc::madvise(kept.cast(), size, libc::MADV_HUGEPAGE);
        kept
    }
}

// SAFETY: every piece comes from the system's allocator or from `map`, and goes back to the same:
// `large` decides by the layout alone, which is the same at both ends. Pieces of `map` are as large
// as asked for or larger, aligned to PAGE, and their own.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match large(layout) {
            Some(size) => map(size),
            // SAFETY: the caller's promise for `layout` is passed on.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match large(layout) {
            Some(size) => map(size),
            // SAFETY: the caller's promise for `layout` is passed on.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match large(layout) {
            // SAFETY: `piece` is a mapping of this size, made by `map` for this layout, and nobody
            // uses it any more.
            Some(size) => unsafe {
                libc::munmap(piece.cast(), size);
            },
            // SAFETY: `piece` came from the system's allocator for this layout.
            None => unsafe { System.dealloc(piece, layout) },
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` is not 0 and does not overflow with the
        // alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (large(layout), large(wanted)) {
            // SAFETY: `piece` came from the system's allocator for this layout, and what it becomes
            // stays there.
            (None, None) => unsafe { System.realloc(piece, layout, size) },
            (Some(has), Some(wants)) if has == wants => piece,
            // SAFETY: both pieces are live, of their own, and at least as long as what is copied.
            _ => unsafe {
                let new = self.alloc(wanted);
                if !new.is_null() {
                    std::ptr::copy_nonoverlapping(piece, new, layout.size().min(size));
                    self.dealloc(piece, layout);
                }
                new
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_sizes_grow_and_shrink_with_what_is_in_them() {
        let sizes = [64, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 5, 5000, PAGE, 8];
        let mut layout = Layout::from_size_align(sizes[0], 64).unwrap();
        // SAFETY: each piece is used within its size, by this test alone, and given back with the
        // layout it has.
        unsafe {
            let mut piece = LargePages.alloc_zeroed(layout);
            assert!((0..sizes[0]).all(|at| *piece.add(at) == 0));
            for at in 0..sizes[0] {
                *piece.add(at) = at as u8;
            }
            for size in &sizes[1..] {
                let kept = layout.size().min(*size);
                piece = LargePages.realloc(piece, layout, *size);
                assert!(!piece.is_null() && (piece as usize).is_multiple_of(64));
                assert!((0..kept).all(|at| *piece.add(at) == at as u8), "{size}");
                for at in kept..*size {
                    *piece.add(at) = at as u8;
                }
                layout = Layout::from_size_align(*size, 64).unwrap();
            }
            LargePages.dealloc(piece, layout);
        }
        // The piece is zeroed, aligned and given back.
        let layout = Layout::from_size_align(5 * PAGE + 7, 4096).unwrap();
        // SAFETY: as above.
        unsafe {
            let piece = LargePages.alloc_zeroed(layout);
            assert!((piece as usize).is_multiple_of(PAGE));
            assert!((0..layout.size()).step_by(4096).all(|at| *piece.add(at) == 0));
            LargePages.dealloc(piece, layout);
        }
    }
}

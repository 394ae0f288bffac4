//! Names with wildcards: files of `include`, classes of `--class`.

/// Whether a name has the form of a pattern, in which `*` stands for any characters, also none, and
/// `?` for one. All other characters stand for themselves. Takes at most the product of the two
/// lengths in steps.
///
/// ```
/// assert!(altq_config::wildcard::fits("gold*-?", "gold-plan-1"));
/// assert!(!altq_config::wildcard::fits("gold-?", "gold-12"));
/// ```
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // Where to go on if what follows the last `*` does not fit: that `*` takes one more character.
    let (mut p, mut n, mut again) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                again = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match again {
                Some((star, from)) => {
                    again = Some((star, from + 1));
                    (p, n) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_say() {
        for (pattern, name, same) in [
            ("gold*", "gold-12", true),
            ("gold*", "gold", true),
            ("*-1", "gold-1-1", true),
            ("*-1", "gold-12", false),
            ("g?ld-?", "gold-1", true),
            ("g?ld-?", "gold-12", false),
            ("*", "", true),
            ("", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "acb", false),
            ("*.altq", "a.altq", true),
            ("*.altq", "a.conf", false),
            ("?.altq", "é.altq", true),
            ("a?", "a", false),
        ] {
            assert_eq!(fits(pattern, name), same, "{pattern} {name}");
        }
        // A pattern that would take for ever if each `*` were tried with each of the others.
        assert!(!fits(&"*a".repeat(30), &"a".repeat(29)));
    }
}

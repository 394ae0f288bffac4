//! Names of classes with wildcards, as `--class` takes them.

use altq_config::suggest::nearest;

/// What is wrong if a name means no class: with the nearest one. `known` has the link and the name
/// of each class, `file` is where they stand.
pub fn unknown(patterns: &[String], known: &[(String, String)], file: &str) -> Option<String> {
    let unknown = |pattern: &&String| !known.iter().any(|(link, class)| means(pattern, link, class));
    let pattern = patterns.iter().find(unknown)?;
    let names = known.iter().flat_map(|(link, class)| [link.as_str(), class.as_str()]);
    let hint = nearest(pattern, names).map_or(String::new(), |name| format!("; did you mean {name:?}?"));
    Some(format!("--class: no class of {file} is named {pattern:?}{hint}"))
}

/// Whether a name with wildcards means this class of this link. The name of a link means all its
/// classes, because it is that of the class above them.
pub fn means(pattern: &str, link: &str, class: &str) -> bool {
    matches(pattern, class) || matches(pattern, link) || matches(pattern, &format!("{link}/{class}"))
}

/// Whether a text has the form of a pattern, in which `*` stands for any text and `?` for one
/// character.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where to go on if what follows the last `*` does not fit: that `*` takes one more character.
    let (mut p, mut t, mut again) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                again = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match again {
                Some((star, from)) => {
                    again = Some((star, from + 1));
                    (p, t) = (star + 1, from + 1);
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
        for (pattern, text, same) in [
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
        ] {
            assert_eq!(matches(pattern, text), same, "{pattern} {text}");
        }
    }
}

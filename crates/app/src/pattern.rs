//! Names of classes with wildcards, as `--class` takes them.

use altq_config::suggest::nearest;
use altq_config::wildcard::fits;

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
    fits(pattern, class) || fits(pattern, link) || fits(pattern, &format!("{link}/{class}"))
}

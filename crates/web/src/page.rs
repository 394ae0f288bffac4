//! The page: one document with its style and its script inside. It sends requests only to this
//! server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::Body;

const HTML: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 7] = [
    include_str!("page/text.js"),
    include_str!("page/data.js"),
    include_str!("page/tree.js"),
    include_str!("page/plot.js"),
    include_str!("page/flows.js"),
    include_str!("page/explain.js"),
    include_str!("page/main.js"),
];

/// The page, and what a browser may do with it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The document.
    pub body: Body,
    /// Its Content-Security-Policy: this style, this script, and connections to this server.
    pub policy: String,
}

impl Page {
    /// Makes the page of its parts.
    pub fn new() -> Page {
        let script = format!("\"use strict\";\n{}", SCRIPTS.concat());
        let text = HTML.replacen("/*STYLE*/", STYLE, 1).replacen("/*SCRIPT*/", &script, 1);
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            hash(STYLE),
            hash(&script)
        );
        Page { body: text.into_bytes().into(), policy }
    }
}

impl Default for Page {
    fn default() -> Page {
        Page::new()
    }
}

/// The expression by which a policy allows an inline element (Content Security Policy Level 3,
/// 2.3.1).
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> (String, String) {
        let page = Page::new();
        (String::from_utf8(page.body.to_vec()).unwrap(), page.policy)
    }

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        let (text, _) = page();
        assert!(text.len() < 100_000, "{} bytes", text.len());
        for word in ["http:", "https:", "//cdn", "@import", "url(", " src=", "WebSocket", "XMLHttpRequest"] {
            assert!(!text.contains(word), "the page has {word}");
        }
        assert!(!text.contains("/*STYLE*/") && !text.contains("/*SCRIPT*/"));
    }

    /// The script writes names as text, never as markup.
    #[test]
    fn nothing_is_read_as_markup() {
        let (text, _) = page();
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", " on"] {
            let found = text.match_indices(word).any(|(at, _)| {
                // Attributes such as onclick are neither allowed by the policy nor used.
                word != " on" || text[at + 3..].split_once('=').is_some_and(|(name, _)| is_attribute(name))
            });
            assert!(!found, "the page has {word}");
        }
    }

    fn is_attribute(name: &str) -> bool {
        !name.is_empty() && name.len() < 20 && name.bytes().all(|b| b.is_ascii_lowercase())
    }

    #[test]
    fn the_policy_allows_the_two_elements_as_they_stand() {
        let (text, policy) = page();
        let inside = |tag: &str| {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            let (_, rest) = text.split_once(&open).unwrap();
            rest.split_once(&close).unwrap().0.to_owned()
        };
        for tag in ["style", "script"] {
            assert!(policy.contains(&hash(&inside(tag))), "{tag}");
            assert_eq!(text.matches(&format!("<{tag}")).count(), 1, "{tag}");
        }
        // The SHA-256 of the empty text (FIPS 180-4), in base64.
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}

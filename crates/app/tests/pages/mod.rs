//! What every page is checked for.

use std::path::Path;
use std::process::Command;

/// Every element is closed in the right order, except those that HTML leaves open.
pub fn whole(page: &str) {
    let body = page.replace("<!doctype html>", "");
    let style = body.find("<style>").unwrap()..body.find("</style>").unwrap();
    let body = format!("{}<style>{}", &body[..style.start], &body[style.end..]);
    let mut open: Vec<&str> = Vec::new();
    for piece in body.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("<{piece}"));
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if ["meta", "link", "br"].contains(&name) || tag.ends_with('/') {
            continue;
        }
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "<{piece}"),
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The page loads nothing from elsewhere and has no scripts.
pub fn alone(page: &str) {
    // Base64 data is left out: it may contain the forbidden words by chance.
    let pieces = page.split("base64,").enumerate();
    let page: String = pieces
        .map(|(n, piece)| if n == 0 { piece } else { piece.split_once('"').map_or("", |(_, rest)| rest) })
        .collect();
    let page = page.replace("href=\"data:application/json;", "href=\"data:\"");
    let page = page.as_str();
    for word in ["http:", "https:", "//cdn", "<script", "@import", "url(http", " onclick", " src="] {
        assert!(!page.contains(word), "{word}");
    }
    for link in page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(
            link.starts_with("data:") || link.starts_with('#') || link.ends_with(".html") || link.ends_with(".json"),
            "{link}"
        );
    }
    assert!(!page.contains("NaN") && !page.contains("inf "), "a figure is NaN or infinite");
}

/// Everything that a browser writes to its console about a page; it should be nothing. `None` if
/// there is no browser here.
pub fn console(page: &Path, profile: &Path, width: u32) -> Option<String> {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success()))?;
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        // Chromium makes no network requests of its own.
        .args(["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .arg("--disable-sync")
        .arg(format!("--window-size={width},2000"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(
        out.status.success() && String::from_utf8_lossy(&out.stdout).contains("</html>"),
        "{browser} did not load the page"
    );
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    Some(said.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n"))
}

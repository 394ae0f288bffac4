//! docs/language.md has every word that the registries and the parser know.

use altq_engine::link::KEYWORDS;
use altq_engine::queue::QUEUES;
use altq_engine::schedule::SCHEDULERS;
use altq_engine::settings::{Kind, Word};

#[test]
fn every_word_is_in_the_reference() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/language.md");
    let text = std::fs::read_to_string(path).expect("docs/language.md");
    // Words of the page are those that are alone between code marks.
    let code: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let known = |word: &str| {
        code.iter().any(|code| code.split(|c: char| c.is_whitespace() || "{}[],|".contains(c)).any(|w| w == word))
    };
    let mut missing: Vec<String> = Vec::new();
    let mut need = |word: &str| {
        if !known(word) {
            missing.push(word.to_owned());
        }
    };
    let mut words: Vec<&Word> = Vec::new();
    for entry in SCHEDULERS {
        need(entry.name);
        words.extend(entry.words.iter().chain(entry.class_words));
    }
    for entry in QUEUES {
        need(entry.name);
        words.extend(entry.words);
    }
    for word in words {
        word.name.split(' ').for_each(&mut need);
        if let Kind::Choice(choices) = word.kind {
            choices.iter().for_each(|choice| need(choice));
        }
    }
    KEYWORDS.iter().for_each(|keyword| need(keyword.name));
    altq_config::native::words().for_each(need);
    assert!(missing.is_empty(), "docs/language.md lacks {missing:?}");
}

/// The example at the top of docs/language.md is a policy without errors.
#[test]
fn the_example_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/language.md");
    let text = std::fs::read_to_string(path).expect("docs/language.md");
    let example = text.split("```").nth(1).expect("an example");
    let policy = altq_config::parse_str(example, "docs/language.md", altq_config::Language::Native);
    let policy = policy.unwrap_or_else(|failed| panic!("{failed}"));
    assert!(policy.warnings.is_empty(), "{:?}", policy.warnings);
}

fn read(file: &str) -> String {
    let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The README's tables list every scheduler and queue, and nothing else.
#[test]
fn the_tables_of_schedulers_and_queues() {
    let readme = read("README.md");
    for (folder, names) in [
        ("schedulers", SCHEDULERS.iter().map(|entry| entry.name).collect::<Vec<_>>()),
        ("queues", QUEUES.iter().map(|entry| entry.name).collect()),
    ] {
        let row = |name: &str| format!("| [`{name}`](docs/{folder}/{name}.md) |");
        let missing: Vec<_> = names.iter().filter(|name| !readme.contains(&row(name))).collect();
        assert!(missing.is_empty(), "README.md has no row for {folder} {missing:?}, as {}", row("NAME"));
        assert_eq!(readme.matches(&format!("](docs/{folder}/")).count(), names.len(), "{folder}");
    }
}

/// Every scheduler and queue has a page with a plot, and the script that draws the plots knows the
/// plot. Every plot that it draws is on a page.
#[test]
fn every_page_has_its_plot() {
    let script = read("docs/plots.sh");
    let pages = SCHEDULERS.iter().map(|entry| format!("schedulers/{}", entry.name));
    for page in pages.chain(QUEUES.iter().map(|entry| format!("queues/{}", entry.name))) {
        let text = read(&format!("docs/{page}.md"));
        let svg = format!("{}.svg", page.split('/').next_back().unwrap());
        assert!(text.contains(&format!("]({svg})")), "docs/{page}.md shows no {svg}");
        assert!(read(&format!("docs/{page}.svg")).starts_with("<svg "), "docs/{page}.svg");
        assert!(script.contains(&format!("draw {page}.svg ")), "docs/plots.sh does not draw {page}.svg");
    }
    for plot in script.lines().filter_map(|line| line.strip_prefix("draw ")?.split(' ').next()) {
        let (folder, svg) = plot.rsplit_once('/').unwrap_or((".", plot));
        let folder = format!("{}/../../docs/{folder}", env!("CARGO_MANIFEST_DIR"));
        let mut pages = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let shown = pages.any(|page| {
            page.extension().is_some_and(|end| end == "md")
                && std::fs::read_to_string(&page).unwrap().contains(&format!("]({svg})"))
        });
        assert!(shown, "docs/plots.sh draws {plot}, which no page shows");
    }
}

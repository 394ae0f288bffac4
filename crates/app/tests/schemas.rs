//! One name of a schema means one document: every name is written by one place in the code, and the
//! documentation says what has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn files(folder: &Path, kind: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, kind, found);
        } else if path.extension().is_some_and(|extension| extension == kind) {
            found.push(path);
        }
    }
}

/// The name of the schema that a line of code writes into a document: `schema: "altq.NAME/N"`, also
/// with quotes around the key, or a constant for it, `const SCHEMA: &str = "altq.NAME/N"`. Texts of
/// tests, which are raw literals, write none.
fn written(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("\"altq.")?;
    let (name, _) = rest.split_once('"')?;
    let before = before.trim_end();
    let writes = match before.strip_suffix(':') {
        Some(key) => key.trim_end().trim_end_matches('"').ends_with("schema"),
        None => before.ends_with('=') && before.contains("const "),
    };
    (writes && !line.contains("r#\"") && name.contains('/')).then_some(name)
}

/// The names of documents in a line of code, wherever they stand.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split("altq.").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_-/".contains(c)).unwrap_or(rest.len());
        rest.get(..end).filter(|name| name.ends_with("/1"))
    })
}

/// Every document has its JSON Schema in docs/schemas. That the schemas are those of the structs,
/// the program's own tests check.
#[test]
fn every_document_has_a_schema() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut code, mut names) = (Vec::new(), BTreeSet::new());
    for entry in std::fs::read_dir(tree.join("crates")).unwrap() {
        files(&entry.unwrap().path().join("src"), "rs", &mut code);
    }
    for path in &code {
        let text = std::fs::read_to_string(path).unwrap();
        names.extend(text.lines().flat_map(named).map(str::to_owned));
    }
    assert!(names.len() > 30, "{names:?}");
    let without: Vec<_> = names
        .iter()
        .filter(|name| !tree.join("docs/schemas").join(name.replace('/', "-") + ".json").is_file())
        .collect();
    assert!(without.is_empty(), "docs/schemas has no schema of these documents: {without:?}");
    assert_eq!(named(r#"`altq.a-b/1`, "altq.c/1" altq.conf, altq.d/2"#).collect::<Vec<_>>(), ["a-b/1", "c/1"]);
}

#[test]
fn one_name_of_a_schema_is_one_document_and_is_documented() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut code = Vec::new();
    for entry in std::fs::read_dir(tree.join("crates")).unwrap() {
        files(&entry.unwrap().path().join("src"), "rs", &mut code);
    }
    // Pages are made of documents, and are none: the names there say what is read.
    code.retain(|path| !path.starts_with(tree.join("crates/pages")));
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in &code {
        let text = std::fs::read_to_string(path).unwrap();
        for (at, line) in text.lines().enumerate() {
            if let Some(name) = written(line) {
                let place = format!("{}:{}", path.strip_prefix(tree.join("crates")).unwrap().display(), at + 1);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    // Whoever writes a name in another form escapes this test, so it must see all of them.
    let mut schemas = Vec::new();
    files(&tree.join("docs/schemas"), "json", &mut schemas);
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let schemas: BTreeSet<String> = schemas.iter().map(stem).collect();
    let seen: BTreeSet<String> = places.keys().map(|name| name.replace('/', "-")).collect();
    assert_eq!(seen, schemas, "the names that the code writes, and docs/schemas");
    let twice: Vec<_> = places.iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(twice.is_empty(), "these names stand for several documents: {twice:?}");
    let mut docs = Vec::new();
    files(&tree.join("docs"), "md", &mut docs);
    let docs: String = docs.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let silent: Vec<_> = places.keys().filter(|name| !docs.contains(&format!("altq.{name}"))).collect();
    assert!(silent.is_empty(), "no page of docs/ says what has these schemas: {silent:?}");
    for line in ["schema: \"altq.a/1\",", "\"schema\": \"altq.a/1\",", "pub const FORM: &str = \"altq.a/1\";"] {
        assert_eq!(written(line), Some("a/1"), "{line}");
    }
    let read = "if measured.schema != \"altq.a/1\" {";
    for line in [read, "(\"altq.a/1\", of::<A>()),", "x(r#\"{\"schema\":\"altq.a/1\"}\"#)"] {
        assert_eq!(written(line), None, "{line}");
    }
}

//! Makes the table of the files inside the program: the project's cases and examples, which
//! `built-in` has as links to their folders. Without the feature `built-in` nothing is made.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_BUILT_IN").is_none() {
        return;
    }
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = here.join("built-in");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(!files.is_empty(), "{} has no files: cases and examples belong there", root.display());
    let name = |path: &PathBuf| {
        let name = path.strip_prefix(&root).expect("it was found there");
        name.to_str().expect("names of cases and examples are UTF-8").to_owned()
    };
    let mut files: Vec<(String, PathBuf)> = files.into_iter().map(|path| (name(&path), path)).collect();
    // By the names as texts, as they are searched: paths have another order.
    files.sort();
    let mut table = "&[\n".to_owned();
    for (name, path) in &files {
        writeln!(table, "    ({name:?}, include_bytes!({:?})),", path.display().to_string()).expect("a text grows");
    }
    table += "]\n";
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("built_in.rs"), table).expect("cargo's own folder can be written");
}

/// All files below a folder. What git and editors leave behind begins with a point or ends with
/// `~`, and is left out.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    // A file that is added or removed changes its folder.
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with('.') || name.ends_with('~') || name == "__pycache__" {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

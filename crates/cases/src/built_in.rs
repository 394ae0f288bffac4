//! Files inside the program: the project's cases and examples, for use where its source folder is
//! not. Their paths begin with [`MARK`], as `built-in:cases/borrow.toml`, so that no message
//! confuses them with files on the disk. A case that is inside finds the files that it names there
//! too. Without the feature `built-in` there are none.

use std::io;
use std::path::{Component, Path, PathBuf};

/// What the path of a file inside the program begins with.
pub const MARK: &str = "built-in:";

/// Paths without [`MARK`], and contents, sorted by path.
#[cfg(feature = "built-in")]
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));
#[cfg(not(feature = "built-in"))]
static FILES: &[(&str, &[u8])] = &[];

/// All files: path without [`MARK`], and content; sorted by path.
pub fn files() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().copied()
}

/// True if a path is that of a file or folder inside the program, whether or not there is one.
pub fn is_inside(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(MARK))
}

/// Reads a file of the disk, or one inside the program if its path says so.
///
/// # Errors
///
/// The file cannot be read, or is not there.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match normal(path) {
        None => std::fs::read(path),
        Some(name) => find(&name).map(<[u8]>::to_vec).ok_or_else(|| missing(path)),
    }
}

/// As [`read`], as text.
///
/// # Errors
///
/// As [`read`]; and the file is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    match normal(path) {
        None => std::fs::read_to_string(path),
        Some(_) => String::from_utf8(read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// The path inside the program of a file or folder that has this path in the project's source
/// folder, as `cases/borrow.toml` or `examples`.
pub fn place(path: &Path) -> Option<PathBuf> {
    let name = resolved(path.to_str()?);
    (find(&name).is_some() || below(&name).next().is_some()).then(|| PathBuf::from(format!("{MARK}{name}")))
}

/// The cases of a folder inside the program, at any depth, sorted.
pub fn cases_of(folder: &Path) -> Vec<PathBuf> {
    let Some(name) = normal(folder) else { return Vec::new() };
    let cases = below(&name).filter(|path| path.ends_with(".toml"));
    cases.map(|path| PathBuf::from(format!("{MARK}{path}"))).collect()
}

/// The names of all cases inside the program, as their key `name` has them, with their paths.
pub fn cases() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let cases = files().filter(|(path, _)| path.ends_with(".toml"));
    cases.filter_map(|(path, content)| Some((name_of(content)?, PathBuf::from(format!("{MARK}{path}")))))
}

/// The path inside the program of the case with this name, or with this path in the project's
/// source folder.
pub fn case(name: &str) -> Option<PathBuf> {
    place(Path::new(name))
        .filter(|path| path.extension().is_some())
        .or_else(|| cases().find(|(own, _)| *own == name).map(|(_, path)| path))
}

/// The value of the key `name` at the top of a case.
fn name_of(content: &'static [u8]) -> Option<&'static str> {
    let text = std::str::from_utf8(content).ok()?;
    let top = text.lines().take_while(|line| !line.starts_with('['));
    let value = top.filter_map(|line| line.strip_prefix("name")?.trim_start().strip_prefix('=')).next()?;
    value.trim().strip_prefix('"')?.split('"').next()
}

/// The path in the project's source folder of a file inside the program, with `.` and `..`
/// resolved. `None` of a file of the disk.
pub fn normal(path: &Path) -> Option<String> {
    Some(resolved(path.to_str()?.strip_prefix(MARK)?))
}

fn resolved(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => parts.extend(part.to_str()),
            // What stands above all folders is nothing.
            Component::ParentDir if parts.pop().is_none() => return String::new(),
            // A path from the root names no file of the source folder.
            Component::RootDir | Component::Prefix(_) => return String::new(),
            Component::ParentDir | Component::CurDir => {}
        }
    }
    parts.join("/")
}

fn find(name: &str) -> Option<&'static [u8]> {
    let at = FILES.binary_search_by(|(path, _)| (*path).cmp(name)).ok()?;
    FILES.get(at).map(|(_, content)| *content)
}

/// The paths of all files below a folder.
fn below(folder: &str) -> impl Iterator<Item = &'static str> {
    files()
        .map(|(path, _)| path)
        .filter(move |path| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

fn missing(path: &Path) -> io::Error {
    let name = path.display();
    io::Error::new(io::ErrorKind::NotFound, format!("there is no {name} in this program; `altq examples` lists them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_without_the_disk() {
        for (path, expected) in [
            ("built-in:cases/borrow.toml", "cases/borrow.toml"),
            ("built-in:cases/published/../../examples/a", "examples/a"),
            ("built-in:./cases//x/", "cases/x"),
            ("built-in:cases/../../x", ""),
            ("built-in:/cases/x", ""),
        ] {
            assert_eq!(normal(Path::new(path)).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(normal(Path::new("cases/borrow.toml")), None);
        assert!(read(Path::new("built-in:")).is_err());
    }

    #[test]
    fn a_name_is_that_of_the_top() {
        assert_eq!(name_of(b"# c\nname = \"a/b\"\n[x]\nname = \"c\"\n"), Some("a/b"));
        assert_eq!(name_of(b"[x]\nname = \"c\"\n"), None);
    }

    /// What is inside is what the folders have, file by file.
    #[cfg(feature = "built-in")]
    #[test]
    fn the_files_are_those_of_the_source_folder() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(files().count() > 100);
        for (path, content) in files() {
            assert!(content == std::fs::read(tree.join(path)).unwrap(), "{path}");
        }
        // `include_bytes!` keeps no order of its own.
        assert!(FILES.is_sorted_by_key(|(path, _)| *path));
        let mut names: Vec<&str> = cases().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(count > 90 && names.len() == count, "two cases have the same name");
        assert_eq!(case("borrow"), Some("built-in:cases/borrow.toml".into()));
        assert_eq!(case("cases/borrow.toml"), Some("built-in:cases/borrow.toml".into()));
        assert_eq!((case("cases"), case("no such case")), (None, None));
        let published = cases_of(Path::new("built-in:cases/published"));
        assert_eq!(published.len(), std::fs::read_dir(tree.join("cases/published")).unwrap().count() - 1);
    }
}

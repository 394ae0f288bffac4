//! Checks what ARCHITECTURE.md says of the crates: dependencies point one way, and `unsafe` code
//! stands in one crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What cargo says of the packages of this workspace.
fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `cargo package` takes every crate: each says what it is, and which version of the others it
/// needs. A dev-dependency may go by its path alone, and is then left out of the package.
#[test]
fn crates_say_what_a_registry_asks_for() {
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let text = |field: &str| package[field].as_str().unwrap_or_default().len();
        assert!((20..200).contains(&text("description")), "{name}: a description of one line");
        assert!(text("license") > 0 && text("readme") > 0, "{name}: licence and readme");
        for field in ["keywords", "categories"] {
            let count = package[field].as_array().unwrap().len();
            assert!((1..=5).contains(&count), "{name}: 1 to 5 {field}");
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let (on, wanted) = (dependency["name"].as_str().unwrap(), dependency["req"].as_str().unwrap());
            let of_tests = dependency["kind"] == "dev" && dependency["path"].is_string();
            assert!(of_tests || wanted != "*", "{name}: which version of {on}?");
        }
    }
}

#[test]
fn dependencies_point_one_way() {
    let metadata = metadata();
    let may: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("altq-engine", &[][..]),
        ("altq-config", &["altq-engine"]),
        ("altq-adapt", &["altq-engine"]),
        ("altq-cases", &["altq-engine", "altq-config"]),
        ("altq-reserve", &["altq-engine", "altq-config"]),
        ("altq-monitor", &["altq-engine"]),
        ("altq-top", &["altq-engine", "altq-monitor"]),
        ("altq-pages", &["altq-engine", "altq-config", "altq-cases"]),
        ("altq-rsvp", &[]),
        ("altq-rsvpd", &["altq-config", "altq-control", "altq-dataplane", "altq-reserve", "altq-rsvp"]),
        ("altq-simulator", &["altq-engine", "altq-config", "altq-adapt", "altq-cases"]),
        ("altq-sweep", &["altq-engine", "altq-config", "altq-cases", "altq-simulator"]),
        ("altq-kernel", &["altq-engine", "altq-config"]),
        ("altq-dataplane", &["altq-engine", "altq-config", "altq-kernel", "altq-adapt", "altq-monitor"]),
        ("altq-control", &["altq-engine", "altq-config", "altq-reserve"]),
        ("altq-web", &["altq-engine", "altq-config", "altq-monitor", "altq-control"]),
        ("altq-traffic", &["altq-engine", "altq-config", "altq-cases", "altq-dataplane"]),
        ("altq-lab", &["altq-engine", "altq-config", "altq-cases", "altq-simulator", "altq-dataplane", "altq-traffic"]),
        (
            "altq",
            &[
                "altq-engine",
                "altq-config",
                "altq-kernel",
                "altq-reserve",
                "altq-cases",
                "altq-monitor",
                "altq-top",
                "altq-pages",
                "altq-simulator",
                "altq-sweep",
                "altq-dataplane",
                "altq-traffic",
                "altq-lab",
                "altq-control",
                "altq-web",
                "altq-rsvpd",
            ],
        ),
    ]);
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(packages.len(), may.len(), "a crate was added: say here what it may depend on");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let allowed = may[name];
        for dependency in package["dependencies"].as_array().unwrap() {
            // A dev-dependency may be any crate: tests are not part of the product.
            let (on, dev) = (dependency["name"].as_str().unwrap(), dependency["kind"] == "dev");
            assert!(dev || !on.starts_with("altq") || allowed.contains(&on), "{name} must not depend on {on}");
        }
    }
}

/// The Python package stands outside of the workspace, and binds libraries only: neither the
/// program nor what touches an interface.
#[test]
fn the_python_package_binds_libraries() {
    let text = std::fs::read_to_string(workspace().join("python/Cargo.toml")).unwrap();
    let own = |line: &&str| line.starts_with("altq-") && line.contains("path =");
    let mut names: Vec<&str> =
        text.lines().filter(own).filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["altq-cases", "altq-config", "altq-engine", "altq-kernel", "altq-simulator", "altq-sweep"]);
    assert!(text.contains("\n[workspace]\n"), "`cargo test --workspace` must not build it");
    for file in sources(&workspace().join("python/src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["unsafe {", "unsafe fn", "unsafe impl"] {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}

/// The code that shapes live traffic is not linked with simulator, lab, pages or JSON Schemas, nor
/// with what else a router can do without: cases, generators, RSVP, TOML, manual pages. Checked for
/// the data plane, and for the binary without its default features, which has the commands of a
/// router (`run` among them).
#[test]
fn the_live_path_links_no_simulator() {
    for (package, options) in [("altq-dataplane", &[][..]), ("altq", &["--no-default-features"])] {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--locked", "--prefix", "none", "--edges", "normal", "--package", package])
            .args(options)
            .current_dir(workspace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(tree.contains("altq-engine"), "{tree}");
        for other in [
            "altq-simulator",
            "altq-lab",
            "altq-pages",
            "altq-sweep",
            "altq-cases",
            "altq-traffic",
            "altq-rsvp",
            "altq-top",
            "altq-web",
            "parquet",
            "schemars",
            "toml v",
            "clap_complete",
            "clap_mangen",
        ] {
            assert!(!tree.contains(other), "{package} is linked with {other}:\n{tree}");
        }
    }
}

#[test]
fn crates_without_a_clock_do_no_io() {
    let engine = sources(&workspace().join("crates/engine/src"));
    let adapt = sources(&workspace().join("crates/adapt/src"));
    let monitor = sources(&workspace().join("crates/monitor/src"));
    // Addresses are read there with the types of `std::net`, which do no I/O.
    let reserve = sources(&workspace().join("crates/reserve/src"));
    for (files, words) in [
        (engine, &["Instant::now", "SystemTime", "std::fs", "std::net", "std::thread", "println!"][..]),
        (adapt, &["Instant::now", "SystemTime", "std::fs", "std::net", "std::thread", "println!"]),
        (monitor, &["Instant::now", "SystemTime", "std::fs", "std::net", "std::thread", "println!"]),
        (reserve, &["Instant::now", "SystemTime", "std::fs", "Socket", "std::thread", "println!"]),
    ] {
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            for word in words {
                assert!(!text.contains(word), "{} has {word}", file.display());
            }
        }
    }
}

#[test]
fn rsvp_has_no_clock_and_no_io() {
    for file in sources(&workspace().join("crates/rsvp/src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["Instant::now", "SystemTime", "std::fs", "Socket", "std::thread", "println!"] {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}

/// The program writes the daemon's lines, because it knows how not to wait for whoever reads them.
#[test]
fn rsvpd_prints_nothing() {
    for file in sources(&workspace().join("crates/rsvpd/src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["println!", "print!", "stderr()", "stdout()"] {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}

#[test]
fn unsafe_code_lives_in_the_dataplane_but_for_one_hint() {
    for name in [
        "engine",
        "config",
        "reserve",
        "kernel",
        "adapt",
        "cases",
        "monitor",
        "top",
        "pages",
        "rsvp",
        "rsvpd",
        "simulator",
        "sweep",
        "traffic",
        "lab",
        "control",
        "web",
        "app",
    ] {
        for file in sources(&workspace().join("crates").join(name).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            if file.ends_with("engine/src/prefetch.rs") {
                assert_eq!(text.matches("unsafe {").count(), 1, "the hint is one instruction");
                continue;
            }
            for word in ["unsafe {", "unsafe fn", "unsafe impl"] {
                assert!(!text.contains(word), "{} has {word}", file.display());
            }
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    // A folder below may hold a page alone.
    assert!(!found.is_empty() || !folder.ends_with("src"));
    found
}

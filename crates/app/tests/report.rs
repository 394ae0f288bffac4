//! `altq report`: pages are well-formed, load nothing and run nothing; files that are not results
//! are refused.

mod pages;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pages::{alone, console, whole};

fn altq(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_altq"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap()
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn result(folder: &Path, case: &str) -> String {
    let out = altq(&["sim", case, "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let path = folder.join(Path::new(case).with_extension("json").file_name().unwrap());
    std::fs::write(&path, out.stdout).unwrap();
    path.display().to_string()
}

#[test]
fn a_page_holds_everything() {
    let folder = folder("page");
    let json = result(&folder, "cases/borrow.toml");
    let out = altq(&["report", &json]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let page = String::from_utf8(out.stdout).unwrap();
    whole(&page);
    alone(&page);
    for text in [
        "<title>borrow</title>",
        "PASS: 4 of 4 promises hold",
        "throughput [Mbit/s]",
        ">wait [ms]<",
        ">drops [1/s]<",
        ">P99.9<",
        "bar hatched s0",
        "class=\"guarantee\"",
        "class=\"ceiling\"",
        "Time to reclaim a share",
        "<pre>altq sim cases/borrow.toml --json</pre>",
        "<dt>seed</dt><dd>1</dd>",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(text), "{text}");
    }
    // The classes of 2 and 8 Mbit/s each have the link alone for a while. The plot shows guarantees
    // of 20 and 80 %, and a ceiling of 100 %.
    assert!(page.contains("<title>guaranteed 2 Mbit/s</title>") && page.contains("<title>ceiling 10 Mbit/s</title>"));
    // The hash of the file is the one that sha256sum prints.
    if let Ok(sum) = Command::new("sha256sum")
        .arg("cases/borrow.toml")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
    {
        let sum = String::from_utf8(sum.stdout).unwrap();
        assert!(page.contains(sum.split(' ').next().unwrap()), "{sum}");
    }
}

#[test]
fn several_in_one_page_or_a_page_each() {
    let folder = folder("several");
    let one = result(&folder, "cases/20-80.toml");
    let two = result(&folder, "cases/published/cbwfq-c.toml");
    let page = folder.join("all.html").display().to_string();
    assert!(altq(&["report", &one, &two, "-o", &page]).status.success());
    let text = std::fs::read_to_string(&page).unwrap();
    whole(&text);
    alone(&text);
    assert!(text.contains("<a href=\"#20-80\">") && text.contains("<section class=\"case\" id=\"cbwfq-c\">"));
    let pages = folder.join("pages").display().to_string();
    assert!(altq(&["report", &one, &two, "--each", &pages]).status.success());
    for name in ["index.html", "20-80.html", "cbwfq-c.html"] {
        let text = std::fs::read_to_string(Path::new(&pages).join(name)).unwrap();
        whole(&text);
        alone(&text);
    }
    // The same results give the same bytes.
    let again = folder.join("again.html").display().to_string();
    assert!(altq(&["report", &one, &two, "-o", &again]).status.success());
    assert_eq!(text, std::fs::read_to_string(again).unwrap());
}

/// A file is what its name says.
#[test]
fn a_page_has_no_name_of_a_picture() {
    let folder = folder("name");
    let json = result(&folder, "cases/20-80.toml");
    let path = |name: &str| folder.join(name);
    for option in ["-o", "--output", "--out"] {
        for (name, wanted) in [("x.png", "pages are HTML, not png; name it "), ("x.json", "pages are HTML, not json")] {
            let out = altq(&["report", &json, option, path(name).to_str().unwrap()]);
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.code() == Some(2) && said.contains(wanted), "{option} {name}: {said}");
            assert!(!path(name).exists(), "{option} {name}");
        }
    }
    // A name without an ending promises nothing.
    for name in ["x.html", "x.htm", "X.HTML", "x"] {
        assert!(altq(&["report", &json, "-o", path(name).to_str().unwrap()]).status.success(), "{name}");
        whole(&std::fs::read_to_string(path(name)).unwrap());
    }
}

#[test]
fn both_worlds_stand_beside_one_another() {
    let folder = folder("worlds");
    let json = result(&folder, "cases/borrow.toml");
    let mut lab: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    lab["world"] = "lab".into();
    let slow = lab["classes"].as_array_mut().unwrap().iter_mut().find(|class| class["name"] == "slow").unwrap();
    let rate = slow["rate_bit_s"].as_u64().unwrap();
    // The lab's result is made from the simulator's, with a rate that is a twentieth higher.
    slow["rate_bit_s"] = (rate + rate / 20).into();
    let path = folder.join("lab.json").display().to_string();
    std::fs::write(&path, lab.to_string()).unwrap();
    let page = String::from_utf8(altq(&["report", &json, &path]).stdout).unwrap();
    whole(&page);
    let table = page.split("<h2>Simulator and lab</h2>").nth(1).unwrap().split("</table>").next().unwrap();
    assert!(table.contains(">slow</th>") && table.contains(">+5.0 %<") && table.contains(">0.0 %<"), "{table}");
    let alone = String::from_utf8(altq(&["report", &json]).stdout).unwrap();
    assert!(!alone.contains("Simulator and lab"));
}

/// Of two links whose classes have the same names every class stands beside itself, with its own
/// link's rate.
#[test]
fn classes_of_two_directions_are_told_apart() {
    let folder = folder("directions");
    let sim = result(&folder, "cases/lab/home.toml");
    // The same as a result of the lab, in which one class got twice as much.
    let mut lab: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&sim).unwrap()).unwrap();
    lab["world"] = "lab".into();
    let is = |row: &&mut serde_json::Value, link: &str, name: &str| row["link"] == link && row["name"] == name;
    let rows = lab["classes"].as_array_mut().unwrap();
    assert_eq!(rows.len(), 12);
    let work = rows.iter_mut().find(|row| is(row, "down", "work")).unwrap();
    work["rate_bit_s"] = (2 * work["rate_bit_s"].as_u64().unwrap()).into();
    let path = folder.join("lab.json");
    std::fs::write(&path, lab.to_string()).unwrap();
    let out = altq(&["report", &sim, &path.display().to_string()]);
    let page = String::from_utf8(out.stdout).unwrap();
    whole(&page);
    alone(&page);
    let table = page.split("Simulator and lab").nth(1).unwrap().split("</table>").next().unwrap();
    let off: Vec<(&str, &str)> = table
        .split("<th scope=\"row\">")
        .skip(1)
        .map(|row| (row.split('<').next().unwrap(), row.rsplit("<td>").next().unwrap().split('<').next().unwrap()))
        .collect();
    let classes = ["voice", "work", "kids", "guests", "rest"];
    let wanted = ["up", "down"].into_iter().flat_map(|link| classes.map(|class| format!("{link}/{class}")));
    assert_eq!(off.iter().map(|(name, _)| *name).collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    for (name, off) in off {
        assert_eq!(off, if name == "down/work" { "+100 %" } else { "0.0 %" }, "{name}");
    }
    // Guarantees and ceilings are those of the policy, 10 % of 4.75 and of 19 Mbit/s; each link has
    // charts of its own.
    for text in [
        "guaranteed 475 kbit/s",
        "guaranteed 1.9 Mbit/s",
        "ceiling 1 Mbit/s",
        "ceiling 5 Mbit/s",
        "Over time: up",
        "Over time: down",
        "Delays: down",
        ">up/work<",
        ">down/work<",
        "14 of 14 promises hold",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn names_are_text_not_markup() {
    let folder = folder("names");
    let json = std::fs::read_to_string(result(&folder, "cases/20-80.toml")).unwrap();
    let path = folder.join("hostile.json");
    std::fs::write(&path, json.replace("\"slow\"", "\"<b>&'slow\"").replace("20-80", "<script>alert(1)</script>"))
        .unwrap();
    let out = altq(&["report", &path.display().to_string()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let page = String::from_utf8(out.stdout).unwrap();
    whole(&page);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn what_is_no_result_is_refused_with_place_and_way_out() {
    let folder = folder("no-result");
    let json = std::fs::read_to_string(result(&folder, "cases/20-80.toml")).unwrap();
    let cut = &json[..json.len() / 2];
    let check = String::from_utf8(altq(&["check", "examples/1997-atm.cbq.conf", "--json"]).stdout).unwrap();
    for (name, text, wanted) in [
        ("cut.json", cut, "the JSON is cut short: the command that wrote it did not end; run it again"),
        ("check.json", check.as_str(), "the schema is \"altq.check/1\", not \"altq.result/1\""),
        ("case.toml", "name = \"x\"\n", "case.toml:1:"),
        ("empty.json", "", "altq sim CASE --json and altq lab CASE --json print results"),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        let out = altq(&["report", &path.display().to_string()]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(wanted) && out.stdout.is_empty(), "{name}: {said}");
    }
    let out = altq(&["report", "no/such/file.json"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("no/such/file.json: it cannot be read"));
}

/// The JSON in a flent file.
fn flent(path: &Path) -> serde_json::Value {
    use std::io::Read;
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

const TESTS: [(&str, &[&str]); 3] = [
    (
        "tcp_nup",
        &[
            "TCP upload::1",
            "TCP upload::2",
            "TCP upload avg",
            "TCP upload sum",
            "TCP upload fairness",
            "Ping (ms) ICMP",
        ],
    ),
    ("rrul", &["TCP upload BE", "TCP upload EF", "TCP download BK", "TCP totals", "Ping (ms) UDP EF", "Ping (ms) avg"]),
    (
        "qdisc-stats",
        &[
            "qdisc-stats",
            "qdisc-stats::backlog_pkts",
            "qdisc-stats::backlog_bytes",
            "qdisc-stats::dropped",
            "qdisc-stats::ecn_mark",
            "qdisc-stats::delay",
        ],
    ),
];

#[test]
fn files_of_flent_have_its_fields() {
    let folder = folder("flent");
    let json = result(&folder, "cases/borrow.toml");
    for (test, names) in TESTS {
        let path = folder.join(format!("{test}.flent.gz"));
        let out = altq(&["report", &json, "--flent", &path.display().to_string(), "--flent-test", test]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let file = flent(&path);
        assert_eq!((file["version"].as_u64(), file["metadata"]["NAME"].as_str()), (Some(4), Some(test)));
        for field in [
            "TIME",
            "T0",
            "HOST",
            "HOSTS",
            "LENGTH",
            "TOTAL_LENGTH",
            "STEP_SIZE",
            "TEST_PARAMETERS",
            "IP_VERSION",
            "SERIES_META",
            "DATA_FILENAME",
            "TITLE",
        ] {
            assert!(!file["metadata"][field].is_null(), "{test}: {field}");
        }
        // 12 s in bins of 100 ms; every series is as long as the axis.
        let x = file["x_values"].as_array().unwrap();
        assert_eq!((x.len(), x[1].as_f64()), (120, Some(0.1)));
        for (name, values) in file["results"].as_object().unwrap() {
            assert_eq!(values.as_array().unwrap().len(), x.len(), "{name}");
            assert!(file["metadata"]["SERIES_META"][name]["UNITS"].is_string(), "{name}");
        }
        for name in names {
            assert!(file["results"][*name].is_array(), "{test}: {name}");
        }
        assert!(
            file["raw_values"]
                .as_object()
                .unwrap()
                .values()
                .flat_map(|v| v.as_array().unwrap())
                .all(|v| v["t"].is_number())
        );
    }
    // The slow flow is alone on a link of 10 Mbit/s and has all of it: at 2 s, in bin 20.
    let file = flent(&folder.join("tcp_nup.flent.gz"));
    let rate = file["results"]["TCP upload::1"][20].as_f64().unwrap();
    assert!((rate - 10.0).abs() < 0.1, "{rate}");

    // If a result has several runs, one must be chosen. A file name without flent's ending is
    // refused.
    let columns = result(&folder, "cases/published/cbwfq-c.toml");
    let path = folder.join("x.flent.gz").display().to_string();
    let out = altq(&["report", &columns, "--flent", &path]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.code() == Some(2)
            && said.contains("say which: --column classic --row without, --column classic --row cbwfq"),
        "{said}"
    );
    assert!(altq(&["report", &columns, "--flent", &path, "--column", "classic", "--row", "cbwfq"]).status.success());
    let out = altq(&["report", &json, "--flent", "x.gz"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("end it with .flent.gz"));
}

#[test]
fn a_run_goes_to_flent_at_once() {
    let folder = folder("flent-at-once");
    let path = |name: &str| folder.join(name).display().to_string();
    // `sim` writes the same file as `report` does from its result, and still prints the tables.
    let json = result(&folder, "cases/borrow.toml");
    let out = altq(&["sim", "cases/borrow.toml", "--flent", &path("sim.flent.gz"), "--flent-test", "qdisc-stats"]);
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("expectation"));
    assert!(
        altq(&["report", &json, "--flent", &path("report.flent.gz"), "--flent-test", "qdisc-stats"]).status.success()
    );
    let (sim, report) = (flent(&folder.join("sim.flent.gz")), flent(&folder.join("report.flent.gz")));
    assert_eq!(sim["results"]["qdisc-stats::delay"].as_array().unwrap().len(), 120);
    assert_eq!(sim, report);
    // One run of a table, and one column of a case without rows.
    let table = "cases/published/cbwfq-c.toml";
    let out = altq(&["sim", table, "--column", "classic", "--row", "cbwfq", "--flent", &path("row.flent.gz")]);
    assert!(folder.join("row.flent.gz").exists(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(flent(&folder.join("row.flent.gz"))["metadata"]["TITLE"], "cbwfq-c classic cbwfq");
    // What cannot be written is refused before anything runs, in both worlds.
    for (args, wanted) in [
        (
            &[table, "--flent", "x.flent.gz"][..],
            "say which: --column classic --row without, --column classic --row cbwfq",
        ),
        (
            &[table, "--row", "cbwfq", "--flent", "x.flent.gz"],
            "say which: --column classic --row cbwfq, --column altq --row cbwfq",
        ),
        (
            &[table, "--column", "clasic", "--flent", "x.flent.gz"],
            "there is no column \"clasic\"; columns: classic, altq",
        ),
        (&["cases/borrow.toml", "--flent", "x.gz"], "end it with .flent.gz"),
        (&["cases/borrow.toml", "--flent", "no/such/x.flent.gz"], "there is no folder no/such"),
        (&["cases/borrow.toml", "--flent-test", "rrul"], "--flent <FILE.flent.gz>"),
    ] {
        for world in ["sim", "lab"] {
            let out = altq(&[&[world], args].concat());
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(
                out.status.code() == Some(2) && said.contains(wanted) && out.stdout.is_empty(),
                "{world} {args:?}: {said}"
            );
        }
    }
}

/// A case of 15 classes with a flow each; the later ones send more.
fn fifteen() -> String {
    let (mut classes, mut rules, mut flows) = (String::new(), String::new(), String::new());
    for n in 0..15 {
        let (port, rate) = (7000 + n, 20 + 10 * n);
        classes += &format!("class c{n} {{ rate 100kbit/s borrow }}\n");
        rules += &format!("match dport {port} -> c{n}\n");
        flows += &format!(
            "[[flows]]\nname = 'f{n}'\nkind = 'udp'\nfrom = 'a'\nto = 'b'\nsize = 100\nrate = '{rate}kbit/s'\n\
             dport = {port}\n"
        );
    }
    format!(
        "name = 'fifteen'\ndescription = 'd'\nduration = '2s'\n\
         policy = 'link wan {{ rate 10Mbit/s scheduler cbq\n{classes}class rest {{ borrow default }}\n{rules}}}'\n\
         hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
         links = [{{ name = 'l', from = 'a', to = 'b', policy = 'wan' }}]\n{flows}\
         [[expect]]\nname = 'of-one-with-a-very-long-name'\nmeasure = 'rate'\nflow = 'f14'\nexpected = 160000\n\
         tolerance = '5%'\nsource = 'less than the link has'\n"
    )
    .replace("policy = 'link", "policy = \"\"\"link")
    .replace("}'\nhosts", "}\"\"\"\nhosts")
}

#[test]
fn charts_have_ten_lines_and_say_what_they_leave_out() {
    let folder = folder("fifteen");
    let case = folder.join("fifteen.toml").display().to_string();
    std::fs::write(&case, fifteen()).unwrap();
    let json = result(&folder, &case);
    let page = String::from_utf8(altq(&["report", &json]).stdout).unwrap();
    whole(&page);
    assert!(page.contains("The charts have lines for the 10 classes with the most bytes, and leave 5 out."));
    assert!(page.contains("The charts have lines for the 10 flows with the most bytes, and leave 5 out."));
    // The legend has the ten that sent most, and the table of delays all.
    let legend = page.split("<h3>Over time</h3>").nth(1).unwrap().split("<figure>").next().unwrap();
    let named = |name: &str| legend.contains(&format!("{name}</li>"));
    assert!((5..15).all(|n| named(&format!("c{n}"))) && !(0..5).any(|n| named(&format!("c{n}"))), "{legend}");
    assert!((0..15).all(|n| page.contains(&format!("<th scope=\"row\">c{n}</th>"))));
    // On a narrow screen a promise's figures stand below its name, each with that of its column.
    assert!(page.contains("<table class=\"promises\">") && page.contains("<td data-of=\"measured\">"));
    let svg = folder.join("fifteen.svg").display().to_string();
    assert!(altq(&["sim", &case, "--plot", &svg]).status.success());
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("the 10 classes with the most bytes, 5 are left out") && !drawn.contains(">c4<"));
}

/// A drawing with an error is reported on the console, so the test would see one.
#[test]
fn a_browser_has_nothing_to_say() {
    let folder = folder("browser");
    let broken = folder.join("broken.html");
    std::fs::write(&broken, "<!doctype html><html><body><svg><path d=\"M0 NaN\"/></svg></body></html>").unwrap();
    let Some(said) = console(&broken, &folder.join("profile"), 1280) else {
        eprintln!("skipped: there is no Chromium here");
        return;
    };
    assert!(said.contains("attribute d: Expected number"), "a broken drawing is not told: {said}");
    let results = [result(&folder, "cases/borrow.toml"), result(&folder, "cases/published/cbwfq-c.toml")];
    let page = folder.join("page.html");
    assert!(altq(&["report", &results[0], &results[1], "-o", &page.display().to_string()]).status.success());
    for width in [1280, 400] {
        assert_eq!(console(&page, &folder.join("profile"), width).as_deref(), Some(""), "at {width}");
    }
}

/// flent itself opens the files, sums them up and draws them. `ALTQ_FLENT` names its program
/// (`pip install flent numpy matplotlib`).
#[test]
#[ignore = "needs flent: ALTQ_FLENT=/path/to/flent cargo test -p altq --test report -- --ignored"]
fn flent_opens_them() {
    let flent = std::env::var("ALTQ_FLENT").unwrap_or("flent".into());
    let folder = folder("flent-itself");
    let json = result(&folder, "cases/borrow.toml");
    for (test, plot) in
        [("tcp_nup", "totals"), ("rrul", "all_scaled"), ("qdisc-stats", "backlog"), ("qdisc-stats", "drops")]
    {
        let path = folder.join(format!("{test}.flent.gz")).display().to_string();
        match test {
            "rrul" => {
                assert!(altq(&["sim", "cases/borrow.toml", "--flent", &path, "--flent-test", test]).status.success())
            }
            _ => assert!(altq(&["report", &json, "--flent", &path, "--flent-test", test]).status.success()),
        }
        let run = |args: &[&str]| {
            let out = Command::new(&flent).args(["-i", &path]).args(args).env("MPLBACKEND", "agg").output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
        };
        assert!(run(&["-f", "summary"]).contains(&format!("Summary of {test} test run")));
        let image = folder.join(format!("{test}-{plot}.png"));
        run(&["-f", "plot", "-p", plot, "-o", &image.display().to_string()]);
        assert!(std::fs::metadata(&image).unwrap().len() > 10_000);
    }
}

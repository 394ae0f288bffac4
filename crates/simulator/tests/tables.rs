//! Cases with rows: values, columns, samples, published figures, and conditions on several rows.

use std::path::Path;

use altq_cases::case::CaseFile;
use altq_cases::result::{CaseResult, Outcome};
use altq_simulator::sim::{self, RunOptions, Watch};

/// Two rows of a class with its own share on 10 Mbit/s, in two columns: one keeps the share, the
/// other does not.
const TABLE: &str = r#"
name = "t"
description = "d"
duration = "4s"
warmup = "1s"
published_in = "Doe 1999"
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "wan", from = "a", to = "b", policy = "${policy}", rate = "10Mbit/s" }]
policy = """link wan { rate 10Mbit/s scheduler cbq class x { share ${percent}% queue drop_tail { limit ${limit} } }
class y { share 10% default }
match dport 7 -> x }"""
replace = [{ find = "share 10% default", with = "share 12% default" }]
rows = [
    { name = "20", values = { percent = 20 }, published = { x = [2.0, 17], y = [1.2, "18-19"] } },
    { name = "40", values = { percent = 40 }, published = { x = [8.0, 20] } },
    { name = "y", values = { percent = 40 }, flows = ["y"], columns = ["shaped"] },
]

[values]
size = 1000
limit = "20packets"

[[columns]]
name = "shaped"
values = { policy = "wan" }
samples = 3

[[columns]]
name = "plain"
values = { policy = "" }

[[flows]]
name = "x"
kind = "udp"
from = "a"
to = "b"
dport = 7
size = "${size}"
rate = "8Mbit/s"

[[flows]]
name = "y"
kind = "udp"
from = "a"
to = "b"
size = "${size}"
rate = "8Mbit/s"

[[figures]]
name = "x"
measure = "rate"
flow = "x"
unit = "Mbit/s"

[[figures]]
name = "y"
measure = "rate"
flow = "y"
unit = "Mbit/s"

[[figures]]
name = "x over y"
ratio = ["x", "y"]

[[not_reproduced]]
figure = "x"
column = "shaped"
rows = ["40"]
reason = "8 Mbit/s is twice the share"

[[expect]]
figure = "x"
column = "shaped"
expected = "published"
tolerance = "1%"

[[expect]]
name = "ratio"
figure = "x over y"
column = "shaped"
rows = ["40"]
expected = 3.3333
tolerance = "1%"
source = "40 over 12"

[[shape]]
name = "double"
figure = "x"
ratio = ["40", "20"]
column = "shaped"
expected = 2
tolerance = "1%"
source = "by hand"

[[shape]]
name = "rising"
figure = "x"
monotone = "rising"
rows = ["20", "40"]
tolerance = "1%"
source = "by hand"

[[shape]]
name = "held"
figure = "x"
columns = ["shaped", "plain"]
rows = ["20"]
expected = 0.5
bound = "at_most"
source = "by hand: 2 Mbit/s against what is more than 4 beside y's 8 in a link of 10"
"#;

fn file(text: &str) -> Result<CaseFile, String> {
    CaseFile::parse(text, Path::new("t.toml")).map_err(|error| error.to_string())
}

fn run(text: &str, jobs: usize) -> CaseResult {
    let options = RunOptions { jobs: Some(jobs), ..RunOptions::default() };
    sim::run_file(&file(text).unwrap(), &options, None, &mut watch()).unwrap()
}

fn outcome<'a>(result: &'a CaseResult, name: &str) -> &'a Outcome {
    result.expectations.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("{name}: {:#?}", result.expectations))
}

/// A watch that can read counters as `tc -s` prints them, for expectations about them.
fn watch() -> Watch {
    Watch { counters: Some(altq_pages::stat::tc::measured), ..Watch::default() }
}

#[test]
fn rows_columns_and_samples() {
    let text = TABLE;
    let result = run(text, 1);
    assert!(result.passed(), "{:#?} {:?}", result.expectations, result.notes);
    let names: Vec<&str> = result.expectations.iter().map(|e| e.name.as_str()).collect();
    // The figure in `not_reproduced` has no expectation, and nothing was published for row y.
    assert_eq!(
        names,
        [
            "t/shaped/20",
            "t/shaped/40/ratio",
            "t/shaped/double",
            "t/shaped/rising",
            "t/plain/rising",
            "t/shaped/20/held"
        ]
    );
    let published = outcome(&result, "t/shaped/20");
    assert_eq!((published.expected, published.source.as_str(), published.published), (2e6, "Doe 1999, line 17", true));
    let figure = |row: &str, column: &str, name: &str| {
        let of = |f: &&altq_cases::result::FigureResult| {
            f.row.as_deref() == Some(row) && f.column.as_deref() == Some(column) && f.figure == name
        };
        result.figures.iter().find(of).cloned()
    };
    let y = figure("20", "shaped", "y").unwrap();
    assert_eq!(
        (y.published, y.source.as_deref(), y.unit.as_str(), y.samples.len()),
        (Some(1.2), Some("Doe 1999, lines 18-19"), "Mbit/s", 3)
    );
    assert!(
        (y.error.unwrap() - (y.measured.unwrap() / 1.2 - 1.0)).abs() < 1e-12 && y.error.unwrap().abs() < 0.01,
        "{y:?}"
    );
    assert!(
        figure("40", "shaped", "x").unwrap().not_reproduced.is_some()
            && figure("40", "plain", "x").unwrap().not_reproduced.is_none()
    );
    // Flow x does not run in row y, nor does column plain.
    assert!(
        figure("y", "shaped", "x").is_none()
            && figure("y", "shaped", "y").is_some()
            && figure("y", "plain", "y").is_none()
    );
    // The result is the same however many runs go at once.
    let json = |result: &CaseResult| serde_json::to_string(result).unwrap();
    assert_eq!(json(&result), json(&run(text, 7)));
    // One row of one column.
    let one = file(text).unwrap();
    let options = RunOptions { row: one.row("20"), column: one.column("plain"), ..RunOptions::default() };
    let alone = sim::run_file(&one, &options, None, &mut watch()).unwrap();
    assert!(
        alone.expectations.is_empty() && alone.figures.iter().all(|f| f.column.as_deref() == Some("plain")),
        "{alone:?}"
    );
}

#[test]
fn bad_tables_are_refused_with_place_and_reason() {
    let text = TABLE;
    assert!(file(text).is_ok());
    for (what, with, why) in [
        ("${percent}%", "${per}%", "there is no value \"per\""),
        ("size = 1000", "sice = 1000", "did you mean ${sice}?"),
        ("size = 1000", "size = 10", "row 20, column shaped: sizes are 28"),
        ("values = { policy = \"wan\" }", "values = { }", "give it one here, or a usual one in [values]"),
        ("name = \"40\", values = { percent = 40 }", "name = \"40\"", "give it one here"),
        ("name = \"40\"", "name = \"20\"", "two rows called"),
        ("flows = [\"y\"]", "flows = [\"z\"]", "there is no flow called \"z\""),
        ("columns = [\"shaped\"] }", "columns = [\"shapet\"] }", "did you mean \"shaped\"?"),
        ("samples = 3", "samples = 0", "samples are 1 to 1000"),
        ("published_in = \"Doe 1999\"", "", "published where?"),
        ("x = [8.0, 20]", "z = [8.0, 20]", "no figure called \"z\""),
        ("unit = \"Mbit/s\"", "unit = \"ms\"", "units: \"bit/s\", \"kbit/s\", \"Mbit/s\", \"KB/s\""),
        ("ratio = [\"x\", \"y\"]", "ratio = [\"x\", \"v\"]", "no figure above called \"v\""),
        ("figure = \"x over y\"", "figure = \"x over y\"\nflow = \"x\"", "the figure already says"),
        ("measure = \"rate\"\nflow = \"x\"", "flow = \"x\"", "Write measure or ratio"),
        ("reason = \"8 Mbit/s is twice the share\"", "reason = \" \"", "why not?"),
        ("expected = \"published\"\ntolerance = \"1%\"", "expected = \"published\"", "Write a tolerance"),
        (
            "figure = \"x\"\ncolumn = \"shaped\"\nexpected",
            "flow = \"x\"\nmeasure = \"rate\"\ncolumn = \"shaped\"\nexpected",
            "only a figure has been published",
        ),
        ("rows = [\"40\"]\nexpected", "rows = [\"41\"]\nexpected", "no row called \"41\""),
        ("source = \"40 over 12\"", "", "Write source"),
        ("monotone = \"rising\"", "monotone = \"risin\"", "did you mean \"rising\"?"),
        ("monotone = \"rising\"", "monotone = \"up\"", "figures are \"rising\" or \"falling\""),
        ("monotone = \"rising\"", "monotone = \"rising\"\nexpected = 1", "expects nothing more"),
        ("monotone = \"rising\"\n", "", "one of ratio (two rows), columns (two of them), monotone"),
        ("expected = 2\n", "", "what must the ratio be?"),
        ("replace = [", "mtu = 9\nreplace = [", "an MTU is 68 to 65535"),
        ("find = \"share 10% default\"", "find = \"\"", "what is to be replaced?"),
    ] {
        assert!(text.contains(what), "{what}");
        let error = file(&text.replacen(what, with, 1)).err().unwrap_or_else(|| panic!("{with} is taken"));
        assert!(error.contains(why), "{with}: {error}");
        // The caret is at its place in the file as it is written.
        assert!(error.starts_with("t.toml:") && error.lines().count() == 3, "{error}");
    }
    // The text to be replaced must occur exactly once; this is checked when the policy is read.
    let twice = text.replacen("find = \"share 10% default\"", "find = \"share\"", 1);
    let error =
        sim::run_file(&file(&twice).unwrap(), &RunOptions::default(), None, &mut watch()).unwrap_err().to_string();
    assert!(error.contains("there 2 times, not once"), "{error}");
}

/// A case with two columns, one of which has `column` as an additional key, and with `top` at its
/// top.
fn placed(top: &str, column: &str) -> String {
    format!(
        "name = 'p'\ndescription = 'd'\nduration = '1s'\n{top}\nhosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
         links = [{{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }}]\n\
         policy = 'link wan {{ rate 1Mbit/s scheduler fifo CLASSES }}'\n\
         [[columns]]\nname = 'one'\nreplace = [{{ find = 'CLASSES', with = 'class c# {{ }} \
         match dport # -> c# ', times = 3 }}]\n\
         [[columns]]\nname = 'two'\nreplace = [{{ find = 'CLASSES', with = 'default' }}]\n{column}\n\
         [[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'a'\nto = 'b'\ndport = 3\nsize = 100\nrate = '100kbit/s'\n\
         [[expect]]\nname = 'lab-only'\nworld = 'lab'\nmeasure = 'rate'\nflow = 'f'\nexpected = 1\ntolerance = 0\n\
         source = 's'\n"
    )
}

#[test]
fn a_column_or_a_case_may_make_sense_in_one_world_only() {
    let load = |text: &str| CaseFile::parse(text, Path::new("p.toml"));
    let run = |file: &CaseFile| sim::run_file(file, &RunOptions::default(), None, &mut watch());
    let lab = "only = { world = 'lab', reason = 'a clock is needed' }";
    let both = run(&load(&placed("", "")).unwrap()).unwrap();
    let columns =
        |result: &CaseResult| result.flows.iter().map(|flow| flow.column.clone().unwrap()).collect::<Vec<_>>();
    assert_eq!(columns(&both), ["one", "two"]);
    // Expectations for the lab only are not judged here.
    assert!(both.expectations.is_empty() && both.passed());
    // Copies of a piece of text are numbered from 1.
    let class = |result: &CaseResult| result.flows[0].class.clone();
    assert_eq!(class(&both).as_deref(), Some("c3"));
    assert_eq!(columns(&run(&load(&placed("", lab)).unwrap()).unwrap()), ["one"]);
    let error = run(&load(&placed(lab, "")).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "this case runs in the lab only (`altq lab`): a clock is needed");
    for (top, said) in [
        ("only = { world = 'moon', reason = 'r' }", "a world is"),
        ("only = { world = 'lab', reason = ' ' }", "why not in the other world?"),
        ("turns = 0", "each runs once at least"),
        ("turns = 1001", "1000 times at most"),
    ] {
        let error = load(&placed(top, "")).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("p.toml:4:"), "{error}");
    }
    let error = load(&placed("", "").replace("times = 3", "times = 1000001")).unwrap_err().to_string();
    assert!(error.contains("at most 1000000 times"), "{error}");
}

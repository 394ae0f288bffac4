//! The JSON Schemas of docs/schemas: made from the structs that the documents are written from, and
//! held equal to the files. `docs/schemas.sh` writes the files again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use crate::commands::{bench, check, experiments, plan, top, traffic, verify};

/// Set, it has the files written instead of compared.
const WRITE: &str = "ALTQ_WRITE_SCHEMAS";

/// Schemas of what is written, not of what could be read: a field that is always there is required.
fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

fn of<T: JsonSchema>() -> Schema {
    generator().into_root_schema_for::<T>()
}

/// The schema of every document, by its name.
fn all() -> BTreeMap<&'static str, Schema> {
    let [control, event] = altq_control::schemas(&generator());
    let [web, history] = altq_web::schemas(&generator());
    let [traffic_live] = traffic::schemas(&generator());
    let [bench, against, simulator] = bench::schemas(&generator());
    BTreeMap::from([
        ("altq.apply/1", of::<altq_control::request::change::Applied>()),
        ("altq.bench/1", bench),
        ("altq.bench_against/1", against),
        ("altq.bench_simulator/1", simulator),
        ("altq.change/1", of::<altq_control::change::Kept>()),
        ("altq.check/1", check::schema(&generator())),
        ("altq.control/1", control),
        ("altq.experiments/1", of::<experiments::documents::Ran>()),
        ("altq.experiments_list/1", of::<experiments::documents::List<'_>>()),
        ("altq.explain/1", of::<altq_config::explain::Explained<'_>>()),
        ("altq.explain_capture/1", of::<altq_config::explain::Counted<'_>>()),
        ("altq.history/1", of::<altq_control::request::change::History>()),
        ("altq.past/1", of::<altq_monitor::recorded::Recorded>()),
        ("altq.plan/1", plan::schema(&generator())),
        ("altq.policy/1", of::<altq_control::request::change::Running>()),
        ("altq.replay/1", of::<altq_simulator::replay::Report>()),
        ("altq.reservations/1", of::<altq_reserve::List>()),
        ("altq.reserve-event/1", event),
        ("altq.reserve/1", of::<altq_reserve::Answer>()),
        ("altq.result/1", of::<altq_cases::result::CaseResult>()),
        ("altq.rsvp-neighbours/1", of::<altq_rsvpd::document::Neighbours>()),
        ("altq.rsvp-paths/1", of::<altq_rsvpd::document::Paths>()),
        ("altq.rsvp-reservations/1", of::<altq_rsvpd::document::Reservations>()),
        ("altq.runs/1", of::<altq_control::runs::Runs>()),
        ("altq.stat/1", of::<altq_control::stat::Stat>()),
        ("altq.status/1", of::<altq_control::document::Status>()),
        ("altq.subscribers/1", of::<altq_control::document::Subscribers>()),
        ("altq.sweep/1", of::<altq_sweep::gather::Summary>()),
        ("altq.top/1", of::<altq_monitor::document::Top>()),
        ("altq.traffic/1", of::<altq_traffic::result::TrafficResult>()),
        ("altq.traffic_live/1", traffic_live),
        ("altq.verify/1", verify::schema(&generator())),
        ("altq.watch/1", top::schema(&generator())),
        ("altq.web-history/1", history),
        ("altq.web/1", web),
    ])
}

/// The text of a schema's file. The field `schema` can only be the document's name.
fn text(name: &str, schema: Schema) -> String {
    let mut schema = Value::from(schema);
    schema["title"] = json!(name);
    let field = &mut schema["properties"]["schema"];
    assert_eq!(field["type"], "string", "{name} has a field `schema`");
    field["const"] = json!(name);
    plain(&mut schema);
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

/// Makes the descriptions texts without rustdoc's links, without Rust's `None`, and without the
/// ends of lines, which mean nothing.
fn plain(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(plain),
        Value::Object(all) => {
            if let Some(Value::String(text)) = all.get_mut("description") {
                let paragraphs = without_links(text).replace("`None`", "null");
                *text = paragraphs.split("\n\n").map(|one| one.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
            }
            all.values_mut().for_each(plain);
        }
        _ => {}
    }
}

/// ``[`a`](b)`` and ``[`a`]`` as `` `a` ``.
fn without_links(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((word, behind)) = link.split_once("`]") else { break };
        out += &format!("{before}`{word}`");
        rest = behind.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(behind, |(_, behind)| behind);
    }
    out + rest
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// The name of a schema's file: `altq.check/1` is in `check-1.json`.
fn file(name: &str) -> String {
    name.trim_start_matches("altq.").replace('/', "-") + ".json"
}

#[test]
fn the_files_are_what_the_structs_say() {
    let write = std::env::var_os(WRITE).is_some();
    let mut known = Vec::new();
    for (name, schema) in all() {
        let (path, text) = (folder().join(file(name)), text(name, schema));
        known.push(file(name));
        if write {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, text).unwrap();
            continue;
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        let line = there.lines().zip(text.lines()).position(|(a, b)| a != b).unwrap_or(there.lines().count());
        assert!(
            there == text,
            "{} line {}: the structs say otherwise. A document may gain fields; another change needs another name. \
             docs/schemas.sh writes the file again",
            path.display(),
            line + 1
        );
    }
    let there = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let strange: Vec<String> = there.filter(|name| name.ends_with(".json") && !known.contains(name)).collect();
    assert!(strange.is_empty(), "no document has these schemas: {strange:?}");
}

#[test]
fn links_become_words() {
    assert_eq!(without_links("see [`A::b`](super::A::b), or [`C`] [1] [`d"), "see `A::b`, or `C` [1] [`d");
}

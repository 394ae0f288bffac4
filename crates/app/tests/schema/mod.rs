//! Compares documents with the JSON Schemas of docs/schemas.

// Each file of tests uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

/// The schemas that were read, by the documents' names.
static READ: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());

/// The schema of a document. It allows no field that it does not name: readers must put up with
/// more fields, but a test finds a field that the schema does not describe.
fn schema(name: &str) -> Arc<Validator> {
    let read = || {
        let file = name.trim_start_matches("altq.").replace('/', "-") + ".json";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut schema = serde_json::from_str(&text).unwrap();
        close(&mut schema);
        jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    READ.lock().unwrap().entry(name.to_owned()).or_insert_with(|| Arc::new(read())).clone()
}

/// Forbids all fields that are not named.
fn close(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(close),
        Value::Object(all) => {
            if all.get("properties").is_some_and(|properties| properties.get("type").is_none_or(Value::is_object)) {
                all.entry("additionalProperties").or_insert(json!(false));
            }
            all.values_mut().for_each(close);
        }
        _ => {}
    }
}

/// Checks a document by the schema that it names, and returns its name.
pub fn check(document: &Value) -> String {
    let name = document["schema"].as_str().unwrap_or_else(|| panic!("no schema: {document}"));
    let errors: Vec<String> =
        schema(name).iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{name} is not as docs/schemas says:\n{}\n{document}", errors.join("\n"));
    name.to_owned()
}

/// Checks each line of a text that is a document with a schema, and returns their names.
pub fn check_lines(text: &[u8]) -> Vec<String> {
    let lines = text.split(|byte| *byte == b'\n');
    let documents = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    documents.filter(|document| document["schema"].is_string()).map(|document| check(&document)).collect()
}

#!/bin/sh
# Writes the JSON Schemas of docs/schemas again, from the structs that the documents are written
# from. A test holds them equal.
set -eu
cd "$(dirname "$0")/.."
ALTQ_WRITE_SCHEMAS=1 cargo test --package altq --bin altq the_files_are_what_the_structs_say

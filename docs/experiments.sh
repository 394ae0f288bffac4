#!/bin/sh
# Runs the published measurements and writes EXPERIMENTS.md anew: docs/experiments.sh [ALTQ]
# [FILTER…]. Each case runs at eleven seeds. The same cases, seeds and engine give the same bytes.
# With filters only those cases run; of the others the results of the last run stand
# (target/experiments has them).
set -eu
cd "$(dirname "$0")/.."
altq=${1:-target/release/altq}
[ $# -eq 0 ] || shift
"$altq" experiments run --samples 11 --out target/experiments --document EXPERIMENTS.md "$@"

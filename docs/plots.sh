#!/bin/sh
# Draws every plot of docs/ anew: docs/plots.sh [ALTQ]. The same cases and seeds give the same
# bytes.
set -eu
cd "$(dirname "$0")/.."
altq=${1:-target/release/altq}
draw() { # FILE CASE OPTIONS
    out=docs/$1 case=cases/$2
    shift 2
    "$altq" sim "$case" --plot "$out" "$@" >/dev/null
}
draw meters.svg plots/meters.toml --panels rate
draw schedulers/cbq.svg borrow.toml --panels rate
draw schedulers/drr.svg plots/drr.toml --panels rate
draw schedulers/fairq.svg plots/fairq.toml --panels rate
draw schedulers/fifo.svg plots/fifo.toml --panels rate,wait --by-flow
draw schedulers/hfsc.svg hfsc.toml --panels rate
draw schedulers/htb.svg htb.toml --panels rate
draw schedulers/jobs.svg jobs.toml --panels wait
draw schedulers/priq.svg plots/priq.toml --panels wait
draw schedulers/wfq.svg plots/wfq.toml --panels rate
draw queues/blue.svg plots/blue.toml --panels drops,wait --overlay
draw queues/cake.svg plots/cake.toml --panels rate --by-flow
draw queues/codel.svg plots/codel.toml --panels wait --overlay
draw queues/drop_head.svg plots/plain.toml --panels wait --overlay
draw queues/drop_tail.svg plots/plain.toml --panels wait,drops
draw queues/fairq.svg plots/fairq-queue.toml --panels delay --overlay --by-flow
draw queues/flowvalve.svg flowvalve.toml --panels rate --by-flow
draw queues/fq_codel.svg plots/fq_codel.toml --panels wait --overlay --by-flow
draw queues/hashed_wfq.svg plots/hashed_wfq.toml --panels rate --by-flow
draw queues/pie.svg plots/pie.toml --panels wait --overlay
draw queues/red.svg plots/red.toml --panels drops,wait
draw queues/rio.svg plots/rio.toml --panels drops --by-flow
draw queues/sfq.svg plots/sfq.toml --panels rate --by-flow
draw queues/two_level.svg plots/two_level.toml --panels wait,drops --by-flow

# A sweep over the rows of a published case, with the confidence intervals of ten seeds.
rows=$(mktemp -d)
trap 'rm -rf "$rows"' EXIT
"$altq" sweep cases/published/allocation-10baset.toml --column classic --samples 10 --show figure.tcp \
    --plot docs/sweeps.svg -o "$rows" >/dev/null

// What altq does now, from the events, and what it did, from the history.

// The indices of figures in a row, and of the fields of a class (docs/web.md).
const ASKED = 2, CEILING = 3, SCHEDULER = 4, BOUND = 5;
const IN = 1, GOT = 2, BORROWED = 3, LENT = 4, P50 = 5, P99 = 6, DROPS = 7, MARKED = 8, PACKETS = 9, WAITING = 10, BY = 11;
// A class keeps its figures at the same indices. The first is not used.
const FIGURES = 11, NOTHING = new Float64Array(FIGURES);

const state = { links: new Map(), link: null, error: null, unknown: false, marks: [], heard: 0, lost: false, full: false, other: false, opened: false, now: Date.now() };

/// True if altq does not shape a link: its packets pass unshaped, or do not pass at all.
const isOff = link => link.state === "bypass" || link.state === "blocked";

/// Takes an event. Returns whether the classes have changed.
function take(doc, whole) {
  state.error = doc.error;
  state.unknown = Boolean(doc.error) && !doc.links.length;
  state.marks = doc.marks;
  state.now = doc.unix_ms;
  state.heard = Date.now();
  if (whole && doc.links.length) {
    for (const name of [...state.links.keys()]) {
      if (!doc.links.some(link => link.name === name)) state.links.delete(name);
    }
  }
  let other = false;
  for (const said of doc.links) {
    let link = state.links.get(said.name);
    if (!link) {
      link = { name: said.name, classes: [], folded: new Set(), chosen: null };
      state.links.set(said.name, link);
      other = true;
    }
    link.state = said.state;
    link.path = said.path;
    link.since = said.since_s;
    link.reason = said.reason;
    link.drift = said.drift;
    if (said.classes) {
      link.classes = described(said.classes);
      other = true;
    }
    link.figures = said.rows.length > 0 || (said.figures_unix_ms > 0 && link.classes.length > 0);
    if (said.figures_unix_ms > 0) {
      link.at = said.figures_unix_ms;
      link.step = said.step_ms;
    }
    // Figures are copied: rows that are kept for a second would grow the heap by megabytes.
    for (const row of said.rows) {
      const one = link.classes[row[0]];
      if (!one) continue;
      for (let at = IN; at < FIGURES; at++) one.row[at] = row[at];
      one.by = word(row[BY]);
    }
  }
  if (!state.links.has(state.link)) {
    state.link = state.links.keys().next().value ?? null;
    other = true;
  }
  return other;
}

/// One text for all equal ones.
const words = new Map();
function word(text) {
  if (!words.has(text)) words.set(text, text);
  return words.get(text);
}

function described(list) {
  const figures = new Float64Array(list.length * FIGURES);
  words.clear();
  const classes = list.map((said, at) => ({
    at, name: said[0], parent: said[1], asked: said[ASKED], ceiling: said[CEILING], scheduler: word(said[SCHEDULER]),
    bound: said[BOUND], below: [], depth: 0, row: figures.subarray(at * FIGURES, (at + 1) * FIGURES), by: "",
  }));
  for (const one of classes) {
    if (one.parent !== null) classes[one.parent].below.push(one);
  }
  const open = classes.length ? [classes[0]] : [];
  while (open.length) {
    const one = open.pop();
    for (const child of one.below) {
      child.depth = one.depth + 1;
      open.push(child);
    }
  }
  return classes;
}

const current = () => state.links.get(state.link);

/// The chosen class; the link itself if none is chosen, or the chosen one is gone.
function chosen(link) {
  if (!link || !link.classes.length) return null;
  if (!link.found || link.found.of !== link.classes || link.found.name !== link.chosen) {
    const one = link.chosen === null ? null : link.classes.find(one => one.at > 0 && one.name === link.chosen);
    link.found = { of: link.classes, name: link.chosen, one: one || link.classes[0] };
  }
  return link.found.one;
}

const isIdle = row => row[GOT] === 0 && row[IN] === 0 && row[DROPS] === 0 && row[PACKETS] === 0;

// The history: times and lines of the chosen class and of the largest classes below it.
const past = { key: "", window: 300, ends: [], steps: [], lines: [], asked: 0, busy: false };
const KEYS = ["got", "p50", "p99", "drops", "marks", "backlog"];
const SOURCES = ["got_bit_s", "p50_ns", "p99_ns", "drops", "marks", "backlog_bytes"];
const PLACES = [GOT, P50, P99, DROPS, MARKED, WAITING];

/// Asks for the history if another one must be shown, or the one that is shown is too old.
async function recall(draw) {
  const link = current(), one = chosen(link);
  if (!one) return;
  const key = JSON.stringify([link.name, one.at, one.name, past.window]);
  const old = past.window > 300 ? 15000 : 30000;
  if (past.busy || (key === past.key && Date.now() - past.asked < old)) return;
  past.busy = true;
  past.asked = Date.now();
  const query = new URLSearchParams({ link: link.name, from: String(-past.window) });
  if (one.at > 0) query.set("class", one.name);
  try {
    const answer = await fetch("/history.json?" + query);
    const known = answer.ok ? await answer.json() : null;
    past.key = key;
    past.ends = known ? known.unix_ms : [];
    past.steps = known ? known.step_ms : [];
    past.lines = (known ? known.series : [{ class: one.name }]).map((said, at) => {
      const line = { name: said.class, root: at === 0 };
      KEYS.forEach((key, n) => line[key] = said[SOURCES[n]] || []);
      return line;
    });
    past.added = past.ends.at(-1) ?? 0;
  } catch {
    // The server does not answer, which the handler of events reports.
  }
  past.busy = false;
  draw();
}

/// Adds the latest figures to the history that is shown.
function remember() {
  const link = current(), one = chosen(link);
  if (!one || !past.lines.length || !link.figures || !(link.at > past.added) || !(link.step > 0)) return;
  if (past.key !== JSON.stringify([link.name, one.at, one.name, past.window])) return;
  past.added = link.at;
  past.ends.push(link.at);
  past.steps.push(link.step);
  for (const line of past.lines) {
    const row = (line.root ? one : one.below.find(below => below.name === line.name))?.row ?? NOTHING;
    KEYS.forEach((key, n) => line[key].push(row[PLACES[n]]));
  }
  const first = past.ends.findIndex(end => end > link.at - past.window * 1000);
  if (first > 0) {
    past.ends.splice(0, first);
    past.steps.splice(0, first);
    for (const line of past.lines) KEYS.forEach(key => line[key].splice(0, first));
  }
}

// The classes as a list of rows. Only visible rows are elements of the page.
const tree = { rows: [], pool: [], first: 0, height: 30, sort: "tree", scale: "own", idle: false, filter: "", scrolled: 0, rest: 0, pointed: null };
// So long after the last one a movement of the list is over, in ms.
const REST = 100;

/// The rows that are shown, in order.
function arrange() {
  const link = current();
  tree.rows = [];
  if (!link) return;
  const filter = tree.filter.trim().toLowerCase();
  const fits = one => (!filter || one.name.toLowerCase().includes(filter)) && (!tree.idle || !isIdle(one.row));
  if (tree.sort !== "tree") {
    const place = { got: GOT, p99: P99, drops: DROPS, backlog: WAITING }[tree.sort];
    tree.rows = link.classes.filter(one => !one.below.length && fits(one));
    tree.rows.sort((a, b) => b.row[place] - a.row[place] || a.at - b.at);
    return;
  }
  // A class above one that is shown is shown as well.
  const wanted = filter || tree.idle ? new Set() : null;
  if (wanted) {
    for (const one of link.classes) {
      for (let at = fits(one) ? one : null; at && !wanted.has(at); at = link.classes[at.parent] ?? null) wanted.add(at);
    }
  }
  const open = link.classes.slice(0, 1);
  while (open.length) {
    const one = open.pop();
    if (wanted && !wanted.has(one)) continue;
    tree.rows.push(one);
    if (!filter && link.folded.has(one.name)) continue;
    for (let at = one.below.length - 1; at >= 0; at--) open.push(one.below[at]);
  }
}

function madeRow() {
  const row = el("div", "row");
  row.setAttribute("role", "treeitem");
  const part = {};
  for (const name of ["name", "bar", "got", "asked", "p99", "drops", "backlog", "by"]) {
    part[name] = el("span", name);
    row.append(part[name]);
  }
  part.fold = el("span", "fold");
  part.text = el("span", "text");
  part.name.append(part.fold, part.text);
  for (const name of ["lent", "own", "borrowed", "tick"]) {
    part[name] = el("b", name);
    part.bar.append(part[name]);
  }
  row.cells = part;
  row.addEventListener("click", event => {
    if (event.target === part.fold) fold(row.one);
    else choose(row.one);
  });
  row.addEventListener("pointerenter", () => {
    tree.pointed = row;
    drawTitles();
  });
  row.addEventListener("pointerleave", () => {
    if (tree.pointed === row) tree.pointed = null;
  });
  $("rows").append(row);
  return row;
}

/// Measures what changes only with the size of the window.
function measure() {
  tree.height = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 30;
}

/// Writes a text only if it has changed, because writing causes layout; `attribute` and `style` do
/// the same. The text's node stays: a browser keeps nodes that are replaced for many seconds.
function put(element, text) {
  if (element.said === text) return;
  element.said = text;
  if (element.firstChild) element.firstChild.data = text;
  else element.textContent = text;
}

function attribute(element, name, value) {
  const known = element.wrote ??= {};
  if (known[name] === value) return;
  known[name] = value;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

function style(element, name, value) {
  const known = element.known ??= {};
  if (known[name] === value) return;
  known[name] = value;
  element.style[name] = value;
}

/// Fills a box with elements, given as tag, kind and text. They are made anew only if a tag or a kind
/// has changed.
function putAll(box, parts) {
  const shape = parts.map(([tag, kind]) => tag + "." + kind).join();
  if (box.shape !== shape) {
    box.shape = shape;
    box.replaceChildren(...parts.map(([tag, kind]) => el(tag, kind)));
  }
  parts.forEach(([, , text], at) => put(box.children[at], text));
}

/// Draws the visible rows. While the list moves fast, `names` only: nobody could read the figures, and
/// they are most of the work.
function drawTree(names = false) {
  const box = $("tree"), link = current(), pool = tree.pool;
  const count = tree.rows.length;
  style($("space"), "height", Math.max(count, 1) * tree.height + "px");
  const first = Math.max(0, Math.floor(box.scrollTop / tree.height) - 2);
  const seen = Math.min(count - first, Math.ceil(box.clientHeight / tree.height) + 5);
  while (pool.length < seen) pool.push(madeRow());
  turnRows(first - tree.first);
  tree.first = first;
  const one = chosen(link);
  style($("rows"), "transform", "translateY(" + first * tree.height + "px)");
  $("rows").classList.toggle("names", names);
  let active = null;
  pool.forEach((row, n) => {
    row.hidden = n >= seen;
    if (row.hidden) {
      // Another row may get it.
      attribute(row, "id", null);
      return;
    }
    const at = first + n;
    drawName(row, tree.rows[at], at, link, one);
    if (!names) drawFigures(row.cells, tree.rows[at], link);
    if (tree.rows[at] === one) active = row.id;
  });
  attribute(box, "aria-activedescendant", active);
  drawTitles();
  const all = link ? link.classes.length : 0;
  put($("count"), all === 0 ? "No figures of classes now." : count === all ? all + (all === 1 ? " class" : " classes") : count + " of " + all + " classes");
}

/// What does not fit into a cell is shown beside the pointer. Only the row below the pointer has it,
/// because scrolling changes all rows.
function drawTitles() {
  const row = tree.pointed;
  if (!row) return;
  attribute(row.cells.name, "title", row.one.name);
  attribute(row.cells.by, "title", row.one.by);
}

/// Draws what was scrolled to: the figures too, unless the list is moving by screens.
function scrolled() {
  const now = performance.now(), box = $("tree");
  const far = Math.abs(box.scrollTop / tree.height - 2 - tree.first) > box.clientHeight / tree.height;
  const fast = far && now - tree.scrolled < REST;
  tree.scrolled = now;
  clearTimeout(tree.rest);
  if (fast) tree.rest = setTimeout(drawTree, REST);
  drawTree(fast);
}

/// Takes rows that have left the window by so many rows to its other end. The rest stay as they are.
function turnRows(by) {
  const { pool } = tree, box = $("rows");
  if (Math.abs(by) >= pool.length) return;
  for (; by > 0; by--) {
    pool.push(pool.shift());
    box.append(pool.at(-1));
  }
  for (; by < 0; by++) {
    pool.unshift(pool.pop());
    box.prepend(pool[0]);
  }
}

function drawName(row, one, at, link, selected) {
  const part = row.cells, flat = tree.sort !== "tree";
  const folds = !flat && one.below.length > 0, folded = folds && link.folded.has(one.name);
  row.one = one;
  attribute(row, "aria-level", flat ? 1 : one.depth + 1);
  attribute(row, "aria-posinset", at + 1);
  attribute(row, "aria-setsize", tree.rows.length);
  attribute(row, "aria-selected", one === selected);
  attribute(row, "aria-expanded", folds ? !folded : null);
  // Only the chosen row needs an id: the tree names it to screen readers.
  attribute(row, "id", one === selected ? "class-" + one.at : null);
  row.classList.toggle("idle", isIdle(one.row));
  style(part.fold, "marginLeft", flat ? "0" : "calc(var(--depth) * " + Math.min(one.depth, 12) + ")");
  put(part.fold, folds ? folded ? "▸" : "▾" : "");
  put(part.text, one.name);
}

function drawFigures(part, one, link) {
  const now = one.row;
  put(part.got, rate(now[GOT]));
  put(part.asked, one.asked === null ? "–" : rate(one.asked));
  put(part.p99, delay(now[P99]));
  part.p99.classList.toggle("bad", isLate(one));
  put(part.drops, each(now[DROPS], link.step));
  put(part.backlog, now[WAITING] ? bytes(now[WAITING]) : "0");
  put(part.by, one.by);
  drawBar(part, one, link);
}

/// True if packets have waited longer than the policy promises. The percentile of a histogram and the
/// loop's timers are allowed a sixteenth and a millisecond, as in `altq report`.
const isLate = one => one.bound !== null && one.row[P99] > one.bound * 17 / 16 + 1e6;

function drawBar(part, one, link) {
  const now = one.row, asked = one.asked ?? 0, whole = link.classes[0].asked || link.classes[0].ceiling || 1;
  const scale = tree.scale === "link" || !asked ? whole : 2 * asked;
  // In steps of half a percent, which is less than a pixel: most bars stay as they are for seconds.
  const place = bits => Math.round(200 * Math.min(1, bits / scale)) / 2;
  const set = (element, from, to) => {
    element.hidden = to <= from;
    style(element, "left", from + "%");
    style(element, "width", to - from + "%");
  };
  const got = now[GOT], own = Math.max(0, got - now[BORROWED]);
  set(part.own, 0, place(own));
  set(part.borrowed, place(own), place(got));
  set(part.lent, place(Math.max(0, asked - now[LENT])), place(asked));
  part.tick.hidden = !asked;
  style(part.tick, "left", place(asked) + "%");
  part.bar.classList.toggle("over", got > scale * 1.02);
}

function choose(one) {
  const link = current();
  link.chosen = one.at > 0 ? one.name : null;
  const hash = "#" + encodeURIComponent(link.name) + (one.at > 0 ? "/" + encodeURIComponent(one.name) : "");
  history.replaceState(null, "", hash);
  past.asked = 0;
  redraw();
}

function fold(one) {
  const folded = current().folded;
  if (!folded.delete(one.name)) folded.add(one.name);
  arrange();
  redraw();
}

/// Scrolls to a row.
function show(at) {
  // The heads of the columns stay above the rows.
  const box = $("tree"), top = at * tree.height, room = box.clientHeight - $("heads").offsetHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + tree.height > box.scrollTop + room) box.scrollTop = top + tree.height - room;
}

function moveInTree(event) {
  const link = current(), one = chosen(link), rows = tree.rows;
  if (!one || !rows.length || event.ctrlKey || event.altKey || event.metaKey) return;
  const at = rows.indexOf(one), page = Math.max(1, Math.floor($("tree").clientHeight / tree.height) - 1);
  let to = at;
  switch (event.key) {
    case "ArrowDown": to = at + 1; break;
    case "ArrowUp": to = at < 0 ? 0 : at - 1; break;
    case "PageDown": to = at + page; break;
    case "PageUp": to = at - page; break;
    case "Home": to = 0; break;
    case "End": to = rows.length - 1; break;
    case "ArrowRight":
      if (link.folded.has(one.name)) fold(one);
      else if (tree.sort === "tree" && one.below.length) to = at + 1;
      break;
    case "ArrowLeft":
      if (tree.sort === "tree" && one.below.length && !link.folded.has(one.name)) fold(one);
      else if (tree.sort === "tree" && one.parent !== null) to = rows.indexOf(link.classes[one.parent]);
      break;
    default: return;
  }
  event.preventDefault();
  to = Math.max(0, Math.min(rows.length - 1, to));
  if (rows[to] !== one && !(to === at)) choose(rows[to]);
  show(Math.max(0, tree.rows.indexOf(chosen(link))));
  drawTree();
}

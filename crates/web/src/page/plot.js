// Rates, delay, drops and backlog on one axis of time.
const plot = { cursor: null, colours: {}, left: 62, right: 10 };
const COLOURS = 10;

function colour(name) {
  return plot.colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/// A round number that is at least `most`, and the ticks up to it.
function ticks(most, count) {
  if (!(most > 0)) return [1];
  const raw = most / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(step => step * power >= raw) * power;
  const found = [];
  for (let at = step; at < most + step * 0.999; at += step) found.push(at);
  return found;
}

function drawPlot() {
  const canvas = $("plot"), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  const link = current(), one = chosen(link);
  if (!one) return;
  const to = Math.max(state.now, past.ends.at(-1) ?? 0), from = to - past.window * 1000;
  const x = time => plot.left + (width - plot.left - plot.right) * (time - from) / (to - from);
  plot.from = from;
  plot.to = to;
  const room = height - 22, gap = 20, parts = [0.4, 0.24, 0.15, 0.21];
  let top = 0;
  const panels = parts.map(part => {
    const panel = { top: top + gap, bottom: top + room * part };
    top += room * part;
    return panel;
  });
  const view = { g, x, width, from, to, one };
  drawTimes(view, panels, height);
  drawRates(view, panels[0]);
  drawDelays(view, panels[1]);
  drawDrops(view, panels[2], link);
  drawBacklog(view, panels[3]);
  drawMarks(view, panels, link);
  drawCursor(view, panels);
}

function drawTimes({ g, x, width, from, to }, panels, height) {
  const span = (to - from) / 1000, most = Math.max(2, Math.floor(width / 80));
  const step = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200].find(step => span / step <= most) * 1000;
  g.strokeStyle = colour("--grid");
  g.fillStyle = colour("--quiet");
  g.textAlign = "center";
  g.textBaseline = "top";
  const zone = new Date(to).getTimezoneOffset() * 60000;
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) {
    for (const panel of panels) line(g, [[x(at), panel.top], [x(at), panel.bottom]]);
    if (x(at) > plot.left + 12 && x(at) < width - 22) g.fillText(clock(at, step < 60000), x(at), height - 15);
  }
}

function line(g, points) {
  g.beginPath();
  points.forEach(([x, y], at) => at ? g.lineTo(x, y) : g.moveTo(x, y));
  g.stroke();
}

/// The frame of a panel: its name, and a line with a figure for each tick.
function drawFrame({ g, width }, panel, name, marks, y, text) {
  g.textBaseline = "middle";
  g.textAlign = "right";
  g.lineWidth = 1;
  for (const mark of marks) {
    g.strokeStyle = colour("--grid");
    line(g, [[plot.left, y(mark)], [width - plot.right, y(mark)]]);
    g.fillStyle = colour("--quiet");
    g.fillText(text(mark), plot.left - 5, y(mark));
  }
  g.strokeStyle = colour("--edge");
  line(g, [[plot.left, panel.bottom], [width - plot.right, panel.bottom]]);
  g.fillStyle = colour("--ink");
  g.textAlign = "left";
  g.textBaseline = "bottom";
  g.fillText(name, plot.left, panel.top - 4);
}

/// The runs of steps without a gap between them: [first, one after the last].
function runs() {
  const found = [];
  for (let at = 0; at < past.ends.length; at++) {
    const follows = at > 0 && past.ends[at] - past.steps[at] - past.ends[at - 1] < 1500;
    if (follows) found.at(-1)[1] = at + 1;
    else found.push([at, at + 1]);
  }
  return found;
}

/// The left and right side of step `at`, within the panel.
function sides(view, at) {
  return [Math.max(plot.left, view.x(past.ends[at] - past.steps[at])), Math.max(plot.left, view.x(past.ends[at]))];
}

function fill(view, low, high) {
  const g = view.g;
  for (const [first, end] of runs()) {
    g.beginPath();
    for (let at = first; at < end; at++) {
      const [left, right] = sides(view, at);
      if (at === first) g.moveTo(left, high(at));
      else g.lineTo(left, high(at));
      g.lineTo(right, high(at));
    }
    for (let at = end - 1; at >= first; at--) {
      const [left, right] = sides(view, at);
      g.lineTo(right, low(at));
      g.lineTo(left, low(at));
    }
    g.closePath();
    g.fill();
  }
}

/// A line of steps; `y` returns null for a step without a value.
function stroke(view, y) {
  const g = view.g;
  for (const [first, end] of runs()) {
    let open = false;
    g.beginPath();
    for (let at = first; at < end; at++) {
      const height = y(at);
      if (height === null) {
        open = false;
        continue;
      }
      const [left, right] = sides(view, at);
      if (open) g.lineTo(left, height);
      else g.moveTo(left, height);
      g.lineTo(right, height);
      open = true;
    }
    g.stroke();
  }
}

const most = list => list.reduce((most, number) => Math.max(most, number), 0);

/// The stacked lines: the classes below, and the rest of the class itself.
function layers() {
  const [all, ...parts] = past.lines;
  if (!all) return [];
  if (!parts.length) return [{ name: all.name, got: all.got, colour: 0 }];
  const rest = all.got.map((sum, at) => Math.max(0, parts.reduce((left, part) => left - part.got[at], sum)));
  const found = parts.map((part, at) => ({ name: part.name, got: part.got, colour: at % (COLOURS - 1) }));
  // Rates are rounded, so a small rest is always left.
  if (most(rest) > parts.length * 8) found.push({ name: "others", got: rest, colour: COLOURS - 1 });
  return found;
}

function drawRates(view, panel) {
  const { g, one, width } = view;
  const guarantee = one.asked ?? 0, highest = most(past.lines[0]?.got ?? []);
  const scale = Math.max(highest, guarantee <= 3 * highest ? guarantee : 0, 1000) * 1.04;
  const y = bits => panel.bottom - (panel.bottom - panel.top) * Math.min(1, bits / scale);
  drawFrame(view, panel, "rate", ticks(scale, 4).filter(at => at <= scale), y, rate);
  const sums = past.ends.map(() => 0);
  for (const layer of layers()) {
    const low = sums.slice();
    layer.got.forEach((got, at) => sums[at] += got);
    g.fillStyle = colour("--c" + layer.colour);
    fill(view, at => y(low[at]), at => y(sums[at]));
    // A line in the background's colour separates neighbours for readers who cannot tell their colours.
    g.strokeStyle = colour("--paper");
    g.lineWidth = 1;
    stroke(view, at => y(sums[at]));
  }
  if (guarantee && guarantee <= scale) {
    g.strokeStyle = colour("--ink");
    g.lineWidth = 1.5;
    g.setLineDash([6, 4]);
    line(g, [[plot.left, y(guarantee)], [width - plot.right, y(guarantee)]]);
    g.setLineDash([]);
  }
}

function drawDelays(view, panel) {
  const { g, one } = view, all = past.lines[0];
  const times = all ? [...all.p50, ...all.p99].filter(time => time > 0) : [];
  const low = Math.floor(Math.log10(times.length ? times.reduce((a, b) => Math.min(a, b)) : 1e5));
  const longest = times.length ? most(times) : 1e6;
  const bound = one.bound !== null && one.bound < longest * 100 ? one.bound : null;
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(longest, bound ?? 0))));
  const y = time => panel.bottom - (panel.bottom - panel.top) * Math.max(0, (Math.log10(time) - low) / (high - low));
  const marks = [];
  for (let power = low + (high - low > 4 ? 1 : 0); power <= high; power += high - low > 4 ? 2 : 1) marks.push(10 ** power);
  drawFrame(view, panel, "delay in the queue: p99 ━, p50 ╌" + (bound ? ", bound ┄" : ""), marks, y, delay);
  if (!all) return;
  const draw = (list, name, dash, wide) => {
    g.strokeStyle = colour(name);
    g.lineWidth = wide;
    g.setLineDash(dash);
    stroke(view, at => list[at] > 0 ? y(list[at]) : null);
    g.setLineDash([]);
  };
  draw(all.p50, "--c0", [4, 3], 1.5);
  draw(all.p99, "--c1", [], 2);
  if (bound) {
    g.strokeStyle = colour("--ink");
    g.lineWidth = 1;
    g.setLineDash([2, 3]);
    line(g, [[plot.left, y(bound)], [view.width - plot.right, y(bound)]]);
    g.setLineDash([]);
  }
}

function drawDrops(view, panel) {
  const { g } = view, all = past.lines[0];
  const second = (list, at) => list[at] * 1000 / Math.max(1, past.steps[at]);
  const sums = past.ends.map((_, at) => all ? second(all.drops, at) + second(all.marks, at) : 0);
  const scale = Math.max(most(sums), 1);
  const y = count => panel.bottom - (panel.bottom - panel.top) * count / scale;
  drawFrame(view, panel, "drops (red) and marks a second", [scale], y, count => each(count, 1000));
  if (!all) return;
  for (let at = 0; at < past.ends.length; at++) {
    const [left, right] = sides(view, at), drops = second(all.drops, at), wide = Math.max(1, right - left);
    if (right <= plot.left) continue;
    g.fillStyle = colour("--bad");
    g.fillRect(left, y(drops), wide, panel.bottom - y(drops));
    g.fillStyle = colour("--c4");
    g.fillRect(left, y(sums[at]), wide, y(drops) - y(sums[at]));
  }
}

function drawBacklog(view, panel) {
  const { g } = view, all = past.lines[0];
  const scale = Math.max(most(all?.backlog ?? []), 1500) * 1.04;
  const y = count => panel.bottom - (panel.bottom - panel.top) * count / scale;
  drawFrame(view, panel, "backlog", ticks(scale, 2).filter(at => at <= scale), y, bytes);
  if (!all) return;
  g.fillStyle = colour("--c6");
  fill(view, () => panel.bottom, at => y(all.backlog[at]));
}

/// The changes in the visible time, with their numbers.
function marksInSight(link) {
  const all = state.marks.filter(mark => mark.link === link.name).map((mark, at) => ({ ...mark, number: at + 1 }));
  return all.filter(mark => mark.unix_ms >= plot.from && mark.unix_ms <= plot.to);
}

function drawMarks({ g, x }, panels, link) {
  g.strokeStyle = colour("--ink");
  g.fillStyle = colour("--ink");
  g.lineWidth = 1;
  g.textAlign = "left";
  g.textBaseline = "top";
  g.setLineDash([3, 3]);
  for (const mark of marksInSight(link)) {
    for (const panel of panels) line(g, [[x(mark.unix_ms), panel.top], [x(mark.unix_ms), panel.bottom]]);
    g.fillText(mark.number, x(mark.unix_ms) + 3, panels[0].top + 1);
  }
  g.setLineDash([]);
}

function drawCursor(view, panels) {
  const readout = $("readout"), at = cursorAt();
  if (at < 0) {
    readout.textContent = past.ends.length ? "" : "No history yet: it begins with altq web.";
    return;
  }
  const { g, x } = view, time = x(past.ends[at] - past.steps[at] / 2), all = past.lines[0];
  g.strokeStyle = colour("--link");
  g.lineWidth = 1;
  for (const panel of panels) line(g, [[time, panel.top], [time, panel.bottom]]);
  const parts = layers().filter(layer => past.lines.length > 1 && layer.got[at] > all.got[at] / 1e4).sort((a, b) => b.got[at] - a.got[at]);
  const said = parts.slice(0, 4).map(layer => layer.name + " " + rate(layer.got[at]));
  const words = [
    clock(past.ends[at]) + (past.steps[at] > 2000 ? " (" + Math.round(past.steps[at] / 1000) + " s)" : ""),
    rate(all.got[at]) + (said.length ? " (" + said.join(", ") + ")" : ""),
    "p50 " + delay(all.p50[at]), "p99 " + delay(all.p99[at]),
    each(all.drops[at], past.steps[at]) + " drops/s", bytes(all.backlog[at]) + " wait",
  ].join(" · ");
  if (readout.textContent !== words) readout.textContent = words;
}

/// The step under the cursor; -1 if there is none.
function cursorAt() {
  if (plot.cursor === null) return -1;
  return past.ends.findIndex((end, at) => plot.cursor > end - past.steps[at] && plot.cursor <= end);
}

function pointInPlot(event) {
  const box = $("plot").getBoundingClientRect(), wide = box.width - plot.left - plot.right;
  const part = (event.clientX - box.left - plot.left) / wide;
  plot.cursor = part < 0 || part > 1 ? null : plot.from + part * (plot.to - plot.from);
  drawPlot();
}

function moveInPlot(event) {
  const last = past.ends.length - 1;
  if (last < 0) return;
  let at = cursorAt();
  if (event.key === "ArrowLeft") at = at < 0 ? last : Math.max(0, at - 1);
  else if (event.key === "ArrowRight") at = at < 0 ? last : Math.min(last, at + 1);
  else if (event.key === "Home") at = 0;
  else if (event.key === "End") at = last;
  else if (event.key === "Escape") at = -1;
  else return;
  event.preventDefault();
  plot.cursor = at < 0 ? null : past.ends[at];
  drawPlot();
}

function drawLegend() {
  const legend = $("legend"), found = layers(), text = found.map(layer => layer.name).join("\n");
  if (legend.said === text) return;
  legend.said = text;
  legend.replaceChildren(...found.map(layer => {
    const item = el("li"), box = el("i");
    box.style.background = "var(--c" + layer.colour + ")";
    item.append(box, layer.name);
    return item;
  }));
}

/// The history as a table of at most 30 lines: the latest first.
function drawTable() {
  if (!$("as-table").open) return;
  const all = past.lines[0], head = el("tr");
  for (const name of ["time", "rate", "p50", "p99", "drops/s", "marks/s", "backlog"]) head.append(el("th", "", name));
  const rows = [head], every = Math.max(1, Math.ceil(past.ends.length / 30));
  for (let at = past.ends.length - 1; at >= 0 && all; at -= every) {
    const row = el("tr"), step = past.steps[at];
    for (const text of [clock(past.ends[at]), rate(all.got[at]), delay(all.p50[at]), delay(all.p99[at]),
      each(all.drops[at], step), each(all.marks[at], step), bytes(all.backlog[at])]) row.append(el("td", "", text));
    rows.push(row);
  }
  $("figures").replaceChildren(...rows);
}

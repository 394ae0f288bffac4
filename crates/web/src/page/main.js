// When to draw, and what to do when the user acts.
function redraw() {
  drawHead();
  drawTree();
  drawFacts();
  recall(drawHistory);
  drawHistory();
  recallFlows();
}

function drawHistory() {
  drawPlot();
  drawLegend();
  drawTable();
  drawChanges();
}

function drawHead() {
  const link = current(), links = [...state.links.values()];
  const buttons = $("links"), text = links.map(link => link.name + "\n" + link.state).join("\n") + "\n" + state.link;
  buttons.hidden = links.length < 2;
  if (buttons.said !== text) {
    buttons.said = text;
    buttons.replaceChildren(...links.map(link => {
      const button = el("button", "", link.name);
      if (isOff(link)) button.append(el("span", "bad", " ⚠"));
      button.setAttribute("aria-pressed", link.name === state.link);
      button.addEventListener("click", () => openLink(link.name));
      return button;
    }));
  }
  const parts = [];
  if (link) {
    const root = link.classes[0];
    if (links.length < 2) parts.push(["strong", "", link.name + " "]);
    if (root && link.figures) parts.push(["span", "", rate(root.row[GOT]) + " of " + rate(root.asked ?? root.ceiling ?? 0) + " "]);
    const kind = state.unknown ? "none" : isOff(link) ? "bad" : "good";
    parts.push(["span", "tag " + kind, state.unknown ? "UNKNOWN" : link.state.toUpperCase()]);
    if (!state.unknown) parts.push(["span", "quiet", " since " + ago(link.since) + ", by " + link.path]);
  }
  putAll($("state"), parts);
  drawLive();
}

/// Shows what is wrong. Screen readers read it when it begins, not each second.
function drawAlerts(silent) {
  const alerts = [], links = [...state.links.values()];
  const off = state.unknown ? [] : links.filter(isOff);
  for (const link of off) {
    const [word, does] = link.state === "blocked" ? ["BLOCKED", "do not pass"] : ["BYPASS", "pass unshaped"];
    alerts.push(["bypass", "⚠ " + word + ": packets of link " + link.name + " " + does + " since "
      + clock(state.now - link.since * 1000, false) + (link.reason ? ": " + link.reason : "")]);
  }
  if (state.full) alerts.push(["note", "As many pages are open as altq web tells of changes; this one tries again."]);
  else if (silent) alerts.push(["note", "No connection to altq web. The figures below are those of the last answer."]);
  else if (state.error) alerts.push(["note", state.error]);
  for (const link of links) {
    for (const what of link.drift) alerts.push(["note", "Link " + link.name + " differs from what was asked for: " + what]);
  }
  const box = $("alert"), words = JSON.stringify(alerts);
  if (box.said !== words) {
    box.said = words;
    box.replaceChildren(...alerts.map(([kind, text]) => el("p", kind, text)));
    box.hidden = !alerts.length;
  }
  const title = (off.length ? "⚠ " + off[0].state.toUpperCase() + " – " : "") + (state.link ? state.link + " – " : "") + "altq";
  if (document.title !== title) document.title = title;
}

function drawLive() {
  const live = $("live"), late = Math.round((Date.now() - state.heard) / 1000), link = current();
  const silent = state.heard > 0 && (late > 3 || state.lost);
  put(live, !state.heard ? "connecting" : silent ? "no news for " + ago(late) : "live " + clock(link?.at ?? state.now));
  live.classList.toggle("late", silent);
  document.body.classList.toggle("stale", Boolean(silent || state.error || (link && !link.figures)));
  drawAlerts(silent);
}

/// Shows the facts about the chosen class.
function drawFacts() {
  const link = current(), one = chosen(link), list = $("facts");
  for (const id of ["window", "plot", "readout", "legend", "as-table"]) $(id).hidden = !one;
  if (!one) {
    $("flows").hidden = true;
    put($("chosen"), "History");
    list.replaceChildren();
    return;
  }
  put($("chosen"), one.at > 0 ? one.name : "link " + one.name);
  const now = one.row, facts = [
    ["guarantee", one.asked === null ? "none" : rate(one.asked)],
    ["ceiling", one.ceiling === null ? "none" : rate(one.ceiling)],
    ["arrived", rate(now[IN])],
    ["got", rate(now[GOT])],
    ["borrowed", rate(now[BORROWED])],
    ["lent", rate(now[LENT])],
    ["delay p50 / p99", delay(now[P50]) + " / " + delay(now[P99])],
    ["waits at most", one.bound === null ? "no promise" : delay(one.bound)],
    ["drops / marks a second", each(now[DROPS], link.step) + " / " + each(now[MARKED], link.step)],
    ["backlog", now[PACKETS] + (now[PACKETS] === 1 ? " packet, " : " packets, ") + bytes(now[WAITING])],
    ["limited by", one.by || "–"],
    ["scheduler", one.scheduler || "–"],
  ];
  while (list.children.length < facts.length) {
    const fact = el("div");
    fact.append(el("dt"), el("dd"));
    list.append(fact);
  }
  facts.forEach(([name, text], at) => {
    const [dt, dd] = list.children[at].children;
    put(dt, name);
    put(dd, text);
    dd.classList.toggle("bad", name.startsWith("delay") && isLate(one));
  });
}

function drawChanges() {
  const link = current(), marks = link ? state.marks.filter(mark => mark.link === link.name) : [];
  $("changes").hidden = !marks.length;
  const list = $("marks"), text = JSON.stringify(marks);
  if (list.said === text) return;
  list.said = text;
  list.replaceChildren(...marks.map(mark => {
    const item = el("li"), time = el("time", "", clock(mark.unix_ms));
    time.dateTime = new Date(mark.unix_ms).toISOString();
    item.append(time, mark.what);
    return item;
  }));
}

function openLink(name) {
  state.link = name;
  history.replaceState(null, "", "#" + encodeURIComponent(name));
  past.asked = 0;
  $("tree").scrollTop = 0;
  arrange();
  redraw();
}

function hear(event, whole) {
  const doc = JSON.parse(event.data);
  if (take(doc, whole)) state.other = true;
  state.lost = false;
  state.full = false;
  // The first events may come while altq is away, and have no links.
  if (!state.opened && state.links.size) {
    state.opened = true;
    openHash();
  }
  // The other rows of the same second follow in events of their own, between which the browser draws.
  if (doc.more) return;
  if (state.other || tree.sort !== "tree" || tree.idle) arrange();
  state.other = false;
  remember();
  redraw();
}

/// Opens the link and class that the page's address names.
function openHash() {
  let parts = [];
  try {
    parts = location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    // The address is not one that this page makes.
  }
  const link = state.links.get(parts[0]);
  if (!link) return;
  state.link = link.name;
  if (parts[1]) link.chosen = parts[1];
}

function listen() {
  const source = new EventSource("/events?parts=1");
  source.addEventListener("snapshot", event => hear(event, true));
  source.addEventListener("change", event => hear(event, false));
  source.addEventListener("error", () => {
    state.lost = true;
    drawLive();
    if (source.readyState === EventSource.CLOSED) {
      // It was refused. Then the browser does not try again by itself.
      state.full = true;
      drawLive();
      setTimeout(listen, 5000);
    }
  });
}

$("tree").addEventListener("scroll", () => requestAnimationFrame(scrolled), { passive: true });
$("tree").addEventListener("keydown", moveInTree);
$("plot").addEventListener("pointermove", pointInPlot);
$("plot").addEventListener("pointerdown", pointInPlot);
$("plot").addEventListener("pointerleave", () => { plot.cursor = null; drawPlot(); });
$("plot").addEventListener("keydown", moveInPlot);
$("as-table").addEventListener("toggle", drawTable);
for (const [id, key] of [["filter", "filter"], ["sort", "sort"], ["scale", "scale"], ["idle", "idle"]]) {
  $(id).addEventListener("input", event => {
    tree[key] = key === "idle" ? event.target.checked : event.target.value;
    if (key !== "scale") $("tree").scrollTop = 0;
    arrange();
    drawTree();
  });
}
$("window").addEventListener("input", event => {
  past.window = Number(event.target.value);
  past.asked = 0;
  redraw();
});
addEventListener("hashchange", () => { openHash(); arrange(); redraw(); });
addEventListener("resize", () => { measure(); drawTree(); drawPlot(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plot.colours = {}; drawPlot(); });
setInterval(drawLive, 1000);
measure();
listen();

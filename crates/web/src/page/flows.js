// The largest flows of the chosen class, as altq top has them.
const flows = { key: "", asked: 0, busy: false, known: null, why: "" };

/// Asks for the flows of the chosen class, once a second while the page is seen.
async function recallFlows() {
  const link = current(), one = chosen(link);
  if (!one || flows.busy || document.hidden) return;
  const key = JSON.stringify([link.name, one.at, one.name]);
  if (key !== flows.key) {
    Object.assign(flows, { key, asked: 0, known: null, why: "" });
    drawFlows();
  }
  if (Date.now() - flows.asked < 900) return;
  flows.busy = true;
  flows.asked = Date.now();
  try {
    const answer = await fetch("/flows.json?" + new URLSearchParams({ link: link.name, class: one.name }));
    const said = answer.ok ? await answer.json() : (await answer.text()).trim();
    if (key === flows.key) {
      flows.known = answer.ok ? said.links[0] : null;
      // Where they are not shown, or the class is gone, there is no table.
      flows.why = answer.ok || answer.status === 404 ? "" : said;
      if (answer.status === 404) flows.asked += 30000;
    }
  } catch {
    // The server is away, which is said beside the events.
  }
  flows.busy = false;
  drawFlows();
}

function drawFlows() {
  const known = flows.known, one = known?.classes[0], table = $("flow-table");
  $("flows").hidden = !one && !flows.why;
  const nothing = one?.window.sent_bytes > 0 ? "The flows of these packets are not known." : "Nothing was sent in the last ten seconds.";
  put($("flows-why"), one && !one.flows.length ? nothing : flows.why);
  table.hidden = !one || !one.flows.length;
  if (table.hidden) return;
  const ms = Math.max(known.interval_ns / 1e6, 1), all = one.window.sent_bytes;
  const bits = count => rate(count * 8000 / ms);
  const part = count => all > 0 ? Math.round(100 * count / all) + " %" : "–";
  const rows = one.flows.map(flow => [
    nameOf(flow), (flow.error_bytes > 0 ? "≥ " : "") + bits(flow.bytes_at_least), part(flow.bytes_at_least),
    each(flow.packets_at_least, ms), String(flow.dscp),
  ]);
  const listed = one.flows.reduce((sum, flow) => sum + flow.packets_at_least, 0);
  if (one.other_bytes > 0) {
    const packets = Math.max(0, one.window.sent_packets - listed);
    rows.push(["others", bits(one.other_bytes), part(one.other_bytes), each(packets, ms), ""]);
  }
  const lines = [["flow", "rate", "share", "packets/s", "DSCP"], ...rows];
  while (table.children.length > lines.length) table.lastChild.remove();
  while (table.children.length < lines.length) table.append(el("tr"));
  lines.forEach((cells, at) => putAll(table.children[at], cells.map(text => [at ? "td" : "th", "", text])));
}

/// Both ends of a flow, and its protocol: `10.1.0.7:51222 > 192.0.2.9:443 tcp`.
function nameOf(flow) {
  if (flow.src === null || flow.dst === null) return "not IP";
  const end = (address, port) => port === null ? address : (address.includes(":") ? "[" + address + "]" : address) + ":" + port;
  return [end(flow.src, flow.sport), ">", end(flow.dst, flow.dport), flow.proto ?? ""].join(" ").trim();
}

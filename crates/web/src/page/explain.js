// Which class a packet gets, and by which rule: what altq explain says of the policy that runs.
const packet = { asked: 0 };

async function explain(event) {
  event.preventDefault();
  const link = current(), text = $("packet").value.trim(), asked = ++packet.asked;
  if (!link || !text) return;
  // The first time altq is asked for its policy, which takes a second.
  for (let tries = 1; asked === packet.asked; tries++) {
    let answer, said;
    try {
      answer = await fetch("/explain.json?" + new URLSearchParams({ link: link.name, packet: text }));
      said = answer.ok ? await answer.json() : (await answer.text()).trim();
    } catch {
      answer = null;
      said = "No answer from altq web.";
    }
    if (asked !== packet.asked) return;
    if (answer?.status !== 503 || tries === 4) {
      $("explained").replaceChildren(...answer?.ok ? explained(said) : [el("pre", "", said)]);
      return;
    }
    $("explained").replaceChildren(el("p", "quiet", said));
    await new Promise(resolve => setTimeout(resolve, 1000));
  }
}

/// The answer: the class, the rule, the rules that come later, and the limits from the class up.
function explained(said) {
  const facts = el("dl");
  const fact = (name, ...parts) => {
    const value = el("dd");
    value.append(...parts);
    facts.append(el("dt", "", name), value);
  };
  const rule = place => [el("code", "", place.text), " (" + place.file + ", line " + place.line + ")"];
  if (said.class === null) fact("class", "none: the packet is dropped");
  else fact("class", nameButton(said.link, said.class));
  if (said.rule) fact("rule", ...rule(said.rule));
  else fact("rule", said.default ? "none matches: the default class" : "none matches, and there is no default class");
  for (const place of said.shadowed) fact("later", ...rule(place));
  if (said.assumed.length) fact("taken as", said.assumed.join(", ") + ", which the packet does not say");
  for (const limits of said.limits) {
    const least = limits.guaranteed_bit_s ? rate(limits.guaranteed_bit_s) : "nothing";
    fact(limits.class, "guaranteed " + least + ", at most " + rate(limits.ceiling_bit_s));
  }
  return [facts];
}

/// The class's name, which opens it.
function nameButton(link, name) {
  const button = el("button", "", name);
  button.addEventListener("click", () => {
    const known = state.links.get(link), one = known?.classes.find(one => one.name === name);
    if (!one) return;
    if (state.link !== link) openLink(link);
    choose(one);
  });
  return button;
}

$("explain").addEventListener("submit", explain);

"""The part of benches/views that uses the page of `altq web` as a reader does: in Chromium, at two sizes,
dark and light, by keyboard."""
import contextlib
import time

from paths_result import UDP_HEADERS, Part
from paths_world import FIRST_COUNT, OVERHEAD, SECOND_COUNT, Failure
from service_world import Service
from views_browser import Browser
from views_parts import SHOWN
from views_world import PORT, Web

POLICY = f"""link wan {{
    device    bridge a b
    rate      20Mbit/s
    overhead  {OVERHEAD} bytes
    scheduler cbq
    class voice {{ share 10%  priority 7  borrow }}
    class data  {{ share 60%  borrow
        class web  {{ share 40%  borrow }}
        class bulk {{ share 20%  borrow }}
    }}
    class rest  {{ share 30%  borrow  default }}
    match proto udp dport {FIRST_COUNT}  -> web
    match proto udp dport {SECOND_COUNT} -> bulk
    match dscp ef -> voice
}}
"""
# What the page says on the console, what fails in it, and what its policy forbids.
LISTEN = """window.said = [];
for (const name of ["log", "info", "warn", "error", "debug"]) console[name] = (...words) => said.push(name + ": " + words.join(" "));
addEventListener("error", event => said.push("error: " + event.message));
addEventListener("unhandledrejection", event => said.push("rejected: " + event.reason));
addEventListener("securitypolicyviolation", event => said.push("forbidden: " + event.violatedDirective));"""
KEYS = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39}
COLOURS = """(() => {
  const plot = document.getElementById("plot"), all = plot.getContext("2d").getImageData(0, 0, plot.width, plot.height).data;
  const seen = new Set();
  for (let at = 0; at < all.length; at += 4) seen.add(all[at] << 16 | all[at + 1] << 8 | all[at + 2]);
  return seen.size;
})()"""


def press(page, key):
    more = {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        page.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **more)
        more = {}


def focus(page, element):
    """Goes to an element by the tabulator alone, and counts how often it was pressed."""
    for presses in range(1, 41):
        press(page, "Tab")
        if page.value(f"document.activeElement?.id === '{element}'"):
            return presses
    raise Failure(f"the page: no way to {element} by the tabulator")


def write(page, text):
    page.value("document.getElementById('packet').value = ''")
    focus(page, "packet")
    page.ask("Input.insertText", text=text)
    press(page, "Enter")


def looks(page):
    """What is wrong with the page; each check by itself."""
    wrong = []

    def check(what, expression, seconds=8.0):
        try:
            page.until(expression, seconds)
        except Failure as error:
            wrong.append(f"{what} ({error})")

    check("it is wider than the window", "document.documentElement.scrollWidth <= innerWidth")
    check("the plot is empty", f"{COLOURS} > 10", 15)
    focus(page, "tree")
    before = page.value("chosen(current()).name")
    press(page, "ArrowDown")
    press(page, "ArrowDown")
    check("arrow keys choose no other class", f"chosen(current()).name !== {before!r}")
    count = page.value("tree.rows.length")
    press(page, "ArrowLeft")
    check("the left arrow folds nothing", f"tree.rows.length < {count}")
    press(page, "ArrowRight")
    check("the right arrow opens nothing", f"tree.rows.length === {count}")
    check("no figures of the chosen class", "document.querySelectorAll('#facts dd').length === 12")
    write(page, f"src=10.9.2.1 dst=10.9.2.2 proto=udp dport={FIRST_COUNT}")
    check("it does not say which class a packet gets",
          "document.querySelector('#explained button')?.textContent === 'web' && "
          f"document.getElementById('explained').textContent.includes('dport {FIRST_COUNT} -> web')")
    page.value("document.querySelector('#explained button')?.click()")
    check("the class of the answer cannot be chosen", "chosen(current()).name === 'web'")
    check("no flows of a class that sends", "document.querySelectorAll('#flow-table tr').length > 1")
    check("the chosen class is not in the address", "location.hash === '#wan/web'")
    write(page, "dport=80 colour=red")
    check("it does not say what is wrong with a packet",
          "document.querySelector('#explained pre')?.textContent.includes('^')")
    check("it is wider than the window by an answer", "document.documentElement.scrollWidth <= innerWidth")
    check("it asks somebody else",
          "performance.getEntriesByType('resource').every(one => one.name.startsWith(location.origin + '/'))")
    check("something is not on the page that has a label",
          "[...document.querySelectorAll('input, select, button')].every(one => one.labels?.length || one.textContent.trim())")
    return wrong + [f"it says {line}" for line in page.value("said")]


def looked_at(world, policy, stack):
    """A service with this policy between the two hosts of a bridge, and a browser beside its `altq web`."""
    service = Service(world, "bridge", policy, options=["--interval", "500ms"], supervise=False)
    service.start()
    stack.callback(service.end)
    web = Web(world, service)
    stack.callback(web.end)
    browser = Browser(world, service.host)
    stack.callback(browser.end)
    return service, browser


def page(world, arguments):
    part = Part("page", "The page in Chromium, by keyboard: tree, history, flows, which class a packet gets",
                ["size", "colours", "background", "not as wanted"])
    with contextlib.ExitStack() as stack:
        _, browser = looked_at(world, POLICY, stack)
        to = world.to("bridge")
        for port, payload, rate in ((FIRST_COUNT, 1200, 12_000_000), (SECOND_COUNT, 800, 12_000_000)):
            packets = rate / 8 / (payload + UDP_HEADERS[4] + OVERHEAD)
            stack.callback(world.drop, world.flood("a", to, port, payload, packets, 600))
        # The plot needs a few seconds to show.
        time.sleep(5)
        seen = {}
        for width, height in ((360, 740), (1280, 800)):
            for theme in ("light", "dark"):
                shown = browser.page(width, height, theme == "dark")
                shown.ask("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
                shown.open(f"http://127.0.0.1:{PORT}/")
                shown.until(SHOWN, 30)
                wrong = looks(shown)
                seen[theme] = shown.value("getComputedStyle(document.body).backgroundColor")
                if theme == "dark" and seen["dark"] == seen["light"]:
                    wrong.append("dark is as light as light")
                path = (arguments.out or world.scratch) / f"page-{width}-{theme}.png"
                shown.picture(path)
                shown.close()
                part.row(f"{width}x{height}", theme, seen[theme], len(wrong), verdict="missed" if wrong else "held")
                part.notes += [f"{width}x{height} {theme}: {text}" for text in wrong[:6]]
                arguments.say(f"page, {width}x{height} {theme}: {len(wrong)} not as wanted; {path}")
    return part

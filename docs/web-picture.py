#!/usr/bin/env python3
"""Makes docs/pictures/web.png anew: docs/web-picture.py [ALTQ] [--for SECONDS] [--sizes FOLDER]. As root.

A real altq shapes real traffic between the hosts of benches/paths (network namespaces), for three
minutes, and its policy is changed on the way. `altq web` shows it to Chromium without a window
(Debian: apt-get install chromium fonts-dejavu-core), which is photographed. No figure is made up, so
each run makes another picture. `--sizes` also writes the page at 360 and 1280 pixels, dark and light.

Exit code: 0 done, 1 failed, 2 wrong usage, 6 not root, 7 the host lacks Chromium or what altq needs.
"""
import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "benches"))
from paths_result import UDP_HEADERS  # noqa: E402
from paths_world import (FIRST, FIRST_COUNT, OVERHEAD, SECOND, SECOND_COUNT, Failure, Lacks, World,  # noqa: E402
                         private_mounts)
from views_parts import SHOWN  # noqa: E402
from views_page import looked_at  # noqa: E402
from views_world import PORT  # noqa: E402

POLICY = f"""link wan {{
    device    bridge a b
    rate      100Mbit/s
    overhead  {OVERHEAD} bytes
    scheduler cbq

    class voice   {{ share 5%   priority 7  borrow  ceiling 10Mbit/s }}
    class agency1 {{ share 50%  borrow
        class web  {{ share 30%  borrow  queue fq_codel }}
        class bulk {{ share 20%  borrow }}
    }}
    class rest    {{ share 45%  borrow  default }}

    match dport {FIRST_COUNT} -> voice
    match dport {FIRST} -> web
    match dport {SECOND} -> bulk
}}
"""
# Seconds that a download of the web lasts, and the pause behind it.
DOWNLOAD, PAUSE = 12, 6
CHOSEN = f"http://127.0.0.1:{PORT}/#wan/agency1"


def datagrams(world, port, payload, rate, seconds):
    """Datagrams to a port, in bit/s of Ethernet frames."""
    size = 8 * (payload + UDP_HEADERS[4] + OVERHEAD)
    return world.flood("a", world.to("bridge"), port, payload, rate / size, seconds)


def tcp(world, port, streams, seconds):
    """TCP connections to a port, of which nothing is read here."""
    words = [world.altq, "traffic", "bulk", world.to("bridge"), "--port", str(port), "--streams", str(streams),
             "--duration", f"{seconds}s", "--quiet", "--json"]
    return world.popen("a", words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def traffic(world, service, seconds, stack):
    """Lets traffic pass for so long: calls and downloads all the time, pages of the web now and then,
    somebody else in the middle third; and a change of the policy."""
    def kept(process):
        stack.callback(world.drop, process)
        return process

    begun, changed, downloads, other = time.monotonic(), False, [], None
    kept(datagrams(world, FIRST_COUNT, 160, 2_000_000, seconds + 60))
    kept(tcp(world, SECOND, 4, seconds + 60))
    while (passed := time.monotonic() - begun) < seconds:
        if passed >= len(downloads) * (DOWNLOAD + PAUSE):
            downloads.append(kept(tcp(world, FIRST, 2, DOWNLOAD)))
        if other is None and passed > seconds / 3:
            other = kept(datagrams(world, SECOND_COUNT, 1200, 60_000_000, seconds / 3))
        if not changed and passed > seconds / 2:
            changed = True
            done = service.altq("class", "set", "wan/web", "share", "25%")
            if done.returncode:
                raise Failure(f"altq class set: {done.stderr.strip()}")
        time.sleep(0.2)


def photograph(browser, path, width, height, dark=False):
    page = browser.page(width, height, dark)
    page.open(CHOSEN)
    page.until(SHOWN, 20)
    # The history has come; it is drawn with the next event at the latest.
    page.until("past.lines.length > 0", 20)
    page.until(f"state.heard > {page.value('state.heard')}", 20)
    page.picture(path)
    page.close()


def made(world, arguments):
    out = REPOSITORY / "docs" / "pictures" / "web.png"
    with contextlib.ExitStack() as stack:
        # Without a browser nobody has to wait for the traffic.
        service, browser = looked_at(world, POLICY, stack)
        traffic(world, service, arguments.seconds, stack)
        photograph(browser, out, 1240, 720)
        print(out)
        if arguments.sizes:
            arguments.sizes.mkdir(parents=True, exist_ok=True)
            for width, height in ((360, 740), (1280, 800)):
                for theme in ("light", "dark"):
                    path = arguments.sizes / f"web-{width}-{theme}.png"
                    photograph(browser, path, width, height, theme == "dark")
                    print(path)


def stop(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("altq", nargs="?", type=pathlib.Path, default=REPOSITORY / "target" / "release" / "altq")
    parser.add_argument("--for", dest="seconds", type=float, default=180.0, metavar="SECONDS")
    parser.add_argument("--sizes", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not os.access(arguments.altq, os.X_OK) or arguments.seconds < 10:
        parser.error(f"{arguments.altq} cannot be run, or there are fewer than ten seconds")
    if os.geteuid():
        print("SKIPPED: network namespaces need root", file=sys.stderr)
        return 6
    arguments.sizes = arguments.sizes and arguments.sizes.resolve()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, stop)
    try:
        private_mounts()
        with World(arguments.altq.resolve()) as world:
            made(world, arguments)
    except Lacks as error:
        print(f"SKIPPED: {error}", file=sys.stderr)
        return 7
    except Failure as error:
        print(f"web-picture: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("web-picture: stopped; the picture is the old one", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

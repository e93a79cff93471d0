"""How quick the page is. Limits hold on a machine that is idle; on another, figures are printed."""

import gzip
import json
import os
import re
import shutil
import statistics
import threading
import time

from .newcomer import choose_computation, go_to
from .server import OVER, PageServer
from .webdriver import check, until
from .whole import open_again, over, start_repeated

INTERACTIVE = """
new MutationObserver((_, observer) => {
  const isRun = (it) => !it.disabled && it.textContent.trim() === "Run";
  if (![...document.querySelectorAll("button[type=submit]")].some(isRun)) return;
  observer.disconnect();
  // When what the page still has to do is done.
  setTimeout(() => { window.interactive_ms = performance.now(); }, 0);
}).observe(document, { childList: true, subtree: true });
"""

PAINTED = """
const paint = performance.getEntriesByName("first-contentful-paint")[0];
return window.interactive_ms && paint ? [paint.startTime, window.interactive_ms] : null;
"""

# Moves a slider with each frame, and counts the frames with a new answer.
DRAG = """
const [slider, result, seconds] = given;
const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
const [least, most] = [Number(slider.min), Number(slider.max)];
let drawn = 0, frames = 0, isOver = false, position = 0, shown = "";
const move = () => {
  if (isOver) return;
  frames += 1;
  drawn += result.textContent !== shown;
  shown = result.textContent;
  position = (position + 0.013) % 2;
  set.call(slider, least + (most - least) * (position < 1 ? position : 2 - position));
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  requestAnimationFrame(move);
};
move();
const begin = performance.now();
await new Promise((done) => setTimeout(done, 1000 * seconds));
isOver = true;
const taken_s = (performance.now() - begin) / 1000;
return [drawn / taken_s, frames / taken_s];
"""

MANY = 10_000
VIEWERS = 50


def idle_processors(seconds=1):
    """How many processors are idle, as a mean."""
    def ticks():
        with open("/proc/stat") as stat:
            fields = [int(it) for it in stat.readline().split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    idle, total = ticks()
    time.sleep(seconds)
    idle_after, total_after = ticks()
    return os.cpu_count() * (idle_after - idle) / max(1, total_after - total)


def limited(test, is_idle, text, value, limit, is_least=False):
    """Says a figure. Fails if it is beyond its limit, and the machine was idle."""
    is_kept = value >= limit if is_least else value <= limit
    test.say(f"{text}: {value:.4g} ({'at least' if is_least else 'at most'} {limit:g})"
             + ("" if is_kept or is_idle else "; the machine is busy"))
    check(is_kept or not is_idle, f"{text}: {value:.4g}, not {limit:g}")


def opened_quickly(test):
    """The first paint takes at most 0.5 s, and the page can be used after 1 s."""
    page = test.page
    is_idle = idle_processors() > os.cpu_count() - 1
    page.devtools("Network.enable")
    page.devtools("Network.setCacheDisabled", cacheDisabled=True)
    added = page.devtools("Page.addScriptToEvaluateOnNewDocument", source=INTERACTIVE)
    measured = []
    for _ in range(5):
        page.open("about:blank")
        page.open(test.server.address)
        measured.append(until("the page can be used", lambda: page.script(PAINTED)))
    page.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    page.devtools("Network.setCacheDisabled", cacheDisabled=False)
    paint, interactive = (statistics.median(it) for it in zip(*measured))
    limited(test, is_idle, "first paint, ms", paint, 500)
    limited(test, is_idle, "interactive, ms", interactive, 1000)
    files = page.script("return performance.getEntriesByType('resource').map((it) => it.name)")
    paths = ["/", *(it.removeprefix(test.server.origin) for it in files if "/api/" not in it)]
    sizes = [len(gzip.compress(test.server.file(path))) for path in paths]
    limited(test, True, f"{len(sizes)} files compressed, kB", sum(sizes) / 1000, 200)


def plan_while_a_slider_is_dragged(test):
    """A plan of five channels has 30 answers a second while a slider is dragged."""
    page = test.page
    open_again(test)
    go_to(page, "Plan")
    page.find("slider", re.compile("kappa.*"))
    channels = lambda: len(page.all("textbox", re.compile(r"Name of channel \d+")))
    while (number := channels()) < 5:
        page.click("button", "Add a channel")
        until("one more channel", lambda: channels() > number)
    result = page.find("region", "Best schedule")
    until("the plan", lambda: page.script("return page.definitions(arguments[0])", result))
    is_idle = idle_processors() > os.cpu_count() - 1
    for mean in ("kappa", "mu"):
        slider = page.find("slider", re.compile(f"{mean}.*"))
        rate, frames = page.answer(DRAG, slider, result, 3)
        limited(test, is_idle, f"answers drawn in a second while {mean} is dragged, "
                f"of {frames:.0f} frames", rate, 30, True)


def history_of_10_000_runs(test):
    """A history of 10,000 runs is shown, searched and turned over without delay."""
    page = test.page
    model = next(it for it in sorted((test.server.directory / "runs").iterdir())
                 if json.loads((it / "run.json").read_text())["state"] == "finished")
    place = test.place / "many"
    runs = place / "lab/runs"
    runs.mkdir(parents=True)
    record = json.loads((model / "run.json").read_text())
    for number in range(MANY):
        minutes, second = divmod(number, 60)
        name = f"20250101-{minutes // 60:02}{minutes % 60:02}{second:02}-{number:08x}"
        (runs / name).mkdir()
        for file in model.iterdir():
            if file.name == "run.json":
                more = {"id": name, "note": f"number {number}"}
                (runs / name / "run.json").write_text(json.dumps(record | more))
            else:
                os.link(file, runs / name / file.name)
    is_idle = idle_processors() > os.cpu_count() - 1
    began = time.monotonic()
    server = PageServer(test.sunder, place)
    try:
        test.origins.add(server.origin)
        limited(test, is_idle, "server started, s", time.monotonic() - began, 2)

        def measure(text, act, is_shown):
            began = time.monotonic()
            act()
            until(text, is_shown)
            limited(test, is_idle, f"{text}, s", time.monotonic() - began, 1)

        rows = lambda: page.cells("Runs")[1:] if page.all("region", "Runs") else []
        page.open(server.address)
        page.find("button", "Run")
        measure("history shown", lambda: page.click("link", "History"),
                lambda: len(rows()) == 50 and "of 10,000" in page.shown())
        measure("older runs", lambda: page.click("button", "Older"),
                lambda: "51 to 100 of" in page.shown())
        measure("one of them found", lambda: page.write("searchbox", "Search", "number 1234"),
                lambda: len(rows()) == 1 and "number 1234" in " ".join(rows()[0]))
        measure("run shown", lambda: page.click("link", re.compile("Two-party.*"),
                                                page.find("region", "Runs")),
                lambda: page.all("region", "Table of results"))
    finally:
        page.open("about:blank")
        server.stop()
        shutil.rmtree(place)


def viewers_of_a_live_run(test):
    """50 viewers and the page see all events of one run, the same and at the same time."""
    page, server = test.page, test.server
    address = start_repeated(test, 3)
    seen, faults = [], []

    def view():
        try:
            events = list(server.events(address.rpartition("/run/")[2]))
            seen.append((time.monotonic(), events))
        except Exception as error:
            faults.append(error)
    threads = [threading.Thread(target=view, daemon=True) for _ in range(VIEWERS)]
    for thread in threads:
        thread.start()
    until("the end of the run", lambda: over(test, address), 240)
    for thread in threads:
        thread.join(60)
    check(not faults and len(seen) == VIEWERS, f"{len(seen)} viewers saw the end; {faults[:3]}")
    ends = [events[-1] for _, events in seen]
    check(all(it["event"] == "state" and it["state"] == "finished" for it in ends), f"{ends}")
    # In which state the run was when a viewer came differs.
    measured = [[it for it in events if it["event"] != "state"] for _, events in seen]
    first = measured[0]
    check(all(events == first for events in measured), "viewers saw different events")
    results = sum(it["event"] == "result" for it in first)
    check(results >= 6, f"{results} results of 6 trials")
    until("the page shows the end", lambda: any(it in page.heading() for it in OVER))
    last = [moment for moment, _ in seen]
    test.say(f"{len(first)} events each; the last viewer saw the end "
             f"{1000 * (max(last) - min(last)):.0f} ms after the first")


SPEED = [opened_quickly, plan_while_a_slider_is_dragged, viewers_of_a_live_run,
         history_of_10_000_runs]

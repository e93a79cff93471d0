"""Everything else that a person does with the page, and what can happen meanwhile."""

import re
import tarfile
import time

from .newcomer import (
    Skipped, choose_computation, go_to, milliseconds, result_rows, start, wait_for_end, WATCH,
)
from .tunnel import PulledTunnel
from .webdriver import check, until

LOSSES = ["0", "0.001", "0.01"]


def open_again(test, path=""):
    """Loads the page anew."""
    test.page.open("about:blank")
    test.page.open(f"{test.server.origin}/{path}")


def sweep_of_loss(test):
    """Three values of loss: the chart fills in, and the same is a file for the command line."""
    page = test.page
    go_to(page, "Sweep")
    choose_computation(page, transports=["TCP, CUBIC"])
    loss = page.find("group", re.compile("Loss.*"))
    for value in LOSSES[1:]:
        page.click("button", f"Add {value}", loss)
    chosen = [page.text(it) for it in page.all("button", re.compile("Remove .*"), loss)]
    check(chosen == LOSSES, f"the chosen losses are {chosen}")
    page.click("button", "Copy .toml")
    text = until("the experiment file", lambda: (it := page.copied()) and "[sweep]" in it and it)
    file = test.place / "copied.toml"
    file.write_text(text)
    code, output = test.server.command("lab", "describe", str(file), "--json")
    check(code == 0, f"the copied experiment: {output}")

    page.script(WATCH)
    test.sweep = start(page)
    wait_for_end(test)
    rows = result_rows(test, 3)
    steps = page.script("return window.watched.rows")
    check(any(0 < it < 3 for it in steps), f"the results did not come one by one: {steps}")
    chart = page.find("image", re.compile("time by Loss.*"))
    until("the chart is drawn", lambda: page.script("return page.hasInk(arguments[0])", chart))
    invalid = sum("invalid" in " ".join(row) for row in rows)
    hollow = page.all("listitem", re.compile(".*[0-9] of [0-9]+ invalid, .*"))
    # A list of many is closed at first.
    check(len(hollow) == invalid or invalid > 3, f"{invalid} points are invalid: {rows}")
    for file in ("results.csv", "results.json", test.server.run_of(page.address())["file"]):
        page.find("link", file)
        run = page.address().rpartition("/run/")[2]
        check(test.server.call("GET", f"/api/runs/{run}/files/{file}"), f"{file} is empty")
    page.find("button", "Download SVG")
    test.say(", ".join(f"loss {row[0]}: {milliseconds(' '.join(row[1:])):.0f} ms" for row in rows))


# Selects the run of this address in the history.
SELECT = """document.querySelector(`a[href="#${arguments[0]}"]`).closest("tr")
    .querySelector("input").click()"""


def comparison_with_an_earlier_run(test):
    """A run that was changed and run again, laid over the earlier one."""
    page = test.page
    check(test.sweep, "there is no earlier run")
    page.open(test.sweep)
    page.click("button", "Change and run again")
    page.find("heading", "Sweep")
    loss = page.find("group", re.compile("Loss.*"))
    chosen = [page.text(it) for it in page.all("button", re.compile("Remove .*"), loss)]
    check(chosen == LOSSES, f"the losses of the earlier run are {chosen}")
    page.choose_only("Transport", ["TCP, BBR"])
    later = start(page)
    wait_for_end(test)
    go_to(page, "History")
    until("the runs", lambda: len(page.cells("Runs")) > 2)
    for address in (later, test.sweep):
        page.script(SELECT, address.rpartition("#")[2])
    page.click("button", "Compare 2")
    page.find("heading", "Compare")
    runs = until("both runs", lambda: page.cells("The runs"))[1:]
    differing = [" ".join(row) for row in runs]
    check("TCP, BBR" in differing[0] and "TCP, CUBIC" in differing[1], f"{differing}")
    chart = page.find("image", re.compile("time by Loss.*"))
    until("both curves", lambda: page.script("return page.hasInk(arguments[0])", chart))
    values = page.cells("Values")[1:]
    check([row[0] for row in values] == LOSSES, f"compared: {values}")
    check(all(milliseconds(cell) >= 110 for row in values for cell in row[1:]), f"{values}")
    test.comparison = page.address()


def start_repeated(test, repetitions, **choice):
    """Starts a computation that is repeated. Returns the address of the run."""
    page = test.page
    open_again(test)
    go_to(page, "Run")
    choose_computation(page, **choice)
    page.write("spinbutton", "Repetitions", str(repetitions))
    return start(page)


def start_long_run(test, repetitions=20):
    """Starts a run that takes a while. Returns its address when it has a result."""
    address = start_repeated(test, repetitions, transports=["TCP, CUBIC"])
    # Invalid trials are repeated, and are done only then.
    results = lambda: test.server.run_of(address)["trials"]
    until("the first result", lambda: results() or over(test, address), 120)
    return address


def over(test, address):
    """Whether a run is over. Fails if it failed."""
    run = test.server.run_of(address)
    check(run["state"] != "failed", f"the run failed: {run['error']}")
    return run["state"] not in ("queued", "running")


def page_closed_in_mid_run(test):
    """The page is closed while a run goes on, and opened again: it shows the run as it is."""
    page = test.page
    address = start_long_run(test)
    _, other = page.new_window()
    page.close_window()
    page.go_to_window(other)
    page.size(1200)
    open_again(test)
    go_to(page, "History")
    row = until("the runs", lambda: page.cells("Runs"))[1]
    check("running" in " ".join(row), f"the run does not go on: {row}")
    page.click("link", re.compile("Two-party computation"), page.find("region", "Runs"))
    until("the run", lambda: page.address() == address)
    until("its progress", lambda: "of 20 trials" in page.shown())
    results = lambda: len(test.server.run_of(address)["trials"])
    seen = results()
    until("further results", lambda: results() > seen)
    page.click("button", "Stop")
    wait_for_end(test, "stopped")
    test.say(f"it had {seen} results, and went on")


def server_killed_in_mid_run(test):
    """The server is killed while a run goes on: the run is interrupted, and can be resumed."""
    page, server = test.page, test.server
    address = start_long_run(test, 6)
    server.kill()
    until("no process of the run", lambda: not server.processes())
    server.start(server.port)
    open_again(test, "#" + address.partition("#")[2])
    until("its state", lambda: "interrupted" in page.heading())
    run = server.run_of(address)
    check(run["trials"] and run["done"], f"{len(run['trials'])} results, but {run['done']} done")
    page.click("button", "Resume")
    until("it goes on", lambda: "interrupted" not in page.heading())
    wait_for_end(test)
    run = server.run_of(address)
    check(len(run["trials"]) == 6, f"{len(run['trials'])} of 6 trials")
    test.say("it had some of 6 trials, no process was left, and all 6 after Resume")


def cable_pulled(test):
    """A tunnel's cable is pulled: Live shows it in red, with since when and what to do."""
    page = test.page
    tunnel = PulledTunnel.of(test)
    open_again(test)
    go_to(page, "Live")
    card = lambda: page.find("region", re.compile("tunnel sunder0.*"))
    problems = lambda: page.all("listitem", re.compile(".*channel 2.*"), card())
    states = lambda: [row[1] for row in page.script("return page.cells(arguments[0])", card())[1:4]]
    until("three channels that are up", lambda: states() == ["up"] * 3)
    check(not problems(), "a problem before the cable is pulled")
    began = time.monotonic()
    tunnel.pull(2)
    since = re.compile(r"\b(for|since) (less than )?\d")
    until("the problem, with since when", lambda: (it := problems())
          and since.search(page.text(it[0])))
    seconds = time.monotonic() - began
    problem = problems()[0]
    lines = page.script("return [...arguments[0].querySelectorAll('p')].map(page.textOf)", problem)
    check(len(lines) > 1 and all(lines), f"without what to do: {lines}")
    red = page.script("return [...arguments[0].querySelectorAll('*')].some(page.isRed)", problem)
    check(red, "the problem is not red")
    check(states()[1] != "up" and states()[0] == states()[2] == "up", f"{states()}")
    test.say(f"after {seconds:.1f} s: {' / '.join(lines)}")
    test.tunnel = tunnel


def cable_plugged_in(test):
    """The cable is plugged in again: the problem is gone."""
    page = test.page
    if not test.tunnel:
        raise Skipped("there is no tunnel")
    go_to(page, "Live")
    test.tunnel.plug(2)
    card = lambda: page.find("region", re.compile("tunnel sunder0.*"))
    until("no problem", lambda: not page.all("listitem", re.compile(".*channel 2.*"), card()), 120)
    go_to(page, "Plan")
    page.click("button", "Take those of a running tunnel")
    until("its channels", lambda: page.value("textbox", re.compile("rate of 1")) == "50")


def link_for_others(test):
    """A link to a run shows others this run, and nothing else."""
    page = test.page
    check(test.sweep, "there is no run")
    page.open(test.sweep)
    page.find("button", "Change and run again")
    if not page.all("button", "Copy a link for others"):
        raise Skipped("the page has no links for others")
    page.click("button", "Copy a link for others")
    link = page.value("textbox", "Link for others")
    until("the link is copied", lambda: page.copied() == link)
    # Somebody else has no cookie.
    page.devtools("Network.clearBrowserCookies")
    page.open("about:blank")
    page.open(link)
    result_rows(test, 3)
    check(not page.all("button", re.compile("Change.*|Delete.*|Copy a link.*")),
          "others can change the run")
    check(not page.all("link", "History"), "others see the history")
    page.open("about:blank")
    page.open(test.server.address)
    page.find("heading", "Run")


def scripts_in_a_folder(test):
    """A folder with two scripts and a page is run; an archive with a link outside is refused."""
    page = test.page
    pair = test.place / "pair"
    pair.mkdir()
    (pair / "web-server.sh").write_text('exec python3 -m http.server 80 --bind "$2"\n')
    (pair / "web-client.sh").write_text('curl --silent --fail "http://$1/page" && ./said\n')
    (pair / "page").write_text("a page\n")
    # The browser does not say that it can be executed.
    (pair / "said").write_text("#!/bin/sh\necho said\n")
    open_again(test)
    go_to(page, "Run")
    page.choose("Application", "Two scripts")
    page.find("group", "A folder or an archive with both scripts")
    page.upload("knob-folder-folder", pair)
    field = page.find("group", "A folder or an archive with both scripts")
    until("the folder is read", lambda: "pair, " in page.text(field))
    check(not page.all("group", "The server's script"), "single scripts are still asked for")
    start(page)
    wait_for_end(test)
    until("what the scripts have printed", lambda: "said" in page.shown())

    hostile = test.place / "hostile.tar"
    (pair / "link").symlink_to("/etc/shadow")
    with tarfile.open(hostile, "w") as archive:
        archive.add(pair, "pair")
    page.click("button", "Change and run again")
    field = page.find("group", "A folder or an archive with both scripts")
    check("pair. Choose it again." in page.text(field), "the folder of the earlier run is unnamed")
    page.upload("knob-folder", hostile)
    until("the archive is read", lambda: "hostile.tar, " in page.shown())
    page.click("button", "Run")
    until("the reason", lambda: "pair/link: leads to /etc/shadow" in page.shown())


def colours_are_chosen(test):
    """Dark and light can be chosen, and stay when the page is loaded again."""
    page = test.page
    # Text is light where the ground is dark.
    text = "return getComputedStyle(document.body).color.match(/\\d+/g).map(Number)"
    for scheme, is_dark in (("Dark", True), ("Light", False)):
        page.choose("Colours", scheme)
        for _ in range(2):
            page.find("heading")
            check((sum(page.script(text)) > 400) == is_dark, f"{scheme}: {page.script(text)}")
            page.reload()
    page.choose("Colours", "Auto")


WHOLE = [
    sweep_of_loss, comparison_with_an_earlier_run, page_closed_in_mid_run,
    server_killed_in_mid_run, cable_pulled, cable_plugged_in, link_for_others, scripts_in_a_folder,
    colours_are_chosen,
]

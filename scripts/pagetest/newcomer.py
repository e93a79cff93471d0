"""What a newcomer does: runs a computation over two transports, looks at the history, and plans."""

import json
import re

from .server import OVER
from .webdriver import check, until

# Why a machine cannot emulate networks, as in the error of the run.
NO_NETWORKS = re.compile(r"networks|namespace|/dev/net/tun")

# Why a trial is invalid. The page shows it beside the value, which it draws hollow.
BUSY = re.compile(r"busy|late|lost", re.IGNORECASE)

BUSY_TEXT = re.compile(r"the machine.*|$")

WATCH = """
window.watched = { live: false, rows: [] };
const look = () => {
  const heading = page.textOf(document.querySelector("h1") ?? document.body);
  const [table] = page.all("region", "Table of results");
  const rows = table ? page.cells(table).length - 1 : 0;
  if (rows !== window.watched.rows.at(-1)) window.watched.rows.push(rows);
  const curves = page.all("image", ".*rate of .*");
  if (/running/.test(heading) && curves.some(page.hasInk)) window.watched.live = true;
};
const changes = { subtree: true, childList: true, characterData: true };
new MutationObserver(look).observe(document.body, changes);
"""

PLANNED = {"Risk": "risk", "Loss": "loss", "Delay": "delay", "Rate": "rate"}


class Skipped(Exception):
    """This machine cannot do it."""


def go_to(page, view):
    """Goes to a view by the navigation."""
    page.click("link", view)
    page.find("heading", re.compile(f"{view}.*"))


def choose_computation(page, function="AES-128, one block", network="EU-US",
                       transports=("auto", "TCP, CUBIC")):
    """Chooses a computation of two parties."""
    page.choose("Application", "Two-party computation")
    page.choose("Function", function)
    page.choose_only("Transport", transports)
    page.choose("Network", network)


def start(page):
    """Presses Run, and waits until the run is shown. Returns the page's address."""
    page.click("button", "Run")
    until("the run is shown", lambda: "/run/" in page.address())
    until("its state", lambda: re.search(r"queued|running|" + "|".join(OVER), page.heading()))
    return page.address()


def wait_for_end(test, state="finished", seconds=240):
    """Waits until the run that is shown is over."""
    page = test.page

    def ended():
        found = re.search("|".join(OVER), page.heading())
        return found and found[0]
    ended = until("the end of the run", ended, seconds)
    faults = " ".join(page.text(it) for it in page.all("alert"))
    if ended == "failed" and NO_NETWORKS.search(faults):
        raise Skipped(f"this machine cannot emulate networks: {faults}")
    check(ended == state, f"the run is {ended}, not {state}: {faults}")


def milliseconds(text):
    """The first time in a text, in ms."""
    found = re.search(r"([\d,.]+) (ms|s)\b", text)
    check(found, f"no time in {text!r}")
    return float(found[1].replace(",", "")) * (1000 if found[2] == "s" else 1)


def result_rows(test, number):
    """The rows of the table of results, each valid, or invalid with the reason."""
    _, *rows = until("the table of results", lambda: test.page.cells("Table of results"))
    check(len(rows) == number, f"the table has {rows}")
    for row in rows:
        words = " ".join(row)
        if "invalid" in words:
            check(BUSY.search(words), f"an invalid trial without its reason: {row}")
            reason = BUSY_TEXT.search(row[-1])[0]
            test.say(f"invalid, and shown with the reason: {row[0]}: {reason}")
        else:
            check("valid" in words, f"neither valid nor invalid: {row}")
    return rows


def aes_over_two_transports(test):
    """AES-128 over auto and TCP at 110 ms there and back, with a live curve and a table."""
    page = test.page
    page.open(test.server.address)
    check(test.server.token not in page.address(), f"the token stays in {page.address()}")
    page.find("heading", "Run")
    choose_computation(page)
    check(page.value("textbox", "Delay, one way") == "55", "EU-US has 55 ms each way")
    page.script(WATCH)
    start(page)
    wait_for_end(test)
    until("a curve is drawn", lambda: any(
        page.script("return page.hasInk(arguments[0])", it)
        for it in page.all("image", re.compile(".*rate of .*"))))
    live = page.script("return window.watched.live")
    test.say("the curve was drawn while the run went on" if live
             else "not seen: the curve while the run went on; the browser was too slow")
    rows = result_rows(test, 2)
    check([row[0] for row in rows] == ["auto", "TCP, CUBIC"], f"{rows}")
    for row in rows:
        taken = milliseconds(" ".join(row[1:]))
        check(taken >= 110, f"less than a round trip: {row}")
        test.say(f"{row[0]}: {taken:.0f} ms")


def history_has_the_run(test):
    """The history has the run, with its state and its note."""
    page = test.page
    go_to(page, "History")
    rows = until("the runs", lambda: page.cells("Runs"))[1:]
    run = " ".join(rows[0])
    for word in ("Two-party computation", "AES-128", "finished"):
        check(word in run, f"not in the history: {word}: {run}")


def plan_of_five_channels(test):
    """A plan of five channels, the same as the command's, and a configuration to copy."""
    page = test.page
    go_to(page, "Plan")
    channels = lambda: page.all("textbox", re.compile(r"Name of channel \d+"))
    until("the channels", channels)
    while (number := len(channels())) < 5:
        page.click("button", "Add a channel")
        until("one more channel", lambda: len(channels()) > number)
    names = [page.value("textbox", f"Name of channel {i}") for i in range(1, 6)]
    result = page.find("region", "Best schedule")
    # The answer is for five channels when each of them has a column.
    until("the plan of five channels", lambda: set(names) <= set(
        page.script("return page.cells(arguments[0])[0] ?? []", result)))
    planned = command_plan(test, names)
    shown = page.script("return page.definitions(arguments[0])", result)
    for term, name in PLANNED.items():
        compare(term, shown[term], planned[name])
    left_out = page.cells("Table of the plans without one channel")[1:]
    check([row[0] for row in left_out] == names, f"without one channel: {left_out}")

    configuration = page.find("region", re.compile("Configuration.*"))
    page.click("button", "Copy", configuration)
    copied = until("what was copied", page.copied)
    check(copied.count("[[channel]]") == 5, f"copied: {copied}")
    check_configuration(test, copied)
    test.say(f"risk {shown['Risk']}, rate {shown['Rate']}: as the command computes them")


def command_plan(test, names):
    """What `sunder plan` computes for the channels and requirements of the page."""
    page = test.page
    arguments = []
    for name in names:
        risk, loss, delay, rate = (page.value("textbox", f"{what} of {name}")
                                   for what in ("risk", "loss", "delay", "rate"))
        arguments += ["--channel", f"z={risk},l={loss},d={delay},r={rate},name={name}"]
    for mean in ("kappa", "mu"):
        arguments += [f"--{mean}", page.value("spinbutton", f"{mean}, number")]
    arguments += ["--objective", page.value("combobox", "Objective"), "--json"]
    code, output = test.server.command("plan", *arguments)
    check(code == 0, f"sunder plan: {output}")
    return json.loads(output)


def compare(term, shown, computed):
    """Compares what the page shows, with four digits, with what the command computes."""
    found = re.match(r"([\d.,e+-]+) (%|ms|Mbit/s)", shown)
    check(found, f"{term} is shown as {shown!r}")
    value = float(found[1].replace(",", "")) * (0.01 if found[2] == "%" else 1)
    check(abs(value - computed) <= 5.1e-4 * abs(computed), f"{term}: {shown}, but {computed}")


def check_configuration(test, text):
    """Fails unless the lines are a tunnel's configuration, with addresses put in."""
    addresses = iter(f"127.0.0.{i}:6521" for i in range(1, 9))
    text = re.sub(r"\bADDRESS:\d+", lambda _: next(addresses), text)
    if re.search(r"^key = ", text, re.MULTILINE):
        text = re.sub(r"^key = .*", 'key = "tunnel.key"', text, flags=re.MULTILINE)
        (test.place / "tunnel.key").write_text("00112233445566778899aabbccddeeff" * 2)
        (test.place / "tunnel.key").chmod(0o600)
    path = test.place / "tunnel.toml"
    path.write_text(text)
    _, output = test.server.command("doctor", "--config", str(path), "--json")
    findings = json.loads(output)["findings"]
    wrong = [it["message"] for it in findings if it["level"] == "error"
             # What this host allows is no matter of the configuration.
             and it["subject"] not in ("network devices", "/dev/net/tun")]
    check(not wrong, f"the configuration is wrong: {wrong}\n{text}")


SHORT = [aes_over_two_transports, history_has_the_run, plan_of_five_channels]

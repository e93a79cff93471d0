"""Pictures of the page for the documents: every view in light, in dark and 360 pixels wide."""

import re
import shutil
import subprocess

from .access import show
from .newcomer import aes_over_two_transports, choose_computation, go_to
from .tunnel import PulledTunnel
from .webdriver import check, until
from .whole import comparison_with_an_earlier_run, start_repeated, sweep_of_loss

# A picture is at most as large as that, so that it can be in the repository.
MAX_BYTES = 120_000

LOOKS = [("light", "light", 1200), ("dark", "dark", 1200), ("narrow", "light", 360)]


def take(test, view, prepare=lambda: None):
    """Takes the pictures of the view that is shown."""
    page = test.page
    for look, scheme, width in LOOKS:
        page.colours(scheme)
        page.size(width)
        prepare()
        # Charts are drawn once more in their new size.
        page.answer("await new Promise((done) => setTimeout(done, 300))")
        page.script("document.activeElement.blur(); scrollTo(0, 0)")
        path = test.pictures / f"{view}-{look}.png"
        path.write_bytes(page.picture(1600 if width > 360 else 2400))
        shrink(path)
        size = path.stat().st_size
        check(size <= MAX_BYTES, f"{path} has {size} bytes")
        test.say(f"{path.name}: {size / 1000:.0f} kB")
    page.colours("light")
    page.size(1200)


def shrink(path):
    """Makes a PNG smaller: 8 bits a pixel, if pngquant is there."""
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--strip", "--speed", "1", "--quality", "60-95",
                        "--output", path, path], check=False)


def until_valid(test, step, attempts=6):
    """Performs a step again until no trial is invalid: other work may keep the machine busy."""
    for _ in range(attempts):
        step(test)
        if "invalid" not in test.page.shown():
            return
    test.say("the pictures have invalid trials: the machine is busy")


def pictures_of_choices(test):
    """Pictures of Run, Sweep and Plan as they are when one has chosen."""
    page = test.page
    page.open(test.server.address)
    page.find("button", "EU-US")
    choose_computation(page)
    until("the prediction", lambda: "trials" in page.shown())
    take(test, "run")
    go_to(page, "Plan")
    channels = lambda: len(page.all("textbox", re.compile(r"Name of channel \d+")))
    until("the channels", channels)
    while (number := channels()) < 5:
        page.click("button", "Add a channel")
        until("one more channel", lambda: channels() > number)
    until("the plan", lambda: page.all("region", "Table of the plans without one channel"))
    until("the surface", lambda: page.all("image", re.compile("risk over kappa and mu.*")))
    take(test, "plan")


def pictures_of_a_run(test):
    """Pictures of a run that goes on, and of its results."""
    page = test.page
    start_repeated(test, 20)
    curve = lambda: any(page.script("return page.hasInk(arguments[0])", it)
                        for it in page.all("image", re.compile(".*rate of .*")))
    results = lambda: len(test.server.run_of(page.address())["trials"])
    until("some results", lambda: results() >= 8, 240)
    take(test, "running", lambda: until("a curve", curve))
    page.click("button", "Stop")
    until("the end", lambda: "stopped" in page.heading())
    until_valid(test, aes_over_two_transports)
    take(test, "result")


def pictures_of_sweeps(test):
    """Pictures of a sweep, of the history, and of two sweeps over each other."""
    page = test.page
    until_valid(test, sweep_of_loss)
    take(test, "sweep")
    until_valid(test, comparison_with_an_earlier_run)
    take(test, "compare")
    go_to(page, "History")
    until("the runs", lambda: page.cells("Runs"))
    take(test, "history")


def pictures_of_a_tunnel(test):
    """Pictures of Live, with a tunnel whose cable was pulled."""
    page = test.page
    tunnel = PulledTunnel.of(test)
    go_to(page, "Live")
    tunnel.pull(2)
    until("the problem", lambda: page.all("listitem", re.compile(".*channel 2.*")))
    take(test, "live")


PICTURES = [pictures_of_choices, pictures_of_a_run, pictures_of_sweeps, pictures_of_a_tunnel]

"""Use of the page by keyboard, by a screen reader, and on a narrow screen."""

import re
from pathlib import Path

from .newcomer import Skipped, wait_for_end
from .whole import open_again
from .webdriver import check, until

AXE = Path(__file__).resolve().parents[2] / \
    "crates/lab/panel/web/node_modules/axe-core/axe.min.js"

# Of the element that has the focus: its name, and whether one sees that it has the focus.
FOCUSED = """
const it = document.activeElement;
const seen = (element) => {
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
  return (outlineStyle !== "none" && outlineWidth !== "0px") || boxShadow !== "none";
};
const box = it.getBoundingClientRect();
return {
  tag: it.localName, type: it.type ?? "", name: page.nameOf(it),
  isSeen: seen(it) || [...it.labels ?? []].some(seen) || seen(it.parentElement),
  isInside: box.bottom > 0 && box.top < innerHeight,
};
"""

AXE_RUN = """
const { violations } = await axe.run(document, { resultTypes: ["violations"] });
const places = (it) => it.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ");
return violations.filter((it) => ["serious", "critical"].includes(it.impact))
  .map((it) => `${it.id}: ${it.help}: ${places(it)}`);
"""

# What is wider than the screen without a scroll bar of its own.
TOO_WIDE = """
const style = (it) => getComputedStyle(it);
const isScrolled = (it) =>
  it && (/auto|scroll|hidden|clip/.test(style(it).overflowX) || isScrolled(it.parentElement));
const isCut = (it) =>
  it.getBoundingClientRect().right > innerWidth + 1 && !isScrolled(it.parentElement)
  && it.checkVisibility() && style(it).position !== "absolute";
const cut = [...document.querySelectorAll("main *")].filter(isCut).slice(0, 3);
return [document.documentElement.scrollWidth,
        ...cut.map((it) => `${it.localName} ${page.nameOf(it).slice(0, 60)}`)];
"""


def views(test):
    """The views, each with the part of its address."""
    fragment = lambda address: "#" + address.partition("#")[2]
    found = {"Run": "#/run", "Sweep": "#/sweep", "History": "#/history", "Plan": "#/plan",
             "Live": "#/live"}
    if test.sweep:
        found["Result"] = fragment(test.sweep)
    if test.comparison:
        found["Compare"] = fragment(test.comparison)
    return found


def show(test, fragment):
    """Opens a view, and waits until it is there."""
    page = test.page
    open_again(test, fragment)
    page.find("heading")
    # A view has its data a moment later: it does not change any more.
    seen = []

    def is_still():
        seen.append(page.script("return document.body.innerHTML.length"))
        return len(seen) > 8 and len(set(seen[-8:])) == 1
    if "live" not in fragment:
        until("the view is complete", is_still)
    else:
        until("the processes", lambda: page.script("return page.all('region', null).length > 0"
                                                   " || document.querySelector('.empty') !== null"))


def tab_to(page, tag, name, most=120):
    """Presses Tab until an element has the focus. Returns the names on the way."""
    way = []
    for _ in range(most):
        page.press("Tab")
        focused = page.script(FOCUSED)
        if focused["tag"] in ("body", "html"):
            # After the last element the first one is next.
            continue
        way.append(focused["name"])
        check(focused["isSeen"], f"one does not see that the focus is on {focused}")
        check(focused["isInside"], f"the focus is outside of the screen, on {focused}")
        if focused["tag"] == tag and re.fullmatch(name, focused["name"]):
            return way
    check(False, f"no Tab leads to {tag} {name!r}: {way}")


def keyboard_only(test):
    """A run is chosen, begun, stopped and noted by keyboard alone."""
    page = test.page
    open_again(test, "#/run")
    page.find("button", "EU-US")
    tab_to(page, "a", "Skip to the content")
    quic = lambda: page.is_on(page.find("checkbox", re.compile("QUIC( .*)?")))
    before = quic()
    tab_to(page, "input", "QUIC( .*)?")
    page.press("Space")
    until("the space bar ticks QUIC", lambda: quic() != before)
    page.press("Space")
    tab_to(page, "button", "EU-AUS")
    page.press("Enter")
    delay = lambda: float(page.value("textbox", "Delay, one way"))
    until("Enter chooses EU-AUS", lambda: delay() == 150)
    tab_to(page, "input", "Delay, one way, slider")
    page.press("ArrowRight")
    until("the arrow moves the slider", lambda: delay() > 150, 10)
    tab_to(page, "button", "Run")
    page.press("Enter")
    until("the run", lambda: "/run/" in page.address())
    until("the focus on the heading",
          lambda: page.script("return document.activeElement.localName") == "h1")
    tab_to(page, "button", "Stop")
    page.press("Enter")
    wait_for_end(test, "stopped")
    tab_to(page, "a", "History")
    page.press("Enter")
    page.find("region", "Runs")
    tab_to(page, "button", "Add a note")
    page.press("Enter", *"by keyboard", "Enter")
    until("the note", lambda: any("by keyboard" in " ".join(it) for it in page.cells("Runs")))
    noted = lambda: test.server.call("GET", "/api/runs?search=by%20keyboard")["total"]
    until("the note is kept", lambda: noted() == 1)


def screen_reader(test):
    """axe-core finds no serious fault in any view, in light, dark and 360 pixels."""
    if not AXE.exists():
        raise Skipped(f"there is no axe-core: npm ci in {AXE.parents[2]}")
    page, source = test.page, AXE.read_text()
    faults = []
    for name, fragment in views(test).items():
        for look, scheme, width in (("light", "light", 1200), ("dark", "dark", 1200),
                                    ("360 pixels", "light", 360)):
            page.colours(scheme)
            page.size(width)
            show(test, fragment)
            page.script(source)
            faults += [f"{name}, {look}: {it}" for it in page.answer(AXE_RUN)]
    page.size(1200)
    page.colours("light")
    check(not faults, "axe-core: " + "\n".join(faults))
    test.say(f"{len(views(test))} views, three looks each")


def narrow_screen(test):
    """On a screen of 360 pixels nothing is cut off, and the page does not scroll sideways."""
    page = test.page
    page.size(360)
    wide = {}
    for name, fragment in views(test).items():
        show(test, fragment)
        width, *parts = page.script(TOO_WIDE)
        if width > 360 or parts:
            wide[name] = (width, parts)
    page.size(1200)
    check(not wide, f"wider than 360 pixels: {wide}")


ACCESS = [keyboard_only, screen_reader, narrow_screen]

"""Drives Chromium by WebDriver, with Debian's chromedriver and Python's standard library alone."""

import base64
import http.client
import json
import re
import subprocess
import threading
import time
from pathlib import Path

LOCATE = (Path(__file__).parent / "locate.js").read_text()

# Of a field of a document that is an element.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

# The longest wait for something that takes moments on an idle machine.
DEADLINE_S = 60

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Space": " ", "ArrowRight": "\ue014",
        "ArrowLeft": "\ue012", "ArrowDown": "\ue015", "Escape": "\ue00c", "Shift": "\ue008"}

OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--lang=en", "--window-size=1200,900",
    # Names of other hosts are not even asked for.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class Failed(Exception):
    """The page did not do what it should."""


class WebDriverError(Exception):
    """The browser refused a command."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message.splitlines()[0] if message else ''}")
        self.kind = kind


# These pass when the page has drawn once more.
PASSING = {"stale element reference", "element click intercepted", "element not interactable",
           "no such element", "detached shadow root", "move target out of bounds"}


def check(condition, text):
    """Fails with a text unless the condition holds."""
    if not condition:
        raise Failed(text)


def until(what, condition, seconds=DEADLINE_S):
    """Waits until a condition holds, and returns what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := condition():
                return found
        except WebDriverError as error:
            if error.kind not in PASSING:
                raise
        check(time.monotonic() < deadline, f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Browser:
    """Chromium without a window. Elements are found by role and accessible name."""

    def __init__(self, place, chromedriver="chromedriver"):
        self.driver = subprocess.Popen(
            [chromedriver, "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        port = next((found[1] for line in self.driver.stdout
                     if (found := re.search(r"started successfully on port (\d+)", line))), None)
        check(port, "chromedriver does not start")
        threading.Thread(target=self.driver.stdout.read, daemon=True).start()
        self.connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=300)
        self.session = ""
        chrome = {"args": [*OPTIONS, f"--user-data-dir={place}/profile"]}
        always = {"browserName": "chrome", "goog:chromeOptions": chrome,
                  "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
        try:
            answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": always}})
        except BaseException:
            self.driver.terminate()
            raise
        self.session = f"/session/{answer['sessionId']}"
        self._call("POST", "/timeouts", {"script": 120_000, "pageLoad": 120_000})
        self.version = answer["capabilities"]["browserVersion"]
        self.requested = set()
        self.console = []

    def close(self):
        """Ends the browser."""
        try:
            self._call("DELETE", "")
        except (WebDriverError, OSError, http.client.HTTPException):
            pass
        self.driver.terminate()
        self.driver.wait()

    def _call(self, method, path, body=None):
        text = json.dumps(body if body is not None else {}) if method == "POST" else None
        self.connection.request(method, self.session + path, text,
                                {"Content-Type": "application/json"})
        value = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise WebDriverError(value["error"], value.get("message", ""))
        return value

    # Pages and windows

    def open(self, address):
        """Opens an address, and waits until it is loaded."""
        self._call("POST", "/url", {"url": address})

    def address(self):
        """The address of the page that is shown."""
        return self._call("GET", "/url")

    def reload(self):
        """Loads the page again."""
        self._call("POST", "/refresh")

    def new_window(self):
        """Opens another window. Returns the one that is shown, and the other one."""
        shown = self._call("GET", "/window")
        return shown, self._call("POST", "/window/new", {"type": "tab"})["handle"]

    def go_to_window(self, handle):
        """Goes to a window."""
        self._call("POST", "/window", {"handle": handle})

    def close_window(self):
        """Closes the window. Another one is to be gone to."""
        self._call("DELETE", "/window")

    def devtools(self, command, **parameters):
        """A command of the DevTools protocol."""
        body = {"cmd": command, "params": parameters}
        return self._call("POST", "/goog/cdp/execute", body)

    def size(self, width, height=900):
        """Sets the size of the page in CSS pixels."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=1, mobile=False)

    def colours(self, scheme):
        """Sets what the system prefers: light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, limit=2600):
        """A PNG of the whole page, at most `limit` pixels high."""
        width, height = self.script(
            "const { height } = document.documentElement.getBoundingClientRect();"
            "return [innerWidth, Math.ceil(height)]")
        # What sticks to the end of the window is then at the end of the picture.
        self.size(width, min(height, limit))
        self.answer("await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        taken = self.devtools("Page.captureScreenshot", format="png")
        return base64.b64decode(taken["data"])

    def read_logs(self):
        """Collects the addresses that were requested, and what the console says."""
        for entry in self._call("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            parameters = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                self.requested.add(parameters["request"]["url"])
            elif message["method"] in ("Network.webSocketCreated", "Network.webTransportCreated"):
                self.requested.add(parameters["url"])
        for entry in self._call("POST", "/se/log", {"type": "browser"}):
            self.console.append((entry["level"], entry["message"]))

    # Scripts and elements

    def script(self, text, *arguments):
        """Runs a script in the page; `page` has the functions of locate.js."""
        body = {"script": f"{LOCATE}\n{text}", "args": list(arguments)}
        return self._call("POST", "/execute/sync", body)

    def answer(self, text, *arguments):
        """Runs a script whose result is a promise."""
        then = "(result) => done({ result }), (error) => done({ error: String(error) })"
        body = {"script": f"const done = arguments[arguments.length - 1];\n{LOCATE}\n"
                          f"(async (...given) => {{ {text} }})(...arguments).then({then});",
                "args": list(arguments)}
        answered = self._call("POST", "/execute/async", body)
        check("error" not in answered, f"in the page: {answered.get('error')}")
        return answered.get("result")

    def all(self, role, name=None, within=None):
        """The visible elements of a role and a name: a text, or a pattern of the whole name."""
        pattern = name.pattern if isinstance(name, re.Pattern) else name and re.escape(name)
        return self.script("return page.all(...arguments)", role, pattern, within)

    def find(self, role, name=None, within=None, seconds=DEADLINE_S):
        """The first such element, when there is one."""
        shown = name.pattern if isinstance(name, re.Pattern) else name
        return until(f"a {role} {shown!r}", lambda: self.all(role, name, within), seconds)[0]

    def text(self, element):
        """The text of an element, as a screen reader says it."""
        return self.script("return page.textOf(arguments[0])", element)

    def value(self, role, name, within=None):
        """The value of a field."""
        return self.script("return arguments[0].value", self.find(role, name, within))

    def is_on(self, element):
        """Whether a box is ticked, or a button pressed."""
        return self.script("return arguments[0].checked ?? "
                           "arguments[0].getAttribute('aria-pressed') === 'true'", element)

    def click(self, role, name=None, within=None):
        """Clicks an element as soon as one can."""
        def clicked():
            found = self.all(role, name, within)
            if not found or self.script("return arguments[0].disabled === true", found[0]):
                return False
            target = self.script("return page.target(arguments[0])", found[0])
            self._call("POST", f"/element/{target[ELEMENT]}/click")
            return True
        shown = name.pattern if isinstance(name, re.Pattern) else name
        until(f"a click on the {role} {shown!r}", clicked)

    def choose(self, field, label):
        """Chooses an option of a field: of a list, or one of several boxes or buttons."""
        def chosen():
            field_name = re.compile(f"{re.escape(field)}.*")
            for box in self.all("combobox", field_name):
                options = self.script("return [...arguments[0].options].map(page.textOf)", box)
                if label in options:
                    self.script("const [box, index] = arguments; box.selectedIndex = index;"
                                "box.dispatchEvent(new Event('input', { bubbles: true }));"
                                "box.dispatchEvent(new Event('change', { bubbles: true }));",
                                box, options.index(label))
                    return True
            label_name = re.compile(f"{re.escape(label)}( .*)?")
            for role in ("radio", "checkbox", "button"):
                for box in self.all(role, label_name):
                    if not self.is_on(box):
                        self.click(role, label_name)
                    return True
            return False
        until(f"the choice {label!r} of {field!r}", chosen)

    def choose_only(self, field, labels):
        """Ticks these boxes of a field, and no others."""
        group = self.find("group", re.compile(f"{re.escape(field)}.*"))
        names = [self.script("return page.nameOf(arguments[0])", box)
                 for box in self.all("checkbox", None, group)]
        check(set(labels) <= set(names), f"{field} has {names}, not {labels}")
        # One is always ticked, so others are unticked only then.
        for name in [*labels, *(it for it in names if it not in labels)]:
            if self.is_on(self.find("checkbox", name, group)) != (name in labels):
                self.click("checkbox", name, group)
        now = [it for it in names if self.is_on(self.find("checkbox", it, group))]
        check(sorted(now) == sorted(labels), f"{field}: {now}")

    def write(self, role, name, text, within=None):
        """Writes a text into a field, in place of what is there."""
        field = self.find(role, name, within)
        self.script("arguments[0].focus(); arguments[0].select()", field)
        self._call("POST", f"/element/{field[ELEMENT]}/value", {"text": text})

    def upload(self, field, path):
        """Gives a file or a folder to the hidden field behind a button."""
        found = self._call("POST", "/element", {"using": "css selector", "value": f"#{field}"})
        self._call("POST", f"/element/{found[ELEMENT]}/value", {"text": str(path)})

    def press(self, *keys):
        """Presses keys, one after the other."""
        actions = [{"type": kind, "value": KEYS.get(key, key)}
                   for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions",
                   {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def copied(self):
        """What is on the clipboard."""
        # Permissions end with the window for which they were given.
        self.devtools("Browser.grantPermissions",
                      permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        return self.answer("return navigator.clipboard.readText()")

    def cells(self, region):
        """The texts of the cells of the table in a region, row by row, the headings first."""
        return self.script("return page.cells(arguments[0])", self.find("region", region))

    def heading(self):
        """The heading of the view."""
        found = self.all("heading")
        return self.text(found[0]) if found else ""

    def shown(self):
        """The text of the page, for a person who looks for a fault."""
        return self.script("return document.body.innerText")

"""A headless Chromium that a test drives: it opens a page, runs expressions in it, and collects errors of its console.
Speaks the DevTools protocol over a pipe, so that it needs neither a port nor a package."""

import base64
import json
import os
import shutil
import subprocess
import tempfile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. Use it in a with statement; `errors` has what the page wrote to its console, and its exceptions."""

    def __init__(self, width=1280, height=900):
        self.errors, self.number, self.buffer = [], 0, b""
        self.profile = tempfile.mkdtemp(prefix="psring-browser-")
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()

        def connect():  # the protocol's pipes are descriptors 3 and 4
            from_us, to_us = os.dup(read_there), os.dup(write_there)
            os.dup2(from_us, 3)
            os.dup2(to_us, 4)

        # The flags keep the browser from the network, but for this machine; --no-sandbox is for root, in containers.
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
             "--hide-scrollbars", f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=connect, close_fds=False)
        os.close(read_there)
        os.close(write_there)
        self.to, self.origin = write_here, read_here
        (target,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.origin)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self):
        while b"\0" not in self.buffer:
            part = os.read(self.origin, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        kind, what = message.get("method"), message.get("params")
        if kind == "Runtime.exceptionThrown":
            self.errors.append(what["exceptionDetails"].get("exception", {}).get("description") or what["exceptionDetails"]["text"])
        elif kind == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
            self.errors.append(json.dumps(what["args"]))
        elif kind == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.errors.append(what["entry"]["text"])
        return message

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, page, options=""):
        """Opens a file, and returns when its scripts have run."""
        self.visit(f"{page.resolve().as_uri()}#{options}")

    def visit(self, url):
        """Opens an address, and returns when its scripts have run."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        while self.run("location.href === 'about:blank' || document.readyState !== 'complete'"):
            self.receive()  # an event of the page's life

    def run(self, expression):
        """Returns the value of a JavaScript expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key):
        """Presses a key by its name, such as ArrowRight."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if len(key) == 1 and kind == "keyDown" else "")

    def picture(self, file):
        """Saves the whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]))

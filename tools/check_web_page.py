#!/usr/bin/env python3
"""Uses the page of `triptych serve` as people do, in headless Chromium, on a server of its own.

Usage: tools/check_web_page.py [--triptych build/release/triptych] [--chromium /usr/bin/chromium] [--screenshot OUT.png]

Drops a picture, asks, watches the answer come, looks at figures, boxes, a stopped answer, an error and what follows it, keys, labels and colours;
any request to another host fails the check. Needs Debian's `chromium` and the Python package `playwright` (its library alone: `pip install
playwright`). Not part of CI. Exit code 1 and what was seen when something is wrong.
"""
import argparse
import base64
import json
import pathlib
import subprocess
import sys

from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "assets/eval/scenes/0000.png"
ANSWER = "a small purple circle at the top left, a small orange square at the top right"

# What a person does with a file manager: a file is dragged over the page and let go.
DROP = """([name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const moved = new DataTransfer();
  moved.items.add(new File([bytes], name, { type }));
  for (const kind of ["dragover", "drop"])
    document.dispatchEvent(new DragEvent(kind, { dataTransfer: moved, bubbles: true, cancelable: true }));
}"""


def start(program):
    server = subprocess.Popen([program, "serve", str(ROOT / "assets/models/scenes-llava"), "--port", "0", "--json", "-q",
                               "--served-model-name", "scenes-llava"],
                              stdout=subprocess.PIPE, text=True)
    return server, json.loads(server.stdout.readline())["endpoints"][0]


def open_page(browser, url, problems, **options):
    page = browser.new_context(base_url=url, viewport={"width": 900, "height": 760}, **options).new_page()
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on("request", lambda request: None if request.url.startswith((url, "data:", "blob:")) else problems.append(f"asks {request.url}"))
    page.goto("/")
    expect(page.locator("#state")).to_have_text("ready", timeout=30000)
    return page


def drop(page, name, content, kind="image/png"):
    page.evaluate(DROP, [name, kind, base64.b64encode(content).decode()])


def ask(page, text):
    page.fill("#question", text)
    page.keyboard.press("Enter")


def with_fields(page, fields):
    """Adds what the page has no setting for to its requests, on their way to the server; an empty dictionary ends that."""
    page.unroute("**/v1/chat/completions")
    if fields:
        page.route("**/v1/chat/completions",
                   lambda route: route.continue_(post_data=json.dumps({**json.loads(route.request.post_data), **fields})))


def describe(page, screenshot):
    """A dropped picture, a question, an answer that comes piece by piece, and what it cost."""
    drop(page, "scene.png", PICTURE.read_bytes())
    expect(page.locator("#pictures img")).to_have_count(1)
    page.evaluate("""() => { window.seen = new Set(); new MutationObserver(() => { const all = document.querySelectorAll('.assistant .text');
        if (all.length) window.seen.add(all[0].textContent); }).observe(document.getElementById('log'), {subtree: true, childList: true}); }""")
    ask(page, "Describe the image.")
    answer = page.locator(".assistant .text").first
    expect(answer).to_contain_text(ANSWER, timeout=60000)
    expect(page.locator("#state")).to_have_text("ready", timeout=60000)
    pieces = page.evaluate("window.seen.size")
    assert pieces > 3, f"the answer came in {pieces} pieces"
    figures = page.locator(".assistant .figures")
    expect(figures).to_be_visible()
    figures.locator("summary").click()
    for row in ("prompt", "of it pictures", "vision tower", "writing the answer"):
        expect(figures).to_contain_text(row)
    if screenshot:
        page.screenshot(path=screenshot)


def stop(page):
    """A long answer that is stopped, by the key and by the button."""
    with_fields(page, {"ignore_eos": True, "max_completion_tokens": 100})
    page.evaluate("""() => { new MutationObserver(() => { const all = document.querySelectorAll('.assistant .text');
        if (window.stopAt && all.length === window.stopAt && all[all.length - 1].textContent) { window.stopAt = 0; window.stopBy(); } })
        .observe(document.getElementById('log'), {subtree: true, childList: true, characterData: true}); }""")
    for how in ("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))", "document.getElementById('stop').click()"):
        n = page.locator(".assistant").count() + 1
        page.evaluate(f"() => {{ window.stopBy = () => {how}; window.stopAt = {n}; }}")
        ask(page, "Is the circle red?")
        expect(page.locator(".assistant .who").last).to_have_text("Answer, stopped", timeout=60000)
        expect(page.locator("#send")).to_be_visible()
    with_fields(page, {})


def error(page):
    """A file that is no picture: the server's message is shown, and the next question is answered."""
    page.click("#new-chat")
    drop(page, "broken.png", b"this is no picture")
    ask(page, "Describe the image.")
    alert = page.locator(".assistant .error")
    expect(alert).to_be_visible(timeout=60000)
    expect(alert).to_contain_text("messages[0].content[0].image_url.url")
    page.click("#new-chat")
    drop(page, "scene.png", PICTURE.read_bytes())
    ask(page, "Describe the image.")
    expect(page.locator(".assistant .text").first).to_contain_text(ANSWER, timeout=60000)
    drop(page, "notes.txt", b"x", "text/plain")
    expect(page.locator("#state")).to_have_text("notes.txt is not a picture")


def labels(page):
    """Every control has a name for screen readers."""
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, input:not([hidden]), select, textarea, img')].filter((e) =>
        !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length || e.hasAttribute('alt'))).map((e) => e.outerHTML)""")
    assert not nameless, f"without a name: {nameless}"


def box(page):
    """A box is drawn where it is. No model that ships names boxes, so the answer, in the form of the server's, is put in its place."""
    chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a circle"}}]},
              {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "boxes": [
                  {"type": "box", "label": "circle", "image": 0, "thousandths": [100, 66, 200, 300], "pixels": [10, 7, 19, 29]}]}]}]
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    page.route("**/v1/chat/completions", lambda route: route.fulfill(content_type="text/event-stream", body=events))
    page.click("#new-chat")
    drop(page, "scene.png", PICTURE.read_bytes())
    ask(page, "Where is the circle?")
    shape = page.locator(".user .frame svg polygon.shape")
    expect(shape).to_have_attribute("points", "100 66 200 66 200 300 100 300", timeout=60000)
    expect(page.locator(".user .frame .tag")).to_have_text("circle")
    frame, drawn = page.locator(".user .frame").bounding_box(), shape.bounding_box()
    for side, size, centre in (("x", "width", 0.15), ("y", "height", 0.183)):  # lines are drawn on both sides of an edge
        off = drawn[side] + drawn[size] / 2 - frame[side] - centre * frame[size]
        assert abs(off) < 1.5, f"drawn at {drawn} in {frame}"
    page.unroute("**/v1/chat/completions")


def colours(browser, url, problems):
    seen = set()
    for scheme in ("light", "dark"):
        page = open_page(browser, url, problems, color_scheme=scheme)
        seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(seen) == 2, f"light and dark look alike: {seen}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triptych", default=str(ROOT / "build/release/triptych"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--screenshot")
    arguments = parser.parse_args()
    problems = []
    server, url = start(arguments.triptych)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
            page = open_page(browser, url, problems)
            for step in (lambda: describe(page, arguments.screenshot), lambda: stop(page), lambda: error(page), lambda: labels(page),
                         lambda: box(page), lambda: colours(browser, url, problems)):
                step()
            browser.close()
    except AssertionError as fault:
        problems.append(str(fault))
    finally:
        server.terminate()
        server.wait(60)
    for problem in problems:
        print(problem)
    print(f"check_web_page: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

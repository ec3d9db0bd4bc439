#!/usr/bin/env python3
"""The page of a real service in a real browser: it draws the node, in light, dark and on a phone.

    page.py --bin DIR [--screenshots DIR]

Needs Python's playwright and a chromium; skipped (77) without them.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

import run

LOOKS = [("light", "light", 1280, 900), ("dark", "dark", 1280, 900), ("phone", "dark", 390, 844)]
CHROMIUM = ["chromium", "chromium-browser", "google-chrome"]


def check(page, name, width):
    page.wait_for_function("document.querySelector('#live').textContent === 'live'", timeout=15000)
    page.wait_for_function("document.querySelectorAll('#transfers tbody tr').length > 0", timeout=15000)
    wrong = []
    if page.inner_text("#node") != "a":
        wrong.append(f"the node is called '{page.inner_text('#node')}'")
    if page.locator(".nic").count() != 1 or page.inner_text(".nic b") != "lo":
        wrong.append("the card is not drawn")
    if "target" not in page.inner_text("#transfers"):
        wrong.append("the transfer is not listed")
    if "2 regions" not in page.inner_text("#tiles"):
        wrong.append("the regions are not counted")
    if page.inner_text("#errors").strip() != "None.":
        wrong.append("there are errors")
    if page.evaluate("document.documentElement.scrollWidth") > width:
        wrong.append("it is wider than the screen")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 246, 248)"
    if light != (name == "light"):
        wrong.append("it is not of the colours that were asked for")
    return [f"{name}: {each}" for each in wrong]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--screenshots", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        print("Python's playwright is not installed (pip install playwright)")
        return run.SKIPPED
    browser_file = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser_file is None:
        print("no chromium is installed (Debian: chromium)")
        return run.SKIPPED
    wrong = []
    with tempfile.TemporaryDirectory() as folder, \
            run.Service(arguments.bin.resolve(), pathlib.Path(folder)) as service, \
            sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
        for name, scheme, width, height in LOOKS:
            context = browser.new_context(color_scheme=scheme,
                                          viewport={"width": width, "height": height})
            page = context.new_page()
            page.on("pageerror", lambda error: wrong.append(f"in the page: {error}"))
            page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
            page.goto(service.url.removesuffix("/metrics"))
            wrong += check(page, name, width)
            if arguments.screenshots:
                page.screenshot(path=arguments.screenshots / f"{name}.png", full_page=True)
        browser.close()
    if wrong:
        sys.exit("\n".join(wrong))
    return 0


if __name__ == "__main__":
    sys.exit(main())

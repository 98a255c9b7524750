"""The HTML page: what is in it, and how it behaves in a real browser (headless Chromium through playwright)."""

import re
import shutil
from html.parser import HTMLParser

import pytest
from sample_records import NASTY, deep, mlp, nasty, plain, repeated

import backlight as torch
from backlight import inspect, nn
from backlight.inspect.render import html

# Without a browser


class Structure(HTMLParser):
    """The elements and addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.ids = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "srcset")]
        self.ids += [value for name, value in attrs if name == "id"]


@pytest.mark.parametrize("make", [mlp, nasty, lambda: plain((), float("nan"))])
def test_the_page_is_self_contained(make):
    text = make().to_html()
    page = Structure(text)
    assert page.links == ["data:,", "#graph"]
    assert page.tags.count("script") == 2
    assert "b" not in page.tags  # markup in a record stays text
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "@import" not in text
    assert "url(" not in text.replace("url(#tip-", "")


def test_data_is_complete():
    data = html.page_data(mlp())
    (one,) = data["passes"]
    assert len(one["nodes"]) == len(one["steps"]) == 11
    assert [step["reason"] for step in one["steps"]][0] == "the only one that was ready"
    assert [row["label"] for row in one["flow"]] == ["0", "1", "2", "LogSoftmax, NllLoss"]
    assert data["findings"][0]["sites"] == [["created", [0, 5], "train.py:5", "unused = nn.Linear(3, 3)"]]
    assert {line["site"][1]: len(line["nodes"]) for line in one["lines"]} == {8: 5, 9: 2}


def test_very_many_passes_are_left_out(monkeypatch):
    monkeypatch.setattr(html, "MOST_NODES", 10)
    x = torch.ones(3, requires_grad=True)
    with inspect.record() as record:
        for _ in range(5):
            (x * 2).sum().backward()
    data = html.page_data(record)
    assert len(data["passes"]) == 3
    assert data["passesLeftOut"] == 2


def test_of_very_many_nodes_the_newest_are_there(monkeypatch):
    monkeypatch.setattr(html, "MOST_NODES", 5)
    (one,) = html.page_data(mlp())["passes"]
    assert [node["step"] for node in one["nodes"]] == [4, 3, 2, 1, 0]
    assert one["nodesLeftOut"] == 6
    assert len(one["steps"]) == 5


def test_of_long_files_only_the_lines_around_are_there(monkeypatch):
    monkeypatch.setattr(html, "MOST_LINES", 5)
    monkeypatch.setattr(html, "AROUND", 1)
    (file, _) = html.page_data(mlp())["files"]
    assert [number for number, _ in file["lines"]] == [4, 5, 7, 8, 9, 10]


# In Chromium


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed: no browser test")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with playwright.sync_playwright() as p:
        try:
            browser = p.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"Chromium can't be started: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture
def show(chromium, tmp_path):
    """Opens a record's page without a network. What scripts complain about fails the test."""
    complaints, contexts = [], []

    def show(record, scheme="light", width=1440, height=900):
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(record.to_html(), encoding="utf-8")
        context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": height}, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield show
    for context in contexts:
        context.close()
    assert not complaints


def position(page):
    return page.text_content("#position")


def test_a_network_is_shown(show):
    page = show(mlp())
    assert page.locator("svg .box.node").count() == 7
    assert page.locator("svg .box.leaf").count() == 4
    assert page.locator(".finding").count() == 2
    assert page.locator(".flow-row:not(.flow-axis)").count() == 4
    assert page.locator(".code-note").count() == 2
    assert "AddmmBackward0" in page.text_content("#graph")
    assert position(page) == "1 / 11"
    assert page.title() == "train.py · Backlight"


def test_three_thousand_nodes_open_in_two_seconds(show):
    page = show(deep())
    assert float(page.get_attribute("html", "data-ready")) < 2000
    assert page.text_content("#graph-count") == "3,008 nodes in 3 boxes"
    assert page.text_content("svg .times") == "×334"
    page.click("#unfold")
    assert page.locator("svg .box").count() == 3008
    page.click("#fold")
    assert page.locator("svg .box").count() == 3


def test_keyboard(show):
    page = show(mlp())
    page.keyboard.press("n")
    page.keyboard.press("ArrowRight")
    assert position(page) == "3 / 11"
    assert page.locator("svg .box.current .name").text_content() == "AddmmBackward0"
    assert page.locator("#source .current .line-number").text_content() == "8"
    page.keyboard.press("p")
    assert position(page) == "2 / 11"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert position(page) == "11 / 11"
    page.keyboard.press("Home")
    assert position(page) == "1 / 11"
    assert page.get_attribute("#slider", "aria-valuetext") == "Step 1 of 11, NllLossBackward0"
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    assert position(page) == "2 / 11"


def test_everything_is_reached_by_tab_and_focus_is_visible(show):
    page = show(mlp())
    reached = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => {
                    const e = document.activeElement;
                    if (e === document.body) return ["", true];
                    const style = getComputedStyle((e.closest("svg") && e.querySelector(".card, .handle")) || e);
                    const visible = style.outlineStyle !== "none" || style.strokeWidth === "2.5px";
                    return [e.id || e.getAttribute("aria-label") || e.textContent.slice(0, 20), visible];
                }"""
            )
        )
    names = [name for name, _ in reached]
    for wanted in ("search", "theme", "graph", "Sequential , 9 nodes: fold", "unfold", "source", "play", "slider"):
        assert wanted in names
    assert [name for name, visible in reached if not visible] == []
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [tabindex='0']")]
            .filter((e) => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim())).map((e) => e.outerHTML)"""
    )
    assert unnamed == []


def test_folding_by_keyboard(show):
    page = show(deep(6))
    repeat = page.locator("[role=button].repeat")
    assert repeat.get_attribute("aria-expanded") == "false"
    repeat.focus()
    page.keyboard.press("Enter")
    assert page.locator("svg .frame.repeat").count() == 1
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.keyboard.press("Enter")
    assert page.locator("svg .frame.repeat").count() == 0


def test_play_runs_to_the_end_and_stops(show):
    page = show(plain())
    page.select_option("#speed", "90")
    page.click("#play")
    page.wait_for_selector("#position:text-is('3 / 3')")
    page.wait_for_selector("#play[aria-pressed=false]")


def test_ready_and_waiting(show):
    page = show(mlp())
    for _ in range(3):
        page.keyboard.press("n")
    assert page.locator(".chip.ready").all_text_contents() == ["5 TBackward0", "7 ReluBackward0"]
    assert page.locator("svg .box.ready").count() == 2
    page.locator(".chip.ready").last.click()
    assert position(page) == "7 / 11"


def test_search(show):
    page = show(mlp())
    page.keyboard.press("/")
    page.keyboard.type("accumulate 0.weight")
    assert page.locator("#results [role=option]").count() == 1
    page.keyboard.press("Enter")
    assert position(page) == "11 / 11"
    page.keyboard.press("/")
    page.keyboard.type("never used")
    page.keyboard.press("Enter")
    assert page.get_attribute("#finding-0", "open") is not None
    page.keyboard.press("/")
    page.keyboard.type("no such thing")
    assert "Nothing found" in page.text_content("#results")
    page.keyboard.press("Escape")
    assert not page.is_visible("#results")


def test_search_opens_folded_groups(show):
    page = show(deep(30))
    page.keyboard.press("/")
    page.keyboard.type("gelu blocks.7.act")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "blocks.7.act" in page.locator("svg .box.current").text_content()


def test_findings_lead_to_lines_and_nodes(show):
    page = show(mlp())
    page.click("#finding-1 summary")
    page.click("#finding-1 .line-link >> nth=0")
    assert page.locator("#source .asked .line-number").text_content() == "8"
    page.click("#finding-1 .chip")
    assert "0.weight" in page.text_content("#details")
    page.click("#finding-1 .line-link >> nth=1")  # a file that isn't there
    page.click(".code-note a >> nth=0")


def test_several_passes_and_hooks(show):
    def double(gradient):
        return gradient * 2

    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with inspect.record("norms") as record:
        hidden = model[0](torch.ones(5, 4))
        hidden.register_hook(double)
        model[2](model[1](hidden)).sum().backward()
        model(torch.ones(5, 4)).sum().backward()
    page = show(record)
    page.keyboard.press("/")
    page.keyboard.type("addmm")
    page.keyboard.press("Enter")
    page.keyboard.press("Home")
    while "changed the gradient" not in page.text_content("#details"):
        before = position(page)
        page.keyboard.press("n")
        assert position(page) != before, "no step shows the hook"
    page.select_option("#pass", "1")
    assert position(page).startswith("1 / ")


@pytest.mark.parametrize("make", [nasty, lambda: mlp("shapes"), lambda: mlp(error_at=4), lambda: plain((), float("inf"))])
def test_odd_records(show, make):
    page = show(make())
    page.keyboard.press("End")
    page.keyboard.press("f")
    assert page.locator("svg .box").count() > 2


def test_names_stay_text(show):
    page = show(nasty())
    assert page.locator("main b:has-text('x')").count() == page.locator(".facts b").count()
    assert NASTY.splitlines()[0] in page.text_content(".code-line:nth-child(2) code")


def test_no_backward_pass(show):
    with inspect.record() as record:
        nn.Linear(2, 2)(torch.ones(1, 2))
    page = show(record)
    assert "No backward pass ran" in page.text_content("#details")
    assert page.is_disabled("#play")
    with inspect.record() as empty:
        pass
    page = show(empty)
    assert "No backward pass ran" in page.text_content("#details")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(show, scheme):
    page = show(mlp(), scheme)
    brightness = (
        "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0)"
    )
    before = page.evaluate(brightness)
    page.click("#theme")
    switched = page.evaluate(brightness)
    assert (before > 380) == (scheme == "light")
    assert (switched > 380) == (scheme == "dark")
    assert page.evaluate(CONTRASTS) == []


# Texts whose contrast with what is behind them is below 4.5, as WCAG AA demands (of plain elements; SVG has its own colours).
CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const colour = rgba(getComputedStyle(e).backgroundColor);
            if (colour[3] > 200) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const e of document.querySelectorAll("main *, header *")) {
        if (e.closest("svg") || !e.offsetParent || e.closest("[disabled]")) continue;
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
        const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${e.className} ${e.textContent.slice(0, 20)} ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
    }
    return found;
}"""


def test_a_narrow_window_scrolls_in_one_direction_only(show):
    page = show(mlp(), width=420, height=800)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.keyboard.press("n")
    assert position(page) == "2 / 11"


def test_a_leaf_that_many_use_has_a_box_at_each(show):
    model = nn.Linear(4, 4)
    with inspect.record("norms") as record:
        hidden = torch.ones(2, 4)
        for _ in range(4):
            hidden = model(hidden)
        hidden.sum().backward()
    page = show(record)
    page.click("#unfold")
    weights = page.locator("svg .box.leaf:has-text('weight')")
    assert weights.count() == 4
    assert "use 1 of 4" in "".join(weights.all_text_contents())
    assert len(record.passes[0].steps) == page.locator("svg .box").count() - 6
    page.keyboard.press("End")
    assert page.locator("svg .box.current").count() == 4


def test_many_different_nodes_are_cut_into_parts(show):
    names = [f"{'ABCDEFG'[i * i * 31 % 97 % 7]}Backward0" for i in range(400)]
    page = show(repeated(names))
    assert page.locator("svg .box").count() < 60
    page.keyboard.press("f")
    assert page.locator("svg .box").count() == 402

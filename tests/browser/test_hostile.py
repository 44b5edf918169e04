"""Texts of strangers in a report: they are shown as they are, and nothing else comes of them."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser

from tests.browser import sample
from tests.browser.kit import PHONE, opened, saved
from tests.hostile import HOSTILE as EVERYWHERE

HOSTILE = (
    "<img src=x onerror=window.hit=1>",
    "</script><script>window.hit=2</script>",
    "%{x} &lt;b&gt; $x^2$ @failed",
    "<!--<script>window.hit=3",
    '" onmouseover="window.hit=4" x="',
    '<a href="https://somewhere.invalid/">click</a>',
    "</title></style><h1>taken over</h1>",
    "]]>'\\\u2028\u2029\u202e\x00\x1b[31m",
    "W" * 300,
    "界" * 200,
    *(text for name, text in EVERYWHERE.items() if name != "no text"),  # a file has only text
    "",
)
OURS = """
() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const isHandler = (name) => name.startsWith('on');
  return {
    hit: window.hit,
    scripts: all('script').length,
    images: all('img').length,
    links: all('a').filter((one) => !(one.getAttribute('href') || '').startsWith('#')).length,
    headings: all('h1').length,
    handlers: all('*').filter((one) => one.getAttributeNames().some(isHandler)).length,
  };
}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    queues = HOSTILE[:-1]
    data = sample.usual(queues=queues, windows=12, names=HOSTILE, title=HOSTILE[0] + HOSTILE[1])
    clusters = tuple(
        row
        | {"reason": text, "error_type": text, "message": text, "example_payload": text}
        | {"cluster": text}
        for row, text in zip(data.clusters, HOSTILE, strict=False)
    )
    stuck = tuple(row | {"job_id": row["queue"], "state": row["queue"]} for row in data.stuck)
    schedules = tuple(row | {"key": row["queue"]} for row in data.schedules)
    changed = {"clusters": clusters, "stuck": stuck, "schedules": schedules, "warnings": HOSTILE}
    data = sample.usual(
        queues=queues, windows=12, names=HOSTILE, title=HOSTILE[0] + HOSTILE[1], **changed
    )
    data.facts.update({text: text for text in HOSTILE})
    return saved(data, tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("width", [1280, PHONE])
def test_no_text_becomes_part_of_the_page(browser: Browser, file: Path, width: int) -> None:
    with opened(browser, file, width=width) as seen:
        for place in (0, 6):
            seen.choose(place)
            for summary in seen.page.locator("summary:visible").all():
                summary.click()
            ours = seen.page.evaluate(OURS)
            # Three scripts are the page's own: the data, the library and what draws.
            assert ours == {
                "hit": None,
                "scripts": 3,
                "images": 0,
                "links": 0,
                "headings": 1,
                "handlers": 0,
            }
        assert seen.overflow() <= 0
    assert seen.is_clean()


def test_every_text_is_shown_as_it_is(browser: Browser, file: Path) -> None:
    with opened(browser, file) as seen:
        for text in HOSTILE[:7]:
            assert seen.page.locator("td").filter(has_text=text).count() > 0
        drawn = " ".join(seen.page.locator("svg text").all_text_contents())
        for text in HOSTILE[:7]:
            assert text[:22] in drawn
        seen.page.locator("#latency .canvas").hover()
        seen.page.wait_for_selector("#latency .hoverlayer text")
        assert seen.page.evaluate("document.querySelectorAll('.hoverlayer a').length") == 0
    assert seen.is_clean()


@pytest.fixture
def outside() -> Iterator[tuple[str, list[str]]]:
    """A place on the network, and what was asked of it."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


INTRUDER = """
async (place) => {
  const script = document.createElement('script');
  script.textContent = 'window.hit = 5';
  document.body.append(script);
  document.body.insertAdjacentHTML('beforeend', '<b id=x onclick="window.hit = 6">');
  document.getElementById('x').click();
  const image = new Image();
  const failed = new Promise((done) => { image.onload = image.onerror = done; });
  image.src = place + '/image';
  await failed;
  return fetch(place + '/fetch', { mode: 'no-cors' }).then(() => 'sent', () => 'refused');
}
"""


def test_the_page_itself_forbids_scripts_and_the_network(
    browser: Browser, file: Path, outside: tuple[str, list[str]]
) -> None:
    """Should a text ever find its way in, it finds nothing that runs it or lets it out."""
    place, asked = outside
    with opened(browser, file) as seen:
        assert seen.page.evaluate(INTRUDER, place) == "refused"
        assert seen.page.evaluate("window.hit") is None
        assert asked == []

"""The widget's module without a notebook: what it takes hold of, it lets go of."""

from __future__ import annotations

import base64
import json
from typing import Any

from headscope.page.payload import make_payload
from headscope.page.save_page import static_file
from headscope.results.trace import Trace
from tests.browser.conftest import collect_garbage

LIVE = """async ([module, header, buffers]) => {
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const values = { header, height: 400, selection: "", static_id: "x",
    buffers: buffers.map((text) => new DataView(bytes(text).buffer)) };
  const heard = [];
  window.heard = heard;
  window.values = values;
  const model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    save_changes() {},
    send(content) { window.sent = content; },
    on: (name, listener) => heard.push([name, listener]),
    off: (name, listener) => {
      const at = heard.findIndex((one) => one[0] === name && one[1] === listener);
      if (at >= 0) heard.splice(at, 1);
    },
  };
  const { default: widget } = await import(`data:text/javascript;base64,${module}`);
  const el = document.createElement("div");
  document.body.append(el);
  window.cleanUp = await widget.render({ model, el });
  window.explorer = new WeakRef(el.firstChild.shadowRoot.querySelector(".page"));
}"""


def test_a_closed_widget_lets_go_of_everything(chromium: Any, trace: Trace) -> None:
    payload = make_payload([trace])
    script = base64.b64encode(static_file("widget.js").encode()).decode()
    buffers = [base64.b64encode(one).decode() for one in payload.buffers]
    context = chromium.new_context()
    page = context.new_page()
    page.evaluate(LIVE, [script, json.dumps(payload.header), buffers])
    assert page.evaluate("heard.map(([name]) => name).sort()") == [
        "change:header",
        "change:selection",
        "msg:custom",
    ]
    assert page.locator(".page").is_visible()
    page.evaluate("cleanUp(); delete window.cleanUp; document.body.replaceChildren()")
    assert page.evaluate("heard.length") == 0
    collect_garbage(page)
    assert page.evaluate("explorer.deref() === undefined")
    context.close()


def test_another_text_is_typed_and_arrives(chromium: Any, make_trace: Any) -> None:
    first, other = (make_payload([make_trace(n, causal=True)]) for n in (8, 5))
    script = base64.b64encode(static_file("widget.js").encode()).decode()
    encode = [base64.b64encode(one).decode() for one in first.buffers]
    page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.evaluate(LIVE, [script, json.dumps(first.header), encode])
    page.get_by_role("button", name="Type in the sentence").click()
    page.get_by_label("The sentence").fill("another text")
    page.get_by_label("The sentence").press("Enter")
    sent = page.evaluate("sent")
    assert (sent["kind"], sent["text"]) == ("read", "another text")
    page.evaluate(
        """([header, buffers]) => {
          const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
          Object.assign(values, { header, selection: "",
            buffers: buffers.map((text) => new DataView(bytes(text).buffer)) });
          for (const [name, listener] of heard) if (name === "change:header") listener();
        }""",
        [json.dumps(other.header), [base64.b64encode(one).decode() for one in other.buffers]],
    )
    page.wait_for_function(
        "() => document.querySelector('body > div > div').shadowRoot"
        ".querySelectorAll('.stage .tok').length === 5"
    )
    page.context.close()

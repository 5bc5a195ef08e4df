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
  const model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    save_changes() {},
    send() {},
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
    assert page.evaluate("heard.map(([name]) => name).sort()") == ["change:selection", "msg:custom"]
    assert page.locator(".page").is_visible()
    page.evaluate("cleanUp(); delete window.cleanUp; document.body.replaceChildren()")
    assert page.evaluate("heard.length") == 0
    collect_garbage(page)
    assert page.evaluate("explorer.deref() === undefined")
    context.close()

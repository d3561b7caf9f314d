"""What models and tools say is text: no payload runs, loads, navigates or hides, wherever it is shown."""

from __future__ import annotations

from typing import Any

import httpx
from playwright.sync_api import expect

from halter import Agent, runnable, tool
from halter.models.scripted import Scripted, calls
from halter.server.routes.browser import POLICY

from .conftest import Open, Serve, Served

RUN = "window.pwned=1"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<body onload={RUN}>",
    f"<iframe src=javascript:{RUN}></iframe>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f"<object data=javascript:{RUN}></object>",
    f"<embed src=javascript:{RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}></video>",
    f"<input autofocus onfocus={RUN}>",
    f"<a href=javascript:{RUN}>click</a>",
    f"<form action=javascript:{RUN}><button>go</button></form>",
    f"<math><mi xlink:href=javascript:{RUN}>x</mi></math>",
    f"<style>@import 'https://evil.example/x.css'</style><style onload={RUN}></style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href=https://evil.example/>",
    f"<template><img src=x onerror={RUN}></template>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"<!--><img src=x onerror={RUN}>-->",
    f"<![CDATA[<img src=x onerror={RUN}>]]>",
    f"</textarea></title></style><img src=x onerror={RUN}>",
    f"[click](javascript:{RUN})",
    f"[click](JaVaScRiPt:{RUN})",
    f"[click](\x01javascript:{RUN})",
    f"[click](java\tscript:{RUN})",
    f"[click](&#106;avascript:{RUN})",
    "[click](data:text/html;base64,PHNjcmlwdD53aW5kb3cucHduZWQ9MTwvc2NyaXB0Pg==)",
    "[click](vbscript:msgbox(1))",
    "[click](file:///etc/passwd)",
    "[click](//evil.example/x)",
    "[click](/v1/cancel)",
    "[click](blob:https://evil.example/1)",
    "[bank](https://user:secret@evil.example/)",
    "![track](https://evil.example/pixel.png)",
    f'![x](x"onerror="{RUN})',
    f'[x](https://example.com/"onmouseover="{RUN})',
    f"<https://example.com/><img src=x onerror={RUN}>",
    f'[a]: javascript:{RUN} "t"\n\n[a]',
    f"```html\n<script>{RUN}</script>\n```",
    f"`<img src=x onerror={RUN}>`",
    f"| <img src=x onerror={RUN}> |\n|---|\n| <script>{RUN}</script> |",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
    "user\u202etxt.exe\u202c and\u200binvisible\u2066 \U000e0041tag",
    "__proto__ constructor toString",
    "> " * 3_000 + "deep",
    "*" * 5_000 + "[" * 5_000 + "`" * 5_000,
]
LOOK = """() => {
  const bad = []
  const all = document.querySelectorAll("main *, dialog *, #toasts *, header *")
  for (const node of all) {
    const tag = node.tagName.toLowerCase()
    const isOwnSvg = node.closest("figure svg")
    if (["script", "iframe", "object", "embed", "img", "video", "audio", "style", "link", "meta", "base", "math",
         "template", "svg"].includes(tag) && !isOwnSvg) bad.push(node.outerHTML.slice(0, 200))
    for (const { name } of node.attributes) if (name.startsWith("on") || name === "srcdoc") bad.push(`${tag} ${name}`)
    if (tag !== "a") continue
    const isHere = (node.getAttribute("href") ?? "#").startsWith("#") || node.getAttribute("href") === "docs"
    if (isHere) continue
    const { protocol, username } = new URL(node.href)
    if (!["http:", "https:", "mailto:"].includes(protocol) || username) bad.push(`leads to ${node.href}`)
    if (!/noopener/.test(node.rel) || !/noreferrer/.test(node.rel)) bad.push(`rel of ${node.href}`)
    const target = new URL(node.href).host + new URL(node.href).pathname
    if (!node.textContent.includes(target.replace(/\\/$/, "").slice(0, 40))) bad.push(`hides ${node.href}`)
  }
  const text = document.body.innerText
  if (text.includes("[object ")) bad.push("an object was shown as text")
  const hidden = /[\\u200B\\u202A-\\u202E\\u2066-\\u2069]|\\u{E0041}/u.exec(text)
  if (hidden) bad.push(`hidden character in ${text.slice(hidden.index - 30, hidden.index + 10)}`)
  return { bad, pwned: window.pwned ?? null, href: location.href }
}"""


def hostile(served: Served) -> None:
    """Runs whose every field is a payload."""
    everything = "\n\n".join(PAYLOADS)
    for place, payload in enumerate(PAYLOADS):
        if len(payload) < 60 and "\n" not in payload and "\x01" not in payload and "\t" not in payload:
            served.start("echo", id=f"tag-{place}", tags=[payload], input=payload)
    served.client.post("/v1/runs?wait=10", json={"agent": "bad", "input": everything, "id": "bad", "session": "s"})
    served.client.patch("/v1/sessions/s", json={"title": everything[:480], "tags": [PAYLOADS[0], PAYLOADS[1]]})
    served.client.post("/v1/runs", json={"agent": "asks", "input": "Go.", "id": "asks"})
    served.client.post("/v1/runs?wait=10", json={"agent": "fails", "input": everything, "id": "fails"})
    served.start("slow", id="stopped")
    served.cancel("stopped", message=PAYLOADS[1] + PAYLOADS[-4])


def agents() -> list[Any]:
    everything = "\n\n".join(PAYLOADS)

    @tool
    async def say(text: str, ctx) -> str:  # type: ignore[no-untyped-def]
        """Says."""
        ctx.progress(text)
        return text

    @tool
    async def fail(text: str) -> str:
        """Fails."""
        raise ValueError(text)

    @tool(approval="always", approval_prompt=lambda: f"{everything}\n\n--- a\n+++ b\n@@ -1 +1 @@\n-<b>\n+{PAYLOADS[1]}")
    async def ask() -> str:
        """Asks."""
        return ""

    @runnable
    async def fails(ctx, given) -> None:  # type: ignore[no-untyped-def]
        raise ValueError(given)

    names = [calls(payload, text=payload) for payload in PAYLOADS[:8]]
    bad = Scripted(calls("say", text=everything), calls("fail", text=everything), *names, everything)
    return [
        Agent(bad, name="bad", description=PAYLOADS[0], tools=[say, fail]),
        Agent("scripted:ok", name="echo"),
        Agent(Scripted(calls("ask"), "Done."), name="asks", description=PAYLOADS[1], tools=[ask]),
        fails,
        Agent(Scripted("word " * 2_000, pace=0.05), name="slow"),
    ]


def test_no_payload_runs_loads_or_hides_in_any_view(serve: Serve, open_page: Open) -> None:
    assert len(PAYLOADS) >= 40
    served = serve(agents())
    hostile(served)
    tab = open_page(served)
    for place in ("", "#/run/bad", "#/run/asks", "#/run/fails", "#/run/stopped", "#/chat", "#/chat/s", "#/sessions",
                  "#/runs", "#/runs?tag=%3Cscript%3E", "#/figures", "#/audit", "#/<img src=x onerror=window.pwned=1>",
                  "#/run/%3Cimg%20src=x%20onerror=window.pwned=1%3E"):  # fmt: skip
        tab.go(place)
        tab.page.wait_for_timeout(120)
        tab.page.evaluate("() => document.querySelectorAll('main details').forEach((each) => (each.open = true))")
        found = tab.page.evaluate(LOOK)
        assert (place, found["bad"], found["pwned"]) == (place, [], None)
        assert found["href"].startswith(served.url)
    tab.go("#/run/bad")
    tab.see("<script>window.pwned=1</script>")
    tab.see("⟨U+202E⟩txt.exe")
    expect(tab.page.locator("article a")).to_have_count(tab.page.locator("article a[target=_blank]").count())
    tab.go("#/chat")
    tab.chat("bad", "\n".join(PAYLOADS[:10]))
    tab.see("⟨U+202E⟩txt.exe")
    assert tab.page.evaluate(LOOK)["bad"] == []


def test_the_policy_refuses_what_a_mistake_of_ours_would_let_through(serve: Serve, open_page: Open) -> None:
    served = serve(Agent("scripted:Hi.", name="agent"))
    answer = httpx.get(served.url + "/")
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY
    assert "frame-ancestors 'none'" in POLICY
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == ("nosniff", "no-referrer")
    tab = open_page(served)
    refused = tab.page.evaluate(
        """async () => {
          const attempts = {
            html: () => (document.body.innerHTML += "<img src=x onerror='window.pwned=1'>"),
            script: () => {
              const script = document.createElement("script")
              script.textContent = "window.pwned=1"
              document.body.append(script)
            },
          }
          const refused = []
          for (const [name, attempt] of Object.entries(attempts)) {
            try { attempt() } catch { refused.push(name) }
          }
          // Later: what a debugger evaluates may evaluate.
          await new Promise((resolve) => setTimeout(() => {
            try { eval("window.pwned=1") } catch { refused.push("eval") }
            resolve()
          }, 0))
          await fetch("https://evil.example/").catch(() => refused.push("fetch"))
          return { refused, pwned: window.pwned ?? null }
        }"""
    )
    assert refused == {"refused": ["html", "script", "eval", "fetch"], "pwned": None}
    assert tab.page.evaluate("() => window.refused.splice(0).length") >= 3
    tab.problems.clear()  # the console tells of each refusal


SLOW = """async () => {
  const { Markdown } = await import("/page/markdown.js")
  const many = " ".repeat(50_000)
  const texts = [`#${many}\r`, `#${many}x\u2028`, `- ${many}\u2028`, `a${many}b`,
    `a|b\n-${many}x`, `a|b\n${"-|".repeat(25_000)}x`]
  const began = performance.now()
  for (const text of texts) new Markdown().set(text)
  return performance.now() - began
}"""


def test_no_line_of_a_model_keeps_the_page_from_being_used(serve: Serve, open_page: Open) -> None:
    tab = open_page(serve(Agent("scripted:ok", name="echo")))
    assert tab.page.evaluate(SLOW) < 1_000  # milliseconds; a pattern that tries a line from each character: minutes

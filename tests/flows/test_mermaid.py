"""A flow as a diagram."""

from __future__ import annotations

from typing import Literal

from halter.flows import Flow, and_, listen, or_, router, start


class Drawn(Flow):
    @start()
    async def outline(self) -> None: ...

    @router()
    async def look_up(self) -> Literal["found", "nothing there", 'a "new" word']: ...

    @listen(or_(outline, "again"))
    async def write(self) -> None: ...

    @router(write)
    async def judge(self) -> Literal["good", "again"]: ...

    @listen(and_("good", or_("found", "nothing there"), outline))
    async def publish(self) -> None: ...

    @listen(or_(publish, and_(write, outline)))
    async def end(self) -> None: ...


GOLDEN = """\
flowchart TD
    outline(["outline"])
    look_up{"look_up"}
    write["write"]
    judge{"judge"}
    publish["publish"]
    end_["end"]
    outline --> write
    judge -->|"again"| write
    write --> judge
    publish__0(("and")) --> publish
    judge -->|"good"| publish__0
    publish__0_1(("or")) --> publish__0
    look_up -->|"found"| publish__0_1
    look_up -->|"nothing there"| publish__0_1
    outline --> publish__0
    publish --> end_
    end__1(("and")) --> end_
    write --> end__1
    outline --> end__1
    look_up -->|"a #quot;new#quot; word"| end__0((("end")))
"""


def test_the_diagram_shows_each_step_and_each_way_between_them() -> None:
    assert Drawn.to_mermaid() == GOLDEN
    assert Drawn().to_mermaid() == GOLDEN

"""An MCP server over its standard streams, written by hand: it notes all that it is sent, and ignores every cancel.

python mcp_server.py LOG [METHOD]

METHOD: is never answered.
"""

import json
import sys

TOOLS = [
    {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object", "properties": {}}}
    for name in ("greet", "hang", "fail")
]
KEPT = {
    "type": "object",
    "properties": {"path": {"type": "string", "default": "notes/today"}, "text": {"type": "string"}},
}
TOOLS += [
    {"name": "keep", "description": "Keeps a text.", "inputSchema": KEPT},
    {"name": "keep_exactly", "description": "Keeps a text.", "inputSchema": KEPT | {"additionalProperties": False}},
]


def answer(message: dict) -> dict | None:
    match message["method"], message.get("params", {}):
        case "initialize", given:
            about = {"name": "by hand", "version": "1"}
            return {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list", {"cursor": "more"}:
            return {"tools": TOOLS[3:]}
        case "tools/list", _:
            return {"tools": TOOLS[:3], "nextCursor": "more"}
        case "tools/call", {"name": "greet", "arguments": given}:
            return {"content": [{"type": "text", "text": f"Hello, {given.get('who', 'you')}"}], "isError": False}
        case "tools/call", {"name": "keep" | "keep_exactly", "arguments": given}:
            return {"content": [{"type": "text", "text": json.dumps(given)}], "isError": False}
        case "tools/call", {"name": "fail"}:
            return {"content": [{"type": "text", "text": "it broke"}], "isError": True}
        case "tools/call", _:
            return None
        case _:
            raise LookupError(message["method"])


with open(sys.argv[1], "a") as log:
    for line in sys.stdin:
        print(line.strip(), file=log, flush=True)
        message = json.loads(line)
        if "id" not in message or message["method"] in sys.argv[2:]:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = answer(message)
        except LookupError as unknown:
            print(json.dumps(reply | {"error": {"code": -32601, "message": str(unknown)}}), flush=True)
        else:
            if result is not None:
                print(json.dumps(reply | {"result": result}), flush=True)

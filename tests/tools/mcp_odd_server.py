"""An MCP server over its standard streams, written by hand, that does what real ones rarely do.

python mcp_odd_server.py LOG [NOTE]    NOTE: a file; the server dies at once while it exists and says `dead`
"""

import base64
import json
import os
import sys

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n-a picture-").decode()
OPEN = {"type": "object", "properties": {}}
READS = {"readOnlyHint": True}
NAMES = {
    "files.read/all": {"annotations": READS},
    "files_read_all": {"annotations": READS},
    "1st": {},
    "x" * 90: {},
    "picture": {},
    "odd": {},
    "long": {},
    "busy": {},
    "die": {},
    "change": {},
    "count": {},
    "hang": {},
    "drop_table": {"annotations": {"readOnlyHint": False, "destructiveHint": True}},
    "append": {"annotations": {"readOnlyHint": False, "destructiveHint": False}},
}
TOOLS = [{"name": name, "description": name, "inputSchema": OPEN} | more for name, more in NAMES.items()]


def say(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def text(said: str) -> dict:
    return {"type": "text", "text": said}


def content(name: str, request: dict) -> list | None:
    token = request["params"].get("_meta", {}).get("progressToken")
    match name:
        case "picture":
            return [text("Here:"), {"type": "image", "data": PNG, "mimeType": "image/png"}]
        case "odd":
            blob = base64.b64encode(b"\0\1\2").decode()
            return [
                {"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": "a note"}},
                {"type": "resource", "resource": {"uri": "blob://2", "mimeType": "application/zip", "blob": blob}},
                {"type": "audio", "data": blob, "mimeType": "audio/wav"},
                {"type": "image", "data": blob, "mimeType": "image/png"},
                {"type": "resource_link", "uri": "note://3", "name": "third", "description": "more"},
            ]
        case "long":
            return [text("x" * 1_000_000)]
        case "busy":
            for each in range(2_000):
                say(
                    method="notifications/progress",
                    params={"progressToken": token, "progress": each, "message": "y" * 5_000},
                )
            return [text("done")]
        case "die":
            os._exit(3)
        case "change":
            TOOLS[:] = [each for each in TOOLS if each["name"] != "odd"]
            TOOLS.append({"name": "new", "description": "New.", "inputSchema": OPEN})
            say(method="notifications/tools/list_changed")
            return [text("changed")]
        case "hang":
            return None
        case _:
            return [text(f"{os.getpid()}")]


def answer(request: dict) -> dict | None:
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}, "resources": {}, "prompts": {}},
                "serverInfo": {"name": "odd", "version": "1"},
                "instructions": "Be odd.",
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            found = content(request["params"]["name"], request)
            return None if found is None else {"content": found, "isError": False}
        case "resources/list":
            return {"resources": [{"uri": "note://1", "name": "first", "description": "A note."}]}
        case "resources/read":
            uri = request["params"]["uri"]
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "a note"}]}
        case "prompts/list":
            return {"prompts": [{"name": "greet", "description": "Greets.", "arguments": [{"name": "who"}]}]}
        case "prompts/get":
            who = request["params"].get("arguments", {}).get("who", "you")
            return {"messages": [{"role": "user", "content": text(f"Greet {who}.")}]}
    raise LookupError(request["method"])


if os.path.exists(sys.argv[2] if len(sys.argv) > 2 else ""):
    sys.exit(4)
with open(sys.argv[1], "a") as log:
    print(json.dumps({"method": "started"}), file=log, flush=True)
    for line in sys.stdin:
        print(line.strip(), file=log, flush=True)
        request = json.loads(line)
        if "id" not in request:
            continue
        try:
            result = answer(request)
        except LookupError as unknown:
            say(id=request["id"], error={"code": -32601, "message": str(unknown)})
        else:
            if result is not None:
                say(id=request["id"], result=result)

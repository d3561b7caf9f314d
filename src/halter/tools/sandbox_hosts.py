"""Which hosts a sandboxed program may reach, and how it is told of the proxy that leads to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from halter.errors import ConfigurationError
from halter.net.addresses import is_host, is_public

WEB_PORTS = (80, 443)
PORT = 3128  # in the sandbox's own network
ADDRESS = f"http://127.0.0.1:{PORT}"
# As curl, git, pip, npm and most others read them; what a program serves itself it reaches directly.
VARIABLES: Mapping[str, str] = {
    **{name: ADDRESS for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (proxy, proxy.lower())},
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
}


@dataclass(frozen=True)
class AllowedHosts:
    """Patterns of hosts with the ports that each may be reached on; `private`: also where an address is not public."""

    allowed: tuple[tuple[str, tuple[int, ...]], ...]
    private: bool

    @classmethod
    def of(cls, given: Iterable[str], *, private: bool) -> AllowedHosts:
        """From `example.com`, `*.example.org` or `example.com:8080`. Raises `ConfigurationError`."""
        hosts = () if isinstance(given, str) else tuple(given)
        if not hosts:
            raise ConfigurationError(f"network takes True, False or hosts, as ('example.com',), not {given!r}")
        return cls(tuple(map(_read, hosts)), private)

    def refusal(self, host: str, port: int) -> str | None:
        """Says why a host may not be reached; `None` if it may."""
        if any(fnmatchcase(host, pattern) and port in ports for pattern, ports in self.allowed):
            return None
        return f"{host}:{port} is not allowed: only {self}"

    def allows_address(self, address: str) -> bool:
        """Whether a host that is allowed may be connected to at this address."""
        return self.private or is_public(address)

    def __str__(self) -> str:
        return ", ".join(pattern if ports == WEB_PORTS else f"{pattern}:{ports[0]}" for pattern, ports in self.allowed)


def _read(text: object) -> tuple[str, tuple[int, ...]]:
    if isinstance(text, str):
        has_port = text.count(":") == 1 or "]:" in text
        host, _, port = text.rpartition(":") if has_port else (text, "", "80")
        host = host.strip("[]").lower().rstrip(".")
        is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 65536
        if host and is_port and is_host(host.replace("*", "a")) and "/" not in host:
            return host, (int(port),) if has_port else WEB_PORTS
    raise ConfigurationError(
        f"network takes hosts, as 'example.com', '*.example.org' or 'example.com:22', not {text!r}"
    )

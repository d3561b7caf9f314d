"""Which proxy stands before a provider, as the environment says; read once, since the look-up is slow.

`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals or not, as Python and curl read them.
"""

from __future__ import annotations

import urllib.request
from base64 import b64encode
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from halter.errors import ConfigurationError
from halter.net.addresses import is_host


class Proxy(msgspec.Struct, frozen=True):
    """A proxy. `url`: without its user and password, which are in `authorization`, a header's value."""

    url: str
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"<Proxy {self.url}>"


@lru_cache(maxsize=256)
def proxy_for(url: str) -> Proxy | None:
    """The proxy for this URL; none for this machine itself. Raises `ConfigurationError` for one that is none."""
    place = urlsplit(url)
    named = _proxies()
    proxy = named.get(place.scheme) or named.get("all")
    if not proxy or not place.hostname or is_loopback(place.hostname) or is_bypassed(place):
        return None
    return _read(f"{place.scheme.upper()}_PROXY", proxy)


@lru_cache(maxsize=1)
def _proxies() -> dict[str, str]:
    return urllib.request.getproxies()


def forget() -> None:
    """Reads the environment anew: for tests."""
    proxy_for.cache_clear()
    _proxies.cache_clear()


def is_loopback(host: str) -> bool:
    """This machine itself, which no proxy could reach for us."""
    host = host.rstrip(".").lower()  # `localhost.` is the same name, said to be whole
    try:
        return host == "localhost" or host.endswith(".localhost") or ip_address(host).is_loopback
    except ValueError:
        return False


def is_bypassed(place: SplitResult) -> bool:
    """Whether `NO_PROXY` names the host, a domain above it, or the host with this port."""
    port = place.port or (443 if place.scheme == "https" else 80)
    return bool(urllib.request.proxy_bypass(f"{place.hostname}:{port}"))


def _read(variable: str, text: str) -> Proxy:
    try:
        place = urlsplit(text if "://" in text else f"http://{text}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = place = None
    if place is None or not host or not is_host(host):
        raise ConfigurationError(f"{variable} must be a URL such as 'http://proxy.example:3128'")
    if place.scheme not in ("http", "https"):
        raise ConfigurationError(f"{variable} names a {place.scheme} proxy: only http and https proxies can be used")
    shown = f"[{host}]" if ":" in host else host
    url = f"{place.scheme}://{shown}{'' if port is None else f':{port}'}"
    return Proxy(url, _basic(place.username, place.password or "") if place.username else None)


def _basic(user: str, password: str) -> str:
    """RFC 7617; in a URL both are percent-encoded."""
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()

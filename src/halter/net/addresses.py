"""Which addresses are the public internet's, so that a tool for it is no way into the network that it runs in.

Source: IANA's special-purpose registries, as `ipaddress` has them; and addresses that carry another one inside.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_NOT_IN_A_HOST = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]")
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


def is_public(address: str) -> bool:
    """Whether the whole internet would reach the same machine by it. Raises `ValueError` for what is no address.

    False for private, loopback, link-local, shared, reserved, multicast and unspecified ones, however they are put.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if found.is_site_local:  # deprecated, and in use
            return False
        found = _inside(found) or found
    return found.is_global and not found.is_multicast and not found.is_reserved


def is_host(name: str) -> bool:
    """Whether a URL may have this host: an address, or labels of 1 to 63 characters (RFC 1035, 2.3.4)."""
    if ":" in name:
        return _is_address(name)
    try:
        return not _NOT_IN_A_HOST.search(name) and bool(name.encode("idna"))
    except UnicodeError:
        return False


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to this one would be sent to."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour

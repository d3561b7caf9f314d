"""Which addresses are the public internet's, so that a tool for it is no way into the network that it runs in.

One table decides, not `ipaddress.is_global`: that one follows the Python version, and counts addresses as global that
lead into somebody's network (the metadata service of a cloud, relays, protocol assignments).
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_IN_A_HOST = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]")

# Sources, as of 2025-10-09:
#   https://www.iana.org/assignments/iana-ipv4-special-registry
#   https://www.iana.org/assignments/iana-ipv6-special-registry
# All blocks of both count, also those that the registries call globally reachable: no site is served from an anycast
# address of a protocol. What lies within a block of the list is not listed again.
_SPECIAL_IPV4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private use
        "100.64.0.0/10",  # shared by the customers of a carrier; 100.100.100.200 is Alibaba Cloud's metadata service
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, with the metadata services of most clouds
        "172.16.0.0/12",  # private use
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle Cloud's metadata service
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112, which answers for private names
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4, deprecated
        "192.168.0.0/16",  # private use
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast: https://www.iana.org/assignments/ipv4-address-space
        "240.0.0.0/4",  # reserved, and broadcast
        # Microsoft's, in no registry: the host under a virtual machine of Azure answers there.
        # https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
        "168.63.129.16/32",
    )
)
# https://www.iana.org/assignments/ipv6-address-space: nothing outside of it is assigned to anybody's machines. The
# blocks `::/96`, `::ffff:0:0/96`, `64:ff9b:1::/48`, `100::/64`, `5f00::/16`, `fc00::/7`, `fe80::/10`, … are outside.
_UNICAST_IPV6 = IPv6Network("2000::/3")
_SPECIAL_IPV6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments; `2001::/32`, Teredo, carries IPv4 addresses
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, deprecated: carries IPv4 addresses
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_MAPPED = IPv6Network("::ffff:0:0/96")  # IPv4 addresses, as sockets for both write them
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: a gateway sends these on to the IPv4 address in the last 32 bits
# Domains of private networks, which a proxy may know where this machine does not. Sources:
# https://www.iana.org/assignments/special-use-domain-names (2025-10-09), RFC 6762, appendix G, and for `internal`
# ICANN's resolution 2024.07.29.06.
_PRIVATE_DOMAINS = (
    *("localhost", "local", "home.arpa"),
    *("intranet", "internal", "private", "corp", "home", "lan", "localdomain"),
)


def is_public(address: str) -> bool:
    """Checks whether an address is one of the public internet, and not this machine's own.

    False for private, loopback, link-local, shared, documentation, reserved, multicast and unspecified ones, for IPv6
    addresses that carry such an IPv4 address, for ones with a zone, and for addresses that this machine has itself. A
    public address that a NAT in front of this machine maps to it cannot be recognized.

    Args:
        address: An IPv4 or IPv6 address, without brackets.

    Raises:
        ValueError: It is no address.
    """
    found = ip_address(address)
    if isinstance(found, IPv6Address) and (found in _MAPPED or found in _NAT64) and found.scope_id is None:
        found = IPv4Address(int(found) & 0xFFFFFFFF)
    return not _is_special(found) and not is_own(found)


def _is_special(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return any(address in block for block in _SPECIAL_IPV4)
    if address.scope_id is not None:
        return True  # a zone names a network of this machine
    return address not in _UNICAST_IPV6 or any(address in block for block in _SPECIAL_IPV6)


def is_own(address: IPv4Address | IPv6Address) -> bool:
    """Checks whether this machine has the address: to its own ones, the kernel sends from the same address.

    Nothing is sent: a datagram socket that connects only looks up its route.
    """
    kind = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False  # there is no way to it: it is not ours


def is_public_name(host: str) -> bool:
    """Checks whether a host's name can be one of the public internet: it has a domain, and no private one.

    Args:
        host: A name in lower case, without a dot at its end.
    """
    return "." in host and not any(host == domain or host.endswith(f".{domain}") for domain in _PRIVATE_DOMAINS)


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

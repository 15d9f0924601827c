"""Networks, by which callers are counted whose name is not known."""

import ipaddress


def network_of(address: str) -> str:
    """Return what an address is counted under: whoever has one of IPv6 has its whole network of 64
    bits. What is no address, as of a Unix socket, stays as it is."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))

"""The way to the network: one pool of sockets per loop, which a stop can end, and the proxies before it."""

"""The daemon: mirrors folders, warms this node, serves keys. The only place with asyncio, in `server` alone.

Mirrors and warms are threads over the same service that the command line calls; the HTTP server only looks and asks.
"""

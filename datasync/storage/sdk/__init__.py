"""What the drivers share that stand on a vendor's SDK over `requests`: OSS (both SDKs) and COS.

store (requests, answers), client (what a driver gives), session (HTTP beneath the SDK), errors (what failures mean),
credentials (keys that change). Imports no SDK; `requests` comes with each of them.
"""

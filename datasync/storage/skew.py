"""By how much this machine's clock and a server's differ, told by the Date of an answer (RFC 9110, 6.6.1). Pure."""

from email.utils import parsedate_to_datetime


def seconds_ahead(date: str, now: float) -> int:
    """Return by how many seconds *now* is ahead of *date*, 0 when that is no date."""
    try:
        return round(now - parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError, OverflowError):
        return 0


def wrong_clock(ahead: int) -> str:
    """Return what to tell a person, by how much where it is known."""
    if not ahead:
        return "this machine's clock is wrong; set it (NTP)"
    return (
        f"this machine's clock is {abs(ahead)} seconds {'ahead of' if ahead > 0 else 'behind'} the server's; "
        "set it (NTP)"
    )

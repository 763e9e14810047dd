"""Text that a viewer can not take for something else: no control character leaves as itself."""


def printable(text: str) -> str:
    """Return *text* on one line, with everything that is not printable escaped as Python writes it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

"""TOML to Cedar: one statement for each grant and each denial. Pure text; what it became is `policy show --cedar`.

A grant's conditions have to be known to hold. A denial's apply as well when the evidence that they ask for is missing;
`mfa` and `attested` in a denial name what lifts it.
"""

from collections.abc import Iterable

from datasync.policy.bundle import EVERYTHING, Bundle, Rule, actions_of, kind_of
from datasync.policy.model import time_text
from datasync.policy.toml import moment


def compile_bundle(bundle: Bundle) -> str:
    """Return every statement of *bundle* in Cedar: its own files', then what its TOML becomes."""
    rules = [_statement(bundle, rule, "permit") for rule in bundle.policy.grant]
    rules += [_statement(bundle, rule, "forbid") for rule in bundle.policy.deny]
    return "\n".join([*bundle.cedar, *rules])


def quote(text: str) -> str:
    """Return *text* as a Cedar string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _statement(bundle: Bundle, rule: Rule, effect: str) -> str:
    actions = ", ".join(f"Action::{quote(action)}" for action in actions_of(bundle, rule))
    head = f"@id({quote(rule.id)})\n" + (f"@reason({quote(rule.reason)})\n" if rule.reason else "")
    found = [*_scope(rule), *_conditions(rule, required=effect == "permit")]
    when = " when {\n  " + " &&\n  ".join(found) + "\n}" if found else ""
    return f"{head}{effect} (principal, action in [{actions}], resource){when};\n"


def _scope(rule: Rule) -> Iterable[str]:
    if EVERYTHING not in rule.to:
        yield _any("principal", [kind_of(item) for item in rule.to])
    if EVERYTHING not in rule.on:
        named = [item.partition(":") for item in rule.on]
        yield _any("resource", [("Tag", name) if colon else ("Dataset", kind) for kind, colon, name in named])


def _any(variable: str, entities: list[tuple[str, str]]) -> str:
    """Return that *variable* is, or is in, any of *entities*; sets in Cedar hold one type."""
    parts = []
    for type_ in dict.fromkeys(kind for kind, _ in entities):
        names = [f"{type_}::{quote(name)}" for kind, name in entities if kind == type_]
        parts.append(f"{variable} in {names[0]}" if len(names) == 1 else f"{variable} in [{', '.join(names)}]")
    return parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"


def _conditions(rule: Rule, *, required: bool) -> Iterable[str]:
    if rule.since is not None:
        yield f"context.now >= datetime({quote(time_text(moment(rule.since)))})"
    if rule.until is not None:
        yield f"context.now < datetime({quote(time_text(moment(rule.until)))})"
    for attribute, values in (("region", rule.regions), ("purpose", rule.purposes)):
        if values:
            listed = ", ".join(map(quote, values))
            yield _known(attribute, f"[{listed}].contains(context.{attribute})", required=required)
    if rule.nodes:
        yield _known("node", _any("context.node", [("Node", name) for name in rule.nodes]), required=required)
    if rule.networks:
        ranges = [f"context.source.isInRange(ip({quote(item)}))" for item in rule.networks]
        yield _known("source", _either(ranges), required=required)
    for attribute, wanted in (("mfa", rule.mfa), ("attested", rule.attested)):
        if wanted:
            yield f"context.{attribute}" if required else f"!context.{attribute}"


def _either(tests: list[str]) -> str:
    """Return that any of *tests* holds; halved again and again, because Cedar's nesting is bounded."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return f"({_either(tests[:middle])} || {_either(tests[middle:])})"


def _known(attribute: str, test: str, *, required: bool) -> str:
    return f"context has {attribute} && {test}" if required else f"(if context has {attribute} then {test} else true)"

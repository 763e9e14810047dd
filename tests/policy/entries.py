"""Which service functions the layers above call, and which actions each of them asks the policy for: from the source.

A function asks for an action when it, or a function of the service that it names, calls `authorize` with it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import datasync

ROOT = Path(datasync.__file__).parent
SERVICE = "datasync.service"
LAYERS = ("cli/*.py", "daemon/*.py", "integrations/**/*.py", "service/api.py", "__init__.py")
ASKS = {"authorize": 1, "open_reference": 2}
"""Functions that ask, and where in their call the action stands."""
DEFAULTS = {"open_reference": "ReadMetadata"}
BY_ARGUMENT = "(by argument)"


@dataclass
class Part:
    """One function or class: what of the service it names, and the actions that it asks for itself."""

    names: set[str] = field(default_factory=set)
    actions: set[str] = field(default_factory=set)
    value: bool = False


@cache
def parts() -> dict[str, Part]:
    """Return every function and class of the service by `module.name`."""
    return {name: part for path in sorted((ROOT / "service").glob("*.py")) for name, part in _parts(path.stem, path)}


def _parts(module: str, path: Path) -> Iterator[tuple[str, Part]]:
    tree = ast.parse(path.read_text())
    imported = _imported(tree)
    local = {item.name: f"{module}.{item.name}" for item in tree.body if isinstance(item, _DEFINITIONS)}
    texts = {
        target.id: item.value.value
        for item in tree.body
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
        for target in item.targets
        if isinstance(target, ast.Name)
    }
    for item in tree.body:
        if isinstance(item, _DEFINITIONS):
            yield f"{module}.{item.name}", _part(item, imported | local, texts)


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return what each name of a module means: `module.name` of the service, or `module` for a whole one."""
    found = {}
    for item in ast.walk(tree):
        if isinstance(item, ast.ImportFrom) and (item.module or "").startswith(SERVICE):
            module = (item.module or "").removeprefix(SERVICE).removeprefix(".")
            for name in item.names:
                found[name.asname or name.name] = f"{module}.{name.name}" if module else name.name
    return found


def _part(item: ast.AST, known: dict[str, str], texts: dict[str, str]) -> Part:
    part = Part(value=isinstance(item, ast.ClassDef) and _is_value(item))
    for node in ast.walk(item):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            part.names.add(_meant(node, known))
        if isinstance(node, ast.Call):
            name = _meant(node.func, known).rpartition(".")[2]
            if name in ASKS:
                part.actions |= _actions(node, name, texts)
    return part


def _is_value(item: ast.ClassDef) -> bool:
    """Tell whether a class holds fields: a dataclass, or a frozen struct."""
    made = any("dataclass" in ast.unparse(decorator) for decorator in item.decorator_list)
    return made or any(keyword.arg == "frozen" for keyword in item.keywords)


def _meant(node: ast.AST, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{known.get(node.value.id, '')}.{node.attr}"
    return ""


def _actions(call: ast.Call, name: str, texts: dict[str, str]) -> set[str]:
    if len(call.args) <= ASKS[name]:
        return {DEFAULTS[name]}
    return set(_texts(call.args[ASKS[name]], texts))


def _texts(node: ast.AST, texts: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, texts)
        yield from _texts(node.orelse, texts)
    else:
        yield texts.get(node.id, BY_ARGUMENT) if isinstance(node, ast.Name) else BY_ARGUMENT


def asked_by(entry: str) -> set[str]:
    """Return the actions that *entry* asks for, itself or by what it names; arguments are told by who passes them."""
    seen, found, left = set[str](), set[str](), [entry]
    while left:
        name = left.pop()
        part = parts().get(name)
        if part is None or name in seen:
            continue
        seen.add(name)
        found |= part.actions
        left += part.names if name.rpartition(".")[2] not in ("authorize", "open_reference") else ()
    return found - {BY_ARGUMENT} or found


def entries() -> dict[str, set[str]]:
    """Return every function and class of the service that a layer above names, with the modules that do; values that
    hold fields and do nothing are left out.
    """
    found: dict[str, set[str]] = {}
    for layer in LAYERS:
        for path in sorted(ROOT.glob(layer)):
            tree = ast.parse(path.read_text())
            known = _imported(tree)
            names = {_meant(node, known) for node in ast.walk(tree)} | set(known.values())
            for name in {name for name in names & parts().keys() if not parts()[name].value}:
                found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found

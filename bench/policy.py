"""How fast a policy decides: 1,000 principals, 100 datasets, parsed once; one question at a time and in batches.

python -m bench.policy
"""

import time

from datasync.policy.bundle import parse_bundle
from datasync.policy.decide import PolicyEngine
from datasync.policy.model import ACTIONS, Evidence, Principal, Request

USERS, DATASETS, GROUPS = 1_000, 100, 20
QUESTIONS = 20_000


def bundle() -> str:
    """Return a policy.toml of that size: each group owns some tags, each tenth user has a time-boxed grant."""
    lines = [f'[users.u{n}]\ngroups = ["g{n % GROUPS}"]' for n in range(USERS)]
    lines += [f'[datasets.d{n}]\ntags = ["t{n % GROUPS}"]\nallowed_regions = ["eu"]' for n in range(DATASETS)]
    for n in range(GROUPS):
        lines.append(f'[[grant]]\nid = "g{n}"\nto = ["group:g{n}"]\non = ["tag:t{n}"]\nrole = "writer"')
    for n in range(0, USERS, 10):
        name = f'[[grant]]\nid = "u{n}"\nto = ["u{n}"]\non = ["d{n % DATASETS}"]\nrole = "reader"\nuntil = 2030-01-01'
        lines.append(name)
    return "\n".join(lines)


def main() -> None:
    """Print decisions per second."""
    started = time.perf_counter()
    engine = PolicyEngine(parse_bundle({"policy.toml": bundle()}))
    print(f"{len(engine.statements)} statements parsed and checked in {time.perf_counter() - started:.2f} s")
    evidence = Evidence(1_780_000_000_000, region="eu")
    requests = [
        Request(Principal("user", f"u{n % USERS}"), ACTIONS[n % len(ACTIONS)], f"d{n * 7 % DATASETS}", evidence)
        for n in range(QUESTIONS)
    ]
    started, cpu = time.perf_counter(), time.process_time()
    allowed = sum(engine.decide(request).allow for request in requests)
    wall, used = time.perf_counter() - started, time.process_time() - cpu
    print(
        f"one at a time: {QUESTIONS / wall:,.0f} decisions/s, {QUESTIONS / used:,.0f} per CPU second, {allowed} allowed"
    )
    started, cpu = time.perf_counter(), time.process_time()
    for position in range(0, QUESTIONS, 1_000):
        engine.decide_all(requests[position : position + 1_000])
    wall, used = time.perf_counter() - started, time.process_time() - cpu
    print(f"in batches:    {QUESTIONS / wall:,.0f} decisions/s, {QUESTIONS / used:,.0f} per CPU second")


if __name__ == "__main__":
    main()

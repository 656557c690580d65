"""``[[nodes]]`` tables -> NodeConfig values, and the rules among them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from llmgw_core.catalog.findings import Finding, Findings, Path, Place, closest, listed, quoted
from llmgw_core.catalog.tables import Table
from llmgw_core.config import DataPath, NodeConfig, Reserve

_DEFAULT = NodeConfig("")
_NAME = re.compile(r"\w[\w.-]{0,62}")
_HOST = re.compile(r"[^\s@/-][^\s@/]*")
_USER = re.compile(r"[^\s@:/-][^\s@:/]*")
_JUMP = re.compile(
    r"(?:[^\s@:/,-][^\s@:/,]*@)?"
    r"(?:\[[0-9A-Za-z:.%]+\]|[^\s@:/,\[\]-][^\s@:/,\[\]]*)"
    r"(?::(?P<port>\d{1,5}))?"
)
_PORTS = re.compile(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*")
_LOWEST_PORT, _HIGHEST_PORT = 1024, 65535
_NOT_LOCAL = ("host", "port", "user", "identity_file", "jump")


def parse_nodes(top: Table, engines: Collection[str]) -> tuple[NodeConfig, ...]:
    """All ``[[nodes]]`` of a file, with what is wrong in and among them."""
    entries = top.tables("nodes")
    nodes = [parse_node(raw, ("nodes", index), top.findings, engines) for index, raw in entries]
    top.findings.extend(check_nodes(nodes, [("nodes", index) for index, _ in entries]))
    return tuple(nodes)


def parse_node(
    raw: Mapping[str, object], path: Path, findings: Findings, engines: Collection[str]
) -> NodeConfig:
    """Read one node; what cannot be used is reported and left at its default."""
    written = raw.get("name")
    known = isinstance(written, str) and written.strip() != ""
    last = path[-1]
    name_shown = quoted(str(written)) if known else f"#{last + 1 if isinstance(last, int) else ''}"
    table = Table(raw, Place(path, f"node {name_shown}"), findings)
    name = table.text("name", "")
    if not table.has("name"):
        table.wrong("name", "is missing: every node needs a name of its own")
    elif name and not _NAME.fullmatch(name):
        rule = "letters, digits, dots, dashes and underscores, at most 63, a letter or digit first"
        table.wrong("name", f"may hold {rule}")
    local = table.flag("local")
    host = _matching(table, "host", _HOST, "a host name, an address or an ssh alias")
    node = NodeConfig(
        name=name,
        host=host or ("" if local else name),
        port=table.whole("port", least=1, most=_HIGHEST_PORT),
        user=_matching(table, "user", _USER, "a user's name"),
        identity_file=table.text("identity_file"),
        jump=_jump(table),
        labels=table.mapping("labels"),
        gpu_class=table.text("gpu_class"),
        fabric=table.text("fabric"),
        serve_address=_matching(table, "serve_address", _HOST, "a host name or an address"),
        port_range=_port_range(table),
        reserve=_reserve(table),
        data_path=table.choice("data_path", DataPath.DIRECT),
        local=local,
        state_dir=_state_dir(table),
        engines=_engines(table, engines),
    )
    table.done()
    if local:
        for key in filter(table.has, _NOT_LOCAL):
            table.wrong(key, "does not go with local = true, which is this machine; leave one out")
    return node


def _matching(table: Table, key: str, pattern: re.Pattern[str], what: str) -> str | None:
    value = table.text(key)
    if value is not None and not pattern.fullmatch(value):
        table.wrong(key, f"must be {what}, not {quoted(value)}")
        return None
    return value


def _jump(table: Table) -> str | None:
    jump = table.text("jump")
    match = _JUMP.fullmatch(jump) if jump is not None else None
    if jump is None:
        return None
    if match is None or not 0 < int(match["port"] or 22) <= _HIGHEST_PORT:
        form = "another node's name or [user@]host[:port]"
        table.wrong("jump", f"must be {form}, not {quoted(jump)}")
        return None
    return jump


def _port_range(table: Table) -> tuple[int, int]:
    default = _DEFAULT.port_range
    table.asked.append("port_range")
    value = table.raw.get("port_range")
    if value is None:
        return default
    ends: list[object] = list(value) if isinstance(value, list) else []
    if isinstance(value, str) and (match := _PORTS.fullmatch(value)):
        ends = [int(match[1]), int(match[2])]
    match ends:
        case [int(low), int(high)] if _LOWEST_PORT <= low <= high <= _HIGHEST_PORT:
            return (low, high)
        case [int(low), int(high)] if not isinstance(low, bool) and low > high:
            table.wrong("port_range", "ends before it begins")
        case [int(), int()]:
            table.wrong("port_range", f"must lie between {_LOWEST_PORT} and {_HIGHEST_PORT}")
        case _:
            table.wrong("port_range", 'must be two ports, as [18000, 18999] or "18000-18999"')
    return default


def _reserve(table: Table) -> Reserve:
    inner = table.table("reserve")
    reserve = Reserve(memory_gb=inner.number("memory_gb", 0.0), cores=inner.number("cores", 0.0))
    inner.done()
    return reserve


def _state_dir(table: Table) -> str | None:
    state_dir = table.text("state_dir")
    if state_dir is not None and not state_dir.startswith(("/", "~", "$HOME/")):
        table.wrong("state_dir", "must be an absolute path on the node, or begin with ~/")
    return state_dir


def _engines(table: Table, known: Collection[str]) -> dict[str, str]:
    engines = table.mapping("engines")
    for name, path in engines.items():
        if name not in known:
            hint = closest(name, known) or f"; the engines are {listed(sorted(known))}"
            table.report("engines", f"engine {quoted(name)} is unknown{hint}")
        elif not path.strip():
            table.wrong("engines", f"must give {name} the path of a program")
    return engines


def check_nodes(nodes: Sequence[NodeConfig], paths: Sequence[Path]) -> Iterator[Finding]:
    """Names are unique, and every jump leads out of the configuration or through it once."""
    first: dict[str, NodeConfig] = {}
    for node, path in zip(nodes, paths, strict=True):
        place = Place(path, f"node {quoted(node.name)}")
        if node.name and node.name in first:
            text = "it is declared twice"
            yield Finding(text, place.at("name"), "name")
        first.setdefault(node.name, node)
    for node, path in zip(nodes, paths, strict=True):
        wrong = _jump_problem(node, first)
        if wrong is not None:
            place = Place(path, f"node {quoted(node.name)}")
            yield Finding(wrong, place.at("jump"), "jump")


def _jump_problem(node: NodeConfig, by_name: Mapping[str, NodeConfig]) -> str | None:
    if node.jump is None or node.jump not in by_name:
        return None
    if node.jump == node.name:
        return "jump names the node itself"
    if by_name[node.jump].local:
        return f"jump names {quoted(node.jump)}, which is this machine; leave jump out"
    passed = [node.name]
    step: NodeConfig | None = node
    while step is not None and step.jump is not None:
        if step.jump in passed:
            return f"jump goes in a circle: {' → '.join([*passed, step.jump])}"
        passed.append(step.jump)
        step = by_name.get(step.jump)
    return None

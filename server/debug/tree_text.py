"""The tree in outline for terminals, and for Graphviz."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_TEXT_WIDTH = 60


def as_text(nodes: Sequence[Mapping[str, Any]]) -> str:
    """A line for each node, indented by its depth; control characters are escaped."""
    children = _children(nodes)
    lines: list[str] = []
    todo = [(node, 0) for node in reversed(children.get(None, []))]
    while todo:
        node, depth = todo.pop()
        lines.append("  " * depth + _line(node))
        if node["folded"] is not None:
            lines.append("  " * (depth + 1) + _folded(node["folded"]))
        todo.extend((child, depth + 1) for child in reversed(children.get(node["id"], [])))
    return "\n".join(lines) + "\n"


def as_dot(nodes: Sequence[Mapping[str, Any]]) -> str:
    """A graph in Graphviz's language."""
    lines = ["digraph prefixes {", "  rankdir=LR; node [shape=box, fontname=monospace];"]
    for node in nodes:
        style = ' style="dashed"' if node["tokens"] and not node["blocks"] else ""
        lines.append(f'  "{node["id"]}" [label={_quoted(_line(node))}{style}];')
        if node["parent"] is not None:
            lines.append(f'  "{node["parent"]}" -> "{node["id"]}";')
        if node["folded"] is not None:
            lines.append(f'  "{node["id"]}f" [label={_quoted(_folded(node["folded"]))}];')
            lines.append(f'  "{node["id"]}" -> "{node["id"]}f" [style=dotted];')
    return "\n".join([*lines, "}"]) + "\n"


def name_of(namespace: Mapping[str, Any]) -> str:
    """A namespace in a few words."""
    tenant = namespace["tenant"]
    words = ["nobody's in particular" if tenant is None else f"tenant {tenant}"]
    words += ["salted"] if namespace["salted"] else []
    words += [f"adapter {namespace['adapter']}"] if namespace["adapter"] else []
    words += [f"weights {namespace['weights']}"] if namespace["weights"] else []
    return ", ".join(words)


def _line(node: Mapping[str, Any]) -> str:
    if node["parent"] is None:
        return "root"
    if node["namespace"] is not None:
        return f"namespace: {name_of(node['namespace'])}"
    marks = []
    if node["ghost_tokens"]:
        marks.append(f"{node['ghost_tokens']} evicted")
    if node["in_flight_blocks"]:
        marks.append(f"{node['in_flight_blocks']} blocks in flight")
    if node["locks"]:
        marks.append(f"{node['locks']} locks")
    if node["hits"]:
        marks.append(f"{node['hits']} hits")
    if node["retained"]:
        marks.append("retained")
    if node["victim"]:
        marks.append(f"victim {node['victim']}")
    told = f"{node['tokens']} tokens"
    shown = f" {_printable(node['text'])}" if node["text"] else ""
    return f"{told}{' (' + ', '.join(marks) + ')' if marks else ''}{shown}"


def _folded(fold: Mapping[str, Any]) -> str:
    more = " or more" if fold["at_least"] else ""
    return f"... {fold['nodes']} others, {fold['tokens']} tokens{more}"


def _printable(text: str) -> str:
    """As JSON writes it, so that nothing a prompt holds moves a terminal's cursor."""
    short = text if len(text) <= _TEXT_WIDTH else text[:_TEXT_WIDTH] + "\N{HORIZONTAL ELLIPSIS}"
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in short)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _children(
    nodes: Sequence[Mapping[str, Any]],
) -> dict[str | None, list[Mapping[str, Any]]]:
    found: dict[str | None, list[Mapping[str, Any]]] = {}
    for node in nodes:
        found.setdefault(node["parent"], []).append(node)
    return found

"""YAML nodes → JSON values, with the environment's variables put in.

Anchors, aliases and merge keys work, tags do not, and what a file may expand to is bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

import yaml

from workflow_bridge.adapter import Json
from workflow_bridge.config.document import Document, Mark
from workflow_bridge.config.issues import KeyPath

TAG = "tag:yaml.org,2002:"

_MOST_VALUES = 100_000
_DEEPEST = 100
_VARIABLE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-[^{}]*)?\})?")


class Excess(Exception):
    """The file expands to more than anybody writes on purpose."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        super().__init__(message)
        self.mark = _mark(node)
        self.message = message


class Reading:
    """Turns composed nodes into data, filling the maps of one document."""

    def __init__(self, document: Document, env: Mapping[str, str]) -> None:
        self._document = document
        self._env = env
        self._open: set[int] = set()
        self._values = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Json:
        """Return the value of a node. Raises `Excess`."""
        self._count(node)
        self._document.values[path] = _mark(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
                return [self.value(item, (*path, n)) for n, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
                return self._mapping(node, path)
        finally:
            self._open.discard(id(node))
        return self._refused(path, f"has a tag ({_short(node.tag)}); tags are not supported")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> Json:
        data: dict[str, Json] = {}
        for key, value, merged in self._entries(node, path):
            if not isinstance(key, yaml.ScalarNode) or key.tag != TAG + "str":
                self._document.keys[(*path, "?")] = _mark(key)
                message = "a key must be text: put it in quotes"
                self._document.report((*path, "?"), message, at_key=True)
                continue
            name = key.value
            if name in data:
                if not merged:
                    first = self._document.keys[(*path, name)]
                    self._document.keys[(*path, name)] = _mark(key)
                    message = f"appears twice in this mapping; first on line {first.line}"
                    self._document.report((*path, name), message, at_key=True)
                    self._document.keys[(*path, name)] = first
                continue
            if not _is_unicode(name):
                self._document.report(path, "a key holds half of a surrogate pair")
                continue
            self._document.keys[(*path, name)] = _mark(key)
            data[name] = self.value(value, (*path, name))
        return data

    def _entries(
        self, node: yaml.MappingNode, path: KeyPath
    ) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """The mapping's own entries first, so that they win over merged ones."""
        merges: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == TAG + "merge":
                merges.extend(value.value if isinstance(value, yaml.SequenceNode) else [value])
            else:
                yield key, value, False
        for merge in merges:
            if not isinstance(merge, yaml.MappingNode):
                self._refused(path, "`<<` takes an alias of a mapping, or a list of them")
            else:
                self._count(merge)
                self._open.add(id(merge))
                for key, value, _ in self._entries(merge, path):
                    self._count(value)
                    yield key, value, True
                self._open.discard(id(merge))

    def _count(self, node: yaml.Node) -> None:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise Excess(node, f"expands to more than {_MOST_VALUES:,} values")
        if len(self._open) > _DEEPEST:
            raise Excess(node, f"is nested more than {_DEEPEST} levels deep")
        if id(node) in self._open:
            raise Excess(node, "has an anchor that contains itself")

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Json:
        text: str = node.value
        read = _SCALARS.get(node.tag.removeprefix(TAG))
        if read is None:
            return self._refused(path, f"has a tag ({_short(node.tag)}); tags are not supported")
        try:
            value = read(text)
        except (KeyError, ValueError, OverflowError):
            return self._refused(path, "is not the number or word that its form says")
        if isinstance(value, float) and not math.isfinite(value):
            return self._refused(path, "is too large a number")
        return self._expanded(text, path) if isinstance(value, str) else value

    def _expanded(self, text: str, path: KeyPath) -> Json:
        names: list[str] = []
        problems: list[str] = []

        def expand(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(2)
            if match.group() == "$${":
                return "${"
            if name is None:
                problems.append("has a `${` that is no ${NAME} or ${NAME:-default}; write $${")
                return ""
            value = self._env.get(name)
            if default is not None and not value:
                return default[2:]
            if value is None:
                problems.append(f"the environment variable {name} is not set")
                return ""
            if not _is_unicode(value):
                problems.append(f"the environment variable {name} is not UTF-8")
            names.append(name)
            return value

        expanded = _VARIABLE.sub(expand, text)
        if not problems and not _is_unicode(expanded):
            problems.append("holds half of a surrogate pair")
        if problems:
            for problem in dict.fromkeys(problems):
                self._document.report(path, problem)
            self._document.broken.add(path)
            return None
        if names:
            self._document.variables[path] = tuple(dict.fromkeys(names))
        return expanded

    def _refused(self, path: KeyPath, message: str) -> Json:
        """Note the issue, and let null stand in for the value."""
        self._document.report(path, message)
        self._document.broken.add(path)
        return None


def _integer(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text, 10)


_SCALARS: dict[str, Callable[[str], Json]] = {
    "str": str,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda _: None,
    "int": _integer,
    "float": float,
    "merge": str,
}


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _short(tag: str) -> str:
    return "!!" + tag.removeprefix(TAG)[:40] if tag.startswith(TAG) else tag[:40]


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)

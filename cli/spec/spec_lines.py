"""Positions of a job spec's fields in its text."""

import yaml


class Lines:
    """Lines of a YAML or JSON document by dotted field, as in `training.steps`."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        # YAML knows no tabs between tokens, JSON does; they move no line.
        text = text.replace("\t", " ")
        try:
            root = yaml.compose(text, Loader=yaml.CSafeLoader)
        except (yaml.YAMLError, RecursionError):
            return
        if root is not None:
            self._visit(root, "")

    def of(self, field: str) -> int | None:
        """Return a field's line, counted from 1, or that of the nearest mapping around it."""
        while field:
            if field in self._lines:
                return self._lines[field]
            field = field.rpartition(".")[0]
        return None

    def _visit(self, node: yaml.Node, path: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    self._enter(value, path, key.value, key.start_mark.line)
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                self._enter(value, path, str(i), value.start_mark.line)

    def _enter(self, value: yaml.Node, path: str, name: str, line: int) -> None:
        inner = f"{path}.{name}" if path else name
        self._lines[inner] = line + 1
        self._visit(value, inner)

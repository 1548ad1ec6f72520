"""What stands below the fields of a model, in its source.

pydantic would find it too (`use_attribute_docstrings`), but whenever a class is made, and takes
25 ms over it that `serve` has no use for.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field that has one; none if the source is not at hand."""
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except (OSError, TypeError):
        return {}
    found: dict[str, str] = {}
    (made,) = ast.parse(source).body
    for field, below in pairwise(made.body if isinstance(made, ast.ClassDef) else ()):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = inspect.cleandoc(words)
    return found

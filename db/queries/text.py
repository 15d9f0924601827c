"""SQL of text that differs between SQLite and Postgres."""

from typing import Any

from sqlalchemy import ColumnElement, Integer, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class Position(FunctionElement[int]):
    """Number of the character at which a text first has another one, from 1; 0: nowhere."""

    type = Integer()
    name = "position_of_text"
    inherit_cache = True

    def __init__(self, text: ColumnElement[str], part: ColumnElement[str]) -> None:
        super().__init__(text, part)


# SQLite's is also what a statement without a dialect renders, in a log or a test.
@compiles(Position)
def _sqlite_position(element: Position, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(func.instr(*element.clauses), **options)


@compiles(Position, "postgresql")
def _postgres_position(element: Position, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(func.strpos(*element.clauses), **options)

"""`trainhall schema`: the job spec's JSON Schema, for editors."""

from trainhall.cli.base.options import Format
from trainhall.cli.base.output import rendered


def schema() -> None:
    """Print the JSON Schema of the job spec, for editors.

    Editors with a YAML language server check and complete a spec that begins with
    # yaml-language-server: $schema=job.schema.json

    \b
    Examples:
      trainhall schema > job.schema.json
    """
    from trainhall.training.spec.schema import editor_schema

    print(rendered(editor_schema(), Format.JSON))

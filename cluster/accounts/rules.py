"""Rules that give rights by the groups of an OpenID provider; imports nothing of the database."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from trainhall.cluster.access.names import MAX_NAME, composed, new_name
from trainhall.cluster.access.roles import Role


class Rule(BaseModel):
    """One right of the members of a provider's group.

    It makes them admins, or members of a group here, or gives them a role in a project.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: Annotated[str, Field(min_length=1, max_length=1024)]
    """Group of the provider, as in the claim."""
    admin: Literal[True] | None = None
    member_of: Annotated[str, AfterValidator(new_name)] | None = None
    """Group here. It is made if there is none."""
    project: Annotated[str, Field(min_length=1), AfterValidator(composed)] | None = None
    role: Role | None = None
    """Their role in `project`."""

    @model_validator(mode="after")
    def _one_right(self) -> Self:
        if (self.project is None) != (self.role is None):
            raise ValueError("project and role need each other")
        if sum(each is not None for each in (self.admin, self.member_of, self.project)) != 1:
            raise ValueError("a rule gives one of: admin = true, member_of, project with role")
        if len(self.local_group or "") > MAX_NAME:
            raise ValueError("the name of the project is too long for a rule; use member_of")
        return self

    @property
    def local_group(self) -> str | None:
        """Group here whose members have the right; None: the right is none of a group."""
        if self.project is not None:
            return f"oidc-{self.role}-of-{self.project}"
        return self.member_of

"""Rules that give rights by the groups of an OpenID provider; imports nothing of the database."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainhall.cluster.access.roles import Role

Text = Annotated[str, Field(min_length=1, max_length=128)]


class Rule(BaseModel):
    """One right of the members of a provider's group.

    It makes them admins, or members of a group here, or gives them a role in a project.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: Annotated[str, Field(min_length=1, max_length=1024)]
    """Group of the provider, as in the claim."""
    admin: Literal[True] | None = None
    member_of: Text | None = None
    """Group here. It is made if there is none."""
    project: Text | None = None
    role: Role | None = None
    """Their role in `project`."""

    @model_validator(mode="after")
    def _one_right(self) -> Self:
        if (self.project is None) != (self.role is None):
            raise ValueError("project and role need each other")
        if sum(each is not None for each in (self.admin, self.member_of, self.project)) != 1:
            raise ValueError("a rule gives one of: admin = true, member_of, project with role")
        return self

    @property
    def local_group(self) -> str | None:
        """Group here whose members have the right; None: the right is none of a group."""
        if self.project is not None:
            return f"oidc-{self.role}-of-{self.project}"
        return self.member_of

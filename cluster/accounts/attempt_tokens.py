"""API tokens of attempts: with one a job uses the API by itself, as its owner, in its project.

The node that runs an attempt asks for it, so the launch of the attempt, which is stored and sent
again and again, has none. It is valid as long as the attempt is: `lookup` asks for that with each
request, so nothing has to end it.
"""

from datetime import datetime

from sqlalchemy import delete, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access import audit
from trainhall.cluster.accounts.secrets import sha256, token_of
from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES
from trainhall.cluster.service import Service, load
from trainhall.db.accounts import ApiToken, AuditEntry, User
from trainhall.db.models import Attempt, Job

IS_ACTIVE = exists().where(
    Attempt.job_id == ApiToken.job_id,
    Attempt.number == ApiToken.attempt,
    Attempt.revoked.is_(False),
    Attempt.state.in_([state.value for state in ACTIVE_ATTEMPT_STATES]),
)
"""True of a token whose attempt is neither over nor fenced off."""


class AttemptTokens(Service):
    async def issue(self, node_id: str, job_id: str, attempt: int) -> str:
        """Return a new token for the ranks of an attempt on a node, in place of an earlier one.

        Raises:
            ConflictError: the job asks for none, the attempt is over, or its owner has no account.
            NotFoundError: there is no such attempt.
        """
        async with self._db.transaction() as session:
            job = await load(session, Job, job_id)
            found = await session.get(Attempt, (job_id, attempt))
            if found is None:
                raise NotFoundError("attempt", f"{attempt} of job {job_id}")
            role = (found.spec or job.spec).get("api_token")
            if role is None:
                raise ConflictError(f"the spec of job {job_id} has no api_token")
            if found.revoked or found.state not in ACTIVE_ATTEMPT_STATES:
                raise ConflictError(f"attempt {attempt} of job {job_id} is over")
            owner = await _owner(session, job)
            token = token_of(self._ids.secret())
            now = self._clock.now()
            row = await session.scalar(
                select(ApiToken)
                .where(
                    ApiToken.job_id == job_id,
                    ApiToken.attempt == attempt,
                    ApiToken.node_id == node_id,
                )
                .with_for_update()
            )
            if row is None:
                row = ApiToken(
                    id=self._ids.new(), sha256="", user_id=owner.id, created_at=now,
                    name=f"attempt {attempt} of job {job_id}", project=job.project, role=role,
                    job_id=job_id, attempt=attempt, node_id=node_id,
                )  # fmt: skip
                session.add(row)
                session.add(_audited(row, owner.name, now))
            # A node that asks again has lost the answer.
            row.sha256 = sha256(token)
        return token

    async def sweep(self) -> None:
        """Delete the tokens of attempts that are over."""
        async with self._db.transaction() as session:
            await session.execute(delete(ApiToken).where(ApiToken.job_id.is_not(None), ~IS_ACTIVE))


async def _owner(session: AsyncSession, job: Job) -> User:
    known = select(User).where(User.name == job.user, User.removed_at.is_(None))
    # Not removed before the token is there, which a restore would bring back to life.
    owner = await session.scalar(known.with_for_update(key_share=True))
    if owner is None:
        raise ConflictError(
            f"{job.user or 'nobody'}, the owner of job {job.id}, has no account, for which an API "
            "token could speak; submit the job without api_token, or as a user"
        )
    return owner


def _audited(row: ApiToken, owner: str, now: datetime) -> AuditEntry:
    changes = {name: (None, getattr(row, name)) for name in ("name", "project", "role")}
    entry = audit.entry(
        None, "token.create", now, row.id, row.project, audit.DONE,
        f"for {row.name}, whose spec asks for it", changes,
    )  # fmt: skip
    entry.user, entry.how, entry.credential = owner, "node", row.node_id
    return entry

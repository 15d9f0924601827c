"""the first tables"""

from functools import partial

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Constraints without a name get it by the naming convention of the models.
ID = sa.String(32)
TIME = sa.BigInteger()
BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OF_JOB = partial(sa.ForeignKey, "jobs.id", ondelete="CASCADE")
OF_NODE = partial(sa.ForeignKey, "nodes.id", ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", ID, primary_key=True),
        sa.Column("number", BIGINT, nullable=False, unique=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("code", sa.String(64)),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("reason_code", sa.String(48), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("world_size", sa.Integer, nullable=False),
        sa.Column("sizes", sa.JSON),
        sa.Column("restarts", sa.Integer, nullable=False),
        sa.Column("restarts_step", BIGINT, nullable=False),
        sa.Column("pauses_after", BIGINT, nullable=False),
        sa.Column("plan", sa.JSON),
        sa.Column("measured_on", sa.String(128)),
        sa.Column("restore_checkpoint_id", ID),
        sa.Column("archived", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("queued_at", TIME, nullable=False),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
    )
    op.create_index("ix_jobs_code", "jobs", ["code"])
    op.create_index("ix_jobs_measured_on", "jobs", ["measured_on"])
    op.create_index("ix_jobs_state", "jobs", ["state", "archived", "number"])
    op.create_table(
        "deleted_jobs",
        sa.Column("job_id", ID, primary_key=True),
    )
    op.create_table(
        "orphaned_checkpoints",
        sa.Column("location", sa.Text, primary_key=True),
        sa.Column("allocation", sa.JSON, nullable=False),
    )
    op.create_table(
        "nodes",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.String(128), nullable=False, unique=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("state_at", TIME, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("reason_code", sa.String(48), nullable=False),
        sa.Column("drain_reason", sa.Text),
        sa.Column("faults_counted_from", TIME),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("address", sa.String(255), nullable=False),
        sa.Column("agent_version", sa.String(64)),
        sa.Column("join_token_sha256", sa.String(64), unique=True),
        sa.Column("join_expires_at", TIME),
        sa.Column("credential_sha256", sa.String(64), unique=True),
        sa.Column("host_use", sa.JSON, nullable=False),
        sa.Column("removing", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("last_seen_at", TIME),
    )
    op.create_index("ix_nodes_state", "nodes", ["state"])
    op.create_table(
        "node_events",
        sa.Column("id", BIGINT, primary_key=True, autoincrement=True),
        sa.Column("node_id", ID, OF_NODE(), nullable=False),
        sa.Column("time", TIME, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("code", sa.String(48), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_index("ix_node_events_node_id_id", "node_events", ["node_id", "id"])
    op.create_table(
        "removed_nodes",
        sa.Column("credential_sha256", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("removed_at", TIME, nullable=False),
    )
    op.create_table(
        "package_sets",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("python", sa.String(32), nullable=False),
        sa.Column("os", sa.String(256), nullable=False),
        sa.Column("cuda", sa.String(32)),
        sa.Column("driver", sa.String(32)),
        sa.Column("packages", sa.JSON, nullable=False),
    )
    op.create_table(
        "attempts",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("reason_code", sa.String(48), nullable=False),
        sa.Column("goal", sa.String(8), nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
        sa.Column("world_size", sa.Integer, nullable=False),
        sa.Column("allocation", sa.JSON, nullable=False),
        sa.Column("checkpoint_plan", sa.JSON, nullable=False),
        sa.Column("isolation_seconds", sa.Double),
        sa.Column("in_place", sa.Boolean, nullable=False),
        sa.Column("spec", sa.JSON),
        sa.Column("generations", sa.JSON, nullable=False),
        sa.Column("planning", sa.Boolean, nullable=False),
        sa.Column("rendezvous", sa.JSON),
        sa.Column("node_outcomes", sa.JSON, nullable=False),
        sa.Column("first_step", BIGINT),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("running_at", TIME),
        sa.Column("stopping_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("failure", sa.JSON),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("gpus_since", TIME),
        sa.Column("gpu_seconds", sa.Double, nullable=False),
        sa.Column("began", sa.JSON, nullable=False),
        sa.Column("asks_to_stop", sa.Boolean, nullable=False),
        sa.Column("package_set", sa.String(64), sa.ForeignKey("package_sets.sha256")),
    )
    op.create_index("ix_attempts_state_finished_at", "attempts", ["state", "finished_at"])
    op.create_index("ix_attempts_package_set", "attempts", ["package_set"])
    op.create_table(
        "checkpoints",
        sa.Column("id", ID, primary_key=True),
        sa.Column("job_id", ID, OF_JOB(), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("step", BIGINT, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("size", BIGINT, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("pinned", sa.Boolean, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.UniqueConstraint("job_id", "name"),
    )
    op.create_index("ix_checkpoints_job_id_step", "checkpoints", ["job_id", "step"])
    op.create_index(
        "ix_checkpoints_deleting",
        "checkpoints",
        ["job_id"],
        sqlite_where=sa.text("state = 'deleting'"),
        postgresql_where=sa.text("state = 'deleting'"),
    )
    op.create_table(
        "devices",
        sa.Column("node_id", ID, OF_NODE(), primary_key=True),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("uuid", sa.String(128)),
        sa.Column("gone", sa.Boolean, nullable=False),
        sa.Column("memory_total", BIGINT, nullable=False),
        sa.Column("memory_used", BIGINT),
        sa.Column("utilization", sa.Double),
        sa.Column("temperature", sa.Double),
        sa.Column("power", sa.Double),
    )
    op.create_table(
        "events",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("seq", BIGINT, primary_key=True),
        sa.Column("time", TIME, nullable=False),
        sa.Column("kind", ID, nullable=False),
        sa.Column("code", sa.String(48), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer),
        sa.Column("data", sa.JSON, nullable=False),
    )
    op.create_table(
        "job_progress",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("stream_seq", BIGINT, nullable=False),
        sa.Column("stream_trimmed", BIGINT, nullable=False),
        sa.Column("step", BIGINT, nullable=False),
        sa.Column("total_steps", BIGINT),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("ranges", sa.JSON, nullable=False),
        sa.Column("log_bytes", BIGINT, nullable=False),
    )
    op.create_table(
        "log_chunks",
        sa.Column("job_id", ID, primary_key=True),
        sa.Column("seq", BIGINT, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("stream", sa.String(8), nullable=False),
        sa.Column("offset", BIGINT, nullable=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("time", TIME, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("superseded", sa.Boolean, nullable=False),
        sa.UniqueConstraint("job_id", "attempt", "rank", "stream", "offset"),
    )
    op.create_index("ix_log_chunks_rank", "log_chunks", ["job_id", "rank", "seq"])
    op.create_table(
        "log_streams",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("stream", sa.String(8), primary_key=True),
        sa.Column("length", BIGINT, nullable=False),
        sa.Column("sources", sa.JSON, nullable=False),
        sa.Column("newest_source", ID, nullable=False),
        sa.Column("carry", sa.LargeBinary, nullable=False),
        sa.Column("carry_at", TIME),
    )
    op.create_index("ix_log_streams_carry_at", "log_streams", ["carry_at"])
    op.create_table(
        "metric_frames",
        sa.Column("job_id", ID, primary_key=True),
        sa.Column("seq", BIGINT, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("tables", sa.Integer, nullable=False),
        sa.Column("superseded", sa.Boolean, nullable=False),
        sa.Column("packed", sa.Boolean, nullable=False),
    )
    op.create_index(
        "ix_metric_frames_raw",
        "metric_frames",
        ["job_id", "seq"],
        sqlite_where=sa.text("packed IS 0"),
        postgresql_where=sa.text("packed IS false"),
    )
    op.create_table(
        "series",
        sa.Column("id", BIGINT, primary_key=True, autoincrement=True),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("superseded", sa.Boolean, nullable=False),
        sa.Column("points", BIGINT, nullable=False),
        sa.Column("last_step", BIGINT, nullable=False),
        sa.Column("ordered", sa.Boolean, nullable=False),
        sa.UniqueConstraint("job_id", "attempt", "rank", "name", "superseded"),
    )
    op.create_table(
        "writers",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("metric_sequence", BIGINT, nullable=False),
        sa.Column("event_sequence", BIGINT, nullable=False),
    )
    op.create_table(
        "grants",
        sa.Column("node_id", ID, primary_key=True),
        sa.Column("device_index", sa.Integer, primary_key=True),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "attempt"], ["attempts.job_id", "attempts.number"], ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["node_id", "device_index"], ["devices.node_id", "devices.index"], ondelete="CASCADE"
        ),
    )
    op.create_index("ix_grants_job_id_attempt", "grants", ["job_id", "attempt"])
    op.create_table(
        "metric_chunks",
        sa.Column(
            "series_id", BIGINT, sa.ForeignKey("series.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("level", sa.Integer, primary_key=True),
        sa.Column("index", BIGINT, primary_key=True),
        sa.Column("last_step", BIGINT, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_metric_chunks_step", "metric_chunks", ["series_id", "level", "last_step"])
    op.create_table(
        "device_readings",
        sa.Column("node_id", ID, OF_NODE(), primary_key=True),
        sa.Column("time", TIME, primary_key=True),
        sa.Column("devices", sa.JSON, nullable=False),
    )
    op.create_index("ix_device_readings_time", "device_readings", ["time"])
    op.create_table(
        "job_commits",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("url", sa.String(1024), nullable=False),
        sa.Column("ref", sa.String(255), nullable=False),
        sa.Column("commit", sa.String(64), nullable=False),
        sa.Column("node", sa.String(128), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("pinned_at", TIME, nullable=False),
    )
    op.create_table(
        "locked_environments",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("python", sa.String(16), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("torch", sa.String(8), nullable=False),
        sa.Column("image", sa.Text),
        sa.Column("requirements", sa.Text, nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("packages", sa.Integer, nullable=False),
        sa.Column("node", sa.String(128), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("locked_at", TIME, nullable=False),
    )
    op.create_table(
        "data_fingerprints",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("is_partial", sa.Boolean, nullable=False),
        sa.Column("node", sa.String(128), nullable=False),
        sa.Column("prepared_at", TIME, nullable=False),
    )
    op.create_table(
        "queue_positions",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("since", TIME, primary_key=True),
        sa.Column("until", TIME),
        sa.Column("position", sa.Integer, nullable=False),
    )
    op.create_index(
        "ix_queue_positions_present", "queue_positions", ["job_id"],
        sqlite_where=sa.text("until IS NULL"), postgresql_where=sa.text("until IS NULL"),
    )  # fmt: skip
    op.create_table(
        "gradient_requests",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("asked", BIGINT, nullable=False),
        sa.Column("answered", BIGINT, nullable=False),
    )
    op.create_table(
        "gradient_records",
        sa.Column("job_id", ID, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("step", BIGINT, primary_key=True),
        sa.Column("time", TIME, nullable=False),
        sa.Column("request", BIGINT, nullable=False),
        sa.Column("columns", sa.LargeBinary, nullable=False),
        sa.Column("histograms", sa.LargeBinary),
    )
    op.create_table(
        "outputs",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("path", sa.String(1024), primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("size", BIGINT, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("modified_at", TIME, nullable=False),
        sa.Column("stored_at", TIME, nullable=False),
    )
    op.create_table(
        "profiles",
        sa.Column("job_id", ID, OF_JOB(), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("ranks", sa.JSON, nullable=False),
        sa.Column("stacks", sa.Boolean, nullable=False),
        sa.Column("memory", sa.Boolean, nullable=False),
        sa.Column("asked_by", sa.String(128)),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("first_step", BIGINT),
        sa.Column("results", sa.JSON, nullable=False),
        sa.Column("ended_at", TIME),
    )
    op.create_table(
        "coordinator_lease",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("renewals", BIGINT, nullable=False),
        sa.Column("location", sa.Text, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first tables")

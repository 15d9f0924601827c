"""the first tables"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.String(length=48), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("sizes", sa.JSON(), nullable=True),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column(
            "restarts_step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("plan", sa.JSON(), nullable=True),
        sa.Column("measured_on", sa.String(length=128), nullable=True),
        sa.Column("restore_checkpoint_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("queued_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("number", name=op.f("uq_jobs_number")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_code"), ["code"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_measured_on"), ["measured_on"], unique=False)
        batch_op.create_index("ix_jobs_state_number", ["state", "number"], unique=False)

    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("state_at", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.String(length=48), nullable=False),
        sa.Column("drain_reason", sa.Text(), nullable=True),
        sa.Column("faults_counted_from", sa.BigInteger(), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("agent_version", sa.String(length=64), nullable=True),
        sa.Column("join_token_sha256", sa.String(length=64), nullable=True),
        sa.Column("join_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("credential_sha256", sa.String(length=64), nullable=True),
        sa.Column("host_use", sa.JSON(), nullable=False),
        sa.Column("removing", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("credential_sha256", name=op.f("uq_nodes_credential_sha256")),
        sa.UniqueConstraint("join_token_sha256", name=op.f("uq_nodes_join_token_sha256")),
        sa.UniqueConstraint("name", name=op.f("uq_nodes_name")),
    )
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_nodes_state"), ["state"], unique=False)

    op.create_table(
        "node_events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_node_events_node_id_nodes"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_events")),
    )
    op.create_index("ix_node_events_node_id_id", "node_events", ["node_id", "id"], unique=False)

    op.create_table(
        "removed_nodes",
        sa.Column("credential_sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("credential_sha256", name=op.f("pk_removed_nodes")),
    )

    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.String(length=48), nullable=False),
        sa.Column("goal", sa.String(length=8), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("allocation", sa.JSON(), nullable=False),
        sa.Column("checkpoint_plan", sa.JSON(), nullable=False),
        sa.Column("isolation_seconds", sa.Double(), nullable=True),
        sa.Column("in_place", sa.Boolean(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=True),
        sa.Column("generations", sa.JSON(), nullable=False),
        sa.Column("planning", sa.Boolean(), nullable=False),
        sa.Column("rendezvous", sa.JSON(), nullable=True),
        sa.Column("node_outcomes", sa.JSON(), nullable=False),
        sa.Column(
            "first_step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True
        ),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("running_at", sa.BigInteger(), nullable=True),
        sa.Column("stopping_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("failure", sa.JSON(), nullable=True),
        sa.Column("began", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_attempts")),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index(
            "ix_attempts_state_finished_at", ["state", "finished_at"], unique=False
        )

    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("job_id", "name", name=op.f("uq_checkpoints_job_id")),
    )
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.create_index("ix_checkpoints_job_id_step", ["job_id", "step"], unique=False)
        batch_op.create_index(
            "ix_checkpoints_deleting",
            ["job_id"],
            unique=False,
            sqlite_where=sa.text("state = 'deleting'"),
            postgresql_where=sa.text("state = 'deleting'"),
        )

    op.create_table(
        "devices",
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("uuid", sa.String(length=128), nullable=True),
        sa.Column("gone", sa.Boolean(), nullable=False),
        sa.Column(
            "memory_total", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column(
            "memory_used", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True
        ),
        sa.Column("utilization", sa.Double(), nullable=True),
        sa.Column("temperature", sa.Double(), nullable=True),
        sa.Column("power", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_devices_node_id_nodes"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_id", "index", name=op.f("pk_devices")),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("code", sa.String(length=48), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
            name=op.f("fk_idempotency_keys_job_id_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "job_progress",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column(
            "stream_seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column(
            "stream_trimmed", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "total_steps", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True
        ),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_progress_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_progress")),
    )
    op.create_table(
        "log_chunks",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("stream", sa.String(length=8), nullable=False),
        sa.Column("offset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("void", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_log_chunks_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_log_chunks")),
        sa.UniqueConstraint(
            "job_id", "attempt", "rank", "stream", "offset", name=op.f("uq_log_chunks_job_id")
        ),
    )
    with op.batch_alter_table("log_chunks", schema=None) as batch_op:
        batch_op.create_index("ix_log_chunks_rank", ["job_id", "rank", "seq"], unique=False)

    op.create_table(
        "log_streams",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("stream", sa.String(length=8), nullable=False),
        sa.Column("length", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("sources", sa.JSON(), nullable=False),
        sa.Column("newest_source", sa.String(length=32), nullable=False),
        sa.Column("carry", sa.LargeBinary(), nullable=False),
        sa.Column("carried_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_log_streams_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "rank", "stream", name=op.f("pk_log_streams")),
    )
    op.create_index(op.f("ix_log_streams_carried_at"), "log_streams", ["carried_at"], unique=False)
    op.create_table(
        "metric_frames",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("tables", sa.Integer(), nullable=False),
        sa.Column("void", sa.Boolean(), nullable=False),
        sa.Column("packed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_metric_frames_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_metric_frames")),
    )
    op.create_index(
        "ix_metric_frames_raw",
        "metric_frames",
        ["job_id", "seq"],
        unique=False,
        sqlite_where=sa.text("packed IS 0"),
        postgresql_where=sa.text("packed IS false"),
    )

    op.create_table(
        "series",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("void", sa.Boolean(), nullable=False),
        sa.Column("points", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "last_step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("ordered", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_series_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint(
            "job_id", "attempt", "rank", "name", "void", name=op.f("uq_series_job_id")
        ),
    )
    op.create_table(
        "writers",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column(
            "metric_sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column(
            "event_sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_writers_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "name", name=op.f("pk_writers")),
    )
    op.create_table(
        "grants",
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("device_index", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "attempt"],
            ["attempts.job_id", "attempts.number"],
            name=op.f("fk_grants_job_id_attempts"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["node_id", "device_index"],
            ["devices.node_id", "devices.index"],
            name=op.f("fk_grants_node_id_devices"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("node_id", "device_index", name=op.f("pk_grants")),
    )
    with op.batch_alter_table("grants", schema=None) as batch_op:
        batch_op.create_index("ix_grants_job_id_attempt", ["job_id", "attempt"], unique=False)

    op.create_table(
        "metric_chunks",
        sa.Column(
            "series_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "last_step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["series.id"],
            name=op.f("fk_metric_chunks_series_id_series"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("series_id", "level", "index", name=op.f("pk_metric_chunks")),
    )
    op.create_index(
        "ix_metric_chunks_step", "metric_chunks", ["series_id", "level", "last_step"], unique=False
    )

    op.create_table(
        "device_readings",
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_id"],
            ["nodes.id"],
            name=op.f("fk_device_readings_node_id_nodes"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("node_id", "time", name=op.f("pk_device_readings")),
    )
    op.create_index("ix_device_readings_time", "device_readings", ["time"], unique=False)

    op.create_table(
        "gradient_requests",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("asked", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("answered", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
            name=op.f("fk_gradient_requests_job_id_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_gradient_requests")),
    )

    op.create_table(
        "gradient_records",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("columns", sa.LargeBinary(), nullable=False),
        sa.Column("histograms", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
            name=op.f("fk_gradient_records_job_id_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "step", name=op.f("pk_gradient_records")),
    )


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first tables")

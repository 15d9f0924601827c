"""Bare application to compare with: FastAPI with one route, and SQLAlchemy with one table.

python -m benchmarks.coordinator.bare_app FOLDER FD
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

engine = create_async_engine(f"sqlite+aiosqlite:///{Path(sys.argv[1]) / 'bare.db'}")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE jobs (id TEXT PRIMARY KEY)"))
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.get("/readyz")
async def ready() -> dict[str, int | None]:
    async with engine.connect() as connection:
        return {"jobs": await connection.scalar(text("SELECT count(*) FROM jobs"))}


if __name__ == "__main__":
    uvicorn.run(app, fd=int(sys.argv[2]), log_level="warning", access_log=False)

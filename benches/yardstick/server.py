"""The obvious job server, as the yardstick for Cofferdam's: a directory for each task, with what was asked for in
task.json and how it stands in status.json, both on the disk before the answer. It runs nothing.

Endpoints are plain functions, which FastAPI runs in its thread pool: fsync then holds up one thread and not the event
loop. `async def` with `run_in_executor` does the same at more length, and is not faster.
"""

import json
import os
import uuid
from datetime import datetime, timezone
from pathlib import Path

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

TASKS = Path(os.environ["TASKS"])
TASKS.mkdir(parents=True, exist_ok=True)

app = FastAPI()


class Step(BaseModel):
    tool: str
    command: str


class Task(BaseModel):
    steps: list[Step]


@app.post("/schedule", status_code=202)
def schedule(task: Task) -> dict[str, str]:
    task_id = uuid.uuid4().hex
    directory = TASKS / task_id
    directory.mkdir()
    created_at = datetime.now(timezone.utc).isoformat()
    write_durably(directory / "task.json", task.model_dump_json())
    write_durably(directory / "status.json", json.dumps({"status": "scheduled", "created_at": created_at}))
    sync(directory)
    sync(TASKS)
    return {"task_id": task_id, "status": "scheduled"}


@app.get("/status/{task_id}")
def status(task_id: str) -> dict[str, str]:
    try:
        found = json.loads((TASKS / uuid.UUID(task_id).hex / "status.json").read_text())
    except (ValueError, FileNotFoundError):
        raise HTTPException(404, "there is no such task") from None
    return {"task_id": task_id, **found}


def write_durably(path: Path, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
